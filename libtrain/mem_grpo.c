/* SPDX-License-Identifier: Apache-2.0
 * mem_grpo.c - a rank's arrays in bytes, of a run that writes as well as trains */
#include "config.h"

#include "mem_grpo.h"

#include "err.h"
#include "generate_impl.h"
#include "grpo_run.h"

#define ALIGN ((size_t)256)

struct plan {
    const struct mem_grpo *g;
    train_decoder_t *m; /* of the host, without weights: its layout */
    bool gpu, sm_90a;
    const char *own; /* its type */
    struct mem_row *rows;
    size_t n;
};

static void add (struct plan *p, const char *what, const char *dtype,
                 size_t bytes, bool acts, bool host)
{
    if (bytes > 0 && p->n < MEM_ROWS)
        p->rows[p->n++] =
            (struct mem_row){what, dtype, bytes, acts, host && p->gpu};
}

/* Of a row of a pass, whose place p says token p + 1. */
static int row_tokens (const struct mem_grpo *g, bool gpu)
{
    int step = gpu ? GRPO_GPU_STEP : 1;
    int T = g->prompt + g->opts->max_new - 1;

    T = T < 1 ? 1 : T;
    return (T + step - 1) / step * step;
}

static size_t share_of (size_t all, size_t parts)
{
    return (all + parts - 1) / parts;
}

/* While [texts] are written, of the rank that has most. */
static size_t cache (const struct plan *p, int prompt, size_t texts,
                     size_t *ret_kept)
{
    const train_grpo_trainer_options_t *o = p->g->opts;
    size_t slots = texts, longest = (size_t)prompt;

    if (o->at_once > 0 && (size_t)o->at_once < texts)
        slots = (size_t)o->at_once;
    return kv_foresee (p->m, p->gpu, slots, longest + (size_t)o->max_new,
                       kv_feed_rows (p->gpu, texts * longest, slots),
                       o->repetition > 0, ret_kept);
}

/* Of training or of evaluation, which are not at once. */
static void add_cache (struct plan *p)
{
    const train_grpo_trainer_options_t *o = p->g->opts;
    size_t world = (size_t)p->g->world, kept, other_kept, all, other;

    all = cache (p, p->g->prompt,
                 share_of ((size_t)o->trainer.batch * (size_t)o->steps, world),
                 &kept);
    other = p->g->held == 0
                ? 0
                : cache (p, p->g->held_prompt,
                         share_of ((size_t)p->g->held, world), &other_kept);
    if (other > all) {
        all = other;
        kept = other_kept;
    }
    add (p, "writing: keys and values", p->own, kept, true, false);
    add (p, "writing: rows, logits, draws", "-", all - kept, true, false);
}

/* Weights that are there while completions are written alone. */
static void add_whole (struct plan *p)
{
    size_t elem = p->m->kern->elem_size, world = (size_t)p->g->world;
    size_t whole = 0, blocks = 0;

    for (size_t u = 0; u < decoder_n_units (p->m); u++) {
        size_t n = decoder_unit (p->m, u)->count;

        whole += share_of (n, world) * world * elem;
        if (u >= 1 && u <= p->m->dims.L)
            blocks += share_of (n * elem, ALIGN) * ALIGN;
    }
    if (p->g->opts->trainer.strategy == TRAIN_FULL_SHARD
        && p->g->opts->gather != TRAIN_GRPO_GATHER_UNIT)
        add (p, "writing: weights, gathered", p->own, whole, false, false);
    if (p->m->dims.lora.rank > 0
        && p->g->opts->gather != TRAIN_GRPO_GATHER_UNIT)
        add (p, "writing: blocks with adapters", p->own, blocks, false, false);
}

/* Forwards whose backward does not follow have no room lent. */
static train_status_t add_unlent (struct plan *p,
                                  const train_decoder_config_t *model, int pass,
                                  int T, train_error_t *err)
{
    const train_grpo_trainer_options_t *o = p->g->opts;
    bool old = (o->steps > 1 || o->iterations > 1) && !o->old_is_sampler;
    bool base = p->g->which == MEM_REFERENCE_BASE;
    size_t most = 0, has = 0;

    if (!old && !base)
        return TRAIN_OK;
    for (size_t i = 0; i < p->n; i++)
        has += p->rows[i].acts ? p->rows[i].bytes : 0;
    /* a reference is asked for the token behind the last, too */
    TRY (mem_acts (model, p->sm_90a, pass, base ? p->g->prompt + o->max_new : T,
                   &most, err));
    if (most > has)
        add (p, "activations: with no room lent", "-", most - has, true, false);
    return TRAIN_OK;
}

