/* SPDX-License-Identifier: Apache-2.0
 * record.c - thousands of records in one text, for a child's answer */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "record.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_SIZE 24

/* Room for [n] bytes more; NULL when there is none. */
static char *room (struct record_out *out, size_t n)
{
    if (out->size - out->len < n) {
        size_t size = 2 * out->size + n + 65536;
        char *text = out->failed ? NULL : realloc (out->text, size);

        if (!text) {
            out->failed = true;
            return NULL;
        }
        out->text = text;
        out->size = size;
    }
    return out->text + out->len;
}

static void put_number (struct record_out *out, int64_t n, char behind)
{
    char digits[NUMBER_SIZE], *to = room (out, NUMBER_SIZE), *start = to;
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    int i = 0;

    if (!to)
        return;
    if (n < 0)
        *to++ = '-';
    do
        digits[i++] = (char)('0' + left % 10);
    while (left /= 10);
    while (i)
        *to++ = digits[--i];
    *to++ = behind;
    out->len += (size_t)(to - start);
}

void record_int (struct record_out *out, int64_t n)
{
    put_number (out, n, '\t');
}

static bool is_utf8 (const char *s, size_t len)
{
    json_t *value;
    size_t i = 0;

    while (i < len && (unsigned char)s[i] < 0x80)
        i++;
    if (i == len)
        return true;
    value = json_stringn (s, len);
    json_decref (value);
    return value != NULL;
}

void record_text (struct record_out *out, const char *s)
{
    size_t len = s ? strlen (s) : 0;
    char *to;

    if (!is_utf8 (s, len)) {
        s = "?";
        len = 1;
    }
    if (!(to = room (out, len + 1)))
        return;
    for (size_t i = 0; i < len; i++)
        to[i] = s[i] == '\t' || s[i] == '\n' ? ' ' : s[i];
    to[len] = '\t';
    out->len += len + 1;
}

static void put_char (struct record_out *out, char c)
{
    char *to = room (out, 1);

    if (to) {
        *to = c;
        out->len++;
    }
}

void record_range (struct record_out *out, int32_t first, int32_t last)
{
    put_number (out, first, '-');
    put_number (out, last, ',');
}

void record_ranges_end (struct record_out *out)
{
    put_char (out, '\t');
}

void record_ranges (struct record_out *out, const int32_t *pairs)
{
    for (size_t i = 0; pairs && pairs[i] >= 0; i += 2)
        record_range (out, pairs[i], pairs[i + 1]);
    record_ranges_end (out);
}

void record_end (struct record_out *out)
{
    put_char (out, '\n');
}

json_t *record_json (struct record_out *out)
{
    json_t *json =
        out->failed
            ? NULL
            : json_stringn_nocheck (out->text ? out->text : "", out->len);

    free (out->text);
    *out = (struct record_out){0};
    return json;
}

struct record_in record_begin (const json_t *json)
{
    const char *text = json_string_value (json);

    return (struct record_in){.at = text ? text : ""};
}

size_t record_count (const struct record_in *in)
{
    size_t n = 0;

    for (const char *p = in->at; (p = strchr (p, '\n')); p++)
        n++;
    return n;
}

bool record_more (const struct record_in *in)
{
    return *in->at != '\0';
}

/* A number, and the character that must stand behind it. */
static bool get_number (const char **at, char behind, int64_t *ret)
{
    char *end;

    *ret = strtoll (*at, &end, 10);
    if (end == *at || *end != behind)
        return false;
    *at = end + 1;
    return true;
}

int64_t record_get_int (struct record_in *in)
{
    int64_t n = 0;

    /* strtoll would pass over the end of the record. */
    if (*in->at == '\n' || *in->at == '\t' || !get_number (&in->at, '\t', &n)) {
        in->failed = true;
        return 0;
    }
    return n;
}

char *record_get_text (struct record_in *in)
{
    size_t len = strcspn (in->at, "\t\n");
    char *text = strndup (in->at, len);

    in->failed = in->failed || !text || in->at[len] != '\t';
    in->at += len + (in->at[len] == '\t');
    return text;
}

static bool add_range (int64_t first, int64_t last, size_t limit,
                       uint32_t **index, size_t *n, size_t *size)
{
    if (first < 0)
        return true;
    if (last >= (int64_t)limit)
        last = (int64_t)limit - 1;
    for (int64_t i = first; i <= last; i++) {
        if (*n == *size) {
            uint32_t *more = realloc (*index, (2 * *size + 4) * sizeof (*more));

            if (!more)
                return false;
            *index = more;
            *size = 2 * *size + 4;
        }
        (*index)[(*n)++] = (uint32_t)i;
    }
    return true;
}

void record_get_indices (struct record_in *in, size_t limit, uint32_t **ret,
                         size_t *ret_n)
{
    size_t size = 1;
    int64_t first, last;
    bool well = true;

    *ret_n = 0;
    *ret = calloc (size, sizeof (**ret));
    well = *ret != NULL;
    while (well && *in->at != '\t' && *in->at != '\n' && *in->at)
        well = get_number (&in->at, '-', &first)
               && get_number (&in->at, ',', &last)
               && add_range (first, last, limit, ret, ret_n, &size);
    if (!well || *in->at != '\t')
        in->failed = true;
    else
        in->at++;
}

void record_next (struct record_in *in)
{
    size_t len = strcspn (in->at, "\n");

    in->failed = in->failed || len || in->at[len] != '\n';
    in->at += len + (in->at[len] == '\n');
}
