/* SPDX-License-Identifier: Apache-2.0
 * shard.c - flat units, chunks and who holds what: arithmetic alone */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "opts.h"
#include "shard_impl.h"

/* Keeps every product with a world and an element size in size_t. */
#define MAX_NUMEL ((size_t)1 << 44)
#define MAX_WORLD (1 << 20)
#define MAX_ALIGN ((size_t)1 << 20)

static train_status_t check_layout (const train_shard_layout_t *layout,
                                    train_shard_layout_t *o, train_error_t *err)
{
    if (!layout)
        return err_set (err, TRAIN_EINVAL, "shard: no layout");
    TRY (opts_read (o, sizeof (*o), layout, "shard", err));
    if (o->world < 1 || o->world > MAX_WORLD)
        return err_set (err, TRAIN_EINVAL,
                        "shard: world %d is not within 1 and %d", o->world,
                        MAX_WORLD);
    if (o->wrap != TRAIN_WRAP_UNIT && o->wrap != TRAIN_WRAP_SIZE)
        return err_set (err, TRAIN_EINVAL, "shard: no wrap policy %d", o->wrap);
    if (o->wrap == TRAIN_WRAP_SIZE && o->least == 0)
        return err_set (err, TRAIN_EINVAL,
                        "shard: least 0; give the elements of a flat unit");
    if (o->align > MAX_ALIGN)
        return err_set (err, TRAIN_EINVAL, "shard: align %zu is above %zu",
                        o->align, MAX_ALIGN);
    if (o->align == 0)
        o->align = 1;
    return TRAIN_OK;
}

static train_status_t check_tie (const train_shard_param_t *params, size_t i,
                                 train_error_t *err)
{
    const train_shard_param_t *p = &params[i], *other;

    if (p->tied == -1)
        return TRAIN_OK;
    if (p->tied < 0 || (size_t)p->tied >= i)
        return err_set (err, TRAIN_EINVAL,
                        "shard: %s is tied to parameter %d, which is not "
                        "before it",
                        p->name, p->tied);
    other = &params[p->tied];
    if (other->tied != -1 || other->count != p->count)
        return err_set (err, TRAIN_EINVAL,
                        "shard: %s of %zu elements is tied to %s, which is %s",
                        p->name, p->count, other->name,
                        other->tied != -1 ? "itself tied" : "of another size");
    return TRAIN_OK;
}

static int by_name (const void *a, const void *b)
{
    return strcmp (*(const char *const *)a, *(const char *const *)b);
}

static train_status_t check_names (const train_shard_param_t *params, size_t n,
                                   train_error_t *err)
{
    const char **name = malloc ((n ? n : 1) * sizeof (*name));
    train_status_t status = TRAIN_OK;

    if (!name)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu names", n);
    for (size_t i = 0; i < n; i++)
        name[i] = params[i].name;
    qsort (name, n, sizeof (*name), by_name);
    for (size_t i = 1; i < n && status == TRAIN_OK; i++)
        if (strcmp (name[i - 1], name[i]) == 0)
            status = err_set (err, TRAIN_EINVAL,
                              "shard: two parameters are called %s", name[i]);
    free (name);
    return status;
}

static train_status_t check_params (const train_shard_param_t *params, size_t n,
                                    train_error_t *err)
{
    size_t total = 0;
    int unit = 0;

    if (n && !params)
        return err_set (err, TRAIN_EINVAL, "shard: params is NULL");
    for (size_t i = 0; i < n; i++) {
        const train_shard_param_t *p = &params[i];

        if (!p->name)
            return err_set (err, TRAIN_EINVAL,
                            "shard: parameter %zu has no name", i);
        if (p->unit < unit)
            return err_set (err, TRAIN_EINVAL,
                            "shard: %s is of unit %d, behind one of unit %d",
                            p->name, p->unit, unit);
        unit = p->unit;
        if (p->count > MAX_NUMEL || total > MAX_NUMEL - p->count)
            return err_set (err, TRAIN_EINVAL,
                            "shard: more than %zu elements with %s", MAX_NUMEL,
                            p->name);
        total += p->count;
        TRY (check_tie (params, i, err));
    }
    return check_names (params, n, err);
}

static train_status_t copy_params (train_shard_plan_t *plan,
                                   const train_shard_param_t *params, size_t n,
                                   train_error_t *err)
{
    size_t room = n ? n : 1;

    plan->params = calloc (room, sizeof (*plan->params));
    plan->places = calloc (room, sizeof (*plan->places));
    plan->units = calloc (room, sizeof (*plan->units));
    if (!plan->params || !plan->places || !plan->units)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++) {
        plan->params[i] = params[i];
        plan->params[i].name = strdup (params[i].name);
        plan->n_params++;
        if (!plan->params[i].name)
            return err_set (err, TRAIN_ENOMEM, "no memory for %s",
                            params[i].name);
    }
    return TRAIN_OK;
}

