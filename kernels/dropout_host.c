/* SPDX-License-Identifier: Apache-2.0
 * dropout_host.c - dropout by counter on the host */
#include "dropout_elem.h"
#include "host.h"

#define KERN_BODY "dropout.inc"
#include "each.h"
