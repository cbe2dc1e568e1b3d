/* SPDX-License-Identifier: Apache-2.0
 * group_step.c - learn the calls of a step, so that the next needs no
 * agreement
 *
 * What is learnt is the same on every rank: each of its calls was compared, and
 * so was the end. So each rank knows alone whether it still follows. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"
#include "group_impl.h"

static train_status_t reserve (const train_group_t *group,
                               struct comm_call **calls, size_t *max,
                               size_t want, train_error_t *err)
{
    size_t n = *max ? *max : 16;
    struct comm_call *more;

    if (want <= *max)
        return TRAIN_OK;
    while (n < want)
        n *= 2;
    more = reallocarray (*calls, n, sizeof (**calls));
    if (!more)
        return err_set (err, TRAIN_ENOMEM,
                        "group '%s': no memory for a step of %zu calls",
                        group->name, want);
    *calls = more;
    *max = n;
    return TRAIN_OK;
}

static bool same (const struct comm_call *learnt, const struct comm_call *call)
{
    struct comm_call plain = *call;

    plain.seq = 0;
    return memcmp (learnt, &plain, sizeof (plain)) == 0;
}

/* From here on this step is a new one. */
static train_status_t depart (train_group_t *group, train_error_t *err)
{
    struct group_step *step = &group->step;
    train_status_t status;

    if (!step->follows)
        return TRAIN_OK;
    status = reserve (group, &step->calls, &step->max, step->n, err);
    if (status != TRAIN_OK)
        return status;
    if (step->n > 0)
        memcpy (step->calls, step->learnt, step->n * sizeof (*step->calls));
    step->follows = false;
    return TRAIN_OK;
}

train_status_t step_count (train_group_t *group, const struct comm_call *call,
                           bool *ret_follow, train_error_t *err)
{
    struct group_step *step = &group->step;
    train_status_t status;

    *ret_follow = false;
    if (!step->open)
        return TRAIN_OK;
    if (step->follows && step->n < step->n_learnt
        && same (&step->learnt[step->n], call)) {
        step->n++;
        /* a barrier has no data by which its ranks would wait */
        *ret_follow = group->ops->follow && call->kind != COMM_BARRIER;
        return TRAIN_OK;
    }
    status = depart (group, err);
    if (status == TRAIN_OK)
        status = reserve (group, &step->calls, &step->max, step->n + 1, err);
    if (status != TRAIN_OK)
        return status;
    step->calls[step->n] = *call;
    step->calls[step->n++].seq = 0;
    return TRAIN_OK;
}

static train_status_t check (train_group_t *group, bool open, const char *what,
                             train_error_t *err)
{
    if (!group)
        return err_set (err, TRAIN_EINVAL, "%s: no group", what);
    work_drain (group);
    if (group->failure.code != TRAIN_OK)
        return err_set (err, TRAIN_ESTATE,
                        "group '%s' is broken since an earlier call: %s",
                        group->name, group->failure.text);
    if (group->records)
        return err_set (err, TRAIN_ESTATE, "%s: group '%s' records a graph",
                        what, group->name);
    if (group->step.open != open)
        return err_set (err, TRAIN_ESTATE, "%s: group '%s' has %s step open",
                        what, group->name, open ? "no" : "a");
    return TRAIN_OK;
}

static void tell (train_group_t *group)
{
    const struct group_step *step = &group->step;

    if (group->ops->step)
        group->ops->step (group->state, step->learnt,
                          step->known ? step->n_learnt : 0, group->seq + 1);
}

train_status_t train_step_begin (train_group_t *group, train_error_t *err)
{
    train_status_t status = check (group, false, "step_begin", err);

    if (status != TRAIN_OK)
        return status;
    group->step.open = true;
    group->step.follows = group->step.known;
    group->step.n = 0;
    group->step.span = train_trace_begin ("step", "collectives of a step");
    tell (group);
    return TRAIN_OK;
}

/* All ranks have agreed on the calls of this step: they are learnt. */
static void learn (struct group_step *step)
{
    struct comm_call *calls = step->learnt;
    size_t max = step->max_learnt;

    step->learnt = step->calls;
    step->n_learnt = step->n;
    step->max_learnt = step->max;
    step->calls = calls;
    step->max = max;
    step->known = true;
}

static train_status_t end_step (train_group_t *group, train_error_t *err)
{
    struct comm_call call = {.kind = COMM_STEP_END};
    struct group_step *step = &group->step;
    train_status_t status;
    uint64_t hash;

    if (step->follows && step->n == step->n_learnt) {
        step->open = false;
        return TRAIN_OK;
    }
    if ((status = depart (group, err)) != TRAIN_OK)
        return status;
    hash = XXH3_64bits (step->calls, step->n * sizeof (*step->calls));
    call.dtype = (int32_t)step->n;
    call.root = (int32_t)(uint32_t)hash;
    call.op = (int32_t)(uint32_t)(hash >> 32);
    step->open = false; /* this call is none of its */
    status = group_run (group, &call, NULL, NULL, err);
    if (status == TRAIN_OK) {
        learn (step);
        tell (group);
    }
    return status;
}

train_status_t train_step_end (train_group_t *group, train_error_t *err)
{
    train_status_t status = check (group, true, "step_end", err);

    if (status == TRAIN_OK)
        status = end_step (group, err);
    if (group) { /* once, also of a step whose group broke */
        group_span_step (group, &group->step.span, status);
        group->step.span = (train_span_t){0};
    }
    return status;
}

void step_fini (struct group_step *step)
{
    free (step->calls);
    free (step->learnt);
}
