/* SPDX-License-Identifier: Apache-2.0
 * each.h - compile the text KERN_BODY for f32, f64, bf16 and f16.
 *
 * The text says [elem] for the type of what is stored, [real] for the type of
 * arithmetic, GET (x) and PUT (x) between the two, KERN (op) for a kernel's
 * name, OWN (x) for the name of a static function and MATH (x) for that of a
 * function of [real]. In f32 and f64 GET and PUT are nothing. With HALVES alone
 * defined, bf16 and f16 only. No guard: a file includes this once, after
 * defining KERN_BODY. */
#include "half.h"

#ifndef HALVES
#define elem     float
#define real     float
#define GET(x)   (x)
#define PUT(x)   (x)
#define KERN(op) kern_##op##_f32_host
#define OWN(x)   x##_f32
#define MATH(x)  x##_f32
#include KERN_BODY
#undef elem
#undef real
#undef GET
#undef PUT
#undef KERN
#undef OWN
#undef MATH

#define elem     double
#define real     double
#define GET(x)   (x)
#define PUT(x)   (x)
#define KERN(op) kern_##op##_f64_host
#define OWN(x)   x##_f64
#define MATH(x)  x##_f64
#include KERN_BODY
#undef elem
#undef real
#undef GET
#undef PUT
#undef KERN
#undef OWN
#undef MATH
#endif

#define elem     uint16_t
#define real     float
#define GET(x)   half_from_bf16 (x)
#define PUT(x)   half_to_bf16 (x)
#define KERN(op) kern_##op##_bf16_host
#define OWN(x)   x##_bf16
#define MATH(x)  x##_f32
#include KERN_BODY
#undef GET
#undef PUT
#undef KERN
#undef OWN

#define GET(x)   half_from_f16 (x)
#define PUT(x)   half_to_f16 (x)
#define KERN(op) kern_##op##_f16_host
#define OWN(x)   x##_f16
#include KERN_BODY
#undef elem
#undef real
#undef GET
#undef PUT
#undef KERN
#undef OWN
#undef MATH
