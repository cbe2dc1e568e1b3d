/* SPDX-License-Identifier: Apache-2.0
 * gemm_plain.c - a blocked matrix product without a library.
 *
 * The scheme of Goto and van de Geijn 2008 ("Anatomy of high-performance matrix
 * multiplication", ACM TOMS 34), cut down: a block of op (a) (ROWS x DEPTH) and
 * a strip of op (b) (DEPTH x STRIP) are copied so that the inner loop reads both
 * in order, and a TALL x STRIP tile of c is summed in registers. Copies stand
 * on the stack and are padded with zeros, so the tile has one shape. */
#include "gemm.h"

#include "host.h"

#define TALL  6   /* tile: rows */
#define ROWS  96  /* of a packed block of a; a multiple of TALL */
#define DEPTH 256 /* of the sum, at a time */

#define KERN_BODY "gemm_plain.inc"
#include "both.h"
