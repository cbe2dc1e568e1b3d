/* SPDX-License-Identifier: Apache-2.0
 * export_cmd.h - rv-train export: a checkpoint to a Hugging Face directory */
#ifndef RV_TRAIN_EXPORT_CMD_H
#define RV_TRAIN_EXPORT_CMD_H

#include <train/status.h>

/* export_cmd - the weights of checkpoint [argv][0], or of the latest of that
 * folder, to directory [argv][1], which Hugging Face's transformers loads.
 *   argv   (argc) behind "export": --dtype TYPE, --max-bytes N, CHECKPOINT, DIR
 * TRAIN_EINVAL for what it does not understand; what a checkpoint can fail with
 * (train/ckpt_pieces.h), each stored piece summed, before anything is written;
 * TRAIN_EIO. */
train_status_t export_cmd (int argc, char **argv, train_error_t *err);

#endif
