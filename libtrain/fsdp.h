/* SPDX-License-Identifier: Apache-2.0
 * fsdp.h - the engine of sharded and data-parallel training: it follows a
 * model's passes, has weights there before they are needed and gradients
 * summed when they are whole. Inside libtrain only.
 *
 * A model is visited unit by unit: forward in the order of its visits, backward
 * the other way; a unit may be visited twice (a tied head visits the embedding
 * again, which a forward may leave out). Consecutive visits in one flat unit
 * are one stay. With TRAIN_FULL_SHARD a flat unit is gathered for each stay and
 * let go after it, [prefetch] stays ahead are gathered meanwhile, and each
 * stay's gradients are reduce-scattered while the backward goes on. At most
 * prefetch + 1 flat units of weights and two of gradients are whole at a time,
 * in one memory (fsdp_fit.h) beside the shards. TRAIN_SHARD_GRAD_OP keeps weights
 * from forward to backward, and through the passes of a step. TRAIN_DDP sums each
 * flat unit in place, TRAIN_NO_SHARD all of them by one call at the end.
 *
 * Where some of a model is frozen, what is gathered for a stay is a bundle of flat
 * units, those that train and those that do not (train/shard.h): both are
 * gathered, one behind the other, and gradients are made, kept and reduced of the
 * first alone. Replicas have gradients and masters of what trains alone.
 *
 * On a GPU a pass writes a unit's gradients, so nothing is filled with zeros that
 * a product writes whole, and the first reduction of a step writes the shard's.
 * In a step of one pass the shard's gradients (replicas: the gradients) hold
 * what the forward keeps for the backward, until they come.
 *
 * Weights that are offloaded come from the host's memory to this rank's block of
 * the whole, on a stream of their own, as early as the gather in place behind them
 * may be, which is [prefetch] stays ahead: beside the passes' kernels. The update
 * writes them back in pieces.
 *
 * Sums of gradients are sums over ranks and passes: a mean is the caller's, by
 * the scale of its losses. Collectives are issued in an order that the visits
 * alone make, so ranks agree whatever their data; a rank without any calls
 * fsdp_empty_pass. Buffers of a collective are not touched until it has ended.
 * After an error only fsdp_destroy is useful. One thread.
 * (Zhao et al. 2023, arXiv:2304.11277; Li et al. 2020, arXiv:2006.15704.) */
#ifndef TRAIN_FSDP_H
#define TRAIN_FSDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/group.h>
#include <train/optim.h>
#include <train/safetensors.h>
#include <train/shard.h>
#include <train/status.h>
#include <train/tensor.h>

struct backend_ops;
struct fsdp;

struct fsdp_options {
    train_strategy_t strategy;
    train_wrap_t wrap;
    size_t least;         /* of TRAIN_WRAP_SIZE */
    int prefetch;         /* stays gathered ahead; 0.. */
    bool no_sync;         /* sharded: gradients of all passes but the last stay
                             whole on each rank, and are reduced once */
    bool offload;         /* of a GPU: AdamW's state, and masters of halves, are
                             in the host's memory (train/optim.h) */
    bool offload_weights; /* of a GPU, sharded: so is the shard's part of the
                             weights, and comes before each gather */
    bool round_late; /* sharded halves whose masters are where the model is:
                             no rounded copy of the shard stays, each gather
                             rounds this rank's block into its place */
    train_dtype_t reduce; /* of gradients on the wire: their type, or sharded
                             TRAIN_BF16 for F32 (sums are F32 there, rounded
                             once) */
    /* Patterns (fnmatch(3)) of parameters' names, joined by commas; NULL or "":
     * none. Of fsdp_of_decoder.
     *   no_decay   beside those that do not decay anyway
     *   frozen     no update, no gradient, no part in the norm */
    const char *no_decay, *frozen;
};

