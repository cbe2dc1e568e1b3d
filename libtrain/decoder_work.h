/* SPDX-License-Identifier: Apache-2.0
 * decoder_work.h - products and attention of a decoder, which host and GPU do each
 * in their own way. Part of decoder_impl.h. */
#ifndef TRAIN_DECODER_WORK_H
#define TRAIN_DECODER_WORK_H

#include <train/decoder.h>

struct train_decoder;

/* Products and attention, which have a state on a GPU. Shapes are those of
 * kernels.h; m->B, m->T, m->stream hold. */
struct decoder_work {
    /* prepare - for a batch of (B,T).
     *   ret_scratch   bytes of scratch that attention wants */
    train_status_t (*prepare) (struct train_decoder *m, int B, int T,
                               size_t *ret_scratch, train_error_t *err);
    /* foresee (optional, default 0) - that scratch, before there is a plan */
    size_t (*foresee) (const struct train_decoder *m, int B, int T);
    void (*destroy) (struct train_decoder *m);
    train_status_t (*linear) (struct train_decoder *m, void *y, const void *x,
                              const void *w, size_t N, size_t in, size_t out,
                              train_error_t *err);
    train_status_t (*linear_dx) (struct train_decoder *m, void *dx,
                                 const void *dy, const void *w, size_t N,
                                 size_t in, size_t out, train_error_t *err);
    train_status_t (*linear_dw) (struct train_decoder *m, void *dw,
                                 const void *dy, const void *x, size_t N,
                                 size_t in, size_t out, train_error_t *err);
    /* glu, glu_bwd (optional) - a product and SwiGLU in one, of one block's ffn.
     *   gate_up    (N,2F) of x (N,C) and w (2F,C), written, or becomes its gradient
     *   act        (N,F) written; NULL, of glu_bwd: not wanted
     *   dy, w      of glu_bwd: (N,C), (C,F)
     *   ret_done   false: the device, the shape or the addresses are not served, or
     *              it would be slower, and nothing was enqueued; linear or
     *              linear_dx and the kernel do it */
    train_status_t (*glu) (struct train_decoder *m, void *act, void *gate_up,
                           const void *x, const void *w, size_t N,
                           bool *ret_done, train_error_t *err);
    train_status_t (*glu_bwd) (struct train_decoder *m, void *gate_up,
                               void *act, const void *dy, const void *w,
                               size_t N, bool *ret_done, train_error_t *err);
    train_status_t (*attention) (struct train_decoder *m, void *y, void *lse,
                                 const void *qkv, void *scratch,
                                 train_error_t *err);
    train_status_t (*attention_bwd) (struct train_decoder *m, void *dqkv,
                                     const void *dy, const void *y,
                                     const void *lse, const void *qkv,
                                     void *scratch, train_error_t *err);
    /* head_scratch - bytes at layout.logits that these two want for N rows.
     * head_loss - of norm_f's rows through the head [w], added to m->sum.
     *   dh, dw   (N,C) written, (V,C) added to; unless [scale] is 0
     * logits_loss - of whole logits, which stay; added to m->sum.
     * head_logprob - of the first N of norm_f's rows through the head [w], with
     * logits times [inv_t].
     *   logp, entropy   (N) of [real], written; entropy NULL = not wanted
     *   dlogp    (N) of [real]; NULL: no gradient, else dh and dw are as above
     * Not for f32 and f64 on the host. */
    size_t (*head_scratch) (const struct train_decoder *m, size_t N);
    train_status_t (*head_loss) (struct train_decoder *m, void *dh, void *dw,
                                 const void *w, double scale,
                                 train_error_t *err);
    train_status_t (*logits_loss) (struct train_decoder *m, void *logits,
                                   train_error_t *err);
    train_status_t (*head_logprob) (struct train_decoder *m, void *logp,
                                    void *entropy, void *dh, void *dw,
                                    const void *w, const int32_t *targets,
                                    const void *dlogp, size_t N, double inv_t,
                                    train_error_t *err);
    /* What decoder_choices and decoder_take_choices do; NULL: nothing. */
    train_status_t (*choices) (const struct train_decoder *m, void **ret,
                               size_t *ret_bytes, train_error_t *err);
    train_status_t (*take_choices) (struct train_decoder *m, const void *from,
                                    size_t bytes, train_error_t *err);
};

extern const struct decoder_work decoder_work_host;
extern const struct decoder_work decoder_work_cuda; /* if HAVE_CUDA */

#endif
