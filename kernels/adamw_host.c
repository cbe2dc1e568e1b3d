/* SPDX-License-Identifier: Apache-2.0
 * adamw_host.c - optimizer step, f32 and f64 */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "adamw.inc"
#include "both.h"
