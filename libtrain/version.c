/* SPDX-License-Identifier: Apache-2.0
 * version.c - which libtrain this is, and what it was built for */
#include "config.h"

#include <train/version.h>

const char *train_version (void)
{
    return PACKAGE_VERSION;
}

const char *train_built_for (void)
{
#if HAVE_NCCL
    return "CUDA " RV_CUDA_VERSION ", NCCL " RV_NCCL_VERSION;
#elif HAVE_CUDA
    return "CUDA " RV_CUDA_VERSION ", no NCCL";
#else
    return "no CUDA, no NCCL";
#endif
}
