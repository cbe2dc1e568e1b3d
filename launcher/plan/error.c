/* SPDX-License-Identifier: Apache-2.0
 * error.c - format the text that travels with a failure */
#include "plan/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void error_vformat (char *text, size_t size, const char *fmt, va_list ap)
{
    int saved_errno = errno;
    int n = vsnprintf (text, size, fmt, ap);

    if (n < 0)
        snprintf (text, size, "(unprintable message)");
    else if ((size_t)n >= size)
        text[size - 2] = '+';
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    errno = saved_errno;
}

int error_set (struct rv_error *err, int code, const char *fmt, ...)
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

int error_prefix (struct rv_error *err, const char *fmt, ...)
{
    char head[sizeof (err->text)], tail[sizeof (err->text)];
    va_list ap;

    if (!err)
        return 0;
    if (err->text[0]) {
        va_start (ap, fmt);
        error_vformat (head, sizeof (head), fmt, ap);
        va_end (ap);
        memcpy (tail, err->text, sizeof (tail));
        error_set (err, err->code, "%s: %s", head, tail);
    }
    return err->code;
}
