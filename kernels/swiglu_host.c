/* SPDX-License-Identifier: Apache-2.0
 * swiglu_host.c - gated feed-forward activation, in every dtype */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "swiglu.inc"
#include "each.h"
