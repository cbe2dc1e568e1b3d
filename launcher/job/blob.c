/* SPDX-License-Identifier: Apache-2.0
 * blob.c - pack the values of one fence into one run of bytes, find them, and join
 * what comes in pieces */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "job/exchange.h"
#include "job/job_impl.h"

static rv_job_status_t check_key (const char *key, rv_job_error_t *err)
{
    size_t n = key ? strlen (key) : 0;

    if (n < 1 || n > JOB_KEY_MAX)
        return job_error (err, RV_JOB_EINVAL,
                          "a key has 1 to %d characters, this one has %zu",
                          JOB_KEY_MAX, n);
    if (strspn (key, "abcdefghijklmnopqrstuvwxyz0123456789._-") != n)
        return job_error (err, RV_JOB_EINVAL,
                          "key '%s' has characters outside a-z 0-9 . _ -", key);
    return RV_JOB_OK;
}

rv_job_status_t blob_find (const unsigned char *blob, size_t len,
                           const char *key, const unsigned char **ret_value,
                           size_t *ret_len, rv_job_error_t *err)
{
    size_t at = 0, n, value_len;
    rv_job_status_t status = check_key (key, err);

    if (status)
        return status;
    while (at < len) {
        n = blob[at];
        if (n < 1 || len - at < 1 + n + 2)
            goto bad;
        value_len = blob[at + 1 + n] | (size_t)blob[at + 2 + n] << 8;
        if (len - at - n - 3 < value_len)
            goto bad;
        if (n == strlen (key) && !memcmp (blob + at + 1, key, n)) {
            *ret_value = blob + at + n + 3;
            *ret_len = value_len;
            return RV_JOB_OK;
        }
        at += n + 3 + value_len;
    }
    return job_error (err, RV_JOB_ENOTFOUND, "key '%s' was not put", key);
bad:
    return job_error (err, RV_JOB_EFORMAT,
                      "a rank's values are malformed at byte %zu of %zu", at,
                      len);
}

rv_job_status_t blob_put (unsigned char **blob, size_t *len, const char *key,
                          const void *value, size_t value_len,
                          rv_job_error_t *err)
{
    const unsigned char *old;
    unsigned char *grown;
    size_t n, old_len;
    rv_job_status_t status = check_key (key, err);

    if (status)
        return status;
    if (value_len > JOB_VALUE_MAX || (!value && value_len))
        return job_error (err, RV_JOB_EINVAL,
                          "the value of '%s' has %zu bytes; at most %d fit",
                          key, value_len, JOB_VALUE_MAX);
    if (!blob_find (*blob, *len, key, &old, &old_len, NULL))
        return job_error (err, RV_JOB_EINVAL,
                          "key '%s' was put before in this fence", key);
    n = strlen (key);
    if (*len + n + 3 + value_len > JOB_BLOB_MAX)
        return job_error (err, RV_JOB_EINVAL,
                          "more than %d bytes put before one fence",
                          JOB_BLOB_MAX);
    if (!(grown = realloc (*blob, *len + n + 3 + value_len)))
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    *blob = grown;
    grown += *len;
    *grown++ = (unsigned char)n;
    memcpy (grown, key, n);
    grown[n] = value_len & 0xff;
    grown[n + 1] = (unsigned char)(value_len >> 8);
    if (value_len)
        memcpy (grown + n + 2, value, value_len);
    *len += n + 3 + value_len;
    return RV_JOB_OK;
}

/* The first piece tells how much will come. */
static rv_job_status_t begin (struct blob_in *in, const unsigned char **piece,
                              size_t *size, rv_job_error_t *err)
{
    if (!*piece || *size < 4)
        return RV_JOB_EFORMAT;
    in->len = exchange_get32 (*piece);
    if (in->len > JOB_BLOB_MAX)
        return RV_JOB_EFORMAT;
    if (!(in->blob = malloc (in->len ? in->len : 1)))
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    *piece += 4;
    *size -= 4;
    return RV_JOB_OK;
}

rv_job_status_t blob_add (struct blob_in *in, const void *data, size_t size,
                          rv_job_error_t *err)
{
    const unsigned char *piece = data;
    rv_job_status_t status =
        in->blob ? RV_JOB_OK : begin (in, &piece, &size, err);

    if (status == RV_JOB_ENOMEM)
        return status;
    if (status || !piece || size > in->len - in->at
        || (size == 0 && in->at < in->len))
        return job_error (err, RV_JOB_EFORMAT,
                          "the values of rank %u are malformed", in->rank);
    memcpy (in->blob + in->at, piece, size);
    in->at += size;
    return RV_JOB_OK;
}
