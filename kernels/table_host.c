/* SPDX-License-Identifier: Apache-2.0
 * table_host.c - the tables of the host */
#include "table.h"

#include "cols.h"
#include "decode.h"
#include "docs.h"
#include "dropout.h"
#include "kernels.h"
#include "rows.h"

#define PLACE(x) x##_host

#define HOST

#define elem     float
#define real     float
#define OWN(x)   x##_f32_host
#define KERN(op) kern_##op##_f32_host
#include "table.inc"
#undef elem
#undef real
#undef OWN
#undef KERN

#define WIDE
#define elem     double
#define real     double
#define OWN(x)   x##_f64_host
#define KERN(op) kern_##op##_f64_host
#include "table.inc"
#undef WIDE
#undef elem
#undef real
#undef OWN
#undef KERN

#define elem     uint16_t
#define real     float
#define OWN(x)   x##_bf16_host
#define KERN(op) kern_##op##_bf16_host
#include "table.inc"
#undef elem
#undef real
#undef OWN
#undef KERN

#define elem     uint16_t
#define real     float
#define OWN(x)   x##_f16_host
#define KERN(op) kern_##op##_f16_host
#include "table.inc"
#undef elem
#undef real
#undef OWN
#undef KERN
