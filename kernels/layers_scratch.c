/* SPDX-License-Identifier: Apache-2.0
 * layers_scratch.c - bytes of scratch that the layers' cuda kernels want */
#include "kernels.h"

#include "layers_parts.h"

size_t kern_rmsnorm_scratch (size_t N, size_t C)
{
    return layers_padded (layers_parts (N) * C * sizeof (float));
}

size_t kern_bias_scratch (size_t N, size_t C)
{
    return layers_padded (layers_parts (N) * C * sizeof (float));
}

size_t kern_headnorm_scratch (size_t N, size_t H, size_t G, size_t D)
{
    (void)H;
    (void)G;
    return layers_padded (layers_parts (N) * 2 * D * sizeof (float));
}

/* The rows in the order of their tokens, and where each token's begin. */
size_t kern_embedding_scratch (size_t N, size_t V)
{
    return layers_padded (2 * N * sizeof (int))
           + layers_padded ((V + 1) * sizeof (int));
}
