/* SPDX-License-Identifier: Apache-2.0
 * cublaslt_api.c - open cuBLASLt at run time: nothing links against it */
#include "config.h"

#include "cublaslt_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME (LT_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME (LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME (LT_F32, CUDA_R_32F);
SAME (LT_F16, CUDA_R_16F);
SAME (LT_BF16, CUDA_R_16BF);
SAME (LT_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME (LT_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME (LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME (LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME (LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME (LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME (LT_DESC_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME (LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME (LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME (LT_PREF_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME (LT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME (LT_PREF_ALIGN_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME (LT_PREF_ALIGN_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME (LT_PREF_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME (LT_CONFIG_ID, CUBLASLT_ALGO_CONFIG_ID);
SAME (LT_CONFIG_TILE, CUBLASLT_ALGO_CONFIG_TILE_ID);
SAME (LT_CONFIG_SPLITK, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
SAME (LT_CONFIG_REDUCTION, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
SAME (LT_CONFIG_STAGES, CUBLASLT_ALGO_CONFIG_STAGES_ID);
SAME (LT_CONFIG_CLUSTER, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
SAME (LT_REDUCTION_INPLACE, CUBLASLT_REDUCTION_SCHEME_INPLACE);
SAME (LT_REDUCTION_ALL, CUBLASLT_REDUCTION_SCHEME_MASK);
SAME (sizeof (struct lt_algo), sizeof (cublasLtMatmulAlgo_t));
SAME (sizeof (struct lt_found), sizeof (cublasLtMatmulHeuristicResult_t));
SAME (offsetof (struct lt_found, state),
      offsetof (cublasLtMatmulHeuristicResult_t, state));
#endif
#endif

static struct cublaslt_api found;
static char why_not[512]; /* "": [found] is good */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Returns the first name that the library lacks, or NULL. */
static const char *find_all (void *library, struct cublaslt_api *api)
{
    const struct {
        const char *name;
        void *to;
    } list[] = {
        {"cublasLtGetVersion", &api->version},
        {"cublasLtGetStatusString", &api->status_text},
        {"cublasLtCreate", &api->create},
        {"cublasLtDestroy", &api->destroy},
        {"cublasLtMatmulDescCreate", &api->desc_create},
        {"cublasLtMatmulDescDestroy", &api->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &api->desc_set},
        {"cublasLtMatrixLayoutCreate", &api->layout_create},
        {"cublasLtMatrixLayoutDestroy", &api->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &api->pref_create},
        {"cublasLtMatmulPreferenceDestroy", &api->pref_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &api->pref_set},
        {"cublasLtMatmulAlgoGetHeuristic", &api->heuristic},
        {"cublasLtMatmulAlgoConfigGetAttribute", &api->config_get},
        {"cublasLtMatmul", &api->matmul},
    };

    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        void *symbol = dlsym (library, list[i].name);

        if (!symbol)
            return list[i].name;
        memcpy (list[i].to, &symbol, sizeof (symbol));
    }
    return NULL;
}

/* The library stays open: the driver refers to it. */
static void find_library (void)
{
    static const char *const names[] = {"libcublasLt.so.13",
                                        "libcublasLt.so.12"};

    for (size_t i = 0; i < sizeof (names) / sizeof (*names); i++) {
        void *library = dlopen (names[i], RTLD_NOW | RTLD_LOCAL);
        const char *why = library ? find_all (library, &found) : dlerror ();
        size_t used = strlen (why_not);

        if (library && !why) {
            why_not[0] = '\0';
            return;
        }
        snprintf (why_not + used, sizeof (why_not) - used, "%s%s: %s%s",
                  used ? "; " : "", names[i], library ? "has no " : "",
                  why ? why : "no reason given");
    }
}

const struct cublaslt_api *cublaslt_open (const char **ret_why)
{
    pthread_once (&once, find_library);
    *ret_why = why_not;
    return why_not[0] ? NULL : &found;
}
