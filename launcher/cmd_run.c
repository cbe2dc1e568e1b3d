/* SPDX-License-Identifier: Apache-2.0
 * cmd_run.c - rv run: from a command to a job, and its output with -f */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_job.h"
#include "follow.h"
#include "jsonout.h"
#include "plan/command.h"
#include "plan/duration.h"
#include "plan/mig.h"
#include "plan/strategy.h"
#include "run_more.h"
#include "run_opts.h"
#include "secrets.h"
#include "settings.h"
#include "submit.h"
#include "where.h"

/* All that one run holds; freed in one place. */
struct run {
    struct cmd_ctx *ctx;
    struct run_opts opts;
    struct settings settings;
    struct command command;
    struct strategy_cluster cluster;
    struct strategy_rule *rules; /* of rv.conf, one a [gpu TYPE] */
    char slices[GRES_NAME_MAX];  /* type of the MIG slices, "" = whole GPUs */
    struct strategy_plan plan;
    struct run_more more;
    struct envfile secrets;
    struct request_new from;
    struct request req;
    char *rv_exec, **argv;
    char what[80]; /* "run 'train'": what an error could not do */
};

static void run_fini (struct run *run)
{
    settings_fini (&run->settings);
    strategy_cluster_fini (&run->cluster);
    request_fini (&run->req);
    run_more_fini (&run->more);
    envfile_fini (&run->secrets);
    submit_argv_free (run->argv);
    free (run->rv_exec);
    free (run->rules);
}

static int fail (const struct run *run, int status, const struct rv_error *err)
{
    return cmd_fail (run->ctx, status, NULL, "cannot %s: %s", run->what,
                     err->text);
}

/* What Slurm calls the type of a section: "gpu:a100" or the section's head. */
static const char *rule_type (const struct site_gpu *gpu)
{
    if (!gpu->gres || strncmp (gpu->gres, "gpu", 3))
        return gpu->type;
    return gpu->gres[3] == ':' ? gpu->gres + 4 : "";
}

static int make_rules (struct run *run, struct rv_error *err)
{
    const struct site_conf *conf = &run->settings.conf;

    run->rules = calloc (conf->n_gpu + 2, sizeof (*run->rules));
    if (!run->rules)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < conf->n_gpu; i++) {
        const struct site_gpu *gpu = &conf->gpu[i];
        struct strategy_rule *rule = &run->rules[i];

        rule->label = gpu->type;
        rule->type = rule_type (gpu);
        rule->partition = gpu->partition;
        rule->constraint = gpu->constraint;
        if (gpu->max_per_job > 0)
            rule->max_per_job = (uint32_t)gpu->max_per_job;
        if (gpu->max_per_user > 0)
            rule->max_per_user = (uint32_t)gpu->max_per_user;
        if (gpu->cpus_per_gpu > 0)
            rule->cpus_per_gpu = (uint32_t)gpu->cpus_per_gpu;
        if (gpu->mem_per_gpu_bytes > 0)
            rule->mem_per_gpu_mb = (uint64_t)gpu->mem_per_gpu_bytes / 1048576;
        if (gpu->vram_bytes > 0)
            rule->vram_mb = (uint64_t)gpu->vram_bytes / 1048576;
        rule->cost = gpu->cost;
    }
    run->cluster.rule = run->rules;
    run->cluster.n_rules = conf->n_gpu;
    return RV_OK;
}

static void offers_free (struct node_offer *offers, size_t n)
{
    for (size_t i = 0; offers && i < n; i++)
        free ((char *)offers[i].gres);
    free (offers);
}

/* The slices of each node, as Slurm writes them. */
static struct node_offer *offers_make (const struct strategy_cluster *c)
{
    struct node_offer *offers = calloc (c->n_nodes + 1, sizeof (*offers));

    for (size_t i = 0; offers && i < c->n_nodes; i++) {
        const struct gres_list *gres = &c->node[i].gres;
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream (&text, &size);

        for (size_t j = 0; f && j < gres->n; j++)
            if (!strcmp (gres->entry[j].name, "gpu")
                && gres_is_mig (gres->entry[j].type))
                fprintf (f, "%sgpu:%s:%llu", ftell (f) ? "," : "",
                         gres->entry[j].type,
                         (unsigned long long)gres->entry[j].count);
        if (!f || fclose (f)) {
            offers_free (offers, i);
            return NULL;
        }
        offers[i] = (struct node_offer){text, 1};
    }
    return offers;
}

