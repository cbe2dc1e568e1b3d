/* SPDX-License-Identifier: Apache-2.0
 * run_snapshot.c - --snapshot and --output of `rv run` */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "run_snapshot.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "plan/outpath.h"

/* The job reads these from JSON. */
static bool is_utf8 (const char *text)
{
    json_t *value = json_string (text);

    json_decref (value);
    return value != NULL;
}

static bool exists (const char *path)
{
    struct stat st;

    return lstat (path, &st) == 0;
}

/* A program that is named by its place here must be in the copy. */
static int check_program (const struct run_opts *opts,
                          const struct worktree *tree, struct rv_error *err)
{
    const char *word = opts->argv[0];

    if (*word == '/' || !strchr (word, '/') || worktree_has (tree, word))
        return RV_OK;
    return error_set (err, RV_ESTATE,
                      "'%.128s' is not among the files that git tracks, so the "
                      "snapshot has none; 'git add' it, or name it by its "
                      "absolute path",
                      word);
}

static int check (const struct run_opts *opts, const struct worktree *tree,
                  char *const *outputs, struct rv_error *err)
{
    if (!is_utf8 (tree->top) || !is_utf8 (tree->prefix))
        return error_set (err, RV_ESTATE,
                          "a snapshot needs a folder whose name is UTF-8, not "
                          "%.128s",
                          tree->top);
    for (size_t i = 0; outputs && outputs[i]; i++)
        if (!is_utf8 (outputs[i]))
            return error_set (err, RV_ESTATE,
                              "--output: '%.128s' is not UTF-8; * stands for "
                              "what is not",
                              outputs[i]);
    return check_program (opts, tree, err);
}

int run_snapshot_find (const struct run_opts *opts, struct worktree *tree,
                       char ***outputs, struct rv_error *err)
{
    struct worktree found = {0};
    char **list = NULL;
    size_t n = 0;
    int rc;

    if (!opts->snapshot)
        return RV_OK;
    rc = worktree_find (&found, err);
    if (rc)
        error_prefix (err, "--snapshot copies what git tracks");
    for (size_t i = 0; !rc && i < opts->n_output; i++)
        rc = outpath_parse (opts->output[i], &list, &n, err);
    if (!rc)
        rc = check (opts, &found, list, err);
    if (rc) {
        worktree_fini (&found);
        outpath_free (list);
        return rc;
    }
    *tree = found;
    *outputs = list;
    return RV_OK;
}

/* Does [word], or what stands behind its '=', name something of here that the
 * copy has not, or (true in [ret_back]) the working tree itself? */
static bool is_apart (const char *word, const struct worktree *tree,
                      bool *ret_back)
{
    const char *equals = strchr (word, '=');
    const char *path = *word == '-' && equals ? equals + 1 : word;
    size_t top = strlen (tree->top);

    *ret_back = !strncmp (path, tree->top, top)
                && (path[top] == '/' || path[top] == '\0');
    return *ret_back
           || (*path && *path != '/' && *path != '-' && exists (path)
               && !worktree_has (tree, path));
}

void run_snapshot_notes (const struct run_opts *opts,
                         const struct worktree *tree)
{
    unsigned long long n = tree->untracked;
    bool back;

    if (n)
        fprintf (stderr,
                 "rv: the snapshot leaves out %llu file%s that git does not "
                 "track, such as %s; 'git add' takes one in\n",
                 n, n == 1 ? "" : "s", tree->first_untracked);
    if (tree->leading_back)
        fprintf (stderr,
                 "rv: %llu links of the snapshot lead back into %s, where "
                 "edits still reach the job\n",
                 (unsigned long long)tree->leading_back, tree->top);
    for (int i = 0; i < opts->argc; i++)
        if (is_apart (opts->argv[i], tree, &back))
            fprintf (stderr,
                     back ? "rv: '%s' names the working tree itself, where "
                            "edits still reach the job; a relative path means "
                            "the snapshot\n"
                          : "rv: '%s' is not in the snapshot: git does not "
                            "track it\n",
                     opts->argv[i]);
}

static const char *amount (uint64_t bytes, char *buf, size_t size)
{
    static const char unit[] = "BKMGTP";
    double value = (double)bytes;
    size_t i = 0;

    for (; value >= 1000 && unit[i + 1]; i++)
        value /= 1024;
    snprintf (buf, size, value < 10 && i ? "%.1f%c" : "%.0f%c", value, unit[i]);
    return buf;
}

void run_snapshot_print (const struct worktree *tree, char *const *outputs)
{
    char buf[32];

    printf ("snapshot   %llu files (%s) that git tracks below %s",
            (unsigned long long)tree->files,
            amount (tree->bytes, buf, sizeof (buf)), tree->top);
    if (tree->commit)
        printf (", at %.12s", tree->commit);
    if (tree->missing)
        printf ("; %llu are deleted", (unsigned long long)tree->missing);
    if (tree->untracked)
        printf ("; %llu untracked stay out",
                (unsigned long long)tree->untracked);
    printf ("\n");
    for (size_t i = 0; outputs && outputs[i]; i++)
        printf ("%s%s", i ? ", " : "output     ", outputs[i]);
    if (outputs && outputs[0])
        printf ("\n");
}
