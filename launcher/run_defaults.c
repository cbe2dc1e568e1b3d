/* SPDX-License-Identifier: Apache-2.0
 * run_defaults.c - Slurm's own options that rv.conf gives every `rv run` */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "run_defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jsonout.h"

/* Keys of rv.conf, the option of each, and what `off` of a switch means. */
static const struct rule {
    const char *key, *option;
    const char *off; /* NULL: without the option */
    bool is_switch;  /* on, off, or for exclusive a word */
} rules[] = {
    {"reservation", "reservation", NULL, false},
    {"exclude", "exclude", NULL, false},
    {"nodelist", "nodelist", NULL, false},
    {"constraint", "constraint", NULL, false},
    {"dependency", "dependency", NULL, false},
    {"mail_type", "mail-type", NULL, false},
    {"mail_user", "mail-user", NULL, false},
    {"exclusive", "exclusive", NULL, true},
    {"container_image", "container-image", NULL, false},
    {"container_mounts", "container-mounts", NULL, false},
    {"container_workdir", "container-workdir", NULL, false},
    {"container_name", "container-name", NULL, false},
    {"container_mount_home", "container-mount-home", "no-container-mount-home",
     true},
    {"container_writable", "container-writable", "container-readonly", true},
};

/* Has the command line this option, or the opposite? */
static bool given (const struct run_slurm *line, const struct rule *rule)
{
    if (!strcmp (rule->option, "constraint"))
        return line->constraint != NULL;
    for (size_t i = 0; i < line->n; i++) {
        const char *name = line->opt[i].name;

        if (name
            && (!strcmp (name, rule->option)
                || (rule->off && !strcmp (name, rule->off))))
            return true;
    }
    return false;
}

static int add (struct run_slurm *all, const char *option, const char *value,
                enum run_from from, struct rv_error *err)
{
    size_t n = all->n;
    int rc = run_slurm_add (all, option, value, err);

    if (rc == RV_OK && all->n > n)
        all->opt[n].from = from;
    else if (rc == RV_OK)
        all->constraint_from = from;
    return rc;
}

static int add_rule (const struct rule *rule, const char *value,
                     enum run_from from, struct run_slurm *all,
                     struct rv_error *err)
{
    bool off = rule->is_switch && !strcmp (value, "off");
    bool on = rule->is_switch && !strcmp (value, "on");

    if (rule->is_switch && rule->off && !on && !off)
        return error_set (err, RV_EINVAL, "'%.64s' is not on or off", value);
    if (off && !rule->off)
        return RV_OK;
    return add (all, off ? rule->off : rule->option, on || off ? NULL : value,
                from, err);
}

/* The words of a line, cut at blanks; one block: free (words[0]) and words.
 * NULL when out of memory. */
static char **cut (const char *line)
{
    char **words = calloc (strlen (line) / 2 + 2, sizeof (*words));
    char *copy = strdup (line + strspn (line, " \t")), *rest;
    size_t n = 0;

    if (!words || !copy || !*copy) {
        bool failed = !copy;

        free (copy);
        if (failed) {
            free (words);
            words = NULL;
        }
        return words;
    }
    words[n++] = strtok_r (copy, " \t", &rest);
    while ((words[n] = strtok_r (NULL, " \t", &rest)))
        n++;
    return words;
}

/* Does the command line hand on the option of this word with --slurm too? */
static bool said_again (const struct run_slurm *line, const char *word)
{
    bool is_long = !strncmp (word, "--", 2);
    size_t len = is_long ? strcspn (word, "=") : 2;

    for (size_t i = 0; i < line->n; i++) {
        const char *other = line->opt[i].name ? "" : line->opt[i].value;

        if (!strncmp (word, other, len)
            && (!is_long || other[len] == '=' || !other[len]))
            return true;
    }
    return false;
}

static int add_words (struct run_defaults *d, const struct site_conf *conf,
                      const struct run_slurm *line, struct run_slurm *all,
                      struct rv_error *err)
{
    bool user = false;
    const char *text = site_conf_default (conf, "slurm", &user);
    int rc = RV_OK;

    if (!text)
        return RV_OK;
    if (!(d->words = cut (text)))
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; rc == RV_OK && d->words[i]; i++)
        if (!said_again (line, d->words[i]))
            rc = add (all, "slurm", d->words[i],
                      user ? RUN_FROM_USER : RUN_FROM_SITE, err);
    return rc;
}

