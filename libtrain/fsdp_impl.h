/* SPDX-License-Identifier: Apache-2.0
 * fsdp_impl.h - what the engine's files share. */
#ifndef TRAIN_FSDP_IMPL_H
#define TRAIN_FSDP_IMPL_H

#include "backend.h"
#include "fsdp.h"

#define FSDP_N_GRADS 2 /* flat units of gradients: computed, being reduced */

/* A collective that is under way: on the host a work, on a GPU what its stream
 * comes to. */
struct fsdp_work {
    bool on;
    train_work_t *work;
    void *done; /* event of the GPU: its result is there */
};

/* A flat unit. */
struct fsdp_flat {
    const train_shard_unit_t *plan;
    size_t at;      /* of its whole weights in the bundle's, elements */
    size_t room_at; /* of its whole gradients in the bundle's, elements */
    size_t grads, n_grads; /* what of the gradients is its own, in the shard;
                              n_grads 0: it has none */
    struct fsdp_work gather;
    bool still;  /* all its parameters are frozen: nothing is reduced */
    bool summed; /* of a GPU: the shard's gradients are of this step */
};

/* A bundle of flat units, one behind the other: what is gathered and let go at
 * a time. It has one but where some are still. Where the elements of a flat unit
 * do not divide, the end of its gather lies across the next one's beginning, so
 * they are gathered in their order. */
struct fsdp_unit {
    size_t first, end; /* flat units */
    size_t whole;      /* elements of weights, padding included */
    size_t room;       /* of gradients, padding and sink included */
    size_t kept_at;    /* of them among those of all bundles */
    char *weights;     /* (whole) there or on their way; NULL: not here */
};

/* Room for a bundle's gradients. */
struct fsdp_grads {
    char *data;  /* (room) of the shard's type; NULL: kept ones */
    char *wire;  /* the same in the type of the wire; NULL: it is that */
    size_t unit; /* whose they are */
    struct fsdp_work *works; /* (most_flats) being reduced */
    bool taken;
};

/* Consecutive visits of one bundle. */
struct fsdp_stay {
    size_t unit;        /* bundle */
    size_t first, last; /* visits */
    bool again;         /* an earlier stay is in the same unit: in the backward
                         that one comes later */
};

struct fsdp;

/* How collectives and the arithmetic beside them are done: by a host group's
 * works, or by a GPU's streams, where nothing here waits but drain. Errors are
 * the group's, and of a GPU TRAIN_EDEVICE. */
struct fsdp_way {
    /* open - what the way needs, after plan and slots; close frees it. */
    train_status_t (*open) (struct fsdp *f, train_error_t *err);
    void (*close) (struct fsdp *f);
    /* gather - begin to gather flat unit [r] of bundle [u] from [in] to [out], its
   * part of the bundle's place, behind the one before it, what passes have used
   * that for, and sums of gradients that lie there; where the engine gathers in
   * place, [in] is this rank's part of that, filled first. */
    train_status_t (*gather) (struct fsdp *f, size_t u, size_t r, DLTensor *in,
                              DLTensor *out, train_error_t *err);
    /* wait - what comes now is after the work; nothing where there is none. */
    train_status_t (*wait) (struct fsdp *f, struct fsdp_work *w,
                            train_error_t *err);
    /* scatter - the whole gradients of flat unit [r] are there: begin to add this
   * rank's block of their sum to the shard, by way of [wire] if that is not NULL.
   * joined - as wait; [whole] and [wire] are as in scatter. */
    train_status_t (*scatter) (struct fsdp *f, size_t r, char *whole,
                               char *wire, struct fsdp_work *w,
                               train_error_t *err);
    train_status_t (*joined) (struct fsdp *f, size_t r, char *whole, char *wire,
                              struct fsdp_work *w, train_error_t *err);
    /* sum - begin to all-reduce [t]. */
    train_status_t (*sum) (struct fsdp *f, DLTensor *t, struct fsdp_work *w,
                           train_error_t *err);
    /* drain - until nothing is under way, whatever becomes of it. */
    void (*drain) (struct fsdp *f);
};

extern const struct fsdp_way fsdp_way_host, fsdp_way_gpu;

