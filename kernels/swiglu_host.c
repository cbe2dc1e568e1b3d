/* SPDX-License-Identifier: Apache-2.0
 * swiglu_host.c - gated feed-forward activation, f32 and f64 */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "swiglu.inc"
#include "both.h"
