/* SPDX-License-Identifier: Apache-2.0
 * trainer_agree.c - ranks go on or stop together */
#include "trainer.h"

#include <stdio.h>

#include "err.h"

/* The most or least of all ranks' numbers. */
static train_status_t reduce (train_group_t *group, train_op_t op,
                              int32_t *number, train_error_t *err)
{
    int64_t shape[1] = {1};
    train_tensor_t view;

    TRY (train_tensor_view (&view, number, TRAIN_I32, 1, shape, err));
    return train_all_reduce (group, &view.t, op, err);
}

train_status_t trainer_agree (train_group_t *group, train_status_t status,
                              train_error_t *err)
{
    int32_t worst = status;
    train_error_t lost = {0};
    train_status_t s = reduce (group, TRAIN_MAX, &worst, &lost);

    if (status != TRAIN_OK) /* its own text tells more */
        return status;
    if (s != TRAIN_OK)
        return err_set (err, s, "%s", lost.text);
    if (worst != TRAIN_OK)
        return err_set (err, (train_status_t)worst, "another rank failed: %s",
                        train_status_name ((train_status_t)worst));
    return TRAIN_OK;
}

train_status_t trainer_agree_told (train_group_t *group, train_status_t status,
                                   train_error_t *err)
{
    struct {
        int32_t code;
        char text[sizeof (err->text)];
    } said = {.code = status};
    int64_t shape[1] = {sizeof (said)};
    int32_t none = train_group_size (group);
    int32_t who = status != TRAIN_OK ? train_group_rank (group) : none;
    train_error_t lost = {0};
    train_tensor_t view;
    train_status_t s = reduce (group, TRAIN_MIN, &who, &lost); /* who failed */

    if (s == TRAIN_OK && who == none)
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
