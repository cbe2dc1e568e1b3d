/* SPDX-License-Identifier: Apache-2.0
 * devlist.c - which of a node's devices is a task's own */
#include "devlist.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

size_t devlist_count (const char *list)
{
    size_t n = 1;

    if (!list || !*list || strcasecmp (list, "NoDevFiles") == 0)
        return 0;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

bool devlist_item (const char *list, size_t i, char buf[DEVLIST_NAME_MAX])
{
    size_t len;

    if (i >= devlist_count (list))
        return false;
    while (i-- > 0)
        list = strchr (list, ',') + 1;
    len = strcspn (list, ",");
    if (len == 0 || len >= DEVLIST_NAME_MAX)
        return false;
    memcpy (buf, list, len);
    buf[len] = '\0';
    return true;
}

int devlist_index (const char *item)
{
    size_t len = strspn (item, "0123456789");

    if (len == 0 || len > 6 || item[len])
        return -1;
    return (int)strtol (item, NULL, 10);
}

static int too_few (const struct devlist_task *t, const char *devices,
                    size_t have, struct rv_error *err)
{
    const char *what = t->slices ? "MIG slice" : "GPU";

    return error_set (err, RV_EINVAL,
                      "%s has %" PRIu32
                      " tasks of this step for %zu %s%s (%s), "
                      "one each is needed; start at most %zu there (-n, "
                      "--ntasks-per-node), or none with GPUs (--gres=none)",
                      t->node, t->local_size, have, what, have == 1 ? "" : "s",
                      devices, have);
}

/* total - devices that the step has on the node. */
static size_t total (const struct devlist_task *t)
{
    size_t visible = devlist_count (t->visible), n = devlist_count (t->step);

    if (n == 0 && visible == 0)
        return 0; /* what the job has is not the step's */
    if (n < t->on_node)
        n = t->on_node;
    return n < visible ? visible : n;
}

int devlist_check (const struct devlist_task *t, struct rv_error *err)
{
    size_t visible = devlist_count (t->visible), n = total (t);

    if (n == 0)
        return RV_OK;
    if (visible == 0)
        return error_set (err, RV_EINVAL,
                          "rank %" PRIu32 " on %s sees none of the %zu GPU%s "
                          "(%s) that the step has there for %" PRIu32
                          " task%s; "
                          "leave out --gpu-bind",
                          t->rank, t->node, n, n == 1 ? "" : "s", t->step,
                          t->local_size, t->local_size == 1 ? "" : "s");
    if (t->local_size > n)
        return too_few (t, n > visible && t->step ? t->step : t->visible, n,
                        err);
    return RV_OK;
}

/* index_of - the node's index of item [at] of what is visible. Lists of one
 * length name the same devices, whatever their numbers count. */
static int index_of (const struct devlist_task *t, size_t at, int number)
{
    size_t visible = devlist_count (t->visible), step = devlist_count (t->step);
    char item[DEVLIST_NAME_MAX];

    if (number < 0 || step == 0)
        return number;
    if (visible != step && !t->local)
        return number;
    if (visible != step)
        at = (size_t)number;
    return devlist_item (t->step, at, item) ? devlist_index (item) : -1;
}

int devlist_own (const struct devlist_task *t, struct devlist_own *ret,
                 struct rv_error *err)
{
    size_t visible = devlist_count (t->visible);
    bool bound = visible < total (t);
    size_t at = bound ? 0 : t->local_rank;
    int rc = devlist_check (t, err);

    if (rc)
        return rc;
    if (visible == 0)
        return error_set (err, RV_EINVAL,
                          "rank %" PRIu32 " on %s sees no %s, and the step's "
                          "%" PRIu32 " task%s there need one each; give the "
                          "step some, or --rv-env=off",
                          t->rank, t->node, t->slices ? "MIG slice" : "GPU",
                          t->local_size, t->local_size == 1 ? "" : "s");
    if (bound && t->slices && visible > 1)
        return error_set (err, RV_EINVAL,
                          "rank %" PRIu32 " on %s was bound to %zu MIG slices "
                          "(%s), and CUDA uses one; leave out --gpu-bind",
                          t->rank, t->node, visible, t->visible);
    if (!devlist_item (t->visible, at, ret->name))
        return error_set (err, RV_EINVAL,
                          "rank %" PRIu32 " on %s: CUDA_VISIBLE_DEVICES='%s' "
                          "has no device number %zu",
                          t->rank, t->node, t->visible, at);
    ret->index = index_of (t, at, devlist_index (ret->name));
    return RV_OK;
}