/* Does a parameter of [unit] begin a new bundle behind [u], the last flat unit of
 * one that has [count] elements? */
static bool begins_bundle (const train_shard_plan_t *plan,
                           const train_shard_unit_t *u, size_t count, int unit)
{
    if (unit == u->last)
        return false;
    return plan->layout.wrap == TRAIN_WRAP_UNIT || count >= plan->layout.least;
}

static train_shard_unit_t *begin_unit (train_shard_plan_t *plan, size_t param,
                                       size_t bundle)
{
    train_shard_unit_t *u = &plan->units[plan->n_units++];

    u->first = plan->params[param].unit;
    u->param = param;
    u->still = plan->params[param].still;
    u->bundle = bundle;
    return u;
}

static void fill_units (train_shard_plan_t *plan)
{
    train_shard_unit_t *u = NULL;
    size_t bundles = 0, count = 0; /* of the last bundle */

    for (size_t i = 0; i < plan->n_params; i++) {
        const train_shard_param_t *p = &plan->params[i];

        if (!u || begins_bundle (plan, u, count, p->unit)) {
            u = begin_unit (plan, i, bundles++);
            count = 0;
        } else if (p->tied < 0 && p->still != u->still) {
            u = begin_unit (plan, i, bundles - 1);
        }
        u->last = p->unit;
        u->n_params++;
        if (p->tied >= 0) {
            plan->places[i] = plan->places[p->tied];
            continue;
        }
        plan->places[i] = (struct shard_place){plan->n_units - 1, u->count};
        u->count += p->count;
        count += p->count;
        plan->numel += p->count;
    }
}

static void fill_chunks (train_shard_plan_t *plan, bool still)
{
    size_t world = (size_t)plan->layout.world, align = plan->layout.align;

    for (size_t i = 0; i < plan->n_units; i++) {
        train_shard_unit_t *u = &plan->units[i];

        if (u->still != still)
            continue;
        u->chunk = (u->count + world - 1) / world;
        u->chunk = (u->chunk + align - 1) / align * align;
        u->at = plan->shard;
        plan->shard += u->chunk;
    }
}

train_status_t train_shard_plan_create (const train_shard_layout_t *layout,
                                        const train_shard_param_t *params,
                                        size_t n, train_shard_plan_t **ret_plan,
                                        train_error_t *err)
{
    train_shard_layout_t o;
    train_shard_plan_t *plan;
    train_status_t status;

    if (!ret_plan)
        return err_set (err, TRAIN_EINVAL, "shard: ret_plan is NULL");
    TRY (check_layout (layout, &o, err));
    TRY (check_params (params, n, err));
    if (!(plan = calloc (1, sizeof (*plan))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a shard plan");
    plan->layout = o;
    if ((status = copy_params (plan, params, n, err)) != TRAIN_OK) {
        train_shard_plan_destroy (plan);
        return status;
    }
    fill_units (plan);
    fill_chunks (plan, false);
    plan->moving = plan->shard;
    fill_chunks (plan, true);
    *ret_plan = plan;
    return TRAIN_OK;
}

void train_shard_plan_destroy (train_shard_plan_t *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; i < plan->n_params; i++)
        free ((char *)plan->params[i].name);
    free (plan->params);
    free (plan->places);
    free (plan->units);
    free (plan);
}

const train_shard_layout_t *train_shard_plan_layout (
    const train_shard_plan_t *plan)
{
    return &plan->layout;
}

size_t train_shard_n_params (const train_shard_plan_t *plan)
{
    return plan->n_params;
}

const train_shard_param_t *train_shard_param (const train_shard_plan_t *plan,
                                              size_t index)
{
    return index < plan->n_params ? &plan->params[index] : NULL;
}

size_t train_shard_n_units (const train_shard_plan_t *plan)
{
    return plan->n_units;
}

const train_shard_unit_t *train_shard_unit (const train_shard_plan_t *plan,
                                            size_t index)
{
    return index < plan->n_units ? &plan->units[index] : NULL;
}

int train_shard_unit_of (const train_shard_plan_t *plan, int unit)
{
    for (size_t i = 0; i < plan->n_units; i++)
        if (plan->units[i].first <= unit && unit <= plan->units[i].last)
            return (int)i;
    return -1;
}

size_t train_shard_numel (const train_shard_plan_t *plan)
{
    return plan->numel;
}

size_t train_shard_size (const train_shard_plan_t *plan)
{
    return plan->shard;
}

size_t train_shard_moving (const train_shard_plan_t *plan)
{
    return plan->moving;
}

size_t train_shard_offset (const train_shard_plan_t *plan, size_t param)
{
    return plan->places[param].offset;
}
