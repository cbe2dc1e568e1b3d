/* SPDX-License-Identifier: Apache-2.0
 * state.c - what one sandbox is: its shape, its folder, its daemons */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/state.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/fsio.h"
#include "sandbox/ident.h"

#define SCHEMA "rv.sandbox.state/1"

void sandbox_fini (struct sandbox *sb)
{
    if (!sb)
        return;
    for (int i = 0; i < sb->n_daemons; i++) {
        for (char **a = sb->daemon[i].argv; a && *a; a++)
            free (*a);
        free (sb->daemon[i].argv);
    }
    free (sb->plugin);
    memset (sb, 0, sizeof (*sb));
}

static int share (const struct sandbox *sb, int total, int k)
{
    return total / sb->nodes + (k <= total % sb->nodes);
}

int sandbox_share (const struct sandbox *sb, int k)
{
    return share (sb, sb->gpus, k);
}

int sandbox_slices (const struct sandbox *sb, int k)
{
    return share (sb, sb->mig, k);
}

int sandbox_card (const struct sandbox *sb, int k)
{
    int card = 0;

    for (int i = 1; i < k; i++)
        card +=
            (sandbox_slices (sb, i) + SANDBOX_MIG_CARD - 1) / SANDBOX_MIG_CARD;
    return card;
}

int sandbox_first (const struct sandbox *sb, int k)
{
    int first = 0;

    for (int i = 1; i < k; i++)
        first += sandbox_share (sb, i);
    return first;
}

int sandbox_add (struct sandbox *sb, const char *name, const char *const *argv,
                 struct rv_error *err)
{
    struct sandbox_daemon *d = &sb->daemon[sb->n_daemons];
    size_t n = 0;

    if (sb->n_daemons == SANDBOX_MAX_DAEMONS)
        return error_set (err, RV_EINVAL, "more than %d daemons",
                          SANDBOX_MAX_DAEMONS);
    while (argv[n])
        n++;
    memset (d, 0, sizeof (*d));
    snprintf (d->name, sizeof (d->name), "%s", name);
    if (!(d->argv = calloc (n + 1, sizeof (*d->argv))))
        return error_set (err, RV_ENOMEM, "out of memory");
    sb->n_daemons++;
    for (size_t i = 0; i < n; i++)
        if (!(d->argv[i] = strdup (argv[i])))
            return error_set (err, RV_ENOMEM, "out of memory");
    return RV_OK;
}

static json_t *daemon_to_json (const struct sandbox_daemon *d)
{
    json_t *argv = json_array ();

    for (char **a = d->argv; *a; a++)
        json_array_append_new (argv, json_string (*a));
    return json_pack ("{s:s, s:i, s:I, s:o}", "name", d->name, "pid",
                      (int)d->pid, "start_time", (json_int_t)d->start, "argv",
                      argv);
}

int sandbox_save (const struct sandbox *sb, struct rv_error *err)
{
    json_t *daemons = json_array (), *ports = json_array (), *all;
    char *path = fsio_join (sb->dir, SANDBOX_STATE), *text = NULL;
    int rc;

    for (int i = 0; i < sb->n_daemons; i++)
        json_array_append_new (daemons, daemon_to_json (&sb->daemon[i]));
    for (int i = 0; i <= sb->nodes + sb->accounting; i++)
        json_array_append_new (ports, json_integer (sb->port[i]));
    all = json_pack (
        "{s:s, s:s, s:s, s:s, s:s?, s:i, s:i, s:i, s:i, s:b, s:b, "
        "s:b, s:b, s:b, s:o, "
        "s:o}",
        "schema", SCHEMA, "cluster", sb->cluster, "boot_id", sb->boot_id,
        "type", sb->type, "plugin", sb->plugin, "nodes", sb->nodes, "gpus",
        sb->gpus, "mig", sb->mig, "cpus", sb->cpus, "real_gpus", sb->real_gpus,
        "pmix", sb->pmix, "cgroup", sb->cgroup, "accounting", sb->accounting,
        "ready", sb->ready, "ports", ports, "daemons", daemons);
    if (all)
        text = json_dumps (all, JSON_INDENT (2));
    if (path && text)
        rc = fsio_write (path, text, strlen (text), 0600, err);
    else
        rc = error_set (err, RV_ENOMEM, "out of memory");
    json_decref (all);
    free (text);
    free (path);
    return rc;
}

