/* SPDX-License-Identifier: Apache-2.0
 * grpo_alone.c - how the policy's weights are there where no step is made: whole
 * for a phase, or a unit at a time */
#include "err.h"
#include "fsdp.h"
#include "grpo_run.h"

#include "generate_impl.h"
#include "reference.h"

/* Of a rank that writes most of [all] texts. */
static size_t writing_bytes (const train_grpo_trainer_t *t, int all, int prompt)
{
    int ranks = train_group_size (t->group);

    return all == 0 ? 0
                    : generate_bytes (t->decoder, (all + ranks - 1) / ranks,
                                      t->o.at_once, prompt, t->o.max_new,
                                      t->o.repetition > 0);
}

static size_t more_of (size_t a, size_t b)
{
    return a > b ? a : b;
}

/* As many numbers of each token as a forward for log-probabilities gives. */
static size_t logps_bytes (const train_grpo_trainer_t *t, int B, int T)
{
    return t->old || t->ref
               ? 2 * (size_t)B * (size_t)T * t->decoder->kern->real_size
               : 0;
}

/* What passes and the reference have taken stays while the next cycle's texts, or
 * an evaluation's, are written; then log-probabilities are made. */
size_t grpo_need (const train_grpo_trainer_t *t, int T)
{
    int step = t->decoder->gpu ? GRPO_GPU_STEP : 1, B = t->trainer->pass;
    int wide = (T + step - 1) / step * step;
    size_t texts = writing_bytes (t, t->texts.M, T - t->o.max_new);
    size_t held = writing_bytes (t, t->o.held, t->o.held_prompt);

    return fsdp_all_bytes (t->trainer->fsdp)
           + decoder_acts_bytes (t->decoder, B, wide)
           + grpo_work_bytes (t->decoder, B, wide)
           + reference_bytes (t->reference, B, T)
           + more_of (more_of (texts, held) + decoder_merge_bytes (t->decoder),
                      logps_bytes (t, B, T));
}

/* A rank that has no room for that decides for all. */
static train_status_t try_whole (train_grpo_trainer_t *t, int T, bool *ret_fits,
                                 train_error_t *err)
{
    train_decoder_t *m = t->decoder;
    int before = m->ops->enter (m->device);
    void *memory = NULL;
    int32_t lacks;

    lacks =
        m->ops->alloc (m->device, grpo_need (t, T), &memory, NULL) != TRAIN_OK;
    m->ops->free (memory);
    m->ops->leave (before);
    TRY (grpo_sum (t, &lacks, TRAIN_I32, 1, err));
    *ret_fits = lacks == 0;
    return TRAIN_OK;
}

train_status_t grpo_choose (train_grpo_trainer_t *t, int T, train_error_t *err)
{
    struct fsdp *f = t->trainer->fsdp;
    bool whole = true;

    if (!f || !fsdp_is_sharded (f))
        return TRAIN_OK;
    if (t->o.gather == TRAIN_GRPO_GATHER_AUTO && fsdp_all_bytes (f) > 0)
        TRY (try_whole (t, T, &whole, err));
    t->unit = !whole || t->o.gather == TRAIN_GRPO_GATHER_UNIT;
    return TRAIN_OK;
}

train_grpo_gather_t train_grpo_trainer_gather (const train_grpo_trainer_t *t)
{
    return t->unit ? TRAIN_GRPO_GATHER_UNIT : TRAIN_GRPO_GATHER_WHOLE;
}

train_status_t grpo_whole (train_grpo_trainer_t *t, train_error_t *err)
{
    struct fsdp *f = t->trainer->fsdp;
    train_status_t status = TRAIN_OK;

    if (f && !t->unit)
        status = fsdp_all (f, t->group, err);
    if (status != TRAIN_OK)
        grpo_whole_end (t);
    return status == TRAIN_ENOMEM
               ? err_prefix (err, status, "grpo: to write completions")
               : status;
}

void grpo_whole_end (train_grpo_trainer_t *t)
{
    if (t->trainer->fsdp)
        fsdp_all_end (t->trainer->fsdp);
}

/* A unit has come, without what its adapters add. */
static train_status_t merge_unit (void *arg, size_t unit, train_error_t *err)
{
    const train_grpo_trainer_t *t = arg;

    return decoder_merge_unit (t->decoder, unit, t->merge_room, err);
}

static train_status_t by_units (train_grpo_trainer_t *t, bool merge,
                                struct grpo_alone *a, train_error_t *err)
{
    train_decoder_t *m = t->decoder;
    struct fsdp *f = t->trainer->fsdp;
    struct decoder_hooks hooks;
    train_status_t status = TRAIN_OK;
    int before;

    merge = merge && m->dims.lora.rank > 0 && !m->plain;
    TRY (fsdp_each (f, t->group, merge ? merge_unit : NULL, t, err));
    a->each = true;
    fsdp_each_hooks (f, &hooks, &a->together);
    decoder_set_hooks (m, &hooks);
    decoder_set_together (m, &a->together);
    if (!merge)
        return TRAIN_OK;
    before = m->ops->enter (m->device);
    status = decoder_merge_room (m, &t->merge_room, err);
    m->ops->leave (before);
    a->merges = true;
    decoder_leave_out (m, true);
    return status;
}

train_status_t grpo_alone (train_grpo_trainer_t *t, bool merge,
                           struct grpo_alone *a, train_error_t *err)
{
    *a = (struct grpo_alone){.hooks = t->decoder->hooks};
    decoder_set_hooks (t->decoder, NULL);
    if (t->unit)
        return by_units (t, merge, a, err);
    return merge ? decoder_merge (t->decoder, &a->merged, err) : TRAIN_OK;
}

train_status_t grpo_back (train_grpo_trainer_t *t, struct grpo_alone *a,
                          train_status_t status, train_error_t *err)
{
    train_decoder_t *m = t->decoder;

    if (a->each)
        status = fsdp_each_end (t->trainer->fsdp, status, err);
    decoder_set_together (m, NULL);
    if (a->merges) {
        decoder_leave_out (m, false);
        m->ops->free (t->merge_room);
        t->merge_room = NULL;
    }
    decoder_merge_end (m, &a->merged);
    decoder_set_hooks (m, &a->hooks);
    return status;
}
