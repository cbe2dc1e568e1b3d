/* SPDX-License-Identifier: Apache-2.0
 * safetensors_types.c - the element types of the safetensors format */
#include "safetensors.h"

#include <string.h>

static const struct {
    const char *name;
    unsigned bits;
    train_dtype_t dtype;
} types[] = {
    [TRAIN_ST_AUTO] = {"unknown", 0, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_BOOL] = {"BOOL", 8, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F4] = {"F4", 4, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F6_E2M3] = {"F6_E2M3", 6, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F6_E3M2] = {"F6_E3M2", 6, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_U8] = {"U8", 8, TRAIN_U8},
    [TRAIN_ST_I8] = {"I8", 8, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F8_E5M2] = {"F8_E5M2", 8, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F8_E4M3] = {"F8_E4M3", 8, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F8_E8M0] = {"F8_E8M0", 8, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_I16] = {"I16", 16, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_U16] = {"U16", 16, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F16] = {"F16", 16, TRAIN_F16},
    [TRAIN_ST_BF16] = {"BF16", 16, TRAIN_BF16},
    [TRAIN_ST_I32] = {"I32", 32, TRAIN_I32},
    [TRAIN_ST_U32] = {"U32", 32, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F32] = {"F32", 32, TRAIN_F32},
    [TRAIN_ST_C64] = {"C64", 64, TRAIN_ST_NO_DTYPE},
    [TRAIN_ST_F64] = {"F64", 64, TRAIN_F64},
    [TRAIN_ST_I64] = {"I64", 64, TRAIN_I64},
    [TRAIN_ST_U64] = {"U64", 64, TRAIN_ST_NO_DTYPE},
};

#define N_TYPES (sizeof (types) / sizeof (*types))

const char *train_st_type_name (train_st_type_t type)
{
    return types[(size_t)type < N_TYPES ? type : TRAIN_ST_AUTO].name;
}

unsigned train_st_type_bits (train_st_type_t type)
{
    return types[(size_t)type < N_TYPES ? type : TRAIN_ST_AUTO].bits;
}

train_st_type_t st_type_of (const char *name)
{
    for (size_t i = TRAIN_ST_AUTO + 1; i < N_TYPES; i++) {
        if (strcmp (types[i].name, name) == 0)
            return (train_st_type_t)i;
    }
    return TRAIN_ST_AUTO;
}

train_dtype_t st_type_dtype (train_st_type_t type)
{
    return types[(size_t)type < N_TYPES ? type : TRAIN_ST_AUTO].dtype;
}

train_st_type_t st_type_entry (const train_st_entry_t *e)
{
    if (e->type != TRAIN_ST_AUTO)
        return e->type;
    return st_type_of (train_dtype_name (e->dtype));
}