static void add_slice_rule (struct run *run, const struct site_mig *mig)
{
    run->rules[run->cluster.n_rules++] = (struct strategy_rule){
        .label = mig->profile,
        .type = run->slices,
        .partition = mig->partition,
        .vram_mb =
            mig->vram_bytes > 0 ? (uint64_t)mig->vram_bytes / 1048576 : 0,
        .cost = mig->cost,
    };
}

/* find_slices - the type of the slices, where some are asked for, and what
 * rv.conf says of it. */
static int find_slices (struct run *run, uint32_t count, struct rv_error *err)
{
    const struct run_opts *o = &run->opts;
    const struct site_conf *conf = &run->settings.conf;
    const char *type = o->mig    ? (o->mig_profile ? o->mig_profile : "")
                       : o->type ? o->type
                                 : conf->type;
    struct mig_rule *rules = NULL;
    struct node_offer *offers;
    struct mig_request req = {.count = count};
    struct mig_choice choice;
    size_t n = conf->n_mig;
    int rc = RV_OK;

    if (count == 0 || (!o->mig && !gres_is_mig (type)))
        return RV_OK;
    if ((rc = mig_parse (type, &req, err)))
        return rc;
    req.count = count;
    rules = calloc (n + 1, sizeof (*rules));
    offers = offers_make (&run->cluster);
    if (!rules || !offers)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; rc == RV_OK && i < n; i++)
        rules[i] = (struct mig_rule){
            .profile = conf->mig[i].profile,
            .type = conf->mig[i].gres && !strncmp (conf->mig[i].gres, "gpu:", 4)
                        ? conf->mig[i].gres + 4
                        : "",
            .max_per_job = conf->mig[i].max_per_job,
            .partition = conf->mig[i].partition,
        };
    if (rc == RV_OK)
        rc = mig_resolve (&req, offers, run->cluster.n_nodes, rules, n, &choice,
                          err);
    if (rc == RV_OK) {
        memcpy (run->slices, choice.type, sizeof (run->slices));
        if (choice.rule)
            add_slice_rule (run, site_conf_mig (conf, choice.rule->profile));
    }
    offers_free (offers, run->cluster.n_nodes);
    free (rules);
    return rc;
}

/* A process of CUDA uses one slice, and a launcher's are Slurm's one task. */
static int check_slices (const struct run *run, struct rv_error *err)
{
    const struct strategy_plan *p = &run->plan;

    if (!run->slices[0] || p->tasks_per_node == p->gpus_per_node)
        return RV_OK;
    return error_set (err, RV_EINVAL,
                      "%u slices for %u task%s a node, and each task uses one; "
                      "run the program without its launcher, ask for -g 1, or "
                      "for whole GPUs",
                      p->gpus_per_node, p->tasks_per_node,
                      p->tasks_per_node == 1 ? "" : "s");
}

static void fill_request (const struct run *run, struct strategy_request *req)
{
    const struct run_opts *o = &run->opts;
    const struct settings *s = &run->settings;
    const struct command *c = &run->command;
    const struct site_gpu *gpu;

    req->gpus = o->gpus_given ? o->gpus : s->gpus;
    req->type = o->type ? o->type : s->conf.type;
    req->vram_mb = ((uint64_t)o->vram_bytes + 1048575) / 1048576;
    /* A section of rv.conf, or an alias of one, stands for the type that Slurm
     * knows, on the nodes that the section means. */
    gpu = req->type ? site_conf_gpu (&s->conf, req->type) : NULL;
    if (gpu) {
        req->type = rule_type (gpu);
        req->rule = gpu->type;
    }
    req->partition = o->partition ? o->partition : s->conf.partition;
    req->time_fixed = o->time_given;
    req->time_s = o->time_given ? o->time_s : s->time_s;
    req->mem_bytes = o->mem_bytes ? o->mem_bytes : s->mem_bytes;
    req->launch = c->launch;
    req->nodes = o->nodes;
    if (c->launch != COMMAND_PER_NODE || req->gpus == 0)
        return;
    /* What the command says of itself holds where no option says it. */
    req->nproc = c->nproc;
    if (!req->nodes)
        req->nodes = c->nnodes;
    if (!req->nodes && c->tool == COMMAND_TORCHRUN
        && command_option (c, o->argv, "standalone"))
        req->nodes = 1;
    if (!o->gpus_given && c->nproc)
        req->gpus = c->nproc * (req->nodes ? req->nodes : 1);
}

