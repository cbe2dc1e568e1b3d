/* SPDX-License-Identifier: Apache-2.0
 * opts.h - options structs of callers that were built against another release.
 * Inside libtrain only. */
#ifndef TRAIN_OPTS_H
#define TRAIN_OPTS_H

#include <stddef.h>

#include <train/status.h>

/* opts_read - what a caller has of a struct that begins with `size_t size`.
 *   to     (full bytes) written: the caller's fields, zeros in those that its
 *          header did not have yet, and [full] as its size
 *   from   NULL = all zeros; of another size than [full] it is of another
 *          release, whose fields are the same as far as they go
 *   what   stands in the error, "copier"
 * TRAIN_EINVAL: size is not set, or fields that this release has not are not
 * zero. */
train_status_t opts_read (void *to, size_t full, const void *from,
                          const char *what, train_error_t *err);

/* opts_write - the same for a struct that is a result: what the caller has not
 * must be zero, what this release has not becomes zero.
 *   to     of the size that stands in it, which stays
 *   from   (full bytes)
 * TRAIN_EINVAL: size is not set; TRAIN_ENOTSUP: something would be lost. [to] is
 * as it was then. */
train_status_t opts_write (void *to, size_t full, const void *from,
                           const char *what, train_error_t *err);

/* opts_give - the other way: give a caller what its struct has room for.
 *   to     its size is set and stays; what [full] has not becomes zero
 *   from   (full bytes) the same struct as this release has it
 * TRAIN_EINVAL: size is not set; nothing is written. Use opts_fits first where
 * that must be known before work begins. */
train_status_t opts_fits (const void *to, const char *what, train_error_t *err);
train_status_t opts_give (void *to, const void *from, size_t full,
                          const char *what, train_error_t *err);

#endif
