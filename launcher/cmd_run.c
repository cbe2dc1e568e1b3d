/* SPDX-License-Identifier: Apache-2.0
 * cmd_run.c - rv run: from a command to a job, and its output with -f */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd_job.h"
#include "follow.h"
#include "jsonout.h"
#include "plan/command.h"
#include "plan/duration.h"
#include "plan/fsio.h"
#include "plan/outpath.h"
#include "run_defaults.h"
#include "run_fan.h"
#include "run_more.h"
#include "run_opts.h"
#include "run_plan.h"
#include "run_snapshot.h"
#include "run_table.h"
#include "secrets.h"
#include "settings.h"
#include "submit.h"
#include "up.h"
#include "where.h"

/* All that one run holds; freed in one place. */
struct run {
    struct cmd_ctx *ctx;
    struct run_opts opts;
    bool up; /* a shell in the place of the job */
    struct settings settings;
    struct run_defaults defaults; /* what of them [opts] got */
    struct command command;
    struct strategy_cluster cluster;
    struct run_plan plans;
    const struct strategy_plan *plan; /* the first of them */
    struct run_fan fan;               /* those that are submitted */
    struct run_more more;             /* of the first */
    struct envfile secrets;
    struct worktree tree; /* with --snapshot alone */
    char **outputs;
    struct request_new from;
    struct request req;
    char *rv_exec, **argv; /* of rv up; else run->fan has the words */
    char what[80];         /* "run 'train'": what an error could not do */
};

static void run_fini (struct run *run)
{
    run_defaults_fini (&run->defaults);
    settings_fini (&run->settings);
    run_plan_fini (&run->plans);
    strategy_cluster_fini (&run->cluster);
    request_fini (&run->req);
    run_more_fini (&run->more);
    run_fan_fini (&run->fan);
    envfile_fini (&run->secrets);
    worktree_fini (&run->tree);
    outpath_free (run->outputs);
    submit_argv_free (run->argv);
    free (run->rv_exec);
}

static int fail (const struct run *run, int status, const struct rv_error *err)
{
    return cmd_fail (run->ctx, status, NULL, "cannot %s: %s", run->what,
                     err->text);
}

