/* SPDX-License-Identifier: Apache-2.0
 * residual_host.c - sum of two streams, f32 and f64 */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "residual.inc"
#include "both.h"
