/* SPDX-License-Identifier: Apache-2.0
 * decoder_pass.c - forward and backward through the blocks, f32 and f64 */
#include <math.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"

#include "kernels/kernels.h"

#define real     float
#define TRAIN(x) x##_f32
#define KERN(op) kern_##op##_f32_host
#include "decoder_pass.inc"
#undef real
#undef TRAIN
#undef KERN

#define real     double
#define TRAIN(x) x##_f64
#define KERN(op) kern_##op##_f64_host
#include "decoder_pass.inc"
#undef real
#undef TRAIN
#undef KERN
