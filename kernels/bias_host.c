/* SPDX-License-Identifier: Apache-2.0
 * bias_host.c - a vector added to every row, in every dtype */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "bias.inc"
#include "each.h"
