/* SPDX-License-Identifier: Apache-2.0
 * check_cmd.h - rv-train check: memory and time of a run that was not begun. */
#ifndef RV_TRAIN_CHECK_CMD_H
#define RV_TRAIN_CHECK_CMD_H

#include <train.h>

/* check_cmd - what a rank of the run of a file would hold, and how long the run
 * would take, on stdout.
 *   argv   behind "check": options, the file, section.key=value...
 * The statuses of settings, data and model that are not right; TRAIN_ENOTSUP:
 * a device that this build knows nothing of. */
train_status_t check_cmd (int argc, char **argv, train_error_t *err);

#endif
