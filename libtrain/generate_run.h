/* SPDX-License-Identifier: Apache-2.0
 * generate_run.h - what the files of a run over texts share. Inside libtrain only. */
#ifndef TRAIN_GENERATE_RUN_H
#define TRAIN_GENERATE_RUN_H

#include "generate_impl.h"

/* One run over B texts. */
struct generate_run {
    struct kv_cache *cache;
    train_decoder_t *m;
    const train_generate_options_t *o;
    const int32_t *const *prompts;
    const int *n;
    int32_t *ids;    /* (B,max_new) */
    int *added;      /* (B) */
    int *text, *fed; /* (slots): a slot's text, or -1; tokens in the cache */
    int *lead;       /* (slots): the slot that reads its prompt, or -1 */
    int *drawer;     /* (slots): whose the draws of a feed are */
    size_t slots, rows, V;
    int B, next; /* texts that have entered */
};

/* generate_enter - texts that wait enter free slots and their prompts are read, until
 * none waits or none is free. generate_turns - tokens for every text, [alive] of
 * them, until other rows are to be stepped.
 *   TRAIN_ENONFINITE: a logit is no number; TRAIN_EDEVICE and those of the hooks
 * generate_take - token [id] for the text of a slot, which may be its last.
 * generate_alive - texts in slots. generate_rows - rows of a step of so many. */
train_status_t generate_enter (struct generate_run *run, train_error_t *err);
train_status_t generate_turns (struct generate_run *run, size_t alive,
                               train_error_t *err);
train_status_t generate_take (struct generate_run *run, size_t slot, int32_t id,
                              float logp, train_error_t *err);
size_t generate_alive (const struct generate_run *run);
size_t generate_rows (const struct generate_run *run, size_t alive);

#endif