/* A plan for what was asked, from what the cluster has. */
static int make_plan (struct run *run)
{
    struct strategy_request req = {.gpus = 0};
    struct rv_error err = {0};
    int status;

    if (command_scan (run->opts.argc, run->opts.argv, &run->command, &err)
        != RV_OK)
        return cmd_usage_error (run->ctx, "cannot run '%s': %s",
                                run->opts.argv[0], err.text);
    if (run->opts.name)
        snprintf (run->command.name, sizeof (run->command.name), "%s",
                  run->opts.name);
    snprintf (run->what, sizeof (run->what), "run '%s'", run->command.name);
    if (run->opts.nodes && run->command.nnodes
        && run->opts.nodes != run->command.nnodes)
        return cmd_usage_error (run->ctx,
                                "cannot %s: --nodes=%u and the command's own "
                                "--nnodes=%u differ",
                                run->what, run->opts.nodes,
                                run->command.nnodes);
    if (run->opts.nodes > 1 && run->command.tool == COMMAND_TORCHRUN
        && command_option (&run->command, run->opts.argv, "standalone"))
        return cmd_usage_error (run->ctx,
                                "cannot %s: --standalone stays on one node; "
                                "leave it out, or --nodes=%u",
                                run->what, run->opts.nodes);
    status = cluster_load (&run->cluster, &err);
    if (status != RV_OK)
        return cmd_fail (run->ctx, cmd_job_status (status),
                         cmd_job_hint (status), "cannot %s: %s", run->what,
                         err.text);
    if (make_rules (run, &err) != RV_OK)
        return fail (run, CMD_FAILED, &err);
    fill_request (run, &req);
    if (find_slices (run, req.gpus, &err) != RV_OK)
        return fail (run, CMD_UNMET, &err);
    if (run->slices[0]) {
        req.type = run->slices;
        req.rule = NULL;
    }
    if (strategy_choose (&run->cluster, &req, &run->plan, &err) != RV_OK
        || check_slices (run, &err) != RV_OK)
        return fail (run, CMD_UNMET, &err);
    return CMD_OK;
}

/* What `rv env` keeps; nothing of it is fine. */
static int load_secrets (struct run *run, struct rv_error *err)
{
    char *path = NULL;
    int rc = secrets_path (&path, err);

    if (rc == RV_OK)
        rc = secrets_read (path, &run->secrets, err);
    free (path);
    return rc == RV_ENOTFOUND ? RV_OK : rc;
}

static int prepare (struct run *run)
{
    struct rv_error err = {0};
    const struct settings *s = &run->settings;
    const struct run_opts *o = &run->opts;
    int rc = run_more_make (o, s, run->plan.constraint, &run->more, &err);

    if (rc)
        return fail (run,
                     rc == RV_EINVAL    ? CMD_USAGE
                     : rc == RV_ENOTSUP ? CMD_UNMET
                                        : CMD_FAILED,
                     &err);
    if (o->checkpoint.signal && run->plan.time_s >= 0
        && o->checkpoint.seconds >= run->plan.time_s)
        return cmd_usage_error (run->ctx,
                                "cannot %s: --checkpoint's %u seconds before "
                                "the limit are not within its %lld",
                                run->what, o->checkpoint.seconds,
                                (long long)run->plan.time_s);
    run->from = (struct request_new){
        .state_dir = s->state_dir,
        .name = run->command.name,
        .plan = &run->plan,
        .launch = run->command.launch,
        .nccl_timeout_s = s->nccl_timeout_s,
        .checkpoint = o->checkpoint,
        .env = s->conf.env,
        .n_env = s->conf.n_env,
        .srun_options = run->more.step,
        .secrets = &run->secrets,
        .argc = o->argc,
        .argv = o->argv,
    };
    if (load_secrets (run, &err) != RV_OK
        || request_begin (&run->from, &run->req, &err) != RV_OK)
        return fail (run, CMD_FAILED, &err);
    run->argv = submit_argv (&run->plan, &run->req, &run->more.submit);
    if (!run->argv) {
        error_set (&err, RV_ENOMEM, "out of memory");
        return fail (run, CMD_FAILED, &err);
    }
    return CMD_OK;
}

