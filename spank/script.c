/* SPDX-License-Identifier: Apache-2.0
 * script.c - the #SBATCH lines of a batch script */
#include "script.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 128

/* next_word - take one word from *in and end it with NUL inside [line].
 * Quotes and backslashes are removed in place. Returns NULL at the end of the
 * line or at a comment. */
static char *next_word (char **in)
{
    char *r = *in, *w, *word;
    char quote = '\0';

    while (isspace ((unsigned char)*r))
        r++;
    if (*r == '\0' || *r == '#')
        return NULL;
    word = w = r;
    for (; *r && (quote || !isspace ((unsigned char)*r)); r++) {
        if (quote && *r == quote)
            quote = '\0';
        else if (!quote && (*r == '"' || *r == '\''))
            quote = *r;
        else if (*r == '\\' && quote != '\'' && r[1])
            *w++ = *++r;
        else
            *w++ = *r;
    }
    *in = *r ? r + 1 : r;
    *w = '\0';
    return word;
}

static void scan_line (char *line, cli_seen_f seen, void *arg)
{
    char *words[WORDS_MAX] = {"sbatch"};
    char *word;
    int n = 1;

    while (n < WORDS_MAX && (word = next_word (&line)))
        words[n++] = word;
    cli_scan (CLI_SBATCH, n, words, seen, arg);
}

/* Blank lines and comments may stand between the #SBATCH lines. */
static bool is_command (const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isspace ((unsigned char)line[i]))
            return line[i] != '#';
    return false;
}

void script_scan (const char *text, size_t len, cli_seen_f seen, void *arg)
{
    static const char magic[] = "#SBATCH";
    const size_t skip = sizeof (magic) - 1;
    const char *end = text + len;

    while (text < end) {
        const char *nl = memchr (text, '\n', (size_t)(end - text));
        size_t n = (size_t)((nl ? nl : end) - text);
        char line[SCRIPT_LINE_MAX];

        if (is_command (text, n))
            return;
        if (n > skip && n - skip < sizeof (line)
            && memcmp (text, magic, skip) == 0) {
            memcpy (line, text + skip, n - skip);
            line[n - skip] = '\0';
            scan_line (line, seen, arg);
        }
        text += n + 1;
    }
}

size_t script_peek (const char *path, char *buf, size_t size)
{
    int fd = path ? open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : 0;
    struct stat st;
    ssize_t n = 0;

    /* A pipe cannot be looked at without taking from it. */
    if (fd >= 0 && fstat (fd, &st) == 0 && S_ISREG (st.st_mode))
        n = pread (fd, buf, size, path ? 0 : lseek (fd, 0, SEEK_CUR));
    if (path && fd >= 0)
        close (fd);
    return n > 0 ? (size_t)n : 0;
}
