/* SPDX-License-Identifier: Apache-2.0
 * grpo_host.c - the policy loss of rows of tokens, f32 and f64 */
#include "grpo_elem.h"

#define KERN_BODY "grpo.inc"
#include "both.h"
