/* SPDX-License-Identifier: Apache-2.0
 * mem_table.c - a rank's arrays in bytes: the table, and activations in it */
#include "config.h"

#include "err.h"
#include "fsdp.h"
#include "mem_impl.h"

#include "kernels/kernels.h"
#if HAVE_CUDA
#include "kernels/attention.h"
#include "kernels/linear_ce.h"
#endif

static void put (struct mem_rows *t, struct mem_row row)
{
    if (row.bytes > 0 && t->n < MEM_ROWS)
        t->rows[t->n++] = row;
}

void mem_add (struct mem_rows *t, const char *what, const char *dtype,
              size_t bytes, bool acts)
{
    put (t, (struct mem_row){what, dtype, bytes, acts, false});
}

void mem_add_far (struct mem_rows *t, const char *what, const char *dtype,
                  size_t bytes)
{
    put (t, (struct mem_row){what, dtype, bytes, false, true});
}

int mem_pass (const train_trainer_options_t *o, int world)
{
    int most = (o->batch + world - 1) / world;

    return o->micro_batch == 0 || o->micro_batch > most ? most : o->micro_batch;
}

static struct fsdp_options engine_of (const train_trainer_options_t *o)
{
    return (struct fsdp_options){
        .wrap = o->wrap,
        .least = o->least,
        .no_sync = o->no_sync,
        .offload = o->offload,
        .offload_weights = o->offload_weights,
    };
}

/* The arena's parts, in the order of its layout. */
static void add_acts (struct mem_rows *t, const train_decoder_t *m,
                      const struct decoder_acts *a)
{
    const char *own = train_dtype_name (m->config.dtype);

    mem_add (t, "activations: a block or the head", own, a->x.at, true);
    mem_add (t, "activations: kept by blocks", own, a->dx.at - a->x.at, true);
    mem_add (t, "activations: stream and logits", own, a->rest - a->dx.at,
             true);
    mem_add (t, "activations: tables and scratch", "-", a->bytes - a->rest,
             true);
}

#if HAVE_CUDA
static enum gemm_lt_dtype dtype_of (const train_decoder_t *m)
{
    return m->config.dtype == TRAIN_F32    ? GEMM_LT_F32
           : m->config.dtype == TRAIN_BF16 ? GEMM_LT_BF16
                                           : GEMM_LT_F16;
}

static enum attention_dtype attention_dtype_of (const train_decoder_t *m)
{
    return m->config.dtype == TRAIN_F32    ? ATTENTION_F32
           : m->config.dtype == TRAIN_BF16 ? ATTENTION_BF16
                                           : ATTENTION_F16;
}

static size_t attention_scratch (const train_decoder_t *m, bool sm_90a,
                                 size_t B, size_t T, bool docs)
{
    const struct attention_shape shape = {
        .dtype = attention_dtype_of (m),
        .B = B,
        .T = T,
        .H = m->dims.H,
        .G = m->dims.G,
        .D = m->dims.D,
        .deterministic = m->config.deterministic,
        .grad = true,
        .documents = docs,
    };

    return attention_foresee (&shape, sm_90a);
}

static train_status_t need_gpu (const train_decoder_t *m, bool sm_90a, int pass,
                                int seq, struct decoder_need *need,
                                train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t B = (size_t)pass, T = (size_t)seq;

    if (m->config.dtype == TRAIN_F64)
        return err_set (err, TRAIN_EINVAL,
                        "fp64: GPUs train in fp32, bf16 and fp16");
    need->gpu = true;
    need->head = linear_ce_scratch (dtype_of (m), B * T, d->C, d->V);
    need->attention = attention_scratch (m, sm_90a, B, T, need->docs);
    need->scratch = decoder_kernel_scratch (m, B * T);
    return TRAIN_OK;
}
#else
static train_status_t need_gpu (const train_decoder_t *m, bool sm_90a, int pass,
                                int seq, struct decoder_need *need,
                                train_error_t *err)
{
    (void)m;
    (void)sm_90a;
    (void)pass;
    (void)seq;
    (void)need;
    return err_set (err, TRAIN_ENOTSUP,
                    "built without CUDA: the layouts of a GPU are not known");
}
#endif

static train_status_t need_host (train_decoder_t *m, int pass, int seq,
                                 struct decoder_need *need, train_error_t *err)
{
    need->whole = need->elem == need->real;
    if (!need->whole)
        need->head = m->work->head_scratch (m, (size_t)pass * (size_t)seq);
    return m->work->prepare (m, pass, seq, &need->attention, err);
}

/* Gradients are written, not added: those of the whole model, or of a shard,
 * are lent, to [until] of the decoder. */
static train_status_t need_loan (train_decoder_t *m,
                                 const train_trainer_options_t *o, int world,
                                 struct decoder_need *need, train_error_t *err)
{
    const struct fsdp_options f = engine_of (o);
    bool lends;

    if (o->strategy < TRAIN_SHARD_GRAD_OP)
        lends = decoder_lendable (m, m->until);
    else
        TRY (fsdp_lends_decoder (&f, m, world, &lends, m->until, err));
    need->until = lends ? m->until : NULL;
    return TRAIN_OK;
}

/* Rings of four slots (host_seg.c): one a rank, one of sums, one of results. */
size_t mem_comm (int world)
{
    size_t rings = (size_t)world + 2, most = 24, each = 1; /* MiB */

    if (world == 1)
        return 0;
    return (rings * each < most ? rings * each : most) << 20;
}

