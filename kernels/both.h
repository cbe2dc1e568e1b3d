/* SPDX-License-Identifier: Apache-2.0
 * both.h - compile the text KERN_BODY for f32 and again for f64.
 *
 * The text says [real] for the type, KERN (op) for a kernel's name and
 * OWN (x) for the name of a static function. No guard: a file includes this
 * once, after defining KERN_BODY. */

#define real     float
#define KERN(op) kern_##op##_f32_host
#define OWN(x)   x##_f32
#include KERN_BODY
#undef real
#undef KERN
#undef OWN

#define real     double
#define KERN(op) kern_##op##_f64_host
#define OWN(x)   x##_f64
#include KERN_BODY
#undef real
#undef KERN
#undef OWN
