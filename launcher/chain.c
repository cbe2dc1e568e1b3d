/* SPDX-License-Identifier: Apache-2.0
 * chain.c - go on in another job, where Slurm may not put the first one back */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "chain.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/fsio.h"
#include "reqdir.h"
#include "submit.h"

#define JOB_MAX ((size_t)1 << 20)

static bool begins (const char *word, const char *head)
{
    return !strncmp (word, head, strlen (head));
}

/* What was true of the first submission alone. */
static bool is_dropped (const char *word)
{
    return begins (word, "--dependency=") || begins (word, "--array=")
           || begins (word, "--begin=");
}

/* "%j" and, of an array, "%A" become the first job's: its logs go on. */
static char *log_word (const struct chain *c, const char *word)
{
    size_t size = 0;
    char *text = NULL;
    FILE *f = open_memstream (&text, &size);

    for (; f && *word; word++)
        if (*word == '%' && (word[1] == 'j' || word[1] == 'A')) {
            fprintf (f, "%u", word[1] == 'j' ? c->first : c->submitted);
            word++;
        } else if (*word == '%' && word[1]) {
            fputc (*word++, f);
            fputc (*word, f);
        } else
            fputc (*word, f);
    if (!f || fclose (f)) {
        free (text);
        return NULL;
    }
    return text;
}

struct words {
    char **v;
    size_t n;
    bool failed;
};

/* Takes [word]. */
static void put (struct words *w, char *word)
{
    if (!word)
        w->failed = true;
    else
        w->v[w->n++] = word;
}

static char *option (const char *name, const char *a, const char *b)
{
    char *out;

    if (asprintf (&out, "%s=%s%s%s", name, a, *a && *b ? "," : "", b) < 0)
        return NULL;
    return out;
}

/* [had] is the user's own list of excluded nodes. */
static void put_ours (struct words *w, const struct chain *c, const char *had)
{
    char after[40];

    snprintf (after, sizeof (after), "afterany:%u", c->job_id);
    put (w, option ("--dependency", after, ""));
    if (c->task)
        put (w, option ("--array", c->task, ""));
    if (*had || c->exclude)
        put (w, option ("--exclude", had, c->exclude ? c->exclude : ""));
}

static bool is_job (const json_t *job)
{
    const char *schema = json_string_value (json_object_get (job, "schema"));
    const json_t *words = json_object_get (job, "sbatch_argv");

    if (!schema || strcmp (schema, "rv.job/1") || json_array_size (words) < 2)
        return false;
    for (size_t i = 0; i < json_array_size (words); i++)
        if (!json_is_string (json_array_get (words, i)))
            return false;
    return true;
}

int chain_argv (const struct chain *c, const json_t *job, char ***ret,
                struct rv_error *err)
{
    const json_t *list = json_object_get (job, "sbatch_argv");
    size_t n = json_array_size (list);
    struct words w = {.n = 0};
    const char *had = "";

    if (!is_job (job))
        return error_set (err, RV_EFORMAT, "it is no submission (rv.job/1)");
    if (!(w.v = calloc (n + 4, sizeof (*w.v))))
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value (json_array_get (list, i));

        if (i + 1 == n)
            put_ours (&w, c, had);
        if (i + 1 < n && begins (word, "--exclude="))
            had = word + strlen ("--exclude=");
        else if (begins (word, "--output=") || begins (word, "--error="))
            put (&w, log_word (c, word));
        else if (i + 1 == n || !is_dropped (word))
            put (&w, strdup (word));
    }
    if (w.failed) {
        submit_argv_free (w.v);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    *ret = w.v;
    return RV_OK;
}

static int read_job (const struct chain *c, json_t **ret, struct rv_error *err)
{
    char name[32], *path, *buf = NULL;
    int rc;

    snprintf (name, sizeof (name), "jobs/%u.json", c->submitted);
    if (!(path = fsio_join (c->dir, name)))
        return error_set (err, RV_ENOMEM, "out of memory");
    rc = fsio_read (path, JOB_MAX, &buf, NULL, err);
    if (rc == RV_OK && !(*ret = json_loads (buf, 0, NULL)))
        rc = error_set (err, RV_EFORMAT, "%s is not JSON", path);
    free (buf);
    free (path);
    return rc;
}

int chain_submit (const struct chain *c, uint32_t *ret_job_id,
                  struct rv_error *err)
{
    struct request req = {.dir = (char *)c->dir, .log_id = c->first};
    char **argv = NULL;
    json_t *job = NULL;
    int rc = read_job (c, &job, err);

    if (rc == RV_OK)
        rc = chain_argv (c, job, &argv, err);
    if (rc == RV_OK)
        rc = submit_run (argv, ret_job_id, err);
    req.candidate =
        (unsigned)json_integer_value (json_object_get (job, "candidate"));
    if (rc == RV_OK)
        rc = request_submitted (&req, *ret_job_id, argv, err);
    submit_argv_free (argv);
    json_decref (job);
    return rc;
}
