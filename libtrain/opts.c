/* SPDX-License-Identifier: Apache-2.0
 * opts.c - options structs of callers that were built against another release
 */
#include "opts.h"

#include <string.h>

#include "err.h"

train_status_t opts_read (void *to, size_t full, const void *from,
                          const char *what, train_error_t *err)
{
    const char *bytes = from;
    size_t size = full;

    if (from)
        memcpy (&size, from, sizeof (size));
    if (size < sizeof (size))
        return err_set (err, TRAIN_EINVAL,
                        "%s: the size of the options is %zu; set it to sizeof "
                        "of their type",
                        what, size);
    for (size_t i = full; i < size; i++) {
        if (bytes[i])
            return err_set (err, TRAIN_EINVAL,
                            "%s: options of %zu bytes, and not zero past the "
                            "%zu that this libtrain knows; use the libtrain "
                            "that the program was built for, or leave byte "
                            "%zu zero",
                            what, size, full, i);
    }
    memset (to, 0, full);
    if (from)
        memcpy (to, from, size < full ? size : full);
    memcpy (to, &full, sizeof (full));
    return TRAIN_OK;
}

train_status_t opts_write (void *to, size_t full, const void *from,
                           const char *what, train_error_t *err)
{
    const char *bytes = from;
    size_t size, head = sizeof (size);

    memcpy (&size, to, sizeof (size));
    if (size < head)
        return err_set (err, TRAIN_EINVAL,
                        "%s: the size of the result is %zu; set it to sizeof "
                        "of its type",
                        what, size);
    for (size_t i = size; i < full; i++) {
        if (bytes[i])
            return err_set (err, TRAIN_ENOTSUP,
                            "%s: there is more to say than the %zu bytes of an "
                            "older release's result hold; build the program "
                            "with this libtrain's headers",
                            what, size);
    }
    memset ((char *)to + head, 0, size - head);
    memcpy ((char *)to + head, bytes + head,
            (size < full ? size : full) - head);
    return TRAIN_OK;
}

train_status_t opts_fits (const void *to, const char *what, train_error_t *err)
{
    size_t size;

    memcpy (&size, to, sizeof (size));
    if (size < sizeof (size))
        return err_set (err, TRAIN_EINVAL,
                        "%s: the size of what is to be written is %zu; set it "
                        "to sizeof of its type",
                        what, size);
    return TRAIN_OK;
}

train_status_t opts_give (void *to, const void *from, size_t full,
                          const char *what, train_error_t *err)
{
    size_t size;

    TRY (opts_fits (to, what, err));
    memcpy (&size, to, sizeof (size));
    memset (to, 0, size);
    memcpy (to, from, size < full ? size : full);
    memcpy (to, &size, sizeof (size));
    return TRAIN_OK;
}