/* What the engine knows of a model. Copied, but for [arg] and the arenas. */
struct fsdp_model {
    train_dtype_t dtype; /* of weights; gradients, masters and moments are F32,
                            of F64 F64 */
    const train_shard_param_t *params;
    size_t n_params;
    const size_t *visits; /* (n_visits) units of the model, forward */
    size_t n_visits;
    /* Use these weights and gradients, each of the unit's elements. */
    void (*set_unit) (void *arg, size_t unit, void *weights, void *grads);
    void (*forget) (void *arg); /* the engine ends; may be NULL */
    bool bare; /* the backward of the first visit reads no weights, as of an
                  embedding: alone in its flat unit it may have none then */
    /* Of a GPU; NULL: the model adds to gradients, and borrows nothing.
     * spend - the next pass writes its gradients, whatever is there; [lend]: and
     * may use the loan meanwhile (decoder_spent.h). settle - it will not come, and
     * nobody uses that; with replicas gradients become 0.
     * lend - sharded: [until] bytes from [at] until the backward of each visit but
     * the first and a second one is over; [at] NULL: none. */
    void (*spend) (void *arg, bool lend);
    train_status_t (*settle) (void *arg, train_error_t *err);
    void (*lend) (void *arg, void *at, const size_t *until);
    void *arg;
    /* Of a GPU: its backend, and the stream that passes are given to; [loss]
   * (1) there, which fsdp_finish sums. NULL: the host. */
    const struct backend_ops *ops;
    int device;
    void *stream;
    double *loss;
    /* Of TRAIN_NO_SHARD and TRAIN_DDP: the whole model, in the order of the
     * parameters; set_unit is not called. Else NULL. */
    void *weights, *grads;
    const bool *no_decay, *frozen; /* (n_params) NULL: none */
    /* Sharded, where parameters are still (train/shard.h): set_unit's gradients
     * are the bundle's then, [sink] elements that nobody reads and behind them
     * what fsdp_room_at says. */
    size_t sink;
    /* Replicas whose gradients are those of what trains alone: where each
     * parameter's begin, SIZE_MAX: it has none; [n_grads] in all. The weights of
     * halves have no masters here then. NULL: as the weights lie. */
    const size_t *grad_at;
    size_t n_grads;
};

/* Elements, padding included; peaks since the beginning. */
struct fsdp_held {
    size_t shard;          /* weights of this rank's shard */
    size_t weights, grads; /* whole ones now, beside the shards */
    size_t most_weights, most_grads;
};

/* fsdp_create - shards and buffers. Sharded weights are zero; replicas that
 * need masters widen the model's weights. Local.
 *   group   borrowed, outlives the engine
 * TRAIN_EINVAL names what is wrong; TRAIN_ENOMEM. */
train_status_t fsdp_create (const struct fsdp_options *opts,
                            train_group_t *group,
                            const struct fsdp_model *model,
                            struct fsdp **ret_fsdp, train_error_t *err);
/* Waits for collectives that are under way; NULL is fine. */
void fsdp_destroy (struct fsdp *fsdp);

/* What lends activations the shard's gradients, which begin at [base]; as
 * struct fsdp_model has the visits, [tail]: the last is of a unit that was
 * visited before. fsdp_lendable - false: nothing is lent.
 *   ret_at   bytes from [base] to the first line that is
 *   until    (n_visits - tail - 1) written: bytes from there that are until the
 *            backward of the second visit and those behind it is over */
struct fsdp_lender {
    const train_shard_plan_t *plan;
    const size_t *visits;
    size_t n_visits;
    bool tail;
    uintptr_t base;
    size_t esize; /* bytes of a gradient */
};
bool fsdp_lendable (const struct fsdp_lender *lender, size_t *ret_at,
                    size_t *until);
/* fsdp_lends_decoder - the same of an engine over a decoder, sharded by [world]
 * ranks of GPUs.
 *   until   (layers + 1)
 * TRAIN_EINVAL, TRAIN_ENOMEM. */
