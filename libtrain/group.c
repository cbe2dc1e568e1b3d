/* SPDX-License-Identifier: Apache-2.0
 * group.c - process groups: begin and end */
#include <train/group.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "err.h"
#include "opts.h"
#include "group_impl.h"
#include "group_survive.h"
#include "join.h"
#include "sock.h"

static void copy_name (char *to, const char *name)
{
    snprintf (to, GROUP_NAME_BYTES, "%s", name);
}

static train_status_t find_ops (const char *name, int size,
                                const struct comm_ops **ret_ops,
                                train_error_t *err)
{
    static const struct comm_ops *const all[] = {&comm_self, &comm_host,
                                                 &comm_nccl, &comm_mpi};

    if (!name)
        name = size == 1 ? comm_self.name : comm_host.name;
    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        if (strcmp (all[i]->name, name) == 0) {
            *ret_ops = all[i];
            return TRAIN_OK;
        }
    }
    return err_set (err, TRAIN_EINVAL,
                    "group: no backend '%s'; there are self, host, nccl and "
                    "mpi",
                    name);
}

train_status_t group_check_name (const char *name, train_error_t *err)
{
    if (name && (name[0] == '\0' || strlen (name) >= GROUP_NAME_BYTES))
        return err_set (err, TRAIN_EINVAL, "group: a name has 1 to %d bytes",
                        GROUP_NAME_BYTES - 1);
    return TRAIN_OK;
}

static train_status_t read_options (train_group_options_t *o,
                                    const train_group_options_t *opts,
                                    train_error_t *err)
{
    TRY (opts_read (o, sizeof (*o), opts, "group", err));
    if (o->timeout_ms < 0)
        return err_set (err, TRAIN_EINVAL, "group: negative timeout");
    o->timeout_ms = clock_span (o->timeout_ms);
    return group_check_name (o->name, err);
}

/* Ranks of a group made of another's: in the words of the first. */
static train_status_t name_ranks (train_group_t *group,
                                  const train_group_t *from, const int *ranks,
                                  train_error_t *err)
{
    copy_name (group->root_name, from ? from->root_name : group->name);
    if (!from)
        return TRAIN_OK;
    group->world = malloc ((size_t)group->size * sizeof (int));
    if (!group->world)
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    for (int r = 0; r < group->size; r++)
        group->world[r] = from->world ? from->world[ranks[r]] : ranks[r];
    return TRAIN_OK;
}

/* Where others may reach this rank later; one node needs no address. */
static train_status_t find_address (train_group_t *group, struct join *join,
                                    train_error_t *err)
{
    if (join->nodes > 1)
        return join_address (join, group->address, sizeof (group->address),
                             err);
    snprintf (group->address, sizeof (group->address), "127.0.0.1");
    return TRAIN_OK;
}

/* One rank needs nobody, but its tensors stay where they are. */
static train_status_t choose_ops (train_group_t *group, const char *backend,
                                  const train_group_t *from, train_error_t *err)
{
    if (from)
        backend = group->size > 1 || from->ops->gpu ? from->ops->name : NULL;
    return find_ops (backend, group->size, &group->ops, err);
}

static train_status_t start (train_group_t *group, struct join *join,
                             const char *backend, const train_group_t *from,
                             train_error_t *err)
{
    train_status_t status = choose_ops (group, backend, from, err);

    if (status == TRAIN_OK)
        status = find_address (group, join, err);
    if (status == TRAIN_OK && join->size > 1)
        status = survive_init (&group->survive, group, join, err);
    if (status == TRAIN_OK)
        status = group->ops->init (join, group->name, join->timeout_ms,
                                   &group->where, &group->state, err);
    return status;
}

static void free_group (train_group_t *group)
{
    step_fini (&group->step);
    survive_fini (group->survive);
    free (group->world);
    free (group->node_of);
    free (group);
}

train_status_t group_begin (struct join *join, const char *backend,
                            struct comm_where where, const train_group_t *from,
                            const int *ranks, train_group_t **ret_group,
                            train_error_t *err)
{
    train_group_t *group = calloc (1, sizeof (*group));
    train_status_t status;

    if (!group)
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    copy_name (group->name, join->name);
    group->seq = COMM_BEGIN_SEQ;
    group->rank = join->rank;
    group->size = join->size;
    group->local_rank = join->local_rank;
    group->local_size = join->local_size;
    group->timeout_ms = join->timeout_ms;
    group->where = where;
    status = name_ranks (group, from, ranks, err);
    if (status == TRAIN_OK)
        status = start (group, join, backend, from, err);
    if (status != TRAIN_OK) {
        free_group (group);
        return status;
    }
    group->node_of = join->node_of;
    join->node_of = NULL;
    *ret_group = group;
    return TRAIN_OK;
}

/* "cuda:3" */
static train_status_t read_device (const char *text, int *ret_device,
                                   train_error_t *err)
{
    char *end = NULL;
    long n = -1;

    if (strncmp (text, "cuda:", 5) == 0 && text[5] >= '0' && text[5] <= '9')
        n = strtol (text + 5, &end, 10);
    if (n < 0 || n > INT_MAX || *end)
        return err_set (err, TRAIN_EINVAL,
                        "group: no device '%s'; cuda:0, cuda:1 and so on",
                        text);
    *ret_device = (int)n;
    return TRAIN_OK;
}

/* A word of every rank to all: this one has left PMIx. */
static train_status_t tell_left (train_group_t *group, train_error_t *err)
{
    const struct comm_call call = {.kind = COMM_BEGIN, .seq = COMM_BEGIN_SEQ};
    const struct comm_ops *ops = group->ops;

    if (ops->run_host)
        return ops->run_host (group->state, &call, NULL, NULL, false, err);
    return ops->run (group->state, &call, NULL, NULL, err);
}

/* A rank may join PMIx again, by MPI_Init, and be in a fence there before another
 * has left: the server takes that one's leaving for its death, and ends the fence
 * without it; the other's own never ends (openpmix/openpmix#3931). So nobody goes
 * on before all have left. */
static train_status_t leave (struct join *join, train_group_t *group,
                             train_status_t status, train_error_t *err)
{
    bool tell = status == TRAIN_OK && group->size > 1 && join_is_pmix (join);

    join_close (join);
    return tell ? tell_left (group, err) : status;
}

train_status_t train_group_create (const train_group_options_t *opts,
                                   train_group_t **ret_group,
                                   train_error_t *err)
{
    train_group_options_t o;
    struct comm_where where = {.device = -1};
    const struct comm_ops *ops;
    train_group_t *group = NULL;
    train_status_t status;
    struct join join;

    TRY (read_options (&o, opts, err));
    where.stream = o.stream;
    if (!ret_group)
        return err_set (err, TRAIN_EINVAL, "group: no result");
    if (o.backend)
        TRY (find_ops (o.backend, 0, &ops, err));
    if (o.device)
        TRY (read_device (o.device, &where.device, err));
    status = join_open (&join, o.name ? o.name : "world", o.timeout_ms, err);
    if (o.timeout_ms)
        join.timeout_ms = o.timeout_ms;
    if (status == TRAIN_OK)
        status = group_begin (&join, o.backend, where, NULL, NULL, &group, err);
    status = leave (&join, group, status, err);
    if (status == TRAIN_OK)
        status = train_trace_open (NULL, group->rank, group->size, err);
    if (status == TRAIN_OK)
        *ret_group = group;
    else
        train_group_destroy (group);
    return status;
}

void train_group_destroy (train_group_t *group)
{
    if (!group)
        return;
    work_fini (group);
    graph_fini (group);
    group->ops->fini (group->state);
    free_group (group);
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