static json_t *words (char *const argv[])
{
    json_t *list = json_array ();

    for (int i = 0; argv[i]; i++)
        json_array_append_new (list, jsonout_text (argv[i]));
    return list;
}

static json_t *plan_json (const struct run *run)
{
    const struct strategy_plan *p = &run->plan;

    return json_pack (
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:s, s:b}",
        "partition", p->partition, "gpu_type",
        p->type[0] ? jsonout_text (p->type) : json_null (), "gpus",
        (json_int_t)p->gpus, "nodes", (json_int_t)p->nodes, "gpus_per_node",
        (json_int_t)p->gpus_per_node, "tasks_per_node",
        (json_int_t)p->tasks_per_node, "tasks", (json_int_t)p->tasks,
        "cpus_per_task", (json_int_t)p->cpus_per_task, "mem_bytes",
        p->mem_mb ? json_integer ((json_int_t)p->mem_mb * 1024 * 1024)
                  : json_null (),
        "time_s", (json_int_t)p->time_s, "launch",
        run->command.launch == COMMAND_PER_NODE ? "per_node" : "per_gpu",
        "waits_for_node", p->waits_for_node);
}

/* The object of --json, submitted or not. */
static int print_json (const struct run *run)
{
    bool submitted = run->req.job_id != 0;
    json_t *json = json_pack (
        "{s:s, s:b, s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "schema", "rv.run/1",
        "dry_run", !submitted, "job_id",
        submitted ? json_integer (run->req.job_id) : json_null (), "request_id",
        submitted ? json_string (run->req.id) : json_null (), "name",
        run->req.name, "log_dir", jsonout_text (run->req.log_dir),
        "request_dir", submitted ? jsonout_text (run->req.dir) : json_null (),
        "plan", plan_json (run), "sbatch_argv", words (run->argv));

    return jsonout_print (json) ? CMD_FAILED : CMD_OK;
}

/* "4 a100 on 2 nodes" */
static char *plan_words (const struct strategy_plan *p, char *buf, size_t size)
{
    const char *s = p->nodes > 1 ? "s" : "";

    if (p->gpus == 0)
        snprintf (buf, size, "no GPU, %u node%s", p->nodes, s);
    else
        snprintf (buf, size, "%u %s on %u node%s", p->gpus,
                  p->type[0] ? p->type : "GPUs", p->nodes, s);
    return buf;
}

/* A word as a shell would need it. */
static void print_quoted (const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
                                "uvwxyz0123456789_@%+=:,./-";

    if (*word && word[strspn (word, plain)] == '\0') {
        fputs (word, stdout);
        return;
    }
    putchar ('\'');
    for (; *word; word++)
        if (*word == '\'')
            fputs ("'\\''", stdout);
        else
            putchar (*word);
    putchar ('\'');
}

static int print_plan (const struct run *run)
{
    const struct strategy_plan *p = &run->plan;
    char buf[96];

    printf ("name       %s\n", run->req.name);
    printf ("partition  %s\n", p->partition);
    printf ("type       %s\n", p->gpus == 0 ? "no GPU"
                               : p->type[0] ? p->type
                                            : "of no type");
    printf ("nodes      %u x %u GPU%s\n", p->nodes, p->gpus_per_node,
            p->gpus_per_node == 1 ? "" : "s");
    printf ("tasks      %u, %u a node%s\n", p->tasks, p->tasks_per_node,
            run->command.launch == COMMAND_PER_NODE
                ? ": the command starts its own processes"
                : "");
    printf ("cpus       %u a task\n", p->cpus_per_task);
    if (p->mem_mb)
        printf ("memory     %lluM a node\n", (unsigned long long)p->mem_mb);
    else
        printf ("memory     as the partition gives\n");
    printf ("time       %s\n",
            duration_format_slurm (p->time_s, buf, sizeof (buf)));
    if (p->waits_for_node)
        printf ("note       the nodes that could serve are down now\n");
    printf ("submit     ");
    for (int i = 0; run->argv[i]; i++) {
        if (i)
            putchar (' ');
        print_quoted (run->argv[i]);
    }
    printf ("\nnothing was submitted\n");
    return CMD_OK;
}

