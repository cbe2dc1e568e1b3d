/* SPDX-License-Identifier: Apache-2.0
 * nvtx_count.c - a made-up tool that NVTX loads by NVTX_INJECTION64_PATH, and
 * that keeps the ranges that begin and end (NVTX 3, nvtxTypes.h) */
#include "nvtx_count.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)

#pragma GCC diagnostic ignored "-Wpedantic"
#include <nvtx3/nvToolsExt.h>

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvtx_seen seen;

static nvtxRangeId_t range_start (const char *name)
{
    size_t n;

    pthread_mutex_lock (&lock);
    n = seen.started++;
    if (n < NVTX_MAX)
        strncpy (seen.range[n].name, name, sizeof (seen.range[n].name) - 1);
    pthread_mutex_unlock (&lock);
    return n + 1;
}

static void range_end (nvtxRangeId_t id)
{
    pthread_mutex_lock (&lock);
    seen.ended++;
    if (id >= 1 && id <= NVTX_MAX)
        seen.range[id - 1].ends++;
    pthread_mutex_unlock (&lock);
}

const struct nvtx_seen *nvtx_count (void)
{
    return &seen;
}

/* As NVTX looks it up. */
int InitializeInjectionNvtx2 (NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2 (NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table (NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned n = 0;

    if (!callbacks
        || !callbacks->GetModuleFunctionTable (NVTX_CB_MODULE_CORE, &table, &n)
        || n <= NVTX_CBID_CORE_RangeEnd)
        return 0;
    *table[NVTX_CBID_CORE_RangeStartA] = (NvtxFunctionPointer)range_start;
    *table[NVTX_CBID_CORE_RangeEnd] = (NvtxFunctionPointer)range_end;
    return 1;
}

#endif
#endif