train_status_t fsdp_lends_decoder (const struct fsdp_options *opts,
                                   const train_decoder_t *decoder, int world,
                                   bool *ret_lends, size_t *until,
                                   train_error_t *err);

/* fsdp_of_decoder - the same for a decoder, whose hooks are set: it is one
 * without arenas for the sharded strategies, with arenas for the others.
 * Destroy the engine before the decoder. Frozen weights have no masters and no
 * gradients, and are gathered and not reduced.
 * TRAIN_EINVAL: a pattern fits no parameter, or frozen fits all. */
train_status_t fsdp_of_decoder (const struct fsdp_options *opts,
                                train_group_t *group, train_decoder_t *decoder,
                                struct fsdp **ret_fsdp, train_error_t *err);
/* fsdp_plan_of_decoder - the plan that an engine over it makes, sharded by [world]
 * ranks, once decoder_freeze has been called. TRAIN_EINVAL, TRAIN_ENOMEM. */
train_status_t fsdp_plan_of_decoder (const struct fsdp_options *opts,
                                     const train_decoder_t *decoder, int world,
                                     train_shard_plan_t **ret,
                                     train_error_t *err);
/* fsdp_apart - is it so? fsdp_room_at - where the gradients of a parameter begin
 * in its bundle's; SIZE_MAX: it has none. Sharded. */
bool fsdp_apart (const struct fsdp *fsdp);
size_t fsdp_room_at (const struct fsdp *fsdp, size_t param);
/* fsdp_grad_range - where in fsdp_grads a parameter's part here is; count 0 of one
 * that has none. */
train_shard_range_t fsdp_grad_range (const struct fsdp *fsdp, size_t param);
/* fsdp_match - the parameters of a plan that such patterns fit.
 *   ret_no_decay, ret_frozen   (parameters) to be freed, after a failure too */
train_status_t fsdp_match (const train_shard_plan_t *plan, const char *no_decay,
                           const char *frozen, bool **ret_no_decay,
                           bool **ret_frozen, train_error_t *err);
/* fsdp_init_decoder - each rank draws its shard of what train_decoder_init
 * draws, or has it from files, masters before they are rounded; no rank has more
 * than a unit of the model at a time. Local.
 *   files   of hf_open; adapters are drawn all the same. NULL: all is drawn
 *   adamw   of fsdp_adamw, which may have masters; NULL: there is none yet */
train_status_t fsdp_init_decoder (struct fsdp *fsdp,
                                  const train_decoder_t *decoder,
                                  const train_safetensors_t *files,
                                  uint64_t seed, train_adamw_t *adamw,
                                  train_error_t *err);
/* fsdp_adamw - an optimizer over this rank's shard. TRAIN_EINVAL: stochastic
 * rounding where round_late rounds anew. */
train_status_t fsdp_adamw (const struct fsdp *fsdp,
                           const train_decoder_t *decoder,
                           const train_adamw_options_t *opts,
                           train_adamw_t **ret_adamw, train_error_t *err);

/* The plan lives with the engine. Of the strategies that do not shard it is a
 * plan for one rank, and this rank's number in it is 0. */
const train_shard_plan_t *fsdp_plan (const struct fsdp *fsdp);
int fsdp_rank (const struct fsdp *fsdp); /* in the plan */
bool fsdp_is_sharded (const struct fsdp *fsdp);
train_dtype_t fsdp_real (const struct fsdp *fsdp); /* of the shard */
/* fsdp_weights - masters of the shard, 1-D. Apart, of halves: those that train
 * alone; of such replicas the model's weights, whose masters AdamW has.
 * fsdp_grads - apart: of what trains; replicas, as the decoder has them. */
DLTensor *fsdp_weights (struct fsdp *fsdp);
DLTensor *fsdp_grads (struct fsdp *fsdp);
/* fsdp_updated - the masters have changed: round them to the model's type.
 * Before the next pass. Local. */
