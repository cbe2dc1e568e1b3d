/* SPDX-License-Identifier: Apache-2.0
 * table.h - the kernels of a decoder's layers as one table for each dtype and
 * place, so that one text of a pass serves them all
 *
 * Arguments are those of layers.h with every array as void: it has the table's
 * element type, or [real] of layers.h where that is said there. Products and
 * attention are not in it: on a GPU they have a state (gemm_lt.h, attention.h).
 * The tables of a GPU are there where the build has CUDA. */
#ifndef KERN_TABLE_H
#define KERN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kern_dropout;
struct kern_advance;
struct kern_draw_rules;
struct kern_product;
struct kern_product_begin;

struct kern_ops {
    size_t elem_size, real_size; /* bytes */
    void (*rmsnorm_fwd) (void *y, void *rstd, const void *x, const void *w,
                         size_t N, size_t C, double eps, void *stream);
    void (*rmsnorm_bwd) (void *dx, void *dw, const void *dy, const void *x,
                         const void *w, const void *rstd, size_t N, size_t C,
                         void *scratch, void *stream);
    void (*addnorm_fwd) (void *y, void *mid, void *rstd, const void *x,
                         const void *t, const void *w, size_t N, size_t C,
                         double eps, void *stream);
    void (*addnorm_bwd) (void *dx, void *dw, const void *dy, const void *dmid,
                         const void *mid, const void *w, const void *rstd,
                         size_t N, size_t C, void *scratch, void *stream);
    void (*addnorm_again_bwd) (void *dx, void *y, void *dw, const void *dy,
                               const void *dmid, const void *mid, const void *w,
                               const void *rstd, size_t N, size_t C,
                               void *scratch, void *stream);
    void (*headnorm_fwd) (void *qkv, void *raw, void *rstd, const void *wq,
                          const void *wk, size_t N, size_t H, size_t G,
                          size_t D, double eps, void *stream);
    void (*headnorm_bwd) (void *dqkv, void *dwq, void *dwk, const void *raw,
                          const void *rstd, const void *wq, const void *wk,
                          size_t N, size_t H, size_t G, size_t D, void *scratch,
                          void *stream);
    void (*bias_fwd) (void *x, const void *b, size_t N, size_t C, void *stream);
    void (*bias_bwd) (void *db, const void *dy, size_t N, size_t C,
                      void *scratch, void *stream);
    void (*rope_fwd) (void *x, const void *cosine, const void *sine, size_t B,
                      size_t T, size_t heads, size_t D, size_t row,
                      void *stream);
    void (*rope_bwd) (void *dx, const void *cosine, const void *sine, size_t B,
                      size_t T, size_t heads, size_t D, size_t row,
                      void *stream);
    void (*swiglu_fwd) (void *y, const void *gu, size_t N, size_t F,
                        void *stream);
    void (*swiglu_bwd) (void *dgu, const void *dy, const void *gu, size_t N,
                        size_t F, void *stream);
    void (*swiglu_again_bwd) (void *dgu, void *y, const void *dy,
                              const void *gu, size_t N, size_t F, void *stream);
    void (*embedding_fwd) (void *y, const void *w, const int32_t *tokens,
                           size_t N, size_t C, void *stream);
    void (*embedding_bwd) (void *dw, const void *dy, const int32_t *tokens,
                           size_t N, size_t C, size_t V, void *scratch,
                           void *stream);
    /* decode.h */
    void (*keep_fwd) (void *k, void *v, void *qkv, const void *cosine,
                      const void *sine, const int32_t *slot, const int32_t *at,
                      size_t N, size_t T, size_t H, size_t G, size_t D,
                      void *stream);
    void (*decode_fwd) (void *y, const void *qkv, const void *k, const void *v,
                        const int32_t *slot, const int32_t *at, size_t N,
                        size_t T, size_t H, size_t G, size_t D, double scale,
                        void *scratch, void *stream);
    void (*attend_fwd) (void *y, void *k, void *v, void *qkv,
                        const void *cosine, const void *sine,
                        const int32_t *slot, const int32_t *at,
                        const int32_t *lead, const int32_t *shared, size_t N,
                        size_t T, size_t H, size_t G, size_t D, double scale,
                        bool early, void *scratch, void *stream);
    void (*share_fwd) (void *k, void *v, const int32_t *from, const int32_t *to,
                       const int32_t *n, size_t P, size_t L, size_t S, size_t G,
                       size_t T, size_t D, void *stream);
    void (*draw) (int32_t *ids, float *logp, const void *logits,
                  const int32_t *text, const int32_t *at, const int32_t *slot,
                  const uint32_t *seen, size_t N, size_t V,
                  const struct kern_draw_rules *rules, void *scratch,
                  void *stream);
    void (*had) (uint32_t *seen, const int32_t *tokens, const int32_t *slot,
                 const int32_t *at, size_t N, size_t V, void *stream);
    void (*had_share) (uint32_t *seen, const int32_t *from, const int32_t *to,
                       size_t P, size_t V, void *stream);
    void (*advance) (const struct kern_advance *a, void *stream);
    /* decode_product.h; of bf16 and f16 on a GPU alone, else NULL */
    void (*product) (const struct kern_product *p, void *stream);
    void (*product_begin) (const struct kern_product_begin *b, void *stream);
    bool (*product_served) (void);
    /* logp, entropy and dlogp are of [real] */
    void (*logprob) (void *logits, void *logp, void *entropy,
                     const int32_t *targets, const void *dlogp, size_t N,
                     size_t V, double inv_temperature, void *stream);
    /* cols.h */
    void (*cols_add) (void *y, const void *x, size_t N, size_t W, size_t pitch,
                      size_t col, double scale, void *stream);
    void (*cols_take) (void *y, const void *x, size_t N, size_t W, size_t pitch,
                       size_t col, double scale, void *stream);
    /* dropout.h */
    void (*dropout) (void *y, const void *x, size_t n,
                     const struct kern_dropout *d, void *stream);
    /* docs.h, of [real] */
    void (*positions) (void *y, const void *table, const int32_t *starts,
                       size_t N, size_t T, size_t W, void *stream);
    void (*attention_fwd) (void *y, void *lse, const void *qkv,
                           const int32_t *starts, void *scratch, size_t B,
                           size_t T, size_t H, size_t G, size_t D, double scale,
                           void *stream);
    /* rows.h */
    void (*rows) (void *y, const void *x, const int32_t *from, size_t N,
                  size_t bytes, void *stream);
    /* of the host alone, NULL in a GPU's: see linear_ce, matmul and
     * attention_bwd of kernels.h and docs.h */
    void (*linear_ce) (double *sum, int64_t *counted, void *dh, void *dw,
                       const void *h, const void *w, const int32_t *targets,
                       size_t N, size_t C, size_t V, double scale,
                       void *scratch, void *stream);
    void (*matmul_fwd) (void *y, const void *x, const void *w, size_t N,
                        size_t in, size_t out, void *stream);
    void (*matmul_bwd) (void *dx, void *dw, const void *dy, const void *x,
                        const void *w, size_t N, size_t in, size_t out,
                        void *stream);
    void (*attention_bwd) (void *dqkv, const void *dy, const void *y,
                           const void *lse, const void *qkv,
                           const int32_t *starts, void *scratch, size_t B,
                           size_t T, size_t H, size_t G, size_t D, double scale,
                           void *stream);
};

extern const struct kern_ops kern_ops_f32_host, kern_ops_f64_host,
    kern_ops_bf16_host, kern_ops_f16_host;
extern const struct kern_ops kern_ops_f32_cuda, kern_ops_bf16_cuda,
    kern_ops_f16_cuda;

#ifdef __cplusplus
}
#endif
#endif
