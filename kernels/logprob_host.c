/* SPDX-License-Identifier: Apache-2.0
 * logprob_host.c - log-probabilities of targets over logits, and the gradient in
 * their place: f32, f64, bf16 and f16 */
#include "kernels.h"

#include "half.h"
#include "host.h"

#define elem      float
#define real      float
#define WIDEN(x)  ((double)(x))
#define NARROW(x) ((float)(x))
#define KERN(op)  kern_##op##_f32_host
#define OWN(x)    x##_f32
#include "logprob.inc"
#undef elem
#undef real
#undef NARROW
#undef KERN
#undef OWN

#define elem      double
#define real      double
#define NARROW(x) (x)
#define KERN(op)  kern_##op##_f64_host
#define OWN(x)    x##_f64
#include "logprob.inc"
#undef elem
#undef real
#undef WIDEN
#undef NARROW
#undef KERN
#undef OWN

#define elem      uint16_t
#define real      float
#define WIDEN(x)  ((double)half_from_bf16 (x))
#define NARROW(x) half_to_bf16 ((float)(x))
#define KERN(op)  kern_##op##_bf16_host
#define OWN(x)    x##_bf16
#include "logprob.inc"
#undef WIDEN
#undef NARROW
#undef KERN
#undef OWN

#define WIDEN(x)  ((double)half_from_f16 (x))
#define NARROW(x) half_to_f16 ((float)(x))
#define KERN(op)  kern_##op##_f16_host
#define OWN(x)    x##_f16
#include "logprob.inc"