void fsdp_updated (struct fsdp *fsdp);
/* fsdp_round - after it: the BF16 as AdamW rounds it, where that is stochastic. */
void fsdp_round (struct fsdp *f, train_adamw_t *adamw);
struct fsdp_held fsdp_held (const struct fsdp *fsdp);

/* fsdp_begin - a step: gradients become zero, and weights are gathered anew. */
train_status_t fsdp_begin (struct fsdp *fsdp, train_error_t *err);
/* fsdp_pass - the next pass begins; [last]: of the step. */
train_status_t fsdp_pass (struct fsdp *fsdp, bool last, train_error_t *err);
/* fsdp_before, fsdp_after - the model's hooks: a visit begins, ends. A visit
 * out of turn is TRAIN_ESTATE; else errors of the group. */
train_status_t fsdp_before (struct fsdp *fsdp, size_t unit, bool backward,
                            train_error_t *err);
train_status_t fsdp_after (struct fsdp *fsdp, size_t unit, bool backward,
                           train_error_t *err);
/* fsdp_empty_pass - all collectives of a forward and backward, with zero
 * gradients. */
train_status_t fsdp_empty_pass (struct fsdp *fsdp, train_error_t *err);
/* fsdp_drop - let go of weights that a forward without backward has left. */
train_status_t fsdp_drop (struct fsdp *fsdp, train_error_t *err);
/* fsdp_all - between steps: every flat unit is gathered and the model's units
 * are placed there, in memory of its own (of TRAIN_SHARD_GRAD_OP where passes
 * have them), until fsdp_all_end: then passes that only look may be made, on each rank as many as it wants, without the hooks.
 * Nothing where nothing is sharded.
 *   group   of the host's memory: ranks agree by it that each has the room
 * TRAIN_ENOMEM on all where one has none, and what it would take; errors of the
 * group. fsdp_all_end also after a failure. */
train_status_t fsdp_all (struct fsdp *fsdp, train_group_t *group,
                         train_error_t *err);
void fsdp_all_end (struct fsdp *fsdp);
/* fsdp_all_bytes - the memory of its own that it takes. */
size_t fsdp_all_bytes (const struct fsdp *fsdp);
/* fsdp_each - between steps, instead of fsdp_all where that does not fit: until
 * fsdp_each_end, forwards have each unit gathered for its visit, in the room
 * that passes have anyway. TRAIN_ESTATE, TRAIN_ENOMEM.
 *   group   of the host's memory: ranks agree by it
 *   fresh   called in a visit of this rank's with what has been gathered since
 *           it was last; it may write there. NULL: nobody
 * fsdp_each_meet - [n] passes of this rank come now; 0: those of the others are
 * made up before it returns. If others have more, or it breaks one off, what is
 * missing is made up when it meets next, or ends.
 * fsdp_each_before, fsdp_each_after - the model's hooks meanwhile.
 * fsdp_each_end - this rank has no more, or [status] made it end: until no rank
 * has any, or all have heard of the failure. Once for each fsdp_each that
 * succeeded. Returns [status], or with OK that another rank failed.
 * fsdp_each_hooks - what a decoder's hooks are meanwhile.
 * Collective; errors of the group, and what another rank failed with. */
train_status_t fsdp_each (struct fsdp *fsdp, train_group_t *group,
                          train_status_t (*fresh) (void *arg, size_t unit,
                                                   train_error_t *err),
                          void *arg, train_error_t *err);
train_status_t fsdp_each_meet (struct fsdp *fsdp, int n, train_error_t *err);
train_status_t fsdp_each_before (struct fsdp *fsdp, size_t unit,
                                 train_error_t *err);
train_status_t fsdp_each_after (struct fsdp *fsdp, size_t unit,
                                train_error_t *err);
train_status_t fsdp_each_end (struct fsdp *fsdp, train_status_t status,
                              train_error_t *err);
