/* SPDX-License-Identifier: Apache-2.0
 * error.h - a code and a line of text that travel with a failure.
 *
 * Every fallible function of this project takes an error struct as its last,
 * nullable parameter. librvjob (rv_job_error_t) and libtrain (train_error_t)
 * have types of their own with the same two fields; all text is formatted
 * here, so that cutting and errno behave alike everywhere. */
#ifndef RV_PLAN_ERROR_H
#define RV_PLAN_ERROR_H

#include <stdarg.h>
#include <stddef.h>

/* Codes share the numbers of train_status_t and rv_job_status_t. */
enum rv_code {
    RV_OK = 0,
    RV_EINVAL = 1,
    RV_ENOMEM = 2,
    RV_EIO = 3,
    RV_EFORMAT = 4,
    RV_ENOTFOUND = 6,
    RV_ENOTSUP = 7,
    RV_EPEER = 9,
    RV_EMISMATCH = 10,
    RV_ETIMEDOUT = 11,
    RV_EABORTED = 12,
    RV_ESTATE = 14,
};

struct rv_error {
    int code;       /* enum rv_code */
    char text[512]; /* one line, no newline, no trailing dot */
};

/* error_set - write [code] and the formatted text into [err].
 *   err    written; NULL drops the text
 *   code   stored and returned, so that error paths are one line
 * errno is kept. Control characters become '?'. A text that did not fit ends
 * in '+'. Returns [code]. */
int error_set (struct rv_error *err, int code, const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));

/* error_prefix - put the formatted text and ": " before the text of [err].
 * Does nothing for NULL or an [err] without text. Returns err->code, or 0. */
int error_prefix (struct rv_error *err, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

/* error_vformat - the formatting behind error_set, for other error structs.
 *   text   (size) written, always terminated
 *   size   > 1 */
void error_vformat (char *text, size_t size, const char *fmt, va_list ap)
    __attribute__ ((format (printf, 3, 0)));

#endif