/* Of fsdp_each. */
struct fsdp_each {
    bool on;
    train_group_t *group; /* of the host's memory */
    train_status_t (*fresh) (void *arg, size_t unit, train_error_t *err);
    void *arg;
    bool *seen; /* (units of the model) [fresh] has had it since it came */
    int due;    /* passes agreed on that have not ended here */
    size_t at;  /* visit of this pass */
    bool inside;
    bool step; /* of the group, open */
    bool over; /* all have heard that one failed */
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
    void (*spend) (void *arg, bool lend);
    train_status_t (*settle) (void *arg, train_error_t *err);
    void *arg;
    const struct fsdp_way *way;
    const struct backend_ops *ops; /* where all this lies */
    int device;
    bool gpu;
    void *stream;            /* of the model's passes; NULL on the host */
    double *loss;            /* of the GPU, or NULL */
    struct fsdp_gpu *on;     /* of fsdp_way_gpu */
    bool *no_decay, *frozen; /* (parameters) */
    size_t *visits, n_visits;
    bool tail;         /* the last visit is of a unit that was visited before */
    bool bare;         /* the backward of stay 0 reads no weights */
    size_t *stay_of;   /* (n_visits) */
    size_t *offset_of; /* (units of the model) in its flat unit */
    struct fsdp_stay *stays;
    size_t n_stays;
    struct fsdp_flat *flats;    /* flat units */
    size_t n_flats, most_flats; /* most: of a bundle */
    struct fsdp_unit *units;    /* bundles */
    size_t n_units;
    bool apart;  /* what is still has no masters and no gradients */
    size_t sink; /* elements before each bundle's gradients, then */
    size_t
        *grad_at; /* (parameters) replicas apart: in the gradients; SIZE_MAX: it
                        has none. Else NULL: as the weights */

    train_tensor_t weights,
        grads;   /* the shard; replicas: the model's. Of halves
                        apart those that train alone; of such replicas [weights]
                        are the model's own type, and the optimizer has masters */
    char *base;  /* sharded, apart: weights of this shard that are still, of the
                   model's type */
    void *arena; /* of the shard */
    void *far;   /* masters that are offloaded, pinned; else in [arena] */
    uint16_t *low; /* the masters rounded to wdtype: of the shard, or the
                    model's; NULL: they are of that type */
    bool own_low, own_base;
    bool late;   /* halves without [low]: rounded as they are gathered */
    bool brings; /* offload_weights: [low], or without it [far], is what gathers
                    are from */
    bool one_each;       /* weights of a bundle have a place of their own */
    char *rooms, *wires; /* what is whole for a while: weights and gradients;
                            these as they are on the wire */
    /* (n_stays) bytes of [rooms]: of weights forth and back, of gradients; and
     * elements of [wires]. */
    size_t *forth_at, *back_at, *grads_at, *wire_at;
    struct fsdp_grads room[FSDP_N_GRADS];
    size_t next_room;
    char *kept; /* no_sync: whole gradients of all flat units */
    size_t kept_bytes;
    char *now;                /* gradients of the stay in the backward */
    struct fsdp_grads *owner; /* of [now], NULL when it is kept */
    struct fsdp_work *works;  /* (n_flats) of replicas and of kept ones */
    struct fsdp_work whole;   /* of all gradients at once */
    void *all; /* the whole model, by fsdp_all; NULL: it has none of its own */
    bool all_on;
    struct fsdp_each each;

    enum fsdp_phase phase;
    size_t at; /* visits begun in this phase */
    bool inside, last_pass;
    bool lends; /* the model has a loan */
    bool fresh; /* no pass of this step has begun */
    bool blank; /* an empty pass: gradients that nobody writes */
    struct fsdp_held held;
};

/* Start of bundle [u] in an arena of whole bundles' gradients, in bytes. */
size_t fsdp_whole_at (const struct fsdp *f, size_t u);
/* Bytes of a whole bundle's gradients, padding included. */
size_t fsdp_whole_bytes (const struct fsdp *f, size_t u);
/* fsdp_flats_make - flat units, and bundles of them (fsdp_flat.c). */
train_status_t fsdp_flats_make (struct fsdp *f, train_error_t *err);
void fsdp_flats_free (struct fsdp *f);
/* fsdp_loan - lend the model the shard's gradients (fsdp_lend.c).
 * fsdp_spend - a pass begins: its gradients are written, where the model can.
 * fsdp_clear_room - before the backward of a stay in bundle [u]: what nobody
 * writes at [data] becomes 0.
 * fsdp_clear_rest - at the end of a step: gradients of the shard that no rank
 * reduced are 0. */
train_status_t fsdp_loan (struct fsdp *f, const struct fsdp_model *m,
                          train_error_t *err);
void fsdp_spend (struct fsdp *f);
train_status_t fsdp_clear_room (struct fsdp *f, size_t u, char *data,
                                train_error_t *err);
train_status_t fsdp_clear_rest (struct fsdp *f, train_error_t *err);

/* fsdp_still - gradients of frozen parameters become zero. */
train_status_t fsdp_still (struct fsdp *f, train_error_t *err);
/* fsdp_widen - the masters from the model's weights. */
void fsdp_widen (struct fsdp *f);

