/* SPDX-License-Identifier: Apache-2.0
 * check_impl.h - what the parts of rv-train check share. */
#ifndef RV_TRAIN_CHECK_IMPL_H
#define RV_TRAIN_CHECK_IMPL_H

#include "check_rate.h"
#include "grpo_rows.h"
#include "libtrain/mem_table.h"
#include "settings.h"

#define CHECK_ROWS (MEM_ROWS + 4)

/* Of task = grpo, whose data are prompts. */
struct check_prompts {
    size_t count; /* 0: another task */
    int longest;  /* tokens */
    size_t held;  /* that are evaluated; 0: none */
    int held_longest;
};

/* What a reward says of the first prompt. */
struct check_reward {
    double reward; /* NaN: it has nothing to say */
    double seconds;
};

struct check {
    const char *file;
    const struct check_device *device;
    int ranks;
    double tflops;      /* 0: the device's own */
    bool json, rewards; /* options */
    struct settings set;
    train_decoder_config_t model;
    char *dir;          /* of the model; NULL: its weights are drawn */
    train_data_t *data; /* NULL for grpo */
    struct check_prompts prompts;
    struct check_reward *said; /* of each reward; NULL: none was asked */
    struct mem_row row[CHECK_ROWS];
    size_t n;
    size_t own;    /* bytes that the program has before it begins */
    bool by_units; /* of grpo: gather = unit, or auto that comes to it */
};

/* Of a step; of grpo with what a step has of its cycle. */
struct check_forecast {
    double flop, tflops, step_s, epochs;
    double writing_s, logps_s, update_s; /* of grpo: the step's parts */
    const char *basis;
};

/* check_grpo_read - prompts and rewards, as a run would read and refuse them, and
 * check_rewards of them.
 * check_grpo_table - rows of the run; check_grpo_foresee - its step, but for the
 * rewards, of which nothing is known. */
train_status_t check_grpo_read (struct check *check, train_error_t *err);
train_status_t check_grpo_table (struct check *check, train_error_t *err);
struct check_forecast check_grpo_foresee (const struct check *check);

/* check_rewards - do rows have what rules need? A reward that has nothing to say of
 * any is TRAIN_EINVAL, of some a line on stderr. With [rewards] all are asked for
 * that of the first prompt with its answer as the completion, or nothing, and so
 * each program starts: TRAIN_EPEER, it is at fault. */
train_status_t check_rewards (struct check *check, struct grpo_judge *judge,
                              const struct grpo_rows *rows, train_error_t *err);

#endif
