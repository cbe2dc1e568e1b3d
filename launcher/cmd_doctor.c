/* SPDX-License-Identifier: Apache-2.0
 * cmd_doctor.c - rv doctor: what would keep a job from running as it should */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_job.h"
#include "doctor/doctor.h"
#include "jsonout.h"
#include "version.h"

static const char usage[] =
    "Usage: rv doctor [--nodes[=LIST]] [--json]\n"
    "Checks what would keep a job from running as it should: settings,\n"
    "programs, controller, releases, plugin, PMIx and state folder here, and\n"
    "that the partitions and GPUs of rv.conf are there.\n"
    "      --nodes[=LIST]  and each idle node, or those of LIST, by one short\n"
    "                      step a partition: plugin, rv-exec, state folder,\n"
    "                      GPUs of gres against those of NVML\n"
    "      --json          one JSON object on standard output\n"
    "Status 0: nothing failed; 1: something did; 3: no controller answers.\n";

#define CHECKS_MAX 9

/* All that one run of the doctor found. */
struct visit {
    struct doctor_check check[CHECKS_MAX];
    size_t n;
    struct doctor_site site;
    struct settings settings;
    bool have_site, have_settings, nodes_asked;
};

static const char *const words[] = {"ok", "warn", "FAIL", "?"};
static const char *const json_words[] = {"ok", "warn", "fail", "unknown"};

static void look_at_login (struct visit *v, bool *ret_plugin)
{
    const struct doctor_site *site;
    struct rv_error err = {0};

    v->have_site = doctor_site_load (&v->site, &err) == RV_OK;
    site = v->have_site ? &v->site : NULL;
    doctor_settings (&v->check[v->n++], &v->settings, &v->have_settings);
    doctor_programs (&v->check[v->n++]);
    doctor_controller (&v->check[v->n++], site, &err);
    *ret_plugin = false;
    /* srun is of no use without a configuration. */
    if (v->have_site) {
        doctor_release (&v->check[v->n++], site);
        doctor_plugin (&v->check[v->n++], site, ret_plugin);
        doctor_pmix (&v->check[v->n++]);
        if (v->have_settings)
            doctor_conf (&v->check[v->n++], &v->settings.conf, site);
    }
    if (v->have_settings)
        doctor_state_dir (&v->check[v->n++], v->settings.state_dir);
}

static int look_at_nodes (struct visit *v, const char *list, bool plugin,
                          struct rv_error *err)
{
    int status = doctor_pick (&v->site, list, err);

    if (status != RV_OK)
        return status;
    status =
        doctor_nodes (&v->site, &v->settings, plugin, &v->check[v->n], err);
    if (status != RV_OK)
        doctor_set (&v->check[v->n], DOCTOR_UNKNOWN, NULL, "%s", err->text);
    else
        v->nodes_asked = true;
    v->n++;
    return RV_OK;
}

static int verdict (const struct visit *v)
{
    if (!v->have_site)
        return CMD_NO_CONTROLLER;
    for (size_t i = 0; i < v->n; i++)
        if (v->check[i].state == DOCTOR_FAIL)
            return CMD_FAILED;
    return CMD_OK;
}

static void print_text (const struct visit *v)
{
    for (size_t i = 0; i < v->n; i++) {
        const struct doctor_check *c = &v->check[i];

        printf ("%-5s %-10s %s%s%s\n", words[c->state], c->name, c->text,
                c->state != DOCTOR_OK && c->hint ? "; " : "",
                c->state != DOCTOR_OK && c->hint ? c->hint : "");
    }
    for (size_t i = 0; v->nodes_asked && i < v->site.n_nodes; i++)
        if (v->site.node[i].picked)
            printf ("%-5s node %-5s %s\n", words[v->site.node[i].state],
                    v->site.node[i].name, v->site.node[i].text);
}

