/* SPDX-License-Identifier: Apache-2.0
 * failure.c - failure.json of a request's folder in words */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_TEXT 200

static const char *text_of (const json_t *j, const char *key)
{
    const char *text = json_string_value (json_object_get (j, key));

    return text ? text : "";
}

static unsigned rank_at (const json_t *list, size_t i)
{
    return (unsigned)json_integer_value (json_array_get (list, i));
}

/* "0-1,3"; what does not fit is counted. */
static void put_ranks (FILE *f, const json_t *list)
{
    size_t n = json_array_size (list), written = 0;

    for (size_t i = 0, last; i < n; i = last + 1) {
        for (last = i; last + 1 < n
                       && rank_at (list, last + 1) == rank_at (list, last) + 1;)
            last++;
        if (written > RANKS_TEXT) {
            fprintf (f, " and %zu more", n - i);
            break;
        }
        written += (size_t)fprintf (f, "%s%u", i ? "," : "", rank_at (list, i));
        if (last > i)
            written += (size_t)fprintf (f, "-%u", rank_at (list, last));
    }
    fputc ('\n', f);
}

static void put_where (FILE *f, const json_t *j)
{
    const json_t *after = json_object_get (j, "after_s");
    const char *device = text_of (j, "device"), *comma = "";

    if (!json_is_number (after) && !*device
        && !json_is_true (json_object_get (j, "out_of_memory")))
        return;
    fputs (FAILURE_MARK, f);
    if (json_is_number (after)) {
        fprintf (f, "after %.1f s", json_number_value (after));
        comma = ", ";
    }
    if (*device) {
        fprintf (f, "%son device %.80s", comma, device);
        comma = ", ";
    }
    if (json_is_true (json_object_get (j, "out_of_memory")))
        fprintf (f, "%sout of memory", comma);
    fputc ('\n', f);
}

static void put_others (FILE *f, const json_t *j)
{
    static const char *const key[] = {"well", "failed", "silent"};
    static const char *const label[] = {"still well", "ended badly too",
                                        "without a report"};

    for (size_t i = 0; i < sizeof (key) / sizeof (*key); i++) {
        const json_t *list = json_object_get (j, key[i]);

        if (json_array_size (list) == 0)
            continue;
        fprintf (f, FAILURE_MARK "%s: ", label[i]);
        put_ranks (f, list);
    }
}

/* A program's words are shown without what would drive a terminal. */
static void put_tail (FILE *f, const json_t *list)
{
    size_t n = json_array_size (list);

    if (n == 0)
        return;
    fputs (FAILURE_MARK "last lines of its stderr:\n", f);
    for (size_t i = 0; i < n; i++) {
        const char *line = json_string_value (json_array_get (list, i));

        fputs (FAILURE_MARK "| ", f);
        for (; line && *line; line++)
            fputc ((unsigned char)*line < ' ' && *line != '\t' ? '?' : *line,
                   f);
        fputc ('\n', f);
    }
}

char *failure_lines (const json_t *failure, bool tail)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream (&text, &size);
    bool bad;

    if (!f)
        return NULL;
    put_where (f, failure);
    put_others (f, failure);
    if (tail)
        put_tail (f, json_object_get (failure, "stderr_tail"));
    if (*text_of (failure, "advice"))
        fprintf (f, FAILURE_MARK "advice: %s\n", text_of (failure, "advice"));
    bad = ferror (f);
    if (fclose (f) || bad) {
        free (text);
        return NULL;
    }
    return text;
}
