/* SPDX-License-Identifier: Apache-2.0
 * logps_wire.h - bodies that rv-train refserver takes and gives: safetensors in
 * memory. Inside libtrain and rv-train only.
 *
 * Asked, POST /v1/logps:
 *   ids          I32 (B,T)  texts; anything behind a text
 *   total_len    I32 (B)    tokens of each
 *   prompt_len   I32 (B)    tokens of each that are not asked for; may be left
 *                           out: none
 *   metadata     temperature, a JSON number; may be left out: 1
 * Answered:
 *   logps        F32 (B,T)  as ret of train_reference_logps
 *   metadata     model, the sum of its weights; version, of the server */
#ifndef TRAIN_LOGPS_WIRE_H
#define TRAIN_LOGPS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#define LOGPS_PATH   "/v1/logps"
#define HEALTH_PATH  "/health"
#define LOGPS_HEADER ((size_t)65536) /* most bytes of a header */
#define LOGPS_MODEL  17              /* of the model's sum, with its end */

struct logps_ask {
    int B, T;
    double temperature;
    int32_t *ids;        /* (B,T) begins the one malloc'ed block */
    int32_t *prompt_len; /* (B) */
    int32_t *total_len;  /* (B) */
};

/* logps_body_most - bytes of the largest body of so many tokens. */
size_t logps_body_most (size_t tokens);

/* logps_read_ask - TRAIN_EFORMAT: no such body, with what is wrong;
 * TRAIN_EINVAL: a length or an id that cannot be, with its row; TRAIN_ENOMEM.
 *   vocab   ids are within it
 *   ret     free with logps_free_ask */
train_status_t logps_read_ask (const void *body, size_t n, int vocab,
                               struct logps_ask *ret, train_error_t *err);
void logps_free_ask (struct logps_ask *ask);

/* logps_write_ask, logps_write_answer - ret_body: free with free().
 *   prompt_len   may be NULL */
train_status_t logps_write_ask (const struct logps_ask *ask, char **ret_body,
                                size_t *ret_n, train_error_t *err);
train_status_t logps_write_answer (const float *logps, int B, int T,
                                   const char *model, char **ret_body,
                                   size_t *ret_n, train_error_t *err);

/* logps_read_answer - TRAIN_EFORMAT: not an answer to (B,T).
 *   ret         (B,T) written
 *   ret_model   written; "" where it names none */
train_status_t logps_read_answer (const void *body, size_t n, int B, int T,
                                  float *ret, char ret_model[LOGPS_MODEL],
                                  train_error_t *err);

#endif
