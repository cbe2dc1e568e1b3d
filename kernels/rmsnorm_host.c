/* SPDX-License-Identifier: Apache-2.0
 * rmsnorm_host.c - root mean square normalisation of rows, f32 and f64 */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "rmsnorm.inc"
#include "both.h"
