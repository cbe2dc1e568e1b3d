/* SPDX-License-Identifier: Apache-2.0
 * cli.c - read a command line of srun, sbatch or salloc as they will */
#include "cli.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli_table.h"

struct scan {
    enum cli_client client;
    int argc;
    char *const *argv;
    int next; /* index of the word after the current one */
    cli_seen_f seen;
    void *arg;
};

static const struct cli_option *find_short (enum cli_client client, char letter)
{
    for (size_t i = 0; i < cli_table_n; i++)
        if (cli_table[i].letter == letter && (cli_table[i].clients & client))
            return &cli_table[i];
    return NULL;
}

/* find_long - the option that [name] (len) is or abbreviates.
 *   ret_kind   written: whether it takes a value. Releases differ in what is
 *              ambiguous; where all candidates agree, that much is known even
 *              when NULL is returned. */
static const struct cli_option *find_long (enum cli_client client,
                                           const char *name, size_t len,
                                           enum cli_kind *ret_kind)
{
    const struct cli_option *found = NULL;
    size_t n = 0;
    bool agree = true;

    for (size_t i = 0; i < cli_table_n; i++) {
        const struct cli_option *o = &cli_table[i];

        if (!(o->clients & client) || strncmp (o->name, name, len) != 0)
            continue;
        if (o->name[len] == '\0') {
            *ret_kind = o->kind;
            return o;
        }
        agree = agree && (!found || found->kind == o->kind);
        found = o;
        n++;
    }
    *ret_kind = found && agree ? found->kind : CLI_PLAIN;
    return n == 1 ? found : NULL;
}

static const char *take_next (struct scan *s)
{
    return s->next < s->argc ? s->argv[s->next++] : NULL;
}

static void scan_long (struct scan *s, const char *word)
{
    size_t len = strcspn (word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;
    enum cli_kind kind;
    const struct cli_option *o = find_long (s->client, word, len, &kind);

    if (kind == CLI_VALUE && !value)
        value = take_next (s);
    if (o)
        s->seen (s->arg, o->name, value);
}

static void scan_short (struct scan *s, const char *letters)
{
    for (const char *c = letters; *c; c++) {
        const struct cli_option *o = find_short (s->client, *c);
        const char *value = c[1] ? c + 1 : NULL;

        if (!o)
            continue;
        if (o->kind == CLI_PLAIN) {
            s->seen (s->arg, o->name, NULL);
            continue;
        }
        if (o->kind == CLI_VALUE && !value)
            value = take_next (s);
        s->seen (s->arg, o->name, value);
        return;
    }
}

int cli_scan (enum cli_client client, int argc, char *const *argv,
              cli_seen_f seen, void *arg)
{
    struct scan s = {client, argc, argv, 1, seen, arg};

    while (s.next < argc) {
        const char *word = argv[s.next];

        if (word[0] != '-' || word[1] == '\0')
            return s.next;
        s.next++;
        if (strcmp (word, "--") == 0)
            return s.next;
        if (word[1] == '-')
            scan_long (&s, word + 2);
        else
            scan_short (&s, word + 1);
    }
    return argc;
}

int cli_might_be (const char *word, const char *name)
{
    size_t len;

    if (strncmp (word, "--", 2) != 0)
        return 0;
    len = strcspn (word + 2, "=");
    /* Shorter forms are ambiguous: --rv- is all of this plugin's. */
    return len > 3 && strncmp (word + 2, name, len) == 0;
}

int cli_split (char *buf, size_t len, char ***ret_argv)
{
    char **argv;
    int n = 0;

    if (len > 0 && buf[len - 1] != '\0')
        return -1;
    for (size_t i = 0; i < len; i++)
        n += buf[i] == '\0';
    argv = calloc ((size_t)n + 1, sizeof (*argv));
    if (!argv)
        return -1;
    for (int i = 0; i < n; i++) {
        argv[i] = buf;
        buf += strlen (buf) + 1;
    }
    *ret_argv = argv;
    return n;
}
