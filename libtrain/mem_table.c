/* SPDX-License-Identifier: Apache-2.0
 * mem_table.c - a rank's arrays in bytes: weights, gradients, moments,
 * activations */
#include "config.h"

#include "mem_table.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "fsdp.h"
#include "fsdp_fit.h"
#include "optim.h"
#include "optim_far.h"

#include "kernels/kernels.h"
#if HAVE_CUDA
#include "kernels/attention.h"
#include "kernels/linear_ce.h"
#endif

struct table {
    struct mem_row *rows;
    size_t n;
};

static void add (struct table *t, const char *what, const char *dtype,
                 size_t bytes, bool acts)
{
    if (bytes > 0 && t->n < MEM_ROWS)
        t->rows[t->n++] = (struct mem_row){what, dtype, bytes, acts, false};
}

static void add_far (struct table *t, const char *what, const char *dtype,
                     size_t bytes)
{
    add (t, what, dtype, bytes, false);
    if (t->n > 0)
        t->rows[t->n - 1].host = true;
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

static size_t lines (size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Bundles of flat units (train/shard.h, fsdp_flat.c): elements of each while it is
 * whole, of weights and of gradients; returns how many these are. */
static size_t bundles (const train_decoder_t *m, const train_shard_plan_t *plan,
                       size_t *weights, size_t *grads)
{
    size_t world = (size_t)train_shard_plan_layout (plan)->world, n = 0,
           sum = 0;
    bool cut = train_shard_moving (plan) != train_shard_size (plan);

    for (size_t i = 0; i < train_shard_n_units (plan); i++) {
        const train_shard_unit_t *u = train_shard_unit (plan, i);
        size_t all = u->chunk * world;

        if (u->bundle == n) {
            sum = 0;
            weights[n] = 0;
            grads[n++] = cut ? lines (decoder_widest_vector (m)) : 0;
        }
        if (sum + all > weights[n - 1])
            weights[n - 1] = sum + all;
        sum += u->count;
        if (!u->still)
            grads[n - 1] += cut ? lines (all) : all;
    }
    return n;
}

/* Does it train? As fsdp_match marks them; patterns are its own, and checked
 * there. */
static bool trains (const train_decoder_t *m, const char *frozen,
                    const char *name)
{
    char pattern[512];

    if (m->config.lora.rank > 0 && !decoder_is_lora (name))
        return false;
    for (const char *at = frozen ? frozen : ""; *at;) {
        size_t n = strcspn (at, ",");

        if (n < sizeof (pattern)) {
            memcpy (pattern, at, n);
            pattern[n] = '\0';
            if (fnmatch (pattern, name, 0) == 0)
                return false;
        }
        at += n + (at[n] == ',');
    }
    return true;
}

/* What stays as it is has no gradients, where that saves much. */
static train_status_t freeze (train_decoder_t *m,
                              const train_trainer_options_t *o,
                              train_error_t *err)
{
    bool whole = o->strategy >= TRAIN_SHARD_GRAD_OP;
    bool *frozen = calloc (m->n_params, sizeof (*frozen));
    train_status_t status;

    if (!frozen)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters",
                        m->n_params);
    for (size_t i = 0; i < m->n_params; i++)
        frozen[i] = !trains (m, o->frozen, m->params[i].name);
    status = decoder_freeze (m, frozen, !whole, err);
    free (frozen);
    return status;
}

/* Elements with moments and masters, of a rank of whose optimizer's [most] may
 * train (optim.c). Of a shard the rank is meant that has most. */
static size_t with_moments (const train_decoder_t *m,
                            const train_trainer_options_t *o, size_t most)
{
    size_t sum = 0;

    for (size_t i = 0; i < m->n_params; i++)
        if (trains (m, o->frozen, m->params[i].name))
            sum += m->params[i].count;
    return sum < most ? sum : most;
}

/* Is the embedding, whose backward reads no weights, alone in its bundle? */
static bool is_bare (const train_shard_plan_t *plan)
{
    for (size_t i = 0; i < train_shard_n_units (plan); i++) {
        const train_shard_unit_t *u = train_shard_unit (plan, i);

        if (u->bundle == 0 && u->last > 0)
            return false;
    }
    return true;
}

/* Bytes of weights and gradients that are whole for a while where the model is
 * sharded (fsdp_rooms.c); [w] and [g]: those of [n] bundles, and room for a stay
 * beside them. */
static size_t count_rooms (const train_decoder_t *m,
                           const train_trainer_options_t *o,
                           const train_shard_plan_t *plan, bool gpu, size_t n,
                           size_t *w, size_t *g)
{
    struct fsdp_pass pass = {.weights = w,
                             .grads = g,
                             .n = n + (m->config.tie && n > 1),
                             .ahead = (size_t)o->prefetch,
                             .bare = is_bare (plan),
                             .behind = gpu};

    for (size_t u = 0; u < n; u++) {
        w[u] *= m->kern->elem_size;
        g[u] *= o->no_sync ? 0 : m->kern->real_size;
    }
    w[n] = w[0]; /* a tied head visits the embedding's again */
    g[n] = g[0];
    if (o->strategy == TRAIN_FULL_SHARD && pass.ahead + 1 < n)
        return fsdp_fit_pass (&pass, NULL, NULL, NULL);
    return fsdp_fit (w, n, n, NULL) + fsdp_fit (g, pass.n, 1, NULL);
}

/* Gradients that are kept whole, and on the wire, in elements. */
static void count_grads (const train_decoder_t *m,
                         const train_trainer_options_t *o, size_t n, size_t *g,
                         size_t *kept, size_t *wire)
{
    size_t most = 0;

    *kept = 0;
    for (size_t u = 0; u < n; u++) {
        most = g[u] > most ? g[u] : most;
        *kept += g[u];
    }
    g[n] = g[0];
    *kept = o->no_sync ? *kept : 0;
    *wire = !o->reduce_bf16 ? 0
            : o->no_sync    ? 2 * most
                         : fsdp_fit (g, n + (m->config.tie && n > 1), 1, NULL);
}

static train_status_t add_whole (struct table *t, const train_decoder_t *m,
                                 const train_trainer_options_t *o,
                                 const train_shard_plan_t *plan, bool gpu,
                                 const char *wide, train_error_t *err)
{
    size_t rooms, kept, wire, n, units = decoder_n_units (m);
    size_t *size = calloc (2 * (units + 1), sizeof (*size));

    if (!size)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu units", units);
    n = bundles (m, plan, size, size + units + 1);
    count_grads (m, o, n, size + units + 1, &kept, &wire);
    rooms = count_rooms (m, o, plan, gpu, n, size, size + units + 1);
    free (size);
    if (rooms == 0)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu units", units);
    add (t, "whole units", "-", rooms, false);
    add (t, "gradients of whole units", wide, kept * m->kern->real_size, false);
    add (t, "gradients on their way", "BF16", 2 * wire, false);
    return TRAIN_OK;
}

/* What passes through a GPU at each update (fsdp_far). */
static unsigned pieces_of (const train_decoder_t *m,
                           const train_trainer_options_t *o)
{
    unsigned how = m->config.dtype == TRAIN_BF16  ? ADAMW_FAR_BF16
                   : m->config.dtype == TRAIN_F16 ? ADAMW_FAR_F16
                                                  : ADAMW_FAR_F32;

    return adamw_far_arrays (o->offload, o->offload_weights ? how : 0);
}

/* Weights and all that has their shape.
 *   plan    NULL: nothing is sharded
 *   gpu     in its memory; [alone]: one, and no group (trainer_gpu.c) */
static train_status_t add_model (struct table *t, const train_decoder_t *m,
                                 const train_trainer_options_t *o,
                                 const train_shard_plan_t *plan, bool gpu,
                                 bool alone, train_error_t *err)
{
    size_t real = m->kern->real_size, elem = m->kern->elem_size;
    size_t held = m->numel, masters = held, late = 0, over, moments;
    size_t grads = m->grad_numel + decoder_sink (m);
    const char *wide = real == sizeof (double) ? "F64" : "F32";
    const char *own = train_dtype_name (m->config.dtype);

    if (plan) {
        held = train_shard_size (plan);
        masters = grads = train_shard_moving (plan);
        late = o->round_late && elem < real ? masters : 0;
        TRY (add_whole (t, m, o, plan, gpu, wide, err));
    } else if (alone || m->grad_at) {
        masters = with_moments (m, o, held);
    }
    over = plan && elem < real ? masters : held;
    moments = plan && o->offload ? masters
                                 : with_moments (m, o, plan ? masters : held);
    add (t, "weights", own, o->offload_weights ? 0 : (held - late) * elem,
         false);
    add (t, "masters of the weights", wide,
         elem == real || o->offload ? 0 : masters * real, false);
    add (t, "gradients", wide, grads * real, false);
    add (t, "AdamW's moments", wide, o->offload ? 0 : 2 * moments * real,
         false);
    add (t, "pieces of what is offloaded",
         o->offload || !o->offload_weights ? wide : own,
         adamw_far_bytes (o->offload ? moments : over, pieces_of (m, o)),
         false);
    if (o->offload)
        add_far (t, "masters and moments", wide,
                 ((elem < real ? masters : 0) + 2 * moments) * real);
    if (o->offload_weights)
        add_far (t, "weights, offloaded", own, held * elem);
    return TRAIN_OK;
}

/* The arena's parts, in the order of its layout. */
static void add_acts (struct table *t, const train_decoder_t *m,
                      const struct decoder_acts *a)
{
    const char *own = train_dtype_name (m->config.dtype);

    add (t, "activations: a block or the head", own, a->x.at, true);
    add (t, "activations: kept by blocks", own, a->dx.at - a->x.at, true);
    add (t, "activations: stream and logits", own, a->cosine.at - a->dx.at,
         true);
    add (t, "activations: tables and scratch", "-", a->bytes - a->cosine.at,
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
    return freeze (*ret, l->o, err);
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
    struct table t = {.rows = rows};
    struct decoder_acts acts = {0};
    train_shard_plan_t *plan = NULL;
    train_decoder_t *m = NULL;
    train_status_t status = make (model, &l, &m, err);

    if (status == TRAIN_OK && o->strategy >= TRAIN_SHARD_GRAD_OP)
        status = plan_of (m, o, world, &plan, err);
    if (status == TRAIN_OK)
        status = acts_of (m, &l, mem_pass (o, world), &acts, err);
    if (status == TRAIN_OK)
        status = add_model (&t, m, o, plan, l.gpu, is_alone (&l), err);
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
