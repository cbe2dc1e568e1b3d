/* SPDX-License-Identifier: Apache-2.0
 * err.c - fill train_error_t, name the codes */
#include "err.h"

#include <string.h>

train_status_t err_set (train_error_t *err, train_status_t code,
                        const char *fmt, ...)
{
    if (err) {
        va_list ap;

        err->code = code;
        va_start (ap, fmt);
        error_vformat (err->text, sizeof (err->text), fmt, ap);
        va_end (ap);
    }
    return code;
}

train_status_t err_prefix (train_error_t *err, train_status_t code,
                           const char *fmt, ...)
{
    char head[sizeof (err->text)], tail[sizeof (err->text)];
    va_list ap;

    if (!err)
        return code;
    va_start (ap, fmt);
    error_vformat (head, sizeof (head), fmt, ap);
    va_end (ap);
    memcpy (tail, err->text, sizeof (tail));
    return err_set (err, err->code, "%s: %s", head, tail);
}

train_status_t err_from (train_error_t *err, const struct rv_error *from)
{
    return err_set (err, (train_status_t)from->code, "%s", from->text);
}

const char *train_status_name (train_status_t status)
{
    static const char *const name[] = {
        "OK",        "EINVAL",    "ENOMEM",   "EIO",        "EFORMAT",
        "ECORRUPT",  "ENOTFOUND", "ENOTSUP",  "EDEVICE",    "EPEER",
        "EMISMATCH", "ETIMEDOUT", "EABORTED", "ENONFINITE", "ESTATE",
    };

    if (status == TRAIN_PENDING)
        return "PENDING";
    if (status < 0 || (size_t)status >= sizeof (name) / sizeof (*name))
        return "unknown";
    return name[status];
}
