/* SPDX-License-Identifier: Apache-2.0
 * check_impl.h - what the parts of rv-train check share. */
#ifndef RV_TRAIN_CHECK_IMPL_H
#define RV_TRAIN_CHECK_IMPL_H

#include "check_rate.h"
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

struct check {
    const char *file;
    const struct check_device *device;
    int ranks;
    double tflops; /* 0: the device's own */
    bool json;
    struct settings set;
    train_decoder_config_t model;
    char *dir;          /* of the model; NULL: its weights are drawn */
    train_data_t *data; /* NULL for grpo */
    struct check_prompts prompts;
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

/* check_grpo_read - prompts, as a run would read and refuse them; no reward is
 * opened.
 * check_grpo_table - rows of the run; check_grpo_foresee - its step, but for the
 * rewards, of which nothing is known. */
train_status_t check_grpo_read (struct check *check, train_error_t *err);
train_status_t check_grpo_table (struct check *check, train_error_t *err);
struct check_forecast check_grpo_foresee (const struct check *check);

#endif
