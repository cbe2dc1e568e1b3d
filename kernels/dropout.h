/* SPDX-License-Identifier: Apache-2.0
 * dropout.h - dropout by counter: what is dropped is a pure function of who asks,
 * not of launch, place, split or order.
 *
 * (Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks
 * from overfitting", JMLR 15; Philox: Salmon et al. 2011, SC '11.) */
#ifndef KERN_DROPOUT_H
#define KERN_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element i of an array is dropped where the draw of (seed, step, site,
 * first + i) is below [cut].
 *   seed    of the run
 *   step    of the run, its low 32 bits
 *   site    which array of the model, below 65536
 *   first   number of the array's first element in that of the whole step,
 *           below 2^51
 *   cut     of 65536: kern_dropout_cut */
struct kern_dropout {
    uint64_t seed, step, first;
    uint32_t site, cut;
};

/* kern_dropout_cut - [p] in [0,1) as so many of 65536, to nearest, and never all
 * of them. What is kept is scaled by the same number, so the mean stays. */
static inline uint32_t kern_dropout_cut (double p)
{
    double cut = p * 65536 + 0.5;

    return cut >= 65535 ? 65535 : (uint32_t)cut;
}

/* dropout - its own backward.
 *   y   (n) written: 0 where it is dropped, x 65536 / (65536 - cut) elsewhere,
 *           rounded once; may be [x]
 *   x   (n)
 *   d   of the host, read before the call returns
 * The cuda ones give the host's bits, but that a NaN may be another. */
#define KERN_DROPOUT(suffix, elem)                                             \
    void kern_dropout_##suffix (elem *y, const elem *x, size_t n,              \
                                const struct kern_dropout *d, void *stream)
KERN_DROPOUT (f32_host, float);
KERN_DROPOUT (f64_host, double);
KERN_DROPOUT (bf16_host, uint16_t);
KERN_DROPOUT (f16_host, uint16_t);
KERN_DROPOUT (f32_cuda, float);
KERN_DROPOUT (bf16_cuda, uint16_t);
KERN_DROPOUT (f16_cuda, uint16_t);

#ifdef __cplusplus
}
#endif
#endif
