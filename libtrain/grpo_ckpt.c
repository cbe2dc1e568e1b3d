/* SPDX-License-Identifier: Apache-2.0
 * grpo_ckpt.c - a cycle that is begun, as part of a checkpoint: completions,
 * what they were worth, and log-probabilities of the policy that wrote them
 *
 * All ranks have all of it (grpo_logps), so the first one's is written and is
 * given to the others. Between cycles there is but the reference's hash to keep. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "grpo_run.h"
#include "reference.h"

/* An array of M rows, of one name in the checkpoint. */
struct kept {
    const char *name;
    void *data;
    train_dtype_t dtype;
    int64_t columns;
};

static int list (train_grpo_trainer_t *t, struct kept ret[GRPO_KEPT])
{
    struct grpo_texts *x = &t->texts;
    const struct kept all[GRPO_KEPT] = {
        {"cycle.prompts", x->which, TRAIN_I64, 1},
        {"cycle.ids", x->ids, TRAIN_I32, x->L},
        {"cycle.n", x->n, TRAIN_I32, 1},
        {"cycle.sampled", x->sampled, TRAIN_F32, x->L},
        {"cycle.rewards", x->rewards, TRAIN_F32, t->o.rewards},
        {"cycle.advantages", t->adv, TRAIN_F32, 1},
        {"cycle.mask", t->mask, TRAIN_U8, x->L},
        {"cycle.lengths", t->lengths, TRAIN_I64, 1},
        {"cycle.old", t->old, TRAIN_F32, x->L},
        {"cycle.reference", t->ref, TRAIN_F32, x->L},
    };
    int n = 0;

    for (int i = 0; i < GRPO_KEPT; i++)
        if (all[i].data)
            ret[n++] = all[i];
    return n;
}

static bool is_amid (const train_grpo_trainer_t *t)
{
    struct grpo_place p = grpo_place (t, train_trainer_steps (t->trainer));

    return p.at != 0 && t->made == p.cycle + 1;
}

static train_ckpt_piece_t piece_of (const train_grpo_trainer_t *t,
                                    const struct kept *k)
{
    return (train_ckpt_piece_t){
        .name = k->name,
        .dtype = k->dtype,
        .ndim = 2,
        .shape = {t->texts.M, k->columns},
        .count = t->texts.M * k->columns,
        .data = k->data,
        .file = "cycle",
    };
}

/* What a step says of its cycle is kept, too. */
static void note_metrics (train_grpo_trainer_t *t)
{
    const train_grpo_metrics_t *m = &t->m;
    const double v[GRPO_SAID] = {m->reward, m->reward_std,  m->zero_spread,
                                 m->length, m->length_min,  m->length_max,
                                 m->cut,    (double)m->none};

    memcpy (t->said, v, sizeof (v));
}

static void take_metrics (train_grpo_trainer_t *t, int64_t cycle)
{
    const double *v = t->said;

    t->m = (train_grpo_metrics_t){
        .cycle = cycle + 1,
        .reward = v[0],
        .reward_std = v[1],
        .zero_spread = v[2],
        .length = v[3],
        .length_min = v[4],
        .length_max = v[5],
        .cut = v[6],
        .none = (int64_t)v[7],
    };
}

static train_ckpt_piece_t said_of (train_grpo_trainer_t *t)
{
    return (train_ckpt_piece_t){
        .name = "cycle.metrics",
        .dtype = TRAIN_F64,
        .ndim = 1,
        .shape = {GRPO_SAID},
        .count = GRPO_SAID,
        .data = t->said,
        .file = "cycle",
    };
}

static size_t pieces (train_grpo_trainer_t *t,
                      train_ckpt_piece_t ret[TRAINER_BESIDE])
{
    struct kept kept[GRPO_KEPT];
    int n = list (t, kept);

    for (int i = 0; i < n; i++)
        ret[i] = piece_of (t, &kept[i]);
    ret[n] = said_of (t);
    return (size_t)n + 1;
}

static train_ckpt_piece_t reference_piece (int64_t data[2])
{
    return (train_ckpt_piece_t){
        .name = "reference.hash",
        .dtype = TRAIN_I64,
        .ndim = 1,
        .shape = {2},
        .count = 2,
        .data = data,
        .file = "cycle",
    };
}

size_t grpo_beside (void *arg, train_ckpt_piece_t ret[TRAINER_BESIDE])
{
    train_grpo_trainer_t *t = arg;
    size_t n = 0;

    if (is_amid (t)) {
        note_metrics (t);
        n = pieces (t, ret);
    }
    reference_hash (t->reference, t->referred);
    if (t->referred[0])
        ret[n++] = reference_piece (t->referred);
    return n;
}