struct decoder_hooks;
struct decoder_together;
void fsdp_each_hooks (struct fsdp *fsdp, struct decoder_hooks *ret_hooks,
                      struct decoder_together *ret_together);
/* fsdp_end - wait until this rank's gradients are the sums of all. */
train_status_t fsdp_end (struct fsdp *fsdp, train_error_t *err);

#define FSDP_SUMS 8
struct fsdp_update {
    double lr, clip;  /* largest norm; 0 = any */
    double inv_scale; /* 1 / what losses were scaled by; else 1 */
};
struct fsdp_report {
    double loss, norm; /* sum over ranks and passes; before clipping */
    double sums[FSDP_SUMS];
    bool skipped; /* the norm is not finite: nothing was updated, anywhere */
};

/* fsdp_finish - of a GPU, instead of fsdp_end and all behind it: norm by one
 * all-reduce, clipping, AdamW that writes the rounded weights too, and the
 * sums; enqueued, then one wait. A rank that ends meanwhile is TRAIN_EPEER
 * here.
 *   adamw   by fsdp_adamw
 *   own     (n) numbers of this rank; their sums over all go to [ret]
 * TRAIN_ESTATE before fsdp_begin, and on the host. */
train_status_t fsdp_finish (struct fsdp *fsdp, train_adamw_t *adamw,
                            const struct fsdp_update *update, const double *own,
                            size_t n, struct fsdp_report *ret,
                            train_error_t *err);
/* fsdp_stop - instead of fsdp_finish: wait until this rank's gradients are the
 * sums of all, and let the step end there. */
train_status_t fsdp_stop (struct fsdp *fsdp, train_error_t *err);
/* fsdp_lends - may the model keep activations where gradients come? */
bool fsdp_lends (const struct fsdp *fsdp);
/* fsdp_settle - of a GPU: wait for all that passes have enqueued, as after one
 * that only evaluates; with the group's deadline. */
train_status_t fsdp_settle (struct fsdp *fsdp, train_error_t *err);

/* fsdp_sumsq - of the gradients that this rank answers for: the sum over all
 * ranks is the whole gradient's, each element counted once (with replicas only
 * rank 0 answers). Inf or NaN where an element is. Local. */
double fsdp_sumsq (const struct fsdp *fsdp);

/* fsdp_unused - names of the parameters whose gradient is zero on every rank
 * and that are not frozen, as "a, b": "" when there is none. Collective, after
 * fsdp_end. text   (size) written, cut if need be */
train_status_t fsdp_unused (struct fsdp *fsdp, char *text, size_t size,
                            train_error_t *err);

struct adamw_wide;
/* fsdp_spread - moments and masters as the shard's plan has them, of the host's
 * memory (optim.h): all NULL where what is there lies so already. fsdp_collect -
 * back; weights that are frozen become the masters, rounded. TRAIN_ENOMEM,
 * TRAIN_EDEVICE. */
train_status_t fsdp_spread (struct fsdp *fsdp, train_adamw_t *adamw,
                            struct adamw_wide *ret, train_error_t *err);
train_status_t fsdp_collect (struct fsdp *fsdp, train_adamw_t *adamw,
                             const struct adamw_wide *wide, train_error_t *err);

/* fsdp_give, fsdp_take - the whole model on rank [root] from shards such as
 * the weights or a moment, and back. Collective; flat unit by flat unit.
 *   shard   this rank's
 *   whole   of [root], elements in the order of the parameters; elsewhere NULL
 * With replicas a copy on root, and a broadcast. TRAIN_EINVAL: of halves apart. */
train_status_t fsdp_give (struct fsdp *fsdp, const DLTensor *shard,
                          DLTensor *whole, int root, train_error_t *err);
train_status_t fsdp_take (struct fsdp *fsdp, DLTensor *shard,
                          const DLTensor *whole, int root, train_error_t *err);

#endif
