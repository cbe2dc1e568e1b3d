/* SPDX-License-Identifier: Apache-2.0
 * probe_cmd.h - rv-train probe. */
#ifndef RV_TRAIN_PROBE_CMD_H
#define RV_TRAIN_PROBE_CMD_H

#include <stdbool.h>

#include <train/status.h>

/* probe_cmd - try peer copies between all GPUs and print what was found, as a
 * table or as JSON, on stdout.
 *   ret_good   no pair gave wrong bytes
 * TRAIN_ENOTSUP (no GPU), TRAIN_EDEVICE, TRAIN_ENOMEM. */
train_status_t probe_cmd (bool as_json, bool *ret_good, train_error_t *err);

#endif
