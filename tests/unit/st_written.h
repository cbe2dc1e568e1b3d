/* SPDX-License-Identifier: Apache-2.0
 * st_written.h - tensors that the tests of safetensors write: two types of
 * numbers, one of bytes, none, and a name that JSON has to escape */
#ifndef ST_WRITTEN_H
#define ST_WRITTEN_H

#include <train/safetensors.h>

/* NaN with a payload must come back as the same bits. */
static const uint32_t w_bits[6] = {0x7fc12345, 0xff800000, 0,
                                   0x80000000, 1,          0x3f800000};
static const double d_data[1] = {3.25};
static const uint8_t u_data[3] = {1, 2, 3};

static const train_st_entry_t written[] = {
    {.name = "u", .dtype = TRAIN_U8, .ndim = 1, .shape = {3}, .data = u_data},
    {.name = "empty", .dtype = TRAIN_I64, .ndim = 2, .shape = {0, 7}},
    {.name = "w\"\\\xc3\xa9",
     .dtype = TRAIN_F32,
     .ndim = 2,
     .shape = {2, 3},
     .data = w_bits},
    {.name = "scalar", .dtype = TRAIN_F64, .ndim = 0, .data = d_data},
};
static const train_st_meta_t meta[] = {{"format", "pt"}, {"step", "12"}};

#endif
