/* SPDX-License-Identifier: Apache-2.0
 * trainer_agree.c - ranks go on or stop together */
#include "trainer.h"

#include <stdio.h>

#include "err.h"

#define RANKS (1 << 24) /* more than there are */

/* The worst status of all ranks, and the lowest rank that has it. */
static train_status_t find_worst (train_group_t *group, train_status_t status,
                                  int *ret_who, train_error_t *err)
{
    int32_t key = status == TRAIN_OK
                      ? 0
                      : status * RANKS + RANKS - 1 - train_group_rank (group);
    int64_t shape[1] = {1};
    train_tensor_t view;

    TRY (train_tensor_view (&view, &key, TRAIN_I32, 1, shape, err));
    TRY (train_all_reduce (group, &view.t, TRAIN_MAX, err));
    *ret_who = key > 0 ? RANKS - 1 - key % RANKS : -1;
    return TRAIN_OK;
}

train_status_t trainer_agree (train_group_t *group, train_status_t status,
                              train_error_t *err)
{
    struct {
        int32_t code;
        char text[sizeof (err->text)];
    } said = {.code = status};
    int64_t shape[1] = {sizeof (said)};
    train_error_t lost = {0};
    train_tensor_t view;
    int who = -1;
    train_status_t s = find_worst (group, status, &who, &lost);

    if (s == TRAIN_OK && who < 0)
        return TRAIN_OK;
    if (status != TRAIN_OK && err)
        snprintf (said.text, sizeof (said.text), "%s", err->text);
    if (s == TRAIN_OK)
        s = train_tensor_view (&view, &said, TRAIN_U8, 1, shape, &lost);
    if (s == TRAIN_OK)
        s = train_broadcast (group, &view.t, who, &lost);
    if (status != TRAIN_OK) /* its own text tells more */
        return status;
    if (s != TRAIN_OK)
        return err_set (err, s, "%s", lost.text);
    return err_set (err, (train_status_t)said.code,
                    "another rank failed: rank %d: %s", who, said.text);
}
