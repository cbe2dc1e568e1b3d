/* SPDX-License-Identifier: Apache-2.0
 * rmsnorm_host.c - root mean square normalisation of rows and heads, in every dtype */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "rmsnorm.inc"
#include "each.h"
