/* SPDX-License-Identifier: Apache-2.0
 * train/status.h - how libtrain says what went wrong.
 *
 * Every fallible call returns train_status_t and takes a nullable
 * train_error_t last. A call that fails leaves its arguments as they were and
 * its ret_ outputs untouched, unless its comment says otherwise. The library
 * never prints, exits or aborts. */
#ifndef TRAIN_STATUS_H
#define TRAIN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Values never change; new ones are added. rv_job_status_t shares them. */
typedef enum train_status {
    TRAIN_PENDING = -1, /* asynchronous work has not ended yet */
    TRAIN_OK = 0,
    TRAIN_EINVAL = 1,      /* an argument or a setting is wrong */
    TRAIN_ENOMEM = 2,      /* host or device memory */
    TRAIN_EIO = 3,         /* file or socket */
    TRAIN_EFORMAT = 4,     /* a file is not what it should be */
    TRAIN_ECORRUPT = 5,    /* a checksum does not match */
    TRAIN_ENOTFOUND = 6,   /* no such file, tensor or key */
    TRAIN_ENOTSUP = 7,     /* not by this backend; the text says which could */
    TRAIN_EDEVICE = 8,     /* the GPU or its driver */
    TRAIN_EPEER = 9,       /* another rank ended; the text names it */
    TRAIN_EMISMATCH = 10,  /* ranks disagree; the text names both sides */
    TRAIN_ETIMEDOUT = 11,  /* a deadline passed; the text names who is late */
    TRAIN_EABORTED = 12,   /* ended on request */
    TRAIN_ENONFINITE = 13, /* NaN or Inf where none may be */
    TRAIN_ESTATE = 14,     /* called in the wrong order, or after a failure */
} train_status_t;

typedef struct train_error {
    train_status_t code;
    char text[512]; /* one line; ends in '+' when it was cut */
} train_error_t;

/* train_status_name - "EINVAL" for TRAIN_EINVAL; "unknown" else. Static. */
const char *train_status_name (train_status_t status);

#ifdef __cplusplus
}
#endif
#endif
