/* SPDX-License-Identifier: Apache-2.0
 * gpu_libs.c - versions of cuBLASLt and cuDNN as they are opened */
#include "config.h"

#include "gpu_libs.h"

#include <stdio.h>

#if HAVE_CUDA

#include "kernels/cublaslt_api.h"
#include "kernels/cudnn_api.h"

void gpu_libs (char *text, size_t size)
{
    const char *why;
    const struct cublaslt_api *lt = cublaslt_open (&why);
    const struct cudnn_api *dnn = cudnn_open (&why);
    char one[40] = "no cuBLASLt", two[40] = "no cuDNN";

    if (lt)
        snprintf (one, sizeof (one), "cuBLASLt %zu", lt->version ());
    if (dnn)
        snprintf (two, sizeof (two), "cuDNN %zu", dnn->version);
    snprintf (text, size, "%s, %s", one, two);
}

#else

void gpu_libs (char *text, size_t size)
{
    if (size)
        text[0] = '\0';
}

#endif