static json_t *check_json (const struct doctor_check *c)
{
    return json_pack (
        "{s:s, s:s, s:o, s:o}", "name", c->name, "state", json_words[c->state],
        "message", jsonout_text (c->text), "hint",
        c->state == DOCTOR_OK ? json_null () : jsonout_text (c->hint));
}

static json_t *node_json (const struct doctor_node *n)
{
    bool known = n->answered;

    return json_pack (
        "{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
        jsonout_text (n->name), "state", json_words[n->state], "slurm_state",
        n->slurm_state, "slurm",
        n->slurm[0] ? jsonout_text (n->slurm) : json_null (), "plugin",
        known && n->plugin[0] ? jsonout_text (n->plugin) : json_null (),
        "rv_exec",
        known && n->rv_exec[0] ? jsonout_text (n->rv_exec) : json_null (),
        "state_dir", known ? json_boolean (n->dir_usable) : json_null (),
        "gpus_slurm",
        n->gpus_slurm >= 0 ? json_integer (n->gpus_slurm) : json_null (),
        "gpus_driver",
        n->gpus_there >= 0 ? json_integer (n->gpus_there) : json_null (),
        "message", jsonout_text (n->text));
}

static int print_json (const struct visit *v, int status)
{
    json_t *checks = json_array (), *nodes = json_array ();

    for (size_t i = 0; i < v->n; i++)
        json_array_append_new (checks, check_json (&v->check[i]));
    for (size_t i = 0; v->nodes_asked && i < v->site.n_nodes; i++)
        if (v->site.node[i].picked)
            json_array_append_new (nodes, node_json (&v->site.node[i]));
    return jsonout_print (json_pack (
        "{s:s, s:i, s:s, s:o, s:o, s:o, s:o}", "schema", "rv.doctor/1",
        "status", status, "rv", RV_VERSION_LINE ("rv"), "cluster",
        v->have_site ? jsonout_text (v->site.cluster) : json_null (), "slurm",
        v->have_site ? jsonout_text (v->site.slurm) : json_null (), "checks",
        checks, "nodes", nodes));
}

static int doctor (struct cmd_ctx *ctx, bool nodes, const char *list)
{
    struct visit v = {.n = 0};
    struct rv_error err = {0};
    bool plugin;
    int status;

    look_at_login (&v, &plugin);
    if (nodes && v.have_site && v.have_settings
        && look_at_nodes (&v, list, plugin, &err) != RV_OK) {
        status = cmd_fail (ctx, CMD_UNMET, "'sinfo -N' lists them",
                           "cannot look at nodes '%s': %s", list, err.text);
    } else {
        status = verdict (&v);
        if (!ctx->json)
            print_text (&v);
        else if (print_json (&v, status))
            status = CMD_FAILED;
    }
    if (v.have_site)
        doctor_site_fini (&v.site);
    if (v.have_settings)
        settings_fini (&v.settings);
    return status;
}

static int cmd_doctor_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    static const struct option options[] = {
        {"nodes", optional_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *list = NULL, *bad = NULL;
    bool nodes = false, help = false;
    int c;

    optind = 0;
    opterr = 0;
    while ((c = getopt_long (argc, argv, "h", options, NULL)) != -1)
        switch (c) {
        case 'n':
            nodes = true;
            list = optarg;
            break;
        case 'j':
            ctx->json = true;
            break;
        case 'h':
            help = true;
            break;
        default:
            bad = bad ? bad : argv[optind - 1];
        }
    if (bad)
        return cmd_usage_error (
            ctx, "cannot look around: there is no option '%s'", bad);
    if (help)
        return cmd_help (ctx);
    if (optind < argc)
        return cmd_usage_error (
            ctx, "cannot look around: '%s' is one word too many", argv[optind]);
    return doctor (ctx, nodes, list);
}

const struct cmd cmd_doctor = {
    .name = "doctor",
    .summary = "check this site for what rv needs",
    .usage = usage,
    .json = true,
    .run = cmd_doctor_run,
};