/* fsdp_put - this rank's part of a parameter, of the host's memory and the
 * masters' type (fsdp_wide.c). */
train_status_t fsdp_put (struct fsdp *f, train_adamw_t *adamw, size_t param,
                         const void *from, train_error_t *err);

/* Marks of a decoder's parameters (fsdp_params.c). */
struct fsdp_rules {
    bool *no_decay, *frozen;
    bool *still;     /* no kernel makes a gradient of it that anyone wants */
    size_t *grad_at; /* as struct fsdp_model has it */
};
/* fsdp_read_params - to be freed, after a failure too. fsdp_make_rules - of these;
 * what lies apart is still in them from now on, and [d] knows what is frozen.
 * fsdp_free_rules, after a failure too. TRAIN_EINVAL, TRAIN_ENOMEM. */
train_status_t fsdp_read_params (const train_decoder_t *d,
                                 train_shard_param_t **ret, size_t *ret_n,
                                 train_error_t *err);
train_status_t fsdp_make_rules (const struct fsdp_options *o,
                                train_decoder_t *d, train_shard_param_t *params,
                                size_t n, struct fsdp_rules *r,
                                train_error_t *err);
void fsdp_free_rules (struct fsdp_rules *r);

/* fsdp_rooms_make - room for what is whole for a while (fsdp_rooms.c). */
train_status_t fsdp_rooms_make (struct fsdp *f, train_error_t *err);
void fsdp_rooms_free (struct fsdp *f);
/* fsdp_alloc - [bytes] of this memory, zeros in the order of the passes, to the
 * pointer at [ret]; [what] stands in the message. */
train_status_t fsdp_alloc (const struct fsdp *f, void *ret, size_t bytes,
                           const char *what, train_error_t *err);

/* fsdp_block - this rank's part of flat unit [r] in the model's type. */
char *fsdp_block (const struct fsdp *f, size_t r);
/* fsdp_meets - would a stay's bundle lie across one that is here?
 * fsdp_meets_room - would [bytes] at [at] lie across gradients that [g] has?
 * fsdp_gather - begin to gather a stay's bundle, if it is not here and its
 * place is free; [must]: TRAIN_ESTATE where it is not. */
bool fsdp_meets (const struct fsdp *f, size_t stay);
bool fsdp_meets_room (const struct fsdp *f, const struct fsdp_grads *g,
                      const char *at, size_t bytes);
train_status_t fsdp_gather (struct fsdp *f, size_t stay, bool must,
                            train_error_t *err);
train_status_t fsdp_gather_wait (struct fsdp *f, size_t u, train_error_t *err);
train_status_t fsdp_release (struct fsdp *f, size_t u, train_error_t *err);

/* fsdp_room - zeroed room for the gradients of a stay, to f->now. May wait for
 * reductions. */
train_status_t fsdp_room (struct fsdp *f, size_t stay, train_error_t *err);
/* fsdp_reduce - the stay's gradients are whole. [again]: more will come. */
train_status_t fsdp_reduce (struct fsdp *f, size_t u, bool again,
                            train_error_t *err);
/* Wait for all reductions; their sums are in the shard. */
train_status_t fsdp_reduce_wait (struct fsdp *f, train_error_t *err);
/* fsdp_clear - zeros, in the order of the passes. */
train_status_t fsdp_clear (const struct fsdp *f, void *data, size_t bytes,
                           train_error_t *err);
/* fsdp_copy - between this memory and the host's; waits. */
train_status_t fsdp_copy (const struct fsdp *f, void *dst, const void *src,
                          size_t bytes, train_error_t *err);
/* fsdp_cast - [n] of one type to another, in the order of [stream]. */
void fsdp_cast (const struct fsdp *f, void *dst, train_dtype_t to,
                const void *src, train_dtype_t from, size_t n, void *stream);
/* fsdp_in_place - gathers of flat unit [r] are from this rank's block of where
 * they go to, which is filled before; else from the shard.
 * fsdp_fill_block - fill it at [to], in the order of [stream]: the masters
 * rounded, or what is in the host's memory. Nothing else where it is neither. */
bool fsdp_in_place (const struct fsdp *f, size_t r);
train_status_t fsdp_fill_block (const struct fsdp *f, size_t r, void *to,
                                void *stream, train_error_t *err);
/* fsdp_far - what of the weights is offloaded, as adamw_create_at has it. */
unsigned fsdp_far (const struct fsdp *f);
/* fsdp_step_open - of a GPU: the calls of a step begin. */
train_status_t fsdp_step_open (struct fsdp *f, train_error_t *err);

train_status_t fsdp_view (const struct fsdp *f, train_tensor_t *t, void *data,
                          train_dtype_t dtype, size_t n, train_error_t *err);

#endif
