/* SPDX-License-Identifier: Apache-2.0
 * sumsq_host.c - sum of squares, for the gradient norm, f32 and f64 */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "sumsq.inc"
#include "both.h"
