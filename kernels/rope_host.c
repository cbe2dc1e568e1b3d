/* SPDX-License-Identifier: Apache-2.0
 * rope_host.c - rotary position embedding, f32 and f64 */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "rope.inc"
#include "both.h"