static int submit (struct run *run)
{
    struct rv_error err = {0};
    uint32_t job_id;

    if (where_program ("rv-exec", &run->rv_exec, &err) != RV_OK)
        return fail (run, CMD_FAILED, &err);
    run->from.rv_exec = run->rv_exec;
    if (request_write (&run->from, &run->req, &err) != RV_OK)
        return cmd_fail (run->ctx, CMD_FAILED,
                         "set state_dir in rv.conf to a folder that you can "
                         "write and the nodes share",
                         "cannot %s: %s", run->what, err.text);
    if (submit_run (run->argv, &job_id, &err) != RV_OK) {
        request_discard (&run->req);
        return fail (run, CMD_FAILED, &err);
    }
    if (request_submitted (&run->req, job_id, run->argv, &err) != RV_OK)
        fprintf (stderr, "rv: job %u was submitted, but cannot be noted: %s\n",
                 job_id, err.text);
    return CMD_OK;
}

static int print_submitted (const struct run *run)
{
    char buf[96];

    printf ("job      %u  %s\n", run->req.job_id, run->req.name);
    printf ("request  %s\n", run->req.id);
    printf ("asked    %s, partition %s\n",
            plan_words (&run->plan, buf, sizeof (buf)), run->plan.partition);
    printf ("logs     %s/%s-%u.*\n", run->req.log_dir, run->req.name,
            run->req.job_id);
    return CMD_OK;
}

static int follow (struct run *run)
{
    const struct follow_opts opts = {
        .out = true,
        .err = true,
        .rank = -1,
        .tail = -1,
        .label = run->opts.label,
        .batch = true,
        .may_cancel = true,
    };
    struct rv_error err = {0};
    char buf[96];
    int status;

    fprintf (stderr, "rv: job %u (%s) submitted: %s, partition %s\n",
             run->req.job_id, run->req.name,
             plan_words (&run->plan, buf, sizeof (buf)), run->plan.partition);
    if (follow_job (&run->req, &opts, &status, &err) == RV_OK)
        return status;
    return cmd_fail (run->ctx, CMD_FAILED, "the job goes on",
                     "cannot follow job %u: %s", run->req.job_id, err.text);
}

static int run_it (struct run *run)
{
    struct rv_error err = {0};
    int status;

    snprintf (run->what, sizeof (run->what), "run '%.60s'", run->opts.argv[0]);
    if (settings_load (&run->settings, &err) != RV_OK)
        return fail (run, CMD_FAILED, &err);
    if ((status = make_plan (run)) != CMD_OK
        || (status = prepare (run)) != CMD_OK)
        return status;
    if (run->opts.dry_run)
        return run->ctx->json ? print_json (run) : print_plan (run);
    if (run->plan.waits_for_node)
        fprintf (stderr, "rv: the nodes that could serve are down now; the "
                         "job waits for them\n");
    if ((status = submit (run)) != CMD_OK)
        return status;
    if (run->opts.follow)
        return follow (run);
    return run->ctx->json ? print_json (run) : print_submitted (run);
}

static int cmd_run_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    struct run run = {.ctx = ctx};
    struct rv_error err = {0};
    const char *word;
    int status;

    ctx->json = ctx->json || run_opts_json (argc, argv);
    status = run_opts_parse (argc, argv, &run.opts, &err);
    if (status == RV_ENOTSUP)
        return cmd_fail (ctx, CMD_UNMET, NULL, "cannot run: %s", err.text);
    if (status != RV_OK)
        return cmd_usage_error (ctx, "cannot run: %s", err.text);
    if (run.opts.help)
        return cmd_help (ctx);
    if (ctx->json && run.opts.follow)
        return cmd_usage_error (ctx, "cannot run: -f prints the command's "
                                     "output, --json one object");
    if ((word = run_opts_misplaced (&run.opts)))
        fprintf (stderr,
                 "rv: %s behind '%s' is that command's own; options of rv run "
                 "stand before it, and -- before it says that this is meant\n",
                 word, run.opts.argv[0]);
    status = run_it (&run);
    run_fini (&run);
    return status;
}

const struct cmd cmd_run = {
    .name = "run",
    .summary = "run a command on GPUs; -f follows it",
    .usage = run_opts_help,
    .json = true,
    .run = cmd_run_run,
};
