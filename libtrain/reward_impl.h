/* SPDX-License-Identifier: Apache-2.0
 * reward_impl.h - what the parts of a reward share. Inside libtrain only. */
#ifndef TRAIN_REWARD_IMPL_H
#define TRAIN_REWARD_IMPL_H

#include <regex.h>

#include <jansson.h>

#include <train/reward.h>

/* A sample, its texts valid UTF-8 without NUL, its row read. */
struct reward_view {
    char *prompt, *completion;
    json_t *row;
};

/* A kind of reward. Lists are const tables of these. */
struct reward_ops {
    /* Check and take what of [opts] is its own; what it has taken when it fails
     * is freed by close. */
    train_status_t (*open) (train_reward_t *reward,
                            const train_reward_options_t *opts,
                            train_error_t *err);
    /* Rewards of [n] samples, NaN where there is none; counts them. */
    train_status_t (*score) (train_reward_t *reward,
                             const struct reward_view *view, int n, float *ret,
                             train_error_t *err);
    void (*close) (train_reward_t *reward); /* NULL: nothing to do */
};

struct pool;

struct train_reward {
    const struct reward_ops *ops;
    char *name, *field, *marker;
    regex_t regex;
    bool has_regex;
    int64_t min, max, soft;
    struct pool *pool; /* of a program */
    train_reward_report_t report;
};

extern const struct reward_ops reward_exact;
extern const struct reward_ops reward_regex;
extern const struct reward_ops reward_length;
extern const struct reward_ops reward_sum;
extern const struct reward_ops reward_program;

/* reward_each - a score for kinds that look at one sample at a time. */
typedef train_status_t (*reward_one_f) (const train_reward_t *reward,
                                        const struct reward_view *view,
                                        float *ret, train_error_t *err);
train_status_t reward_each (train_reward_t *reward,
                            const struct reward_view *view, int n, float *ret,
                            reward_one_f one, train_error_t *err);

/* reward_part - what of [text] counts: behind the last [marker], to the end of
 * that line; without marker or its place the whole. Blanks around it are left
 * out. [*ret_n] bytes.
 *   ret_found   written: the marker stands there; NULL = not wanted */
const char *reward_part (const char *text, const char *marker, size_t *ret_n,
                         bool *ret_found);

#endif