/* One of the options that rv has a place of its own for. */
static void take (const struct site_conf *conf, const char *key,
                  const char **place, enum run_from *from)
{
    bool user = false;

    if (*place)
        return;
    *place = site_conf_default (conf, key, &user);
    *from = user ? RUN_FROM_USER : RUN_FROM_SITE;
}

static int add_line (const struct run_slurm *line, struct run_slurm *all,
                     struct rv_error *err)
{
    for (size_t i = 0; i < line->n; i++) {
        if (all->n == RUN_SLURM_MAX)
            return error_set (err, RV_EINVAL, "more than %d options of Slurm's",
                              RUN_SLURM_MAX);
        all->opt[all->n++] = line->opt[i];
    }
    if (line->constraint)
        all->constraint = line->constraint;
    all->array = all->array || line->array;
    all->container = all->container || line->container;
    return RV_OK;
}

int run_defaults_apply (struct run_defaults *ret, const struct site_conf *conf,
                        struct run_opts *opts, struct rv_error *err)
{
    struct run_slurm all = {0};
    int rc;

    *ret = (struct run_defaults){0};
    take (conf, "account", &opts->account, &ret->account);
    take (conf, "qos", &opts->qos, &ret->qos);
    take (conf, "partition", &opts->partition, &ret->partition);
    for (size_t i = 0; i < sizeof (rules) / sizeof (rules[0]); i++) {
        bool user = false;
        const char *value = site_conf_default (conf, rules[i].key, &user);

        if (!value || given (&opts->slurm, &rules[i]))
            continue;
        rc = add_rule (&rules[i], value, user ? RUN_FROM_USER : RUN_FROM_SITE,
                       &all, err);
        if (rc != RV_OK) {
            error_prefix (err, "rv.conf's %s", rules[i].key);
            return rc;
        }
    }
    if ((rc = add_words (ret, conf, &opts->slurm, &all, err)) != RV_OK) {
        error_prefix (err, "rv.conf's slurm");
        return rc;
    }
    if ((rc = add_line (&opts->slurm, &all, err)) != RV_OK)
        return rc;
    opts->slurm = all;
    return run_opts_check (opts, err);
}

void run_defaults_fini (struct run_defaults *d)
{
    if (!d || !d->words)
        return;
    free (d->words[0]);
    free (d->words);
}

/* A sink of options, with who said each. */
typedef void (*sink_f) (void *arg, const char *option, const char *value,
                        enum run_from from);

static void each (const struct run_defaults *d, const struct run_opts *opts,
                  sink_f sink, void *arg)
{
    if (opts->partition)
        sink (arg, "partition", opts->partition, d->partition);
    if (opts->account)
        sink (arg, "account", opts->account, d->account);
    if (opts->qos)
        sink (arg, "qos", opts->qos, d->qos);
    if (opts->slurm.constraint)
        sink (arg, "constraint", opts->slurm.constraint,
              opts->slurm.constraint_from);
    for (size_t i = 0; i < opts->slurm.n; i++) {
        const struct run_slurm_opt *o = &opts->slurm.opt[i];

        sink (arg, o->name ? o->name : "slurm", o->value, o->from);
    }
}

static void print_one (void *arg, const char *option, const char *value,
                       enum run_from from)
{
    static const char *const who[] = {
        [RUN_FROM_LINE] = "the command line",
        [RUN_FROM_USER] = "your rv.conf",
        [RUN_FROM_SITE] = "the site's rv.conf",
    };

    (void)arg;
    if (!strcmp (option, "slurm"))
        printf ("option     %s: %s\n", value, who[from]);
    else
        printf ("option     --%s%s%s: %s\n", option, value ? "=" : "",
                value ? value : "", who[from]);
}

void run_defaults_print (const struct run_defaults *d,
                         const struct run_opts *opts)
{
    each (d, opts, print_one, NULL);
}

static void json_one (void *arg, const char *option, const char *value,
                      enum run_from from)
{
    static const char *const who[] = {
        [RUN_FROM_LINE] = "command_line",
        [RUN_FROM_USER] = "user",
        [RUN_FROM_SITE] = "site",
    };

    json_array_append_new (
        arg, json_pack ("{s:s, s:o, s:s}", "option", option, "value",
                        value ? jsonout_text (value) : json_null (), "from",
                        who[from]));
}

json_t *run_defaults_json (const struct run_defaults *d,
                           const struct run_opts *opts)
{
    json_t *list = json_array ();

    if (list)
        each (d, opts, json_one, list);
    return list;
}
