/* SPDX-License-Identifier: Apache-2.0
 * nccl_api.c - open NCCL at run time: nothing links against it */
#include "config.h"

#include "nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "err.h"

#if HAVE_NCCL
#include <nccl.h>

_Static_assert(sizeof (ncclUniqueId) == sizeof (struct nccl_id), "id");
_Static_assert(sizeof (ncclResult_t) == sizeof (int), "result");
_Static_assert((int)ncclRemoteError == NCCL_RC_REMOTE, "result");
_Static_assert((int)ncclInProgress == NCCL_RC_IN_PROGRESS, "result");
_Static_assert((int)ncclUint8 == NCCL_DTYPE_U8, "type");
_Static_assert((int)ncclInt32 == NCCL_DTYPE_I32, "type");
_Static_assert((int)ncclInt64 == NCCL_DTYPE_I64, "type");
_Static_assert((int)ncclFloat16 == NCCL_DTYPE_F16, "type");
_Static_assert((int)ncclFloat32 == NCCL_DTYPE_F32, "type");
_Static_assert((int)ncclFloat64 == NCCL_DTYPE_F64, "type");
_Static_assert((int)ncclBfloat16 == NCCL_DTYPE_BF16, "type");
_Static_assert((int)ncclSum == NCCL_OP_SUM, "operation");
_Static_assert((int)ncclProd == NCCL_OP_PROD, "operation");
_Static_assert((int)ncclMax == NCCL_OP_MAX, "operation");
_Static_assert((int)ncclMin == NCCL_OP_MIN, "operation");
_Static_assert((int)ncclAvg == NCCL_OP_AVG, "operation");
#endif

#define LIBRARY "libnccl.so.2"

static const struct nccl_api *other_api;
static const struct backend_ops *other_gpu;

static struct nccl_api found;
static train_error_t why_not; /* code TRAIN_OK: [found] is good */
static pthread_once_t once = PTHREAD_ONCE_INIT;

void nccl_replace (const struct nccl_api *api, const struct backend_ops *gpu)
{
    other_api = api;
    other_gpu = gpu;
}

static bool find_all (void *library, struct nccl_api *api, const char **missing)
{
    const struct {
        const char *name;
        void *to;
    } list[] = {
        {"ncclGetVersion", &api->get_version},
        {"ncclGetUniqueId", &api->get_id},
        {"ncclCommInitRank", &api->init},
        {"ncclCommAbort", &api->abort},
        {"ncclCommDestroy", &api->destroy},
        {"ncclCommGetAsyncError", &api->async_error},
        {"ncclGetErrorString", &api->error_text},
        {"ncclGetLastError", &api->last_error},
        {"ncclAllReduce", &api->all_reduce},
        {"ncclReduce", &api->reduce},
        {"ncclReduceScatter", &api->reduce_scatter},
        {"ncclBroadcast", &api->broadcast},
        {"ncclAllGather", &api->all_gather},
        {"ncclSend", &api->send},
        {"ncclRecv", &api->recv},
        {"ncclGroupStart", &api->group_start},
        {"ncclGroupEnd", &api->group_end},
    };

    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        void *symbol = dlsym (library, list[i].name);

        if (!symbol) {
            *missing = list[i].name;
            return false;
        }
        memcpy (list[i].to, &symbol, sizeof (symbol));
    }
    return true;
}

/* The library stays open: its threads and the driver's refer to it. */
static void find_library (void)
{
    const char *missing = NULL;
    void *library = dlopen (LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *why = dlerror ();

        err_set (&why_not, TRAIN_ENOTSUP,
                 "backend nccl: cannot open " LIBRARY
                 ": %s; LD_LIBRARY_PATH may name its folder",
                 why ? why : "no reason given");
        return;
    }
    if (!find_all (library, &found, &missing)) {
        err_set (&why_not, TRAIN_ENOTSUP,
                 "backend nccl: " LIBRARY " has no %s; NCCL 2.18 or later has",
                 missing);
        return;
    }
    if (found.get_version (&found.version) != NCCL_RC_SUCCESS
        || found.version < NCCL_OLDEST)
        err_set (&why_not, TRAIN_ENOTSUP,
                 "backend nccl: " LIBRARY
                 " is release %d.%d.%d; 2.18 or later would do",
                 found.version / 10000, found.version / 100 % 100,
                 found.version % 100);
}

train_status_t nccl_open (const struct nccl_api **ret_api,
                          const struct backend_ops **ret_gpu,
                          train_error_t *err)
{
    if (other_api) {
        *ret_api = other_api;
        *ret_gpu = other_gpu;
        return TRAIN_OK;
    }
    TRY (backend_find ("cuda", ret_gpu, err));
    pthread_once (&once, find_library);
    if (why_not.code != TRAIN_OK)
        return err_set (err, why_not.code, "%s", why_not.text);
    *ret_api = &found;
    return TRAIN_OK;
}
