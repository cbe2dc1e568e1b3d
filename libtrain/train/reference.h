/* SPDX-License-Identifier: Apache-2.0
 * train/reference.h - a frozen model that says how likely tokens are: the
 * reference policy of a KL penalty (train/grpo.h), here or behind a server.
 *
 * One thread uses a reference at a time. */
#ifndef TRAIN_REFERENCE_H
#define TRAIN_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/group.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_reference train_reference_t;

/* train_reference_open_decoder - a decoder of this process.
 *   decoder   borrowed until the reference is closed; its weights are what is
 *             asked, and must not change meanwhile
 * TRAIN_ESTATE: it was made bare. TRAIN_ENOMEM. */
train_status_t train_reference_open_decoder (train_decoder_t *decoder,
                                             train_reference_t **ret_reference,
                                             train_error_t *err);

typedef struct train_reference_http_options {
    size_t size;            /* sizeof (train_reference_http_options_t) */
    const char *token_file; /* its first line is the bearer token; a plain file
                               of this user, mode 0600 or stricter. NULL: none */
    int vocab;              /* tokens of the model that is trained: the server's
                               must have as many; 0: not checked */
    double deadline; /* seconds that one call may last, retries included, > 0;
                        0 = 600. A server that is restarted has this long */
    bool (*ends) (void *arg); /* asked while a call waits, every second at least
                                 and after each signal: true ends it with
                                 TRAIN_EABORTED. NULL: nobody is asked */
    void *ends_arg;
    /* Told once when a call finds nobody who answers, of [why] and the seconds
       that it may wait; and when there is an answer then, of NULL and the seconds
       that it waited. NULL: nobody is told. */
    void (*waits) (void *arg, const char *why, double seconds);
    void *waits_arg;
} train_reference_http_options_t;

/* train_reference_open_http - `rv-train refserver` (rv-train(1)). Asks for its
 * version and vocabulary, and waits for it to come up.
 *   url    "http://HOST:PORT"; no path
 *   opts   NULL = all defaults
 * TRAIN_EINVAL: the URL, an option; TRAIN_ENOTFOUND, TRAIN_EIO, TRAIN_EFORMAT:
 * the token file, which must be readable by its owner alone; TRAIN_EMISMATCH:
 * its version, or the vocabulary, both named; TRAIN_ETIMEDOUT: not up within
 * the deadline, with what it said last; TRAIN_ENOTSUP: built without libcurl. */
train_status_t train_reference_open_http (
    const char *url, const train_reference_http_options_t *opts,
    train_reference_t **ret_reference, train_error_t *err);

/* train_reference_open_copy - a frozen copy of what the decoder's weights are
 * now, without gradients, where they are. Errors as above; TRAIN_EDEVICE. */
train_status_t train_reference_open_copy (train_decoder_t *decoder,
                                          train_reference_t **ret_reference,
                                          train_error_t *err);

/* train_reference_open_base - a decoder of this process without its adapters:
 * the reference of a policy that they are trained of, and no second copy. As
 * train_reference_open_decoder; it may be bare where its units are placed when
 * it is asked, and without adapters it is just that decoder. */
train_status_t train_reference_open_base (train_decoder_t *decoder,
                                          train_reference_t **ret_reference,
                                          train_error_t *err);

typedef struct train_reference_units_options {
    size_t size;          /* sizeof (train_reference_units_options_t) */
    train_group_t *group; /* whose ranks have a part each, borrowed; it moves
                             memory of the model's device. NULL: all is here */
    bool offload;         /* the parts lie in the host's memory, pinned; each
                             unit is brought to the device for its use */
    const char *dir;      /* a Hugging Face directory (train/hf.h); NULL: as a
                             decoder is drawn */
    uint64_t seed;        /* by this */
} train_reference_units_options_t;

/* train_reference_open_units - a model of which this rank keeps a part, or which
 * lies in the host's memory, or both: the device holds one of its units at a
 * time, embedding, block or head. Its numbers are those that a trainer begins
 * with (train_trainer_init, train_trainer_init_hf).
 *   config   of the model; its adapters are left out
 *   opts     strings are not needed afterwards
 * With a group all calls but close and check are collective.
 * TRAIN_EINVAL, TRAIN_ENOMEM, TRAIN_EDEVICE; errors of train_hf_load; TRAIN_EPEER:
 * another rank failed. */
train_status_t train_reference_open_units (
    const train_decoder_config_t *config,
    const train_reference_units_options_t *opts,
    train_reference_t **ret_reference, train_error_t *err);

/* train_reference_check - is a copy, or a part, bit for bit what it was? Of a
 * base that is not bare: are its weights what they were when it was first asked?
 * TRAIN_ECORRUPT: it is not. TRAIN_OK of other kinds. */
train_status_t train_reference_check (train_reference_t *reference,
                                      train_error_t *err);

void train_reference_close (train_reference_t *reference); /* NULL is fine */

/* train_reference_logps - log-probs of the tokens of texts.
 *   ids           (B,T) host: prompt, completion, anything behind
 *   prompt_len    (B) tokens of each that are not asked for; NULL: none
 *   total_len     (B) tokens of each, prompt_len..T
 *   temperature   > 0: logits are divided by it before the softmax
 *   ret           (B,T) host, written: log p (ids[b,t] | ids[b,0..t-1]) in nats;
 *                 0 at t = 0, where t < prompt_len[b] and where
 *                 t >= total_len[b]
 * TRAIN_EINVAL names the row, and the place of an id outside the vocabulary.
 * In-process: errors of train_decoder_logps. Of a server: TRAIN_ETIMEDOUT, with
 * what it said last; TRAIN_EINVAL, what it refused, as one text that it has no
 * room for (texts that are too many together are asked for in parts); TRAIN_EIO; TRAIN_EMISMATCH: it
 * has come back with another model; TRAIN_EABORTED: [ends] was true. What may pass
 * is tried again until then. */
train_status_t train_reference_logps (train_reference_t *reference,
                                      const int32_t *ids,
                                      const int32_t *prompt_len,
                                      const int32_t *total_len, int B, int T,
                                      double temperature, float *ret,
                                      train_error_t *err);

/* train_reference_join - instead of it on a rank that has no texts while others
 * ask a reference of which it has a part. Nothing of other kinds. */
train_status_t train_reference_join (train_reference_t *reference,
                                     train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
