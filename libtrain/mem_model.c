/* SPDX-License-Identifier: Apache-2.0
 * mem_model.c - a rank's arrays in bytes: what has the shape of the weights, and
 * what of a sharded model is whole for a while */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fsdp_fit.h"
#include "mem_impl.h"
#include "optim.h"
#include "optim_far.h"

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

train_status_t mem_freeze (train_decoder_t *m, const train_trainer_options_t *o,
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

static train_status_t add_whole (struct mem_rows *t, const train_decoder_t *m,
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
    mem_add (t, "whole units", "-", rooms, false);
    mem_add (t, "gradients of whole units", wide, kept * m->kern->real_size,
             false);
    mem_add (t, "gradients on their way", "BF16", 2 * wire, false);
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

/* Elements of what has the weights' shape, or that of a rank's part. */
struct held {
    size_t weights, masters, grads, moments;
    size_t late; /* masters that no rounded weights are beside */
};

static struct held count_held (const train_decoder_t *m,
                               const train_trainer_options_t *o,
                               const train_shard_plan_t *plan, bool alone)
{
    struct held h = {.weights = m->numel,
                     .masters = m->numel,
                     .grads = m->grad_numel + decoder_sink (m)};

    if (!plan) {
        h.moments = with_moments (m, o, h.weights);
        h.masters = alone || m->grad_at ? h.moments : h.masters;
        return h;
    }
    h.weights = train_shard_size (plan);
    h.masters = h.grads = train_shard_moving (plan);
    h.moments = o->offload ? h.masters : with_moments (m, o, h.masters);
    h.late = o->round_late && m->kern->elem_size < m->kern->real_size
                 ? h.masters
                 : 0;
    return h;
}

/* What is in the host's memory, and what of it passes through the GPU. */
static void add_offloaded (struct mem_rows *t, const train_decoder_t *m,
                           const train_trainer_options_t *o,
                           const struct held *h, bool sharded, const char *wide,
                           const char *own)
{
    size_t real = m->kern->real_size, elem = m->kern->elem_size;
    size_t over = sharded && elem < real ? h->masters : h->weights;

    mem_add (t, "pieces of what is offloaded",
             o->offload || !o->offload_weights ? wide : own,
             adamw_far_bytes (o->offload ? h->moments : over, pieces_of (m, o)),
             false);
    if (o->offload)
        mem_add_far (t, "masters and moments", wide,
                     ((elem < real ? h->masters : 0) + 2 * h->moments) * real);
    if (o->offload_weights)
        mem_add_far (t, "weights, offloaded", own, h->weights * elem);
}

train_status_t mem_add_model (struct mem_rows *t, const train_decoder_t *m,
                              const train_trainer_options_t *o,
                              const train_shard_plan_t *plan, bool gpu,
                              bool alone, train_error_t *err)
{
    size_t real = m->kern->real_size, elem = m->kern->elem_size;
    const char *wide = real == sizeof (double) ? "F64" : "F32";
    const char *own = train_dtype_name (m->config.dtype);
    struct held h = count_held (m, o, plan, alone);

    if (plan)
        TRY (add_whole (t, m, o, plan, gpu, wide, err));
    mem_add (t, "weights", own,
             o->offload_weights ? 0 : (h.weights - h.late) * elem, false);
    mem_add (t, "masters of the weights", wide,
             elem == real || o->offload ? 0 : h.masters * real, false);
    mem_add (t, "gradients", wide, h.grads * real, false);
    mem_add (t, "AdamW's moments", wide, o->offload ? 0 : 2 * h.moments * real,
             false);
    add_offloaded (t, m, o, &h, plan != NULL, wide, own);
    return TRAIN_OK;
}
