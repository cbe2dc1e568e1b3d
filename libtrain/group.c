/* SPDX-License-Identifier: Apache-2.0
 * group.c - process groups: begin and end */
#include <train/group.h>

#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "err.h"
#include "group_impl.h"
#include "join.h"

static train_status_t find_ops (const char *name, int size,
                                const struct comm_ops **ret_ops,
                                train_error_t *err)
{
    static const struct comm_ops *const all[] = {&comm_self, &comm_host};

    if (!name)
        name = size == 1 ? comm_self.name : comm_host.name;
    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        if (strcmp (all[i]->name, name) == 0) {
            *ret_ops = all[i];
            return TRAIN_OK;
        }
    }
    return err_set (err, TRAIN_EINVAL,
                    "group: no backend '%s'; there are self and host", name);
}

static train_status_t check_options (const train_group_options_t *opts,
                                     train_error_t *err)
{
    if (opts && opts->size != sizeof (*opts))
        return err_set (err, TRAIN_EINVAL,
                        "group: options have size %zu, not %zu", opts->size,
                        sizeof (*opts));
    if (opts && opts->timeout_ms < 0)
        return err_set (err, TRAIN_EINVAL, "group: negative timeout");
    if (opts && opts->name
        && (opts->name[0] == '\0' || strlen (opts->name) >= GROUP_NAME_BYTES))
        return err_set (err, TRAIN_EINVAL, "group: a name has 1 to %d bytes",
                        GROUP_NAME_BYTES - 1);
    return TRAIN_OK;
}

static train_status_t start (train_group_t *group, const char *backend,
                             int64_t timeout_ms, train_error_t *err)
{
    struct join join;
    train_status_t status = join_open (&join, group->name, timeout_ms, err);

    if (status == TRAIN_OK)
        status = find_ops (backend, join.size, &group->ops, err);
    if (status == TRAIN_OK)
        status = group->ops->init (&join, group->name,
                                   timeout_ms ? timeout_ms : join.timeout_ms,
                                   &group->state, err);
    group->rank = join.rank;
    group->size = join.size;
    group->local_rank = join.local_rank;
    group->local_size = join.local_size;
    join_close (&join);
    return status;
}

train_status_t train_group_create (const train_group_options_t *opts,
                                   train_group_t **ret_group,
                                   train_error_t *err)
{
    train_group_t *group;
    train_status_t status = check_options (opts, err);
    const struct comm_ops *ops;

    if (status == TRAIN_OK && !ret_group)
        status = err_set (err, TRAIN_EINVAL, "group: no result");
    if (status == TRAIN_OK && opts && opts->backend)
        status = find_ops (opts->backend, 0, &ops, err);
    if (status != TRAIN_OK)
        return status;
    if (!(group = calloc (1, sizeof (*group))))
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    strncpy (group->name, opts && opts->name ? opts->name : "world",
             sizeof (group->name) - 1);
    status = start (group, opts ? opts->backend : NULL,
                    opts ? opts->timeout_ms : 0, err);
    if (status != TRAIN_OK) {
        free (group);
        return status;
    }
    *ret_group = group;
    return TRAIN_OK;
}

void train_group_destroy (train_group_t *group)
{
    if (!group)
        return;
    group->ops->fini (group->state);
    free (group);
}

int train_group_rank (const train_group_t *group)
{
    return group->rank;
}

int train_group_size (const train_group_t *group)
{
    return group->size;
}

int train_group_local_rank (const train_group_t *group)
{
    return group->local_rank;
}

int train_group_local_size (const train_group_t *group)
{
    return group->local_size;
}

const char *train_group_backend (const train_group_t *group)
{
    return group->ops->name;
}
