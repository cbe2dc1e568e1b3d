/* SPDX-License-Identifier: Apache-2.0
 * reference.h - the kinds of train_reference_t. Inside libtrain only. */
#ifndef TRAIN_REFERENCE_INTERNAL_H
#define TRAIN_REFERENCE_INTERNAL_H

#include <train/reference.h>

/* What a kind does. */
struct reference_ops {
    const char *name; /* stands in errors */
    /* logps (required) - of checked arguments; ids behind a text are 0,
     * prompt_len is not NULL. All of ret (B,T) may be written: places that were
     * not asked for become 0 afterwards. */
    train_status_t (*logps) (void *self, const int32_t *ids,
                             const int32_t *prompt_len,
                             const int32_t *total_len, int B, int T,
                             double temperature, float *ret,
                             train_error_t *err);
    /* close (required) - frees [self]. */
    void (*close) (void *self);
    /* check - what train_reference_check does; NULL: there is nothing to see. */
    train_status_t (*check) (void *self, train_error_t *err);
    /* join - what other ranks need of this one that has no rows; NULL: nothing.
     */
    train_status_t (*join) (void *self, train_error_t *err);
    /* hash - of its weights, on this rank; NULL, or false: it is not known, or
     * they are the policy's own. */
    bool (*hash) (void *self, uint64_t *ret);
    /* bytes - of the policy's device, that logps of (B,T) takes and keeps; NULL:
     * none that the policy's own passes would not take. */
    size_t (*bytes) (const void *self, int B, int T);
};

/* reference_bytes - what [bytes] says. NULL is fine. */
size_t reference_bytes (const train_reference_t *reference, int B, int T);

/* reference_hash - of the weights; two of one kind that differ are of other
 * weights.
 *   ret   its kind, then its weights; zeros where that is not known */
void reference_hash (const train_reference_t *reference, int64_t ret[2]);

/* reference_new - [self] becomes the reference's, also after a failure, when it
 * is closed.
 *   vocab   ids are below it; 0: not known */
train_status_t reference_new (const struct reference_ops *ops, void *self,
                              int vocab, train_reference_t **ret_reference,
                              train_error_t *err);

/* reference_open_any - train_reference_open_decoder of a decoder whose hooks see
 * to its weights. */
train_status_t reference_open_any (train_decoder_t *decoder,
                                   train_reference_t **ret_reference,
                                   train_error_t *err);

/* reference_url - bytes of "http://HOST:PORT", less a slash at its end; 0: it is
 * none, or has what a URL may have besides. */
size_t reference_url (const char *url);

#endif
