/* SPDX-License-Identifier: Apache-2.0
 * embedding_host.c - rows of a table, and the sum back into it, in every dtype */
#include "kernels.h"

#include "host.h"

#define KERN_BODY "embedding.inc"
#include "each.h"
