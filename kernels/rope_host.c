/* SPDX-License-Identifier: Apache-2.0
 * rope_host.c - rotary position embedding, in every dtype */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "rope.inc"
#include "each.h"