/* A plan for what was asked, from what the cluster has. */
static int make_plan (struct run *run)
{
    const struct cluster_as as = {run->opts.account, run->opts.qos};
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
    status = cluster_load (&as, &run->cluster, &err);
    if (status != RV_OK)
        return cmd_fail (run->ctx, cmd_job_status (status),
                         cmd_job_hint (status), "cannot %s: %s", run->what,
                         err.text);
    status = run_plan_make (&run->opts, &run->settings, &run->command,
                            &run->cluster, &run->plans, &err);
    if (status != RV_OK)
        return fail (run, status == RV_ENOMEM ? CMD_FAILED : CMD_UNMET, &err);
    run->plan = &run->plans.plans.item[0].plan;
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

/* Which strategies become jobs, and their sbatch calls. */
static int prepare_jobs (struct run *run)
{
    struct rv_error err = {0};
    uint32_t room;
    int rc = RV_OK;

    run->fan = (struct run_fan){.opts = &run->opts,
                                .settings = &run->settings,
                                .plans = &run->plans.plans,
                                .from = &run->from,
                                .req = &run->req};
    room = limits_submits (&run->cluster.limits);
    run_fan_choose (&run->fan, run->up,
                    room > FANOUT_MOST ? FANOUT_NO_LIMIT : (int)room);
    run->from.candidates = (unsigned)run->fan.choice.n;
    run->from.spares = (unsigned)run->fan.choice.n_spare;
    if (run->up) {
        run->argv = submit_argv (run->plan, &run->req, &run->more.submit);
        if (run->argv)
            run->argv = up_argv (run->argv, run->plan->tasks_per_node,
                                 run->more.step, run->opts.argv);
        if (!run->argv)
            rc = error_set (&err, RV_ENOMEM, "out of memory");
    } else
        rc = run_fan_words (&run->fan, 0, &err);
    return rc ? fail (run, CMD_FAILED, &err) : CMD_OK;
}

/* What --snapshot would copy; notes are for who submits. */
static int find_snapshot (struct run *run)
{
    struct rv_error err = {0};
    int rc = run_snapshot_find (&run->opts, &run->tree, &run->outputs, &err);

    if (rc)
        return cmd_fail (run->ctx,
                         rc == RV_ESTATE || rc == RV_ENOTFOUND ? CMD_UNMET
                                                               : CMD_FAILED,
                         "without --snapshot the job runs here, as things are "
                         "when it starts",
                         "cannot %s: %s", run->what, err.text);
    if (run->opts.snapshot)
        run_snapshot_notes (&run->opts, &run->tree);
    return CMD_OK;
}

static int prepare (struct run *run)
{
    struct rv_error err = {0};
    const struct settings *s = &run->settings;
    const struct run_opts *o = &run->opts;
    int rc = run_more_make (o, s, run->plan->constraint, &run->more, &err);

    if (rc)
        return fail (run,
                     rc == RV_EINVAL    ? CMD_USAGE
                     : rc == RV_ENOTSUP ? CMD_UNMET
                                        : CMD_FAILED,
                     &err);
    if (o->checkpoint.signal && run->plan->time_s >= 0
        && o->checkpoint.seconds >= run->plan->time_s)
        return cmd_usage_error (run->ctx,
                                "cannot %s: --checkpoint's %u seconds before "
                                "the limit are not within its %lld",
                                run->what, o->checkpoint.seconds,
                                (long long)run->plan->time_s);
    run->from = (struct request_new){
        .state_dir = s->state_dir,
        .name = run->command.name,
        .cluster = run->cluster.name,
        .plan = run->plan,
        .launch = run->command.launch,
        .nccl_timeout_s = s->nccl_timeout_s,
        .checkpoint = o->checkpoint,
        .env = s->conf.env,
        .n_env = s->conf.n_env,
        .srun_options = run->more.step,
        .secrets = &run->secrets,
        .tree = o->snapshot ? &run->tree : NULL,
        .outputs = run->outputs,
        .argc = o->argc,
        .argv = o->argv,
    };
    if (load_secrets (run, &err) != RV_OK
        || request_begin (&run->from, &run->req, &err) != RV_OK)
        return fail (run, CMD_FAILED, &err);
    return prepare_jobs (run);
}

static json_t *words (char *const argv[])
{
    json_t *list = json_array ();

    for (int i = 0; argv && argv[i]; i++)
        json_array_append_new (list, jsonout_text (argv[i]));
    return list;
}

static json_t *plan_json (const struct run *run)
{
    const struct strategy_plan *p = &run_fan_item (&run->fan)->plan;

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

/* The sbatch call of the job that is told of. */
static char **first_words (const struct run *run)
{
    unsigned k = run->req.candidate ? run->req.candidate - 1 : 0;

    return run->up ? run->argv : run->fan.job[k].argv;
}

static json_t *snapshot_json (const struct run *run, bool submitted)
{
    char *dir = submitted ? fsio_join (run->req.dir, "snapshot") : NULL;
    json_t *json =
        run->opts.snapshot ? worktree_json (&run->tree, dir) : json_null ();

    free (dir);
    return json;
}

/* The object of --json, submitted or not. */
static int print_json (const struct run *run)
{
    bool submitted = run->req.job_id != 0;
    json_t *json = json_pack (
        "{s:s, s:b, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o}",
        "schema", "rv.run/1", "dry_run", !submitted, "job_id",
        submitted ? json_integer (run->req.job_id) : json_null (), "request_id",
        submitted ? json_string (run->req.id) : json_null (), "name",
        run->req.name, "log_dir", jsonout_text (run->req.log_dir),
        "request_dir", submitted ? jsonout_text (run->req.dir) : json_null (),
        "snapshot", snapshot_json (run, submitted), "outputs",
        words (run->outputs), "plan", plan_json (run), "forecast",
        run_table_json (&run->plans.plans, &run->cluster, &run->fan.choice),
        "options", run_defaults_json (&run->defaults, &run->opts),
        "sbatch_argv", words (first_words (run)), "jobs",
        run_fan_json (&run->fan));

    return jsonout_print (json) ? CMD_FAILED : CMD_OK;
}

/* "4 a100 on 2 nodes" */
static char *plan_words (const struct run *run, char *buf, size_t size)
{
    const struct strategy_plan *p = &run_fan_item (&run->fan)->plan;
    const char *types = run_fan_item (&run->fan)->types;
    const char *s = p->nodes > 1 ? "s" : "";

    if (p->gpus == 0)
        snprintf (buf, size, "no GPU, %u node%s", p->nodes, s);
    else
        snprintf (buf, size, "%u %s on %u node%s", p->gpus,
                  types[0] ? types : "GPUs", p->nodes, s);
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

static void print_submit (char *const argv[])
{
    printf ("submit     ");
    for (int i = 0; argv[i]; i++) {
        if (i)
            putchar (' ');
        print_quoted (argv[i]);
    }
    putchar ('\n');
}

static int print_plan (struct run *run)
{
    struct rv_error err = {0};
    const struct strategy_plan *p = run->plan;
    const char *types = run->plans.plans.item[0].types;
    char buf[192];

    printf ("name       %s\n", run->req.name);
    printf ("partition  %s\n", p->partition);
    printf ("type       %s\n", p->gpus == 0 ? "no GPU"
                               : types[0]   ? types
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
    if (p->time_min_s)
        printf ("at least   %s\n",
                duration_format_slurm (p->time_min_s, buf, sizeof (buf)));
    if (p->waits_for_node)
        printf ("note       the nodes that could serve are down now\n");
    if (run->opts.snapshot)
        run_snapshot_print (&run->tree, run->outputs);
    run_table_print (&run->plans.plans, run->cluster.now_s);
    run_fan_print (&run->fan);
    run_defaults_print (&run->defaults, &run->opts);
    print_submit (first_words (run));
    for (size_t k = 1; k < run->fan.choice.n; k++)
        if (run_fan_words (&run->fan, k, &err) == RV_OK)
            print_submit (run->fan.job[k].argv);
        else
            printf ("submit     not %zu: %s\n", run->fan.job[k].item + 1,
                    err.text);
    printf ("nothing was submitted\n");
    return CMD_OK;
}

/* The job begins where we stand. */
static int check_folder (struct run *run)
{
    char *cwd = getcwd (NULL, 0);
    int why = errno;

    free (cwd);
    return cwd ? CMD_OK
               : cmd_fail (run->ctx, CMD_FAILED,
                           "it was removed: cd to one that is there",
                           "cannot %s: the working folder: %s", run->what,
                           strerror (why));
}

static int submit (struct run *run)
{
    struct rv_error err = {0};
    int status = check_folder (run);

    if (status != CMD_OK)
        return status;
    if (where_program ("rv-exec", &run->rv_exec, &err) != RV_OK)
        return fail (run, CMD_FAILED, &err);
    run->from.rv_exec = run->rv_exec;
    if (request_write (&run->from, &run->req, &err) != RV_OK)
        return cmd_fail (run->ctx, CMD_FAILED,
                         "set state_dir in rv.conf to a folder that you can "
                         "write and the nodes share",
                         "cannot %s: %s", run->what, err.text);
    status = run_fan_submit (&run->fan, &err);
    if (status == RV_ETIMEDOUT) /* the job may be there, and need its folder */
        return fail (run, CMD_NO_CONTROLLER, &err);
    if (status != RV_OK) {
        request_discard (&run->req);
        return fail (run, CMD_FAILED, &err);
    }
    request_index (&run->req);
    run->plan = &run_fan_item (&run->fan)->plan;
    return CMD_OK;
}

/* "13, 14" into [buf]: the jobs beside the one that is told of. */
static bool other_jobs (const struct run *run, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = '\0';
    for (size_t k = 0; k < run->fan.n_tried && at < size; k++)
        if (run->fan.job[k].job_id && run->fan.job[k].job_id != run->req.job_id)
            at += (size_t)snprintf (buf + at, size - at, "%s%u", at ? ", " : "",
                                    run->fan.job[k].job_id);
    return at > 0;
}

static int print_submitted (const struct run *run)
{
    char buf[192];

    printf ("job      %u  %s\n", run->req.job_id, run->req.name);
    if (other_jobs (run, buf, sizeof (buf)))
        printf ("beside   %s: the first that starts runs the command\n", buf);
    printf ("request  %s\n", run->req.id);
    printf ("asked    %s, partition %s\n", plan_words (run, buf, sizeof (buf)),
            run->plan->partition);
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
        .exact_out = true,
        .may_cancel = true,
    };
    struct rv_error err = {0};
    char buf[192];
    int status;

    fprintf (stderr, "rv: job %u (%s) submitted: %s, partition %s\n",
             run->req.job_id, run->req.name,
             plan_words (run, buf, sizeof (buf)), run->plan->partition);
    if (other_jobs (run, buf, sizeof (buf)))
        fprintf (stderr,
                 "rv: and beside it %s; the first that starts runs the "
                 "command\n",
                 buf);
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
    if (run_defaults_apply (&run->defaults, &run->settings.conf, &run->opts,
                            &err)
        != RV_OK)
        return fail (run, CMD_FAILED, &err);
    if ((status = make_plan (run)) != CMD_OK
        || (status = find_snapshot (run)) != CMD_OK
        || (status = prepare (run)) != CMD_OK)
        return status;
    if (run->opts.dry_run)
        return run->ctx->json ? print_json (run) : print_plan (run);
    if (run->plan->waits_for_node)
        fprintf (stderr, "rv: the nodes that could serve are down now; the "
                         "job waits for them\n");
    if (run->up)
        return up_exec (run->ctx, run->argv, &run->secrets);
    if ((status = submit (run)) != CMD_OK)
        return status;
    if (run->opts.follow)
        return follow (run);
    return run->ctx->json ? print_json (run) : print_submitted (run);
}

static int run_words (struct cmd_ctx *ctx, int argc, char **argv)
{
    struct run run = {.ctx = ctx};
    struct rv_error err = {0};
    const char *word;
    int status;

    run.up = ctx->cmd == &cmd_up;
    ctx->json = ctx->json || run_opts_json (argc, argv);
    status = run_opts_parse (argc, argv, &run.opts, &err);
    if (status == RV_OK && run.up)
        status = up_command (&run.opts, &err);
    if (status == RV_ENOTSUP)
        return cmd_fail (ctx, CMD_UNMET, NULL, "cannot run: %s", err.text);
    if (status != RV_OK)
        return cmd_usage_error (ctx, "cannot run: %s", err.text);
    if (run.opts.help)
        return cmd_help (ctx);
    if (ctx->json && run.up && !run.opts.dry_run)
        return cmd_usage_error (ctx, "cannot run: --json goes with --dry-run "
                                     "here");
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

static int up_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    char **words = up_words (argc, argv);
    int status = words ? run_words (ctx, argc + 2, words)
                       : cmd_fail (ctx, CMD_FAILED, NULL, "out of memory");

    free (words);
    return status;
}

const struct cmd cmd_run = {
    .name = "run",
    .summary = "run a command on GPUs; -f follows it",
    .usage = run_opts_help,
    .json = true,
    .wraps = true,
    .run = run_words,
};

const struct cmd cmd_up = {
    .name = "up",
    .summary = "a shell on GPUs",
    .usage = up_help,
    .json = true,
    .wraps = true,
    .run = up_run,
};
