/* SPDX-License-Identifier: Apache-2.0
 * cross_entropy_host.c - loss of the next token, and its gradient, f32 and f64 */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "cross_entropy.inc"
#include "both.h"
