/* SPDX-License-Identifier: Apache-2.0
 * device.h - the GPU that a rank of rv-train takes, and the group that moves
 * what lies on them. */
#ifndef RV_TRAIN_DEVICE_H
#define RV_TRAIN_DEVICE_H

#include <train/decoder.h>
#include <train/group.h>

#include "settings.h"

/* device_choose - does the run take GPUs? As [run] device says; auto takes them
 * where all ranks see one, and the host where none does, or what is trained is of
 * the host alone. Pure.
 *   gpus   (ranks) how many each rank sees; read for auto alone
 * TRAIN_EINVAL: auto, and the ranks differ.
 * device_host_alone - why no GPU can train this; NULL: one can. */
train_status_t device_choose (const struct settings *set, const int32_t *gpus,
                              int ranks, bool *ret_gpu, train_error_t *err);
const char *device_host_alone (const struct settings *set);

/* device_open - by [run] device: of a GPU config->device, and, where there are
 * several ranks or the model is sharded, a group of backend nccl. Collective over
 * [group].
 *   name        (size) written: the card's name, or cpu; what auto took it for
 *               stands behind it
 *   ret_group   NULL where there is none; end with train_group_destroy
 * TRAIN_EINVAL: more ranks on a node than GPUs, two that have the same one, or
 * as device_choose.
 * TRAIN_ENOTSUP: no GPU or NCCL, which the text says. */
train_status_t device_open (const struct settings *set, train_group_t *group,
                            train_decoder_config_t *config, char *name,
                            size_t size, train_group_t **ret_group,
                            train_error_t *err);

#endif
