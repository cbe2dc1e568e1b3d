/* SPDX-License-Identifier: Apache-2.0
 * jsonout.c - values as rv's JSON has them, and the object on stdout */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "jsonout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/timefmt.h"

json_t *jsonout_text (const char *s)
{
    json_t *value;
    char *copy;
    size_t n;

    if (!s)
        return json_null ();
    value = json_string (s);
    if (value)
        return value;
    /* Not UTF-8: keep ASCII, show the rest as U+FFFD. */
    copy = malloc (3 * strlen (s) + 1);
    if (!copy)
        return NULL;
    for (n = 0; *s; s++)
        if ((unsigned char)*s < 0x80) {
            copy[n++] = *s;
        } else {
            memcpy (copy + n, "\xef\xbf\xbd", 3);
            n += 3;
        }
    value = json_stringn (copy, n);
    free (copy);
    return value;
}

json_t *jsonout_time (int64_t t)
{
    struct timespec ts = {.tv_sec = (time_t)t};
    char buf[TIMEFMT_SIZE];

    if (t <= 0 || timefmt_format (&ts, buf, sizeof (buf)) != RV_OK)
        return json_null ();
    return json_string (buf);
}

int jsonout_print (json_t *json_take)
{
    int status = json_take ? json_dumpf (json_take, stdout, JSON_COMPACT) : -1;

    json_decref (json_take);
    if (status == 0 && putchar ('\n') == EOF)
        status = -1;
    return status;
}
