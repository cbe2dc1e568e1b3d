/* SPDX-License-Identifier: Apache-2.0
 * device.h - the GPU that a rank of rv-train takes, and the group that moves
 * what lies on them. */
#ifndef RV_TRAIN_DEVICE_H
#define RV_TRAIN_DEVICE_H

#include <train/decoder.h>
#include <train/group.h>

#include "settings.h"

/* device_open - by [run] device: of cuda config->device, the card's name, and,
 * where there are several ranks or the model is sharded, a group of backend
 * nccl. Collective over [group].
 *   card        (size) written; "" on the host
 *   ret_group   NULL where there is none; end with train_group_destroy
 * TRAIN_EINVAL: more ranks on a node than GPUs, or two that have the same one.
 * TRAIN_ENOTSUP: no GPU or NCCL, which the text says. */
train_status_t device_open (const struct settings *set, train_group_t *group,
                            train_decoder_config_t *config, char *card,
                            size_t size, train_group_t **ret_group,
                            train_error_t *err);

#endif
