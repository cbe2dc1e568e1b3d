/* SPDX-License-Identifier: Apache-2.0
 * fsdp_impl.h - what the engine's files share. */
#ifndef TRAIN_FSDP_IMPL_H
#define TRAIN_FSDP_IMPL_H

#include "fsdp.h"

#define FSDP_N_GRADS 2 /* flat units of gradients: computed, being reduced */

/* A flat unit's weights. */
struct fsdp_unit {
    const train_shard_unit_t *plan;
    char *weights; /* (world chunk) whole or on their way; NULL: not here */
    size_t slot;   /* of [weights] */
    train_work_t *gather;
    bool still; /* all its parameters are frozen: nothing is reduced */
};

/* Room for a flat unit's gradients. */
struct fsdp_grads {
    char *data;         /* (world chunk) of the model's type */
    char *wire;         /* the same in the type of the wire; NULL: it is that */
    size_t unit;        /* whose they are */
    train_work_t *work; /* being reduced */
    bool taken;
};

/* Consecutive visits of one flat unit. */
struct fsdp_stay {
    size_t unit;        /* flat */
    size_t first, last; /* visits */
    bool again;         /* an earlier stay is in the same unit: in the backward
                           that one comes later */
};

enum fsdp_phase { FSDP_IDLE, FSDP_FORWARD, FSDP_BACKWARD };

struct fsdp {
    struct fsdp_options opts;
    train_group_t *group;
    train_shard_plan_t *plan;
    int rank; /* in the plan */
    bool sharded;
    train_dtype_t wdtype; /* of weights in the model */
    train_dtype_t dtype;  /* of masters and gradients */
    size_t wsize, esize;  /* bytes of an element of these */
    size_t world;         /* of the plan */
    void (*set_unit) (void *arg, size_t unit, void *weights, void *grads);
    void (*forget) (void *arg);
    void *arg;
    bool *no_decay, *frozen; /* (parameters) by fsdp_rules; NULL: none */
    size_t *visits, n_visits;
    bool tail;         /* the last visit is of a unit that was visited before */
    size_t *stay_of;   /* (n_visits) */
    size_t *offset_of; /* (units of the model) in its flat unit */
    struct fsdp_stay *stays;
    size_t n_stays;
    struct fsdp_unit *units;
    size_t n_units;

    train_tensor_t weights, grads; /* the shard; replicas: the model's */
    void *arena;                   /* of the shard */
    uint16_t *low; /* the masters rounded to wdtype: of the shard, or the
                      model's; NULL: they are of that type */
    bool own_low;
    char **slots; /* (n_slots) room for whole weights */
    bool *slot_taken;
    size_t n_slots;
    struct fsdp_grads room[FSDP_N_GRADS];
    size_t next_room;
    char *kept; /* no_sync: whole gradients of all flat units */
    size_t kept_bytes;
    char *now;                /* gradients of the stay in the backward */
    struct fsdp_grads *owner; /* of [now], NULL when it is kept */
    train_work_t **works;     /* (n_units) of replicas and of kept ones */

    enum fsdp_phase phase;
    size_t at; /* visits begun in this phase */
    bool inside, last_pass;
    struct fsdp_held held;
};

/* Start of flat unit [u] in an arena of whole units' gradients. */
size_t fsdp_whole_at (const struct fsdp *f, size_t u);
/* Bytes of a whole flat unit's gradients, padding included. */
size_t fsdp_whole_bytes (const struct fsdp *f, size_t u);
/* fsdp_still - gradients of frozen parameters become zero. */
void fsdp_still (struct fsdp *f);
/* fsdp_widen - the masters from the model's weights. */
void fsdp_widen (struct fsdp *f);

/* fsdp_gather - begin to gather a flat unit, if it is not here and room is
 * free; [must]: TRAIN_ESTATE where there is none. */
train_status_t fsdp_gather (struct fsdp *f, size_t u, bool must,
                            train_error_t *err);
train_status_t fsdp_gather_wait (struct fsdp *f, size_t u, train_error_t *err);
train_status_t fsdp_release (struct fsdp *f, size_t u, train_error_t *err);

/* fsdp_room - zeroed room for the gradients of a stay in flat unit [u], to
 * f->now. May wait for a reduction. */
train_status_t fsdp_room (struct fsdp *f, size_t u, train_error_t *err);
/* fsdp_reduce - the stay's gradients are whole. [again]: more will come. */
train_status_t fsdp_reduce (struct fsdp *f, size_t u, bool again,
                            train_error_t *err);
/* Wait for all reductions; their sums are in the shard. */
train_status_t fsdp_reduce_wait (struct fsdp *f, train_error_t *err);
/* Every work that is under way, whatever becomes of it. */
void fsdp_wait_any (struct fsdp *f);

train_status_t fsdp_view (const struct fsdp *f, train_tensor_t *t, void *data,
                          train_dtype_t dtype, size_t n, train_error_t *err);

#endif
