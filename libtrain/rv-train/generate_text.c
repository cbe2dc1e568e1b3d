/* SPDX-License-Identifier: Apache-2.0
 * generate_text.c - what of a growing text may be shown */
#include "config.h"

#include "generate_cmd.h"

#include <string.h>

/* Bytes at the end of [text] that begin a character without ending it, or that a
 * decoder shows as U+FFFD because the rest is to come. */
static size_t open_character (const char *text, size_t size)
{
    size_t back = 0;

    while (size >= back + 3
           && memcmp (text + size - back - 3, "\xef\xbf\xbd", 3) == 0)
        back += 3;
    if (back)
        return back;
    for (size_t i = 1; i <= 3 && i <= size; i++) {
        unsigned char c = (unsigned char)text[size - i];

        if (c >= 0xc0)
            return i < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? i : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

/* The longest end of [text] that a stop string begins with. */
static size_t open_stop (const char *text, size_t size, const char *stop)
{
    size_t n = strlen (stop);

    for (size_t k = n - 1 < size ? n - 1 : size; k > 0; k--)
        if (memcmp (text + size - k, stop, k) == 0)
            return k;
    return 0;
}

size_t generate_ready (const char *text, size_t size, char *const *stop,
                       size_t n_stop, bool end, bool *ret_stop)
{
    size_t first = size, back = 0;

    *ret_stop = false;
    for (size_t i = 0; i < n_stop; i++) {
        const char *at = memmem (text, size, stop[i], strlen (stop[i]));

        if (at && (!*ret_stop || (size_t)(at - text) < first)) {
            first = (size_t)(at - text);
            *ret_stop = true;
        }
    }
    if (*ret_stop || end)
        return first;
    back = open_character (text, size);
    for (size_t i = 0; i < n_stop; i++) {
        size_t k = open_stop (text, size, stop[i]);

        back = k > back ? k : back;
    }
    return size - back;
}
