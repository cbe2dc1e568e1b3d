/* SPDX-License-Identifier: Apache-2.0
 * gemm_lt.c - products of matrices on a GPU through cuBLASLt */
#include "config.h"

#include "gemm_lt_impl.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm_own.h"

#define WORKSPACE ((size_t)32 << 20)

enum gemm_lt_status gemm_lt_say (char *why, enum gemm_lt_status code,
                                 const char *format, ...)
{
    va_list list;

    va_start (list, format);
    if (why)
        vsnprintf (why, GEMM_LT_WHY, format, list);
    va_end (list);
    return code;
}

size_t gemm_lt_workspace (void)
{
    return WORKSPACE;
}

/* Nothing is left for who asks next about another's launch. */
static const char *said (cudaError_t e)
{
    (void)cudaGetLastError ();
    return cudaGetErrorString (e);
}

static enum gemm_lt_status of_device (struct gemm_lt *g, char *why)
{
    int major = 0, minor = 0;
    cudaError_t e = cudaGetDevice (&g->device);

    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor,
                                    g->device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute (&minor, cudaDevAttrComputeCapabilityMinor,
                                    g->device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute (&g->multiprocessors,
                                    cudaDevAttrMultiProcessorCount, g->device);
    g->capability = 10 * major + minor;
    if (e != cudaSuccess)
        return gemm_lt_say (why, GEMM_LT_EDEVICE, "products: no GPU: %s",
                            said (e));
    return GEMM_LT_OK;
}

static enum gemm_lt_status of_library (struct gemm_lt *g, char *why)
{
    const char *looked;
    cudaError_t e;
    int rc;

    g->api = cublaslt_open (&looked);
    if (!g->api)
        return gemm_lt_say (why, GEMM_LT_ENOTSUP,
                            "products: cannot open cuBLASLt: %s; "
                            "LD_LIBRARY_PATH may name its folder",
                            looked);
    rc = g->api->create (&g->handle);
    if (rc != LT_SUCCESS)
        return gemm_lt_say (why, GEMM_LT_EDEVICE,
                            "products: cublasLtCreate: %s",
                            g->api->status_text (rc));
    g->workspace = g->opts.workspace;
    g->workspace_bytes = g->opts.workspace_bytes;
    if (g->workspace || g->opts.own)
        return GEMM_LT_OK;
    if (g->workspace_bytes == 0)
        g->workspace_bytes = WORKSPACE;
    e = cudaMalloc (&g->workspace, g->workspace_bytes);
    if (e != cudaSuccess)
        return gemm_lt_say (why, GEMM_LT_ENOMEM,
                            "products: no %zu bytes of workspace on GPU %d: %s",
                            g->workspace_bytes, g->device, said (e));
    g->owns_workspace = true;
    return GEMM_LT_OK;
}

enum gemm_lt_status gemm_lt_create (struct gemm_lt **ret,
                                    const struct gemm_lt_opts *opts, char *why)
{
    struct gemm_lt *g;
    enum gemm_lt_status status;

    if (opts && opts->size != sizeof (*opts))
        return gemm_lt_say (why, GEMM_LT_EINVAL,
                            "products: options of %zu bytes, not %zu",
                            opts->size, sizeof (*opts));
    g = calloc (1, sizeof (*g));
    if (!g)
        return gemm_lt_say (why, GEMM_LT_ENOMEM, "products: out of memory");
    if (opts)
        g->opts = *opts;
    status = of_device (g, why);
    if (status == GEMM_LT_OK && !g->opts.own)
        status = of_library (g, why);
    if (status != GEMM_LT_OK) {
        gemm_lt_destroy (g);
        return status;
    }
    *ret = g;
    return GEMM_LT_OK;
}

static void forget (const struct cublaslt_api *api, struct gemm_lt_plan *p)
{
    if (p->desc)
        api->desc_destroy (p->desc);
    if (p->la)
        api->layout_destroy (p->la);
    if (p->lb)
        api->layout_destroy (p->lb);
    if (p->lc)
        api->layout_destroy (p->lc);
    p->desc = p->la = p->lb = p->lc = NULL;
}

void gemm_lt_destroy (struct gemm_lt *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->count; i++)
        forget (g->api, &g->plans[i]);
    if (g->handle)
        g->api->destroy (g->handle);
    if (g->owns_workspace)
        (void)cudaFree (g->workspace);
    free (g->plans);
    free (g);
}

