/* SPDX-License-Identifier: Apache-2.0
 * cudnn_api.h - the few functions of cuDNN 9's backend API that we use, found at
 * run time: nothing links against it
 *
 * The numbers are those of cudnn_graph.h, which promises never to change them;
 * cudnn_api.c compares them where that header is at hand. */
#ifndef KERN_CUDNN_API_H
#define KERN_CUDNN_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dnn_descriptor {
    DNN_POINTWISE = 0,
    DNN_ENGINE = 2,
    DNN_ENGINECFG = 3,
    DNN_ENGINEHEUR = 4,
    DNN_PLAN = 5,
    DNN_OP_POINTWISE = 13,
    DNN_GRAPH = 15,
    DNN_PACK = 16,
    DNN_TENSOR = 17,
    DNN_MATMUL = 18,
    DNN_OP_MATMUL = 19,
    DNN_REDUCTION = 21,
    DNN_OP_REDUCTION = 22,
    DNN_OP_RESHAPE = 31,
    DNN_DEVICEPROP = 38,
};

enum dnn_attribute {
    DNN_POINTWISE_MODE = 0,
    DNN_POINTWISE_PREC = 1,
    DNN_POINTWISE_AXIS = 9,
    DNN_HEUR_MODE = 200,
    DNN_HEUR_GRAPH = 201,
    DNN_HEUR_RESULTS = 202,
    DNN_HEUR_DEVICEPROP = 204,
    DNN_CFG_ENGINE = 300,
    DNN_PLAN_HANDLE = 400,
    DNN_PLAN_CONFIG = 401,
    DNN_PLAN_WORKSPACE = 402,
    DNN_PLAN_DEVICEPROP = 407,
    DNN_OP_POINTWISE_PW = 750,
    DNN_OP_POINTWISE_X = 751,
    DNN_OP_POINTWISE_B = 752,
    DNN_OP_POINTWISE_Y = 753,
    DNN_OP_POINTWISE_T = 758,
    DNN_GRAPH_HANDLE = 800,
    DNN_GRAPH_OPS = 801,
    DNN_TENSOR_ALIGNMENT = 900,
    DNN_TENSOR_TYPE = 901,
    DNN_TENSOR_DIMS = 902,
    DNN_TENSOR_STRIDES = 903,
    DNN_TENSOR_ID = 906,
    DNN_TENSOR_VIRTUAL = 907,
    DNN_TENSOR_BY_VALUE = 908,
    DNN_PACK_IDS = 1000,
    DNN_PACK_POINTERS = 1001,
    DNN_PACK_WORKSPACE = 1003,
    DNN_ENGINE_INDEX = 1301,
    DNN_ENGINE_NOTES = 1303,
    DNN_MATMUL_PREC = 1500,
    DNN_OP_MATMUL_A = 1520,
    DNN_OP_MATMUL_B = 1521,
    DNN_OP_MATMUL_C = 1522,
    DNN_OP_MATMUL_M = 1523,
    DNN_REDUCTION_OPERATOR = 1600,
    DNN_REDUCTION_PREC = 1601,
    DNN_OP_REDUCTION_X = 1610,
    DNN_OP_REDUCTION_Y = 1611,
    DNN_OP_REDUCTION_R = 1612,
    DNN_OP_RESHAPE_X = 2200,
    DNN_OP_RESHAPE_Y = 2201,
    DNN_DEVICEPROP_JSON = 2702,
};

enum dnn_type {
    DNN_T_HANDLE = 0,
    DNN_T_DATA_TYPE = 1,
    DNN_T_BOOLEAN = 2,
    DNN_T_INT64 = 3,
    DNN_T_VOID_PTR = 6,
    DNN_T_HEUR_MODE = 8,
    DNN_T_NOTE = 11,
    DNN_T_POINTWISE_MODE = 14,
    DNN_T_DESCRIPTOR = 15,
    DNN_T_REDUCTION = 18,
    DNN_T_CHAR = 24,
};

enum dnn_data {
    DNN_F32 = 0,
    DNN_F16 = 2,
    DNN_I32 = 4,
    DNN_BF16 = 9,
    DNN_BOOL = 11
};

enum dnn_pointwise {
    DNN_ADD = 0,
    DNN_MUL = 1,
    DNN_DIV = 6,
    DNN_SUB = 9,
    DNN_EXP = 13,
    DNN_LOG = 15,
    DNN_IDENTITY = 21,
    DNN_CMP_GE = 303,
    DNN_GEN_INDEX = 501,
    DNN_SELECT = 601,
};

enum dnn_misc {
    DNN_REDUCE_ADD = 0,
    DNN_REDUCE_MAX = 3,
    DNN_HEUR_FALLBACK = 2,
    DNN_HEUR_A = 3,
    DNN_NOTE_NONDETERMINISTIC = 4,
};

/* As in cudnn.h; statuses and enumerations are int there, 0 is success. */
struct cudnn_api {
    size_t version; /* 91900 = 9.19.0 */
    size_t (*get_version) (void);
    const char *(*error_text) (int);
    void (*last_error) (char *, size_t);
    int (*create) (void **handle);
    int (*destroy) (void *handle);
    int (*set_stream) (void *handle, void *stream);
    int (*desc_create) (int kind, void **desc);
    int (*desc_destroy) (void *desc);
    int (*desc_finalize) (void *desc);
    int (*desc_set) (void *desc, int name, int type, int64_t n, const void *);
    int (*desc_get) (void *desc, int name, int type, int64_t room, int64_t *n,
                     void *);
    int (*execute) (void *handle, void *plan, void *pack);
};

/* cudnn_open - the process's cuDNN, opened once and kept; any thread.
 * NULL: it is missing or too old, *why says so and lives as long as the
 * process. */
const struct cudnn_api *cudnn_open (const char **why);

#endif