size_t mem_saved (const train_decoder_config_t *model,
                  const train_trainer_options_t *o, int world)
{
    train_decoder_config_t c = *model;
    train_decoder_t *m;
    size_t bytes;

    c.device = (DLDevice){kDLCPU, 0};
    if (decoder_create_bare (&c, &m, NULL) != TRAIN_OK)
        return 0;
    bytes = 3 * m->numel * m->kern->real_size;
    if (o->strategy == TRAIN_FULL_SHARD || o->strategy == TRAIN_SHARD_GRAD_OP)
        bytes /= (size_t)world;
    train_decoder_destroy (m);
    return bytes;
}

/* The layout of a pass of [m], whose loan [need] has. */
static train_status_t lay (train_decoder_t *m, bool gpu, bool sm_90a, int pass,
                           int seq, struct decoder_need *need,
                           struct decoder_acts *acts, train_error_t *err)
{
    m->B = pass;
    m->T = seq;
    TRY (gpu ? need_gpu (m, sm_90a, pass, seq, need, err)
             : need_host (m, pass, seq, need, err));
    return decoder_acts_layout (&m->dims, need, pass, seq, acts, err);
}

static struct decoder_need need_of (const train_decoder_t *m, bool docs)
{
    return (struct decoder_need){.recompute = (int)m->config.recompute,
                                 .docs = docs,
                                 .elem = m->kern->elem_size,
                                 .real = m->kern->real_size};
}

train_status_t mem_acts (const train_decoder_config_t *model, bool sm_90a,
                         int rows, int seq, size_t *ret, train_error_t *err)
{
    bool gpu = model->device.device_type == kDLCUDA;
    train_decoder_config_t c = *model;
    struct decoder_acts acts = {0};
    struct decoder_need need;
    train_decoder_t *m = NULL;
    train_status_t status;

    c.device = (DLDevice){kDLCPU, 0};
    TRY (decoder_create_bare (&c, &m, err));
    need = need_of (m, false);
    status = lay (m, gpu, sm_90a, rows, seq, &need, &acts, err);
    if (status == TRAIN_OK)
        *ret = acts.bytes;
    train_decoder_destroy (m);
    return status;
}

/* Of a run: the layout alone, which need not be there. */
struct layout {
    bool gpu, sm_90a;
    const train_trainer_options_t *o;
    int world, seq;
    bool docs;
};

static bool is_alone (const struct layout *l)
{
    return l->gpu && l->world == 1 && l->o->strategy < TRAIN_SHARD_GRAD_OP;
}

static train_status_t make (const train_decoder_config_t *model,
                            const struct layout *l, train_decoder_t **ret,
                            train_error_t *err)
{
    train_decoder_config_t c = *model;

    c.device = (DLDevice){kDLCPU, 0};
    TRY (decoder_create_bare (&c, ret, err));
    return mem_freeze (*ret, l->o, err);
}

/* Of a pass of [rows]; where a step has one pass gradients are lent. */
static train_status_t acts_of (train_decoder_t *m, const struct layout *l,
                               int rows, struct decoder_acts *ret,
                               train_error_t *err)
{
    struct decoder_need need = need_of (m, l->docs);
    int most = (l->o->batch + l->world - 1) / l->world;

    if (l->gpu && most <= mem_pass (l->o, l->world))
        TRY (need_loan (m, l->o, l->world, &need, err));
    return lay (m, l->gpu, l->sm_90a, rows, l->seq, &need, ret, err);
}

static train_status_t plan_of (const train_decoder_t *m,
                               const train_trainer_options_t *o, int world,
                               train_shard_plan_t **ret, train_error_t *err)
{
    const struct fsdp_options f = engine_of (o);

    return fsdp_plan_of_decoder (&f, m, world, ret, err);
}

train_status_t mem_table (const train_decoder_config_t *model, bool sm_90a,
                          const train_trainer_options_t *o, int world, int seq,
                          bool docs, struct mem_row *rows, size_t *ret_n,
                          train_error_t *err)
{
    const struct layout l = {
        model->device.device_type == kDLCUDA, sm_90a, o, world, seq, docs};
    struct mem_rows t = {.rows = rows};
    struct decoder_acts acts = {0};
    train_shard_plan_t *plan = NULL;
    train_decoder_t *m = NULL;
    train_status_t status = make (model, &l, &m, err);

    if (status == TRAIN_OK && o->strategy >= TRAIN_SHARD_GRAD_OP)
        status = plan_of (m, o, world, &plan, err);
    if (status == TRAIN_OK)
        status = acts_of (m, &l, mem_pass (o, world), &acts, err);
    if (status == TRAIN_OK)
        status = mem_add_model (&t, m, o, plan, l.gpu, is_alone (&l), err);
    if (status == TRAIN_OK) {
        add_acts (&t, m, &acts);
        *ret_n = t.n;
    }
    train_shard_plan_destroy (plan);
    train_decoder_destroy (m);
    return status;
}

train_status_t mem_eval (const train_decoder_config_t *model, bool sm_90a,
                         const train_trainer_options_t *o, int world, int rows,
                         int seq, bool docs, size_t *ret, train_error_t *err)
{
    const struct layout l = {
        model->device.device_type == kDLCUDA, sm_90a, o, world, seq, docs};
    struct decoder_acts step = {0}, eval = {0};
    train_decoder_t *m = NULL;
    train_status_t status = make (model, &l, &m, err);

    if (status == TRAIN_OK)
        status = acts_of (m, &l, mem_pass (o, world), &step, err);
    if (status == TRAIN_OK)
        status = acts_of (m, &l, rows, &eval, err);
    if (status == TRAIN_OK)
        *ret = eval.bytes > step.bytes ? eval.bytes - step.bytes : 0;
    train_decoder_destroy (m);
    return status;
}
