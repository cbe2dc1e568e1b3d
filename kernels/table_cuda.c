/* SPDX-License-Identifier: Apache-2.0
 * table_cuda.c - the tables of a GPU */
#include "table.h"

#include "cols.h"
#include "decode.h"
#include "decode_product.h"
#include "docs.h"
#include "dropout.h"
#include "kernels.h"
#include "rows.h"

#define PLACE(x) x##_cuda

#define elem     float
#define real     float
#define OWN(x)   x##_f32_cuda
#define KERN(op) kern_##op##_f32_cuda
#include "table.inc"
#undef elem
#undef real
#undef OWN
#undef KERN

#define elem          uint16_t
#define real          float
#define OWN(x)        x##_bf16_cuda
#define KERN(op)      kern_##op##_bf16_cuda
#define PRODUCT       kern_product_bf16_cuda
#define PRODUCT_BEGIN kern_product_begin_bf16_cuda
#include "table.inc"
#undef PRODUCT
#undef PRODUCT_BEGIN
#undef elem
#undef real
#undef OWN
#undef KERN

#define elem          uint16_t
#define real          float
#define OWN(x)        x##_f16_cuda
#define KERN(op)      kern_##op##_f16_cuda
#define PRODUCT       kern_product_f16_cuda
#define PRODUCT_BEGIN kern_product_begin_f16_cuda
#include "table.inc"
#undef PRODUCT
#undef PRODUCT_BEGIN
#undef elem
#undef real
#undef OWN
#undef KERN
