/* SPDX-License-Identifier: Apache-2.0
 * reward_wire.c - the lines between a reward and its program */
#include "reward_wire.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

train_status_t wire_request (const struct reward_view *view, int64_t id,
                             char **ret, size_t *ret_n, train_error_t *err)
{
    json_t *all = json_copy (view->row); /* its fields are shared */
    char *line = NULL, *whole;
    size_t n;

    if (all && json_object_set_new (all, "id", json_integer (id)) == 0
        && json_object_set_new (all, "prompt", json_string (view->prompt)) == 0
        && json_object_set_new (all, "completion",
                                json_string (view->completion))
               == 0)
        line = json_dumps (all, JSON_COMPACT);
    json_decref (all);
    if (!line)
        return err_set (err, TRAIN_ENOMEM, "no memory for a request");
    n = strlen (line);
    if (!(whole = realloc (line, n + 2))) {
        free (line);
        return err_set (err, TRAIN_ENOMEM, "no memory for a request");
    }
    memcpy (whole + n, "\n", 2);
    *ret = whole;
    *ret_n = n + 1;
    return TRAIN_OK;
}

static train_status_t read_reward (const json_t *reply, float *ret,
                                   train_error_t *err)
{
    const json_t *reward = json_object_get (reply, "reward");
    double x = json_number_value (reward);

    if (json_is_null (reward)) {
        *ret = NAN;
        return TRAIN_OK;
    }
    if (!json_is_number (reward))
        return err_set (err, TRAIN_EFORMAT,
                        "replied without a 'reward' that is a number or null");
    if (!(fabs (x) <= FLT_MAX))
        return err_set (err, TRAIN_EFORMAT,
                        "replied with a reward of %g, which is no fp32", x);
    *ret = (float)x;
    return TRAIN_OK;
}

train_status_t wire_reply (const char *line, size_t n, int64_t id, float *ret,
                           train_error_t *err)
{
    json_error_t e;
    json_t *reply = json_loadb (line, n, JSON_REJECT_DUPLICATES, &e);
    const json_t *got = json_object_get (reply, "id");
    train_status_t status;

    if (!reply)
        return err_set (err, TRAIN_EFORMAT,
                        "replied '%.60s', which is no JSON: %s",
                        n > 0 ? line : "", e.text);
    if (!json_is_integer (got))
        status = err_set (err, TRAIN_EFORMAT,
                          "replied without an 'id' that is a whole number");
    else if (json_integer_value (got) != id)
        status = err_set (err, TRAIN_EFORMAT,
                          "replied to id %lld, and %lld was asked",
                          (long long)json_integer_value (got), (long long)id);
    else
        status = read_reward (reply, ret, err);
    json_decref (reply);
    return status;
}

enum wire_take wire_take (struct wire_line *line, const char *bytes, size_t n)
{
    const char *end = memchr (bytes, '\n', n);
    size_t take = end ? (size_t)(end - bytes) + 1 : n;

    if (line->n + take > WIRE_MAX_REPLY)
        return WIRE_HUGE;
    if (line->n + take > line->cap) {
        size_t cap = line->cap ? line->cap : 256;
        char *p;

        while (cap < line->n + take)
            cap *= 2;
        if (!(p = realloc (line->p, cap)))
            return WIRE_NO_MEMORY;
        line->p = p;
        line->cap = cap;
    }
    memcpy (line->p + line->n, bytes, take);
    line->n += take;
    if (!end)
        return WIRE_MORE;
    line->p[line->n - 1] = '\0'; /* so that it can be shown */
    return take == n ? WIRE_LINE : WIRE_BEHIND;
}
