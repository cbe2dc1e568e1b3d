/* SPDX-License-Identifier: Apache-2.0
 * layers_parts.h - how sums over rows are cut up on a GPU
 *
 * A sum over N rows is made of partial sums, one a block, which stand in scratch
 * and are summed in order by a second kernel. How many there are hangs on the
 * shape alone, so that results do not change with the GPU. */
#ifndef KERN_LAYERS_PARTS_H
#define KERN_LAYERS_PARTS_H

#include <stddef.h>

/* At most: four blocks for each of an H200's 132 multiprocessors. */
#define LAYERS_PARTS ((size_t)528)

/* Rows of one token from which on embedding_bwd gives it a block. */
#define LAYERS_MANY 33

static inline size_t layers_parts (size_t N, size_t most)
{
    return N < most ? N : most;
}

static inline size_t layers_padded (size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

#endif
