/* SPDX-License-Identifier: Apache-2.0
 * layers_scratch.c - bytes of scratch that the layers' cuda kernels want */
#include "kernels.h"

#include "layers_parts.h"

size_t kern_rmsnorm_scratch (size_t N, size_t C)
{
    return layers_padded (layers_parts (N, LAYERS_PARTS) * C * sizeof (float));
}

size_t kern_bias_scratch (size_t N, size_t C)
{
    return layers_padded (layers_parts (N, LAYERS_PARTS) * C * sizeof (float));
}

size_t kern_headnorm_scratch (size_t N, size_t H, size_t G, size_t D)
{
    (void)H;
    (void)G;
    return layers_padded (layers_parts (N, LAYERS_PARTS) * 2 * D
                          * sizeof (float));
}

/* For each token its last row and how many it has, for each row the one before
 * it of its token; tokens with many rows, and how many those are. */
size_t kern_embedding_scratch (size_t N, size_t V)
{
    return layers_padded ((2 * V + 1 + N + N / LAYERS_MANY + 1)
                          * sizeof (uint32_t));
}