struct gemm_lt_plan *gemm_lt_add (struct gemm_lt *g,
                                  const struct gemm_lt_choice *choice)
{
    struct gemm_lt_plan *p;

    if (g->count == g->room) {
        size_t room = g->room ? 2 * g->room : 32;

        p = realloc (g->plans, room * sizeof (*p));
        if (!p)
            return NULL;
        g->plans = p;
        g->room = room;
    }
    p = &g->plans[g->count++];
    memset (p, 0, sizeof (*p));
    p->choice = *choice;
    return p;
}

/* 256 where it is a multiple of that, 16 from there on, else what it is. */
static uint16_t alignment (const void *at)
{
    uintptr_t u = (uintptr_t)at;

    if (u % 256 == 0)
        return 256;
    return (uint16_t)(u % 16 == 0 ? 16 : u & (~u + 1));
}

static struct gemm_lt_key key_of (const struct gemm_lt *g,
                                  const struct gemm_lt_op *op)
{
    bool tf32 = g->opts.tf32 && op->in == GEMM_LT_F32;
    struct gemm_lt_key key = {
        .m = op->m,
        .n = op->n,
        .k = op->k,
        .lda = op->lda,
        .ldb = op->ldb,
        .ldc = op->ldc,
        .align_a = alignment (op->a),
        .align_b = alignment (op->b),
        .align_c = alignment (op->c),
        .in = (uint32_t)op->in,
        .out = (uint32_t)op->out,
    };

    key.flags = (uint16_t)((op->ta ? GEMM_LT_TA : 0) | (op->tb ? GEMM_LT_TB : 0)
                           | (op->bias ? GEMM_LT_BIAS : 0)
                           | (op->beta != 0 ? GEMM_LT_ADD : 0)
                           | (tf32 ? GEMM_LT_TF32 : 0)
                           | (g->opts.deterministic ? GEMM_LT_FIXED : 0));
    return key;
}

static int lt_dtype (enum gemm_lt_dtype dtype)
{
    if (dtype == GEMM_LT_BF16)
        return LT_BF16;
    return dtype == GEMM_LT_F16 ? LT_F16 : LT_F32;
}

/* cuBLASLt's matrices are column-major, so ours are their transposes, and
 * c^T = op (b)^T op (a)^T: b is its first factor. Returns its status. */
static int describe (const struct cublaslt_api *api, struct gemm_lt_plan *p)
{
    const struct gemm_lt_key *k = &p->choice.key;
    int ta = (k->flags & GEMM_LT_TB) != 0, tb = (k->flags & GEMM_LT_TA) != 0;
    int in = lt_dtype ((enum gemm_lt_dtype)k->in);
    int out = lt_dtype ((enum gemm_lt_dtype)k->out);
    int epilogue = LT_EPILOGUE_BIAS;
    int rc = api->desc_create (
        &p->desc, k->flags & GEMM_LT_TF32 ? LT_COMPUTE_TF32 : LT_COMPUTE_F32,
        LT_F32);

    if (rc == LT_SUCCESS)
        rc = api->desc_set (p->desc, LT_DESC_TRANSA, &ta, sizeof (ta));
    if (rc == LT_SUCCESS)
        rc = api->desc_set (p->desc, LT_DESC_TRANSB, &tb, sizeof (tb));
    if (rc == LT_SUCCESS && (k->flags & GEMM_LT_BIAS)) {
        rc = api->desc_set (p->desc, LT_DESC_EPILOGUE, &epilogue,
                            sizeof (epilogue));
        if (rc == LT_SUCCESS)
            rc = api->desc_set (p->desc, LT_DESC_BIAS_TYPE, &out, sizeof (out));
    }
    if (rc == LT_SUCCESS)
        rc = api->layout_create (&p->la, in, ta ? k->k : k->n, ta ? k->n : k->k,
                                 (int64_t)k->ldb);
    if (rc == LT_SUCCESS)
        rc = api->layout_create (&p->lb, in, tb ? k->m : k->k, tb ? k->k : k->m,
                                 (int64_t)k->lda);
    if (rc == LT_SUCCESS)
        rc = api->layout_create (&p->lc, out, k->n, k->m, (int64_t)k->ldc);
    return rc;
}

int gemm_lt_launch (struct gemm_lt *g, const struct gemm_lt_plan *p,
                    const struct gemm_lt_op *op, const struct lt_algo *algo,
                    void *c, cudaStream_t stream)
{
    int rc = LT_SUCCESS;

    if (op->bias)
        rc = g->api->desc_set (p->desc, LT_DESC_BIAS, &op->bias,
                               sizeof (op->bias));
    if (rc != LT_SUCCESS)
        return rc;
    return g->api->matmul (g->handle, p->desc, &op->alpha, op->b, p->la, op->a,
                           p->lb, &op->beta, c, p->lc, c, p->lc, algo,
                           g->workspace, g->workspace_bytes, stream);
}

