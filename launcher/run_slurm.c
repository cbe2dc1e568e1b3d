/* SPDX-License-Identifier: Apache-2.0
 * run_slurm.c - options of sbatch(1) that `rv run` hands on */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "run_slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What rv decides, and the word for it. sbatch takes the beginning of a name
 * for the name, so a beginning of one of these is refused too. */
static const struct own {
    const char *name;
    char letter; /* 0 = none */
    const char *instead;
} own[] = {
    {"array", 'a', "--array"},
    {"clusters", 'M', NULL},
    {"cpus-per-task", 'c', "rv.conf's cpus_per_gpu"},
    {"error", 'e', "rv logs"},
    {"gpus", 'G', "-g"},
    {"gpus-per-node", 0, "-g and --nodes"},
    {"gpus-per-task", 0, "-g"},
    {"gpus-per-socket", 0, "-g"},
    {"gres", 0, "-g"},
    {"help", 'h', "rv help run"},
    {"job-name", 'J', "--name"},
    {"mem", 0, "--mem"},
    {"nodes", 'N', "--nodes"},
    {"ntasks", 'n', "-g"},
    {"ntasks-per-gpu", 0, "-g"},
    {"ntasks-per-node", 0, "-g and --nodes"},
    {"open-mode", 0, "rv logs"},
    {"output", 'o', "rv logs"},
    {"parsable", 0, "--json"},
    {"partition", 'p', "-p"},
    {"test-only", 0, "--dry-run"},
    {"time", 't', "--time"},
    {"time-min", 0, "--time-min"},
    {"version", 'V', "rv version"},
    {"wait", 'W', "-f"},
    {"wrap", 0, "the command"},
};

static int other_cluster (const char *word, struct rv_error *err)
{
    return error_set (err, RV_ENOTSUP,
                      "rv works with one cluster, the one of SLURM_CONF: "
                      "leave %s out and log in to the other",
                      word);
}

/* A word for sbatch that rv has no option for: is it none that rv decides? */
static int check_word (const char *word, struct rv_error *err)
{
    bool is_long = !strncmp (word, "--", 2);
    size_t len = is_long ? strcspn (word + 2, "=") : 0;

    if (word[0] != '-' || (is_long ? len == 0 : word[1] == '\0')
        || word[strcspn (word, "\n\r")])
        return error_set (err, RV_EINVAL,
                          "--slurm takes one option of sbatch, such as "
                          "--slurm=--nice=100, not '%.64s'",
                          word);
    for (size_t i = 0; i < sizeof (own) / sizeof (own[0]); i++) {
        if (is_long ? strncmp (word + 2, own[i].name, len)
                    : word[1] != own[i].letter)
            continue;
        if (!own[i].instead)
            return other_cluster (word, err);
        return error_set (err, RV_EINVAL,
                          "--slurm=%.64s is rv's to say: use %s", word,
                          own[i].instead);
    }
    return RV_OK;
}

int run_slurm_add (struct run_slurm *s, const char *name, const char *value,
                   struct rv_error *err)
{
    bool raw = !strcmp (name, "slurm");
    int rc;

    if (!strcmp (name, "clusters"))
        return other_cluster ("-M", err);
    if (value && (!*value || value[strcspn (value, "\n\r")]))
        return error_set (err, RV_EINVAL, "--%s takes a value of one line",
                          name);
    if (raw && (rc = check_word (value, err)))
        return rc;
    if (!strcmp (name, "constraint")) {
        s->constraint = value;
        return RV_OK;
    }
    if (s->n == RUN_SLURM_MAX)
        return error_set (err, RV_EINVAL, "more than %d options of Slurm's",
                          RUN_SLURM_MAX);
    s->array = s->array || !strcmp (name, "array");
    s->opt[s->n] = (struct run_slurm_opt){
        .name = raw ? NULL : name,
        .value = value,
        .step = strstr (name, "container") != NULL,
    };
    s->container = s->container || s->opt[s->n].step;
    s->n++;
    return RV_OK;
}

/* "--NAME=VALUE,MORE", what is NULL left out. */
static char *make_word (const struct run_slurm_opt *o, const char *more)
{
    char *word = NULL;
    int rc;

    if (!o->name)
        return strdup (o->value);
    rc = asprintf (&word, "--%s%s%s%s%s", o->name, o->value ? "=" : "",
                   o->value ? o->value : "", more ? "," : "", more ? more : "");
    return rc < 0 ? NULL : word;
}

char **run_slurm_words (const struct run_slurm *s, bool step,
                        const char *mounts)
{
    const struct run_slurm_opt add = {
        .name = "container-mounts", .value = mounts, .step = true};
    char **words = calloc (s->n + 2, sizeof (*words));
    bool mounted = !step || !s->container || !mounts, ok = words != NULL;
    size_t n = 0;

    for (size_t i = 0; ok && i < s->n; i++) {
        const struct run_slurm_opt *o = &s->opt[i];
        bool here = !mounted && o->name && !strcmp (o->name, add.name);

        if (o->step != step)
            continue;
        mounted = mounted || here;
        ok = (words[n++] = make_word (o, here ? mounts : NULL)) != NULL;
    }
    if (ok && !mounted)
        ok = (words[n++] = make_word (&add, NULL)) != NULL;
    for (size_t i = 0; !ok && i < n; i++)
        free (words[i]);
    if (!ok) {
        free (words);
        return NULL;
    }
    return words;
}

int run_slurm_constraint (const char *site, const char *user, char *buf,
                          size_t size, struct rv_error *err)
{
    static const char hard[] = "|[](){}*,";
    int n;

    if (site && user && strcmp (site, user)
        && (strpbrk (site, hard) || strpbrk (user, hard)))
        return error_set (err, RV_EINVAL,
                          "-C '%.64s' cannot be joined with rv.conf's "
                          "constraint '%.64s'; only features with & between "
                          "them can",
                          user, site);
    if (site && user && strcmp (site, user))
        n = snprintf (buf, size, "%s&%s", site, user);
    else
        n = snprintf (buf, size, "%s", user ? user : site ? site : "");
    if (n < 0 || (size_t)n >= size)
        return error_set (err, RV_EINVAL, "-C is too long");
    return RV_OK;
}
