/* SPDX-License-Identifier: Apache-2.0
 * hopper_map.h - maps by which sm_90's copy engine finds the tiles of an array.
 * For the kernels of sm_90a. */
#ifndef KERN_HOPPER_MAP_H
#define KERN_HOPPER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* hopper_map_here - whether the driver makes such maps. */
bool hopper_map_here (void);

/* hopper_map - of an array of two-byte elements; a tile's rows are swizzled over
 * 128 bytes, what lies outside the array is 0.
 *   ret       written where it returns true
 *   n         dimensions, 2 to 5, the one whose elements are neighbours first
 *   sizes     (n) elements
 *   strides   (n - 1) of the other dimensions, in bytes
 *   box       (n) elements of a tile; the first 64
 * False: the driver makes none, or refuses the shape or the address. */
bool hopper_map (CUtensorMap *ret, const void *at, unsigned n,
                 const uint64_t *sizes, const uint64_t *strides,
                 const uint32_t *box);

#ifdef __cplusplus
}
#endif
#endif