static void add_parts (struct plan *p)
{
    size_t elem = p->m->kern->elem_size, sum = 0, most = 0;
    size_t world = p->g->parts ? (size_t)p->g->world : 1;

    for (size_t u = 0; u < decoder_n_units (p->m); u++) {
        size_t each = share_of (decoder_unit (p->m, u)->count, world) * elem;

        sum += each;
        most = each * world > most ? each * world : most;
    }
    add (p, "reference: weights", p->own, sum, false, p->g->offload);
    add (p, "reference: a unit of them", p->own, most, false, false);
}

/* With activations of one block, and two numbers a token. */
static train_status_t add_reference (struct plan *p,
                                     const train_decoder_config_t *model,
                                     int pass, train_error_t *err)
{
    train_decoder_config_t c = *model;
    int T = p->g->prompt + p->g->opts->max_new;
    size_t acts = 0, two = 2 * (size_t)pass * (size_t)T;

    if (p->g->which == MEM_REFERENCE_BASE)
        add (p, "reference: log-probabilities", "-",
             two * p->m->kern->real_size, true, false);
    if (p->g->which < MEM_REFERENCE_COPY)
        return TRAIN_OK;
    c.recompute = TRAIN_RECOMPUTE_BLOCKS;
    if (p->g->which == MEM_REFERENCE_UNITS) {
        c.lora = (train_lora_t){0};
        add_parts (p);
    } else
        add (p, "reference: weights", p->own,
             p->m->numel * p->m->kern->elem_size, false, false);
    TRY (mem_acts (&c, p->sm_90a, pass, T, &acts, err));
    add (p, "reference: activations", "-", acts + two * p->m->kern->real_size,
         true, false);
    return TRAIN_OK;
}

/* Of all ranks, which each has. */
static void add_texts (struct plan *p)
{
    const train_grpo_trainer_options_t *o = p->g->opts;
    size_t M = (size_t)o->trainer.batch * (size_t)o->steps;
    bool old = o->steps > 1 || o->iterations > 1 || o->old_is_sampler;
    size_t token = 2 * sizeof (float) + 1; /* ids, sampled, mask */
    size_t text =
        sizeof (train_grpo_sample_t) + 48 + (size_t)o->rewards * sizeof (float);

    token +=
        (old ? sizeof (float) : 0) + (o->loss.beta > 0 ? sizeof (float) : 0);
    add (p, "completions", "-", M * ((size_t)o->max_new * token + text), true,
         true);
}

static train_status_t add_all (struct plan *p,
                               const train_decoder_config_t *model,
                               train_error_t *err)
{
    const train_trainer_options_t *o = &p->g->opts->trainer;
    int pass = mem_pass (o, p->g->world);
    int T = row_tokens (p->g, p->gpu);
    size_t work = grpo_work_bytes (p->m, pass, T);

    TRY (mem_table (model, p->sm_90a, o, p->g->world, T, false, p->rows, &p->n,
                    err));
    TRY (add_unlent (p, model, pass, T, err));
    add (p, "log-probabilities and loss", "-", work, true, false);
    TRY (add_reference (p, model, pass, err));
    add_whole (p);
    add_cache (p);
    add_texts (p);
    if (p->gpu)
        add (p, "log-probabilities, pinned", "-", work, true, true);
    return TRAIN_OK;
}

train_status_t mem_grpo (const train_decoder_config_t *model, bool sm_90a,
                         const struct mem_grpo *how, struct mem_row *rows,
                         size_t *ret_n, train_error_t *err)
{
    struct plan p = {.g = how,
                     .gpu = model->device.device_type == kDLCUDA,
                     .sm_90a = sm_90a,
                     .own = train_dtype_name (model->dtype),
                     .rows = rows};
    train_decoder_config_t c = *model;
    train_status_t status;

    c.device = (DLDevice){kDLCPU, 0};
    TRY (decoder_create_bare (&c, &p.m, err));
    status = add_all (&p, model, err);
    *ret_n = p.n;
    train_decoder_destroy (p.m);
    return status;
}
