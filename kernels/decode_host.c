/* SPDX-License-Identifier: Apache-2.0
 * decode_host.c - the kernels of generation, in every dtype */
#include "kernels.h"

#include "decode.h"
#include "host.h"

#define KERN_BODY "decode.inc"
#include "each.h"
