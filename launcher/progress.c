/* SPDX-License-Identifier: Apache-2.0
 * progress.c - lines that a program draws over and over, such as tqdm's bars */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_MS 100
#define ESC     '\033'

/* Length of the control sequence that begins at [text] (ESC [ parameters,
 * intermediates, a final byte); 0: there is none, or not all of it. */
static size_t sequence (const char *text, size_t len)
{
    size_t i = 2;

    if (len < 3 || text[0] != ESC || text[1] != '[')
        return 0;
    while (i < len && text[i] >= 0x20 && text[i] <= 0x3f)
        i++;
    return i < len && text[i] >= 0x40 && text[i] <= 0x7e ? i + 1 : 0;
}

static size_t drop_moves (char *line, size_t len)
{
    size_t out = 0;

    for (size_t i = 0; i < len;) {
        size_t n = sequence (line + i, len - i);

        if (n && line[i + n - 1] != 'm') {
            i += n;
            continue;
        }
        n = n ? n : 1;
        memmove (line + out, line + i, n);
        out += n;
        i += n;
    }
    return out;
}

size_t progress_clean (char *line, size_t len)
{
    size_t body = len;
    const char *last;

    while (body && (line[body - 1] == '\n' || line[body - 1] == '\r'))
        body--;
    last = memrchr (line, '\r', body);
    if (last) {
        size_t skip = (size_t)(last - line) + 1;

        len -= skip;
        memmove (line, line + skip, len);
    }
    return memchr (line, ESC, len) ? drop_moves (line, len) : len;
}

bool progress_is_plain (const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

/* Length of what begins with the escape at [text] and is no whole control
 * sequence: a title for the window, up to its BEL or ST, or a character. */
static size_t other_escape (const char *text, size_t len)
{
    size_t i = 2;

    if (len < 3 || !strchr ("]P^_X", text[1]))
        return len < 2 || text[1] == '\n' || text[1] == '\r' ? 1 : 2;
    while (i < len && text[i] != '\a' && text[i] != ESC)
        i++;
    if (i < len && text[i] == ESC)
        return i + 1 < len && text[i + 1] == '\\' ? i + 2 : i;
    return i < len ? i + 1 : 2;
}

size_t progress_harmless (char *line, size_t len)
{
    size_t out = 0;

    for (size_t i = 0; i < len;) {
        size_t n = sequence (line + i, len - i), keep = n;

        if (!n && line[i] == ESC) {
            n = other_escape (line + i, len - i);
        } else if (!n) {
            n = 1;
            keep = line[i] == '\r' || progress_is_plain (line + i, 1);
        }
        memmove (line + out, line + i, keep);
        out += keep;
        i += n;
    }
    return out;
}

size_t progress_fit (const char *text, size_t len, unsigned columns)
{
    size_t i = 0;
    unsigned used = 0;

    while (i < len) {
        unsigned char c = (unsigned char)text[i];
        size_t n = sequence (text + i, len - i);

        if (n && text[i + n - 1] == 'm') {
            i += n;
            continue;
        }
        if (c < 0x20 || c == 0x7f)
            break;
        /* a byte that goes on with a character takes no column */
        if ((c & 0xc0) != 0x80 && ++used > columns)
            break;
        i++;
    }
    return i;
}

void live_init (struct live *live)
{
    const char *term = getenv ("TERM");

    *live = (struct live){.fd = -1};
    if (!term || !*term || !strcmp (term, "dumb"))
        return;
    if (isatty (STDERR_FILENO))
        live->fd = STDERR_FILENO;
    else if (isatty (STDOUT_FILENO))
        live->fd = STDOUT_FILENO;
}

static void put (int fd, const char *text, size_t len)
{
    ssize_t ignored = write (fd, text, len);

    (void)ignored;
}

bool live_show (struct live *live, const char *label, const char *text,
                size_t len, int64_t now_ms)
{
    struct winsize size = {0};
    unsigned columns, used = (unsigned)strlen (label);
    char *line = NULL;
    int n;

    if (live->fd < 0 || (live->at_ms && now_ms - live->at_ms < DRAW_MS))
        return false;
    if (ioctl (live->fd, TIOCGWINSZ, &size) || size.ws_col < 2)
        size.ws_col = 80;
    /* The last column stays free: a terminal may wrap behind it. */
    columns = size.ws_col - 1U > used ? size.ws_col - 1U - used : 0;
    n = asprintf (&line, "\r\033[K%s%.*s\033[0m", label,
                  (int)progress_fit (text, len, columns), text);
    if (n < 0)
        return false;
    put (live->fd, line, (size_t)n);
    free (line);
    live->shown = true;
    live->at_ms = now_ms;
    return true;
}

void live_erase (struct live *live)
{
    if (!live || !live->shown)
        return;
    put (live->fd, "\r\033[K", 4);
    live->shown = false;
}
