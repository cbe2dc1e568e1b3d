/* SPDX-License-Identifier: Apache-2.0
 * residual_host.c - sum of two streams, in every dtype */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "residual.inc"
#include "each.h"
