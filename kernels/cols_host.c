/* SPDX-License-Identifier: Apache-2.0
 * cols_host.c - columns of wide rows on the host */
#include "cols.h"
#include "host.h"

#define KERN_BODY "cols.inc"
#include "each.h"