/* The checkpoint's reference, if it has one that is known, and this one. It may
 * be meant so: a line says it. */
static train_status_t compare_reference (train_grpo_trainer_t *t,
                                         const char *path, train_error_t *err)
{
    int64_t there[2] = {0, 0}, here[2];
    train_ckpt_piece_t piece = reference_piece (there);
    train_ckpt_t *ckpt = NULL;
    char text[200];

    reference_hash (t->reference, here);
    if (!here[0])
        return TRAIN_OK;
    TRY (train_ckpt_open (path, &ckpt, err));
    if (train_ckpt_read (ckpt, &piece, 1, NULL) != TRAIN_OK)
        there[0] = 0; /* written by none, or before it was kept */
    train_ckpt_close (ckpt);
    if (there[0] != here[0] || there[1] == here[1])
        return TRAIN_OK;
    snprintf (text, sizeof (text),
              "the reference is another one than the run had: its hash is "
              "%016" PRIx64 ", and was %016" PRIx64
              "; the KL is to the new one from here on",
              (uint64_t)here[1], (uint64_t)there[1]);
    return trainer_add_note (t->trainer, text, err);
}

static train_status_t read_all (train_grpo_trainer_t *t, const char *path,
                                train_error_t *err)
{
    train_ckpt_piece_t piece[TRAINER_BESIDE];
    size_t n = pieces (t, piece);
    train_ckpt_t *ckpt = NULL;
    train_status_t status;

    TRY (train_ckpt_open (path, &ckpt, err));
    status = train_ckpt_read (ckpt, piece, n, err);
    train_ckpt_close (ckpt);
    if (status != TRAIN_OK)
        err_prefix (err, status,
                    "grpo: step %lld is in mid-cycle, and what it needs is not "
                    "there",
                    (long long)train_trainer_steps (t->trainer));
    return status;
}

static train_status_t give_all (train_grpo_trainer_t *t, train_error_t *err)
{
    train_ckpt_piece_t piece[TRAINER_BESIDE];
    size_t n = pieces (t, piece);
    train_tensor_t view;

    for (size_t i = 0; i < n; i++) {
        TRY (train_tensor_view (&view, piece[i].data, piece[i].dtype, 1,
                                &piece[i].count, err));
        TRY (train_broadcast (t->group, &view.t, 0, err));
    }
    return TRAIN_OK;
}

/* Of a file, so nothing of it is believed. */
static train_status_t check (const train_grpo_trainer_t *t, int k,
                             train_error_t *err)
{
    const struct grpo_texts *x = &t->texts;
    const int32_t *ids = x->ids + (size_t)k * (size_t)x->L;
    const uint8_t *mask = t->mask + (size_t)k * (size_t)x->L;
    int vocab = train_decoder_config (t->decoder)->vocab;
    int64_t counted = 0;
    bool bad = x->n[k] < 0 || x->n[k] > x->L || x->which[k] < 0
               || x->which[k] >= t->prompts.count;

    for (int j = 0; !bad && j < x->n[k]; j++) {
        bad = ids[j] < 0 || ids[j] >= vocab;
        counted += mask[j] != 0;
    }
    bad |= counted != t->lengths[k];
    return bad ? err_set (err, TRAIN_EFORMAT,
                          "grpo: completion %d of the checkpoint is none of "
                          "this run",
                          k)
               : TRAIN_OK;
}

train_status_t grpo_loaded (void *arg, const char *path, train_error_t *err)
{
    train_grpo_trainer_t *t = arg;
    struct grpo_place p = grpo_place (t, train_trainer_steps (t->trainer));
    struct grpo_texts *x = &t->texts;
    train_status_t status = TRAIN_OK;

    t->made = 0;
    if (train_group_rank (t->group) == 0)
        status = compare_reference (t, path, err);
    if (train_group_rank (t->group) == 0 && status == TRAIN_OK && p.at != 0)
        status = read_all (t, path, err);
    TRY (trainer_agree (t->group, status, err));
    if (p.at == 0)
        return TRAIN_OK;
    TRY (give_all (t, err));
    for (int k = 0; k < x->M; k++) {
        TRY (check (t, k, err));
        TRY (grpo_texts_ask (x, k, &t->prompts, x->which[k], err));
    }
    grpo_texts_tell (t, x, t->o.rewards);
    take_metrics (t, p.cycle);
    for (int k = 0; k < x->M; k++)
        x->sample[k].advantage = t->adv[k];
    t->made = p.cycle + 1;
    return TRAIN_OK;
}