static int daemon_from_json (struct sandbox *sb, json_t *json)
{
    const char *name, *argv[32];
    json_t *words, *word;
    json_int_t start;
    size_t i;
    int pid;

    if (json_unpack (json, "{s:s, s:i, s:I, s:o}", "name", &name, "pid", &pid,
                     "start_time", &start, "argv", &words)
        || !json_is_array (words) || json_array_size (words) > 31)
        return RV_EFORMAT;
    json_array_foreach (words, i, word)
    {
        if (!json_is_string (word))
            return RV_EFORMAT;
        argv[i] = json_string_value (word);
    }
    argv[i] = NULL;
    if (sandbox_add (sb, name, argv, NULL))
        return RV_EFORMAT;
    sb->daemon[sb->n_daemons - 1].pid = pid;
    sb->daemon[sb->n_daemons - 1].start = (uint64_t)start;
    return RV_OK;
}

static int from_json (struct sandbox *sb, json_t *all)
{
    const char *schema, *cluster, *boot_id, *type;
    int real_gpus, pmix, cgroup, accounting = 0, ready;
    json_t *ports, *daemons, *plugin, *one;
    size_t i;

    if (json_unpack (
            all,
            "{s:s, s:s, s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:b, s:b, s:b, "
            "s?b, s:b, s:o, s:o}",
            "schema", &schema, "cluster", &cluster, "boot_id", &boot_id, "type",
            &type, "plugin", &plugin, "nodes", &sb->nodes, "gpus", &sb->gpus,
            "mig", &sb->mig, "cpus", &sb->cpus, "real_gpus", &real_gpus, "pmix",
            &pmix, "cgroup", &cgroup, "accounting", &accounting, "ready",
            &ready, "ports", &ports, "daemons", &daemons)
        || strcmp (schema, SCHEMA) || sb->nodes < 1
        || sb->nodes > SANDBOX_MAX_NODES)
        return RV_EFORMAT;
    snprintf (sb->cluster, sizeof (sb->cluster), "%s", cluster);
    snprintf (sb->boot_id, sizeof (sb->boot_id), "%s", boot_id);
    snprintf (sb->type, sizeof (sb->type), "%s", type);
    sb->real_gpus = real_gpus;
    sb->pmix = pmix;
    sb->cgroup = cgroup;
    sb->accounting = accounting;
    sb->ready = ready;
    if (json_is_string (plugin)
        && !(sb->plugin = strdup (json_string_value (plugin))))
        return RV_ENOMEM;
    json_array_foreach (ports, i, one) if (i < SANDBOX_MAX_PORTS) sb->port[i] =
        (int)json_integer_value (one);
    json_array_foreach (daemons, i,
                        one) if (daemon_from_json (sb, one)) return RV_EFORMAT;
    return RV_OK;
}

int sandbox_load (const char *dir, struct sandbox *sb, struct rv_error *err)
{
    char *path = fsio_join (dir, SANDBOX_STATE), *text;
    json_error_t where;
    json_t *all;
    size_t len;
    int rc;

    memset (sb, 0, sizeof (*sb));
    if (!path)
        return error_set (err, RV_ENOMEM, "out of memory");
    rc = fsio_read (path, (size_t)1 << 20, &text, &len, err);
    free (path);
    if (rc)
        return rc;
    all = json_loadb (text, len, 0, &where);
    free (text);
    rc = all ? from_json (sb, all) : RV_EFORMAT;
    json_decref (all);
    snprintf (sb->dir, sizeof (sb->dir), "%s", dir);
    if (rc) {
        sandbox_fini (sb);
        return error_set (err, rc, "%s/%s is not a sandbox's", dir,
                          SANDBOX_STATE);
    }
    return RV_OK;
}

bool sandbox_alive (const struct sandbox *sb, const struct sandbox_daemon *d)
{
    char boot_id[40];

    ident_boot_id (boot_id);
    return !strcmp (boot_id, sb->boot_id)
           && ident_is (d->pid, d->start, d->argv);
}

bool sandbox_is_up (const struct sandbox *sb, const char **ret_dead)
{
    const char *dead = NULL;

    for (int i = 0; !dead && i < sb->n_daemons; i++)
        if (!sandbox_alive (sb, &sb->daemon[i]))
            dead = sb->daemon[i].name;
    if (ret_dead)
        *ret_dead = dead;
    return sb->ready && !dead;
}