/* The plan of [key], with descriptors. */
static enum gemm_lt_status plan_of (struct gemm_lt *g,
                                    const struct gemm_lt_key *key,
                                    struct gemm_lt_plan **ret, char *why)
{
    struct gemm_lt_choice fresh = {.key = *key};
    struct gemm_lt_plan *p = NULL;
    int rc;

    for (size_t i = 0; i < g->count && !p; i++) {
        if (memcmp (&g->plans[i].choice.key, key, sizeof (*key)) == 0)
            p = &g->plans[i];
    }
    if (!p)
        p = gemm_lt_add (g, &fresh);
    if (!p)
        return gemm_lt_say (why, GEMM_LT_ENOMEM, "products: out of memory");
    *ret = p;
    if (p->desc)
        return GEMM_LT_OK;
    rc = describe (g->api, p);
    if (rc == LT_SUCCESS)
        return GEMM_LT_OK;
    forget (g->api, p);
    return gemm_lt_say (why, GEMM_LT_EDEVICE, "products: cuBLASLt: %s",
                        g->api->status_text (rc));
}

static enum gemm_lt_status by_library (struct gemm_lt *g,
                                       const struct gemm_lt_op *op,
                                       cudaStream_t stream, char *why)
{
    struct gemm_lt_key key = key_of (g, op);
    struct gemm_lt_plan *p = NULL;
    enum gemm_lt_status status = plan_of (g, &key, &p, why);
    char name[200];
    int rc;

    if (status == GEMM_LT_OK && !p->chosen)
        status = gemm_lt_pick (g, p, op, stream, why);
    if (status != GEMM_LT_OK)
        return status;
    rc = gemm_lt_launch (g, p, op, &p->choice.algo, op->c, stream);
    if (rc == LT_SUCCESS)
        return GEMM_LT_OK;
    gemm_lt_name (&key, name, sizeof (name));
    return gemm_lt_say (why, GEMM_LT_EDEVICE, "%s: cuBLASLt: %s", name,
                        g->api->status_text (rc));
}

static bool sensible (const struct gemm_lt_op *op)
{
    return op->m <= INT_MAX && op->n <= INT_MAX && op->k <= INT_MAX
           && op->lda >= (op->ta ? op->m : op->k)
           && op->ldb >= (op->tb ? op->k : op->n) && op->ldc >= op->n
           && op->in <= GEMM_LT_F16
           && (op->out == op->in || op->out == GEMM_LT_F32);
}

/* c = beta c + bias, for a sum over nothing: only what a training step meets. */
static enum gemm_lt_status of_nothing (const struct gemm_lt_op *op,
                                       cudaStream_t stream, char *why)
{
    size_t each = op->out == GEMM_LT_F32 ? 4 : 2;
    cudaError_t e;

    if (op->beta == 1 && !op->bias)
        return GEMM_LT_OK;
    if (op->beta != 0 || op->bias)
        return gemm_lt_say (why, GEMM_LT_EINVAL,
                            "product %zux%zux0: only a plain zero or c itself "
                            "can be its result",
                            op->m, op->n);
    e = cudaMemset2DAsync (op->c, op->ldc * each, 0, op->n * each, op->m,
                           stream);
    if (e != cudaSuccess)
        return gemm_lt_say (why, GEMM_LT_EDEVICE, "product of nothing: %s",
                            said (e));
    return GEMM_LT_OK;
}

enum gemm_lt_status gemm_lt_run (struct gemm_lt *g, const struct gemm_lt_op *op,
                                 void *stream, char *why)
{
    cudaError_t e;

    if (!sensible (op))
        return gemm_lt_say (why, GEMM_LT_EINVAL,
                            "product %zux%zux%zu: rows of %zu, %zu and %zu, "
                            "dtypes %d and %d do not make one",
                            op->m, op->n, op->k, op->lda, op->ldb, op->ldc,
                            (int)op->in, (int)op->out);
    if (op->m == 0 || op->n == 0)
        return GEMM_LT_OK;
    if (op->k == 0)
        return of_nothing (op, (cudaStream_t)stream, why);
    if (g->api)
        return by_library (g, op, (cudaStream_t)stream, why);
    gemm_own_run (op, stream);
    e = cudaGetLastError ();
    if (e != cudaSuccess)
        return gemm_lt_say (why, GEMM_LT_EDEVICE, "product %zux%zux%zu: %s",
                            op->m, op->n, op->k, cudaGetErrorString (e));
    return GEMM_LT_OK;
}
