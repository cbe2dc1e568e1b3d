/* SPDX-License-Identifier: Apache-2.0
 * device.c - each rank's GPU
 *
 * A task of Slurm often sees its own GPU alone, and then it is GPU 0 whatever
 * the local rank; else it is the one that the local rank numbers. UUIDs tell
 * whether two ranks came to share one, which NCCL would not stand. */
#include "config.h"

#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrain/backend.h"
#include "libtrain/err.h"
#include "libtrain/trainer.h"

#define IDENT 64

static train_status_t pick (const train_group_t *group,
                            const struct backend_ops *ops, int *ret_device,
                            train_error_t *err)
{
    int gpus = 0, local = train_group_local_rank (group);

    TRY (ops->probe (&gpus, err));
    *ret_device = gpus == 1 ? 0 : local;
    if (*ret_device < gpus)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "%d ranks on this node and %d GPUs; start one rank a GPU",
                    train_group_local_size (group), gpus);
}

static train_status_t find_twins (const train_group_t *group,
                                  const char (*all)[IDENT], train_error_t *err)
{
    for (int b = 1; b < train_group_size (group); b++)
        for (int a = 0; a < b; a++)
            if (memcmp (all[a], all[b], IDENT) == 0)
                return err_set (err, TRAIN_EINVAL,
                                "ranks %d and %d both have GPU %.*s; start one "
                                "rank a GPU",
                                a, b, IDENT, all[a]);
    return TRAIN_OK;
}

static train_status_t compare (train_group_t *group,
                               const struct backend_ops *ops, int device,
                               train_error_t *err)
{
    int64_t size = train_group_size (group), one[1] = {IDENT},
            many[1] = {size * IDENT};
    char (*all)[IDENT] = calloc ((size_t)size, sizeof (*all));
    train_tensor_t mine, others;
    char own[IDENT] = "";
    train_status_t status;

    if (!all)
        return err_set (err, TRAIN_ENOMEM, "no memory for names of GPUs");
    status = ops->ident (device, own, sizeof (own), err);
    if (status == TRAIN_OK)
        status = train_tensor_view (&mine, own, TRAIN_U8, 1, one, err);
    if (status == TRAIN_OK)
        status = train_tensor_view (&others, all, TRAIN_U8, 1, many, err);
    status = trainer_agree (group, status, err);
    if (status == TRAIN_OK)
        status = train_all_gather (group, &mine.t, &others.t, err);
    if (status == TRAIN_OK)
        status = find_twins (group, (const char (*)[IDENT])all, err);
    free (all);
    return status;
}

static train_status_t open_group (const struct settings *set,
                                  const train_group_t *group, int device,
                                  train_group_t **ret, train_error_t *err)
{
    char name[24];
    const train_group_options_t o = {
        .size = sizeof (o), .backend = "nccl", .name = "GPUs", .device = name};

    if (train_group_size (group) == 1 && set->strategy < TRAIN_SHARD_GRAD_OP)
        return TRAIN_OK;
    /* The order of sums must not follow from what NCCL expects of a tree. */
    if (set->deterministic)
        setenv ("NCCL_ALGO", "Ring", 0);
    snprintf (name, sizeof (name), "cuda:%d", device);
    return train_group_create (&o, ret, err);
}

/* How many GPUs each rank sees; why this one sees none. */
static train_status_t look_around (train_group_t *group, int32_t *ret_gpus,
                                   train_error_t *ret_why, train_error_t *err)
{
    int64_t one[1] = {1}, many[1] = {train_group_size (group)};
    const struct backend_ops *ops;
    train_tensor_t mine, all;
    int32_t gpus = 0;
    int n = 0;

    if (backend_find ("cuda", &ops, ret_why) == TRAIN_OK
        && ops->probe (&n, ret_why) == TRAIN_OK)
        gpus = n;
    TRY (train_tensor_view (&mine, &gpus, TRAIN_I32, 1, one, err));
    TRY (train_tensor_view (&all, ret_gpus, TRAIN_I32, 1, many, err));
    return train_all_gather (group, &mine.t, &all.t, err);
}

/* auto: all ranks come to the same, from the same numbers. */
static train_status_t choose (const struct settings *set, train_group_t *group,
                              bool *ret_gpu, train_error_t *ret_why,
                              train_error_t *err)
{
    int ranks = train_group_size (group);
    int32_t *gpus;
    train_status_t status;

    if (set->device != DEVICE_AUTO || device_host_alone (set))
        return device_choose (set, NULL, ranks, ret_gpu, err);
    if (!(gpus = calloc ((size_t)ranks, sizeof (*gpus))))
        return err_set (err, TRAIN_ENOMEM, "no memory for numbers of GPUs");
    status = look_around (group, gpus, ret_why, err);
    if (status == TRAIN_OK)
        status = device_choose (set, gpus, ranks, ret_gpu, err);
    free (gpus);
    return status;
}

static void name_host (const struct settings *set, const train_error_t *why,
                       char *name, size_t size)
{
    const char *text = device_host_alone (set), *colon;

    if (!text) /* "device cuda: " is in front of what it says */
        text = (colon = strstr (why->text, ": ")) ? colon + 2 : why->text;
    if (set->device == DEVICE_AUTO)
        snprintf (name, size, "cpu (auto: %s)", text);
    else
        snprintf (name, size, "cpu");
}

static train_status_t open_gpu (const struct settings *set,
                                train_group_t *group,
                                train_decoder_config_t *config, char *name,
                                size_t size, train_group_t **ret_group,
                                train_error_t *err)
{
    const struct backend_ops *ops;
    train_status_t status;
    int device = 0;

    if ((status = backend_find ("cuda", &ops, err)) == TRAIN_OK)
        status = pick (group, ops, &device, err);
    if (status == TRAIN_OK)
        status = ops->model (device, name, size, err);
    TRY (trainer_agree (group, status, err));
    /* For good: who goes back to a GPU wakes it, and that of another rank would
     * lose half a gigabyte to this one, or have it refused. */
    (void)ops->enter (device);
    if (set->device == DEVICE_AUTO)
        snprintf (name + strlen (name), size - strlen (name), " (auto)");
    TRY (compare (group, ops, device, err));
    config->device = (DLDevice){kDLCUDA, device};
    return open_group (set, group, device, ret_group, err);
}

train_status_t device_open (const struct settings *set, train_group_t *group,
                            train_decoder_config_t *config, char *name,
                            size_t size, train_group_t **ret_group,
                            train_error_t *err)
{
    train_error_t why = {0};
    train_status_t status;
    char where[256];
    bool gpu;

    status = choose (set, group, &gpu, &why, err);
    if (status == TRAIN_OK && !gpu) {
        name_host (set, &why, name, size);
        return TRAIN_OK;
    }
    if (status == TRAIN_OK)
        status = open_gpu (set, group, config, name, size, ret_group, err);
    if (status != TRAIN_EINVAL && status != TRAIN_ENOTSUP)
        return status;
    settings_where (set, "run", "device", where, sizeof (where));
    return err_prefix (err, status, "%s%s (device = cpu would work)", where,
                       set->device == DEVICE_AUTO ? ": auto found a GPU" : "");
}
