/* SPDX-License-Identifier: Apache-2.0
 * generate_cmd.h - rv-train generate: continue prompts with a model */
#ifndef RV_TRAIN_GENERATE_CMD_H
#define RV_TRAIN_GENERATE_CMD_H

#include <stdbool.h>
#include <stddef.h>

#include <train/decoder.h>
#include <train/status.h>

/* generate_cmd - argv[0] is "generate". TRAIN_EINVAL also for its options. */
train_status_t generate_cmd (int argc, char **argv, train_error_t *err);

/* generate_model - the weights of a Hugging Face directory, a checkpoint or the
 * latest of a folder of them.
 *   dtype     of a directory's weights, TRAIN_N_DTYPES: fp32; a checkpoint
 *             keeps its own, and refuses another word for it
 *   ret_dir   free with free(): where config.json is */
train_status_t generate_model (const char *where, train_dtype_t dtype,
                               bool cuda, train_decoder_t **ret_decoder,
                               char **ret_dir, train_error_t *err);

/* What of a text may be shown while it grows: not the half of a character, nor
 * what may become a stop string.
 *   stop       (n_stop)
 *   ret_stop   a stop string is there: what is before it is returned
 * Returns bytes of [text] (size) that may be shown; all with [end]. */
size_t generate_ready (const char *text, size_t size, char *const *stop,
                       size_t n_stop, bool end, bool *ret_stop);

#endif
