/* SPDX-License-Identifier: Apache-2.0
 * cmd_gpu.c - rv gpu: how busy the GPUs of a running job are
 *
 * nvidia-smi is asked on each of the job's nodes, in a step beside the job's
 * own, so that it sees what the job sees. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <getopt.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "gpu_row.h"
#include "jobstep.h"
#include "jsonout.h"
#include "proc.h"
#include "progress.h"
#include "submit.h"

#define ASK_MS   60000
#define PAUSE_MS 2000

/* Characters of columns. */
struct form {
    int node, name;
    int bar; /* between its brackets */
};
static const struct form wide = {12, 24, 10};
static const struct form narrow = {11, 16, 5}; /* 79 in all */
#define WIDE_COLUMNS 98
#define BAR_MOST     10

static const char usage[] =
    "usage: rv gpu [JOB] [-w] [--json]\n"
    "Load, memory, temperature and power of each GPU of a job that runs, by\n"
    "default of your newest, from nvidia-smi on its nodes.\n"
    "  -w, --watch  again every two seconds, until ^C or the end of the job\n"
    "      --json   one JSON object on standard output, rv.gpu/1; with -w one "
    "a\n"
    "               line each time\n";

/* Without control groups a step sees all of the node's GPUs. */
static const char ask[] =
    "exec nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i \"$CUDA_VISIBLE_DEVICES\"} "
    "--query-gpu=" GPU_ROW_QUERY " --format=csv,noheader,nounits";

static volatile sig_atomic_t told, resized;

static void on_signal (int signal)
{
    told = signal;
}

static void on_resize (int signal)
{
    resized = signal; /* it ends the pause */
}

static json_t *value (double v)
{
    return v < 0 ? json_null () : json_real (v);
}

static json_t *bytes (double mib)
{
    return mib < 0 ? json_null () : json_integer ((json_int_t)(mib * 1048576));
}

static json_t *row_json (const struct jobstep *step, const struct gpu_row *row)
{
    return json_pack (
        "{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "node",
        step->nodes.host[row->task], "index", (json_int_t)row->index, "name",
        jsonout_text (row->name), "utilization", value (row->util),
        "memory_used_bytes", bytes (row->mem_used), "memory_total_bytes",
        bytes (row->mem_total), "temperature_c", value (row->temp), "power_w",
        value (row->power_draw), "power_limit_w", value (row->power_most));
}

static void print_number (FILE *f, double v, int width, const char *unit)
{
    if (v < 0)
        fprintf (f, " %*s%*s", width, "-", (int)strlen (unit), "");
    else
        fprintf (f, " %*.0f%s", width, v, unit);
}

static void print_row (FILE *f, const struct jobstep *step,
                       const struct gpu_row *row, const struct form *form,
                       bool colour)
{
    char bar[BAR_MOST + 3];
    size_t width = (size_t)form->bar;

    fprintf (f, "%-*.*s %3lld %-*.*s ", form->node, form->node,
             step->nodes.host[row->task], (long long)row->index, form->name,
             form->name, row->name);
    if (colour && row->util >= 0)
        fputs (row->util < 10   ? "\033[31m"
               : row->util < 50 ? "\033[33m"
                                : "\033[32m",
               f);
    fputs (gpu_row_bar (row->util, 100, width, bar, sizeof (bar)), f);
    if (colour && row->util >= 0)
        fputs ("\033[0m", f);
    print_number (f, row->util, 3, "%");
    fprintf (
        f, "  %s",
        gpu_row_bar (row->mem_used, row->mem_total, width, bar, sizeof (bar)));
    if (row->mem_used >= 0 && row->mem_total >= 0)
        fprintf (f, " %5.1f/%5.1fG", row->mem_used / 1024,
                 row->mem_total / 1024);
    else
        fprintf (f, " %12s", "-");
    print_number (f, row->temp, 4, "C");
    print_number (f, row->power_draw, 4, "W");
    fputc ('\n', f);
}

static char *table (const struct jobstep *step, const struct gpu_row *rows,
                    size_t n, const struct form *form, bool colour)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream (&text, &size);

    if (!f)
        return NULL;
    fprintf (f, "%-*s %3s %-*s %-*s  %-*s %5s %5s\n", form->node, "NODE", "GPU",
             form->name, "NAME", form->bar + 7, "LOAD", form->bar + 15,
             "MEMORY", "TEMP", "POWER");
    for (size_t i = 0; i < n; i++)
        print_row (f, step, &rows[i], form, colour);
    if (fclose (f) == 0)
        return text;
    free (text);
    return NULL;
}

static unsigned terminal_columns (void)
{
    struct winsize size = {0};

    if (ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2)
        return 80;
    return size.ws_col;
}

/* In the place of the last one, each line cut to the terminal's width: one that
 * wraps would not stay a table. */
static void redraw (const char *text, unsigned columns)
{
    fputs ("\033[H\033[2J", stdout);
    while (*text) {
        size_t len = strcspn (text, "\n");

        fwrite (text, 1, progress_fit (text, len, columns - 1), stdout);
        fputs ("\033[0m\n", stdout);
        text += len + (text[len] == '\n');
    }
}

static int by_place (const void *a, const void *b)
{
    const struct gpu_row *x = a, *y = b;

    if (x->task != y->task)
        return x->task < y->task ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* All lines of srun's output as rows, in order. */
static int read_rows (char *text, const struct jobstep *step,
                      struct gpu_row **ret, size_t *ret_n, struct rv_error *err)
{
    struct gpu_row *rows = NULL, *grown;
    char *save = NULL;
    size_t n = 0;
    int rc = RV_OK;

    for (char *line = strtok_r (text, "\n", &save); line && rc == RV_OK;
         line = strtok_r (NULL, "\n", &save)) {
        if (!(grown = realloc (rows, (n + 1) * sizeof (*grown)))) {
            rc = error_set (err, RV_ENOMEM, "out of memory");
            break;
        }
        rows = grown;
        rc = gpu_row_parse (line, &rows[n], err);
        if (rc == RV_OK && rows[n].task >= step->nodes.n)
            rc = error_set (err, RV_EFORMAT, "srun labelled a line with %u",
                            rows[n].task);
        n++;
    }
    if (rc == RV_OK && n == 0)
        rc = error_set (err, RV_EFORMAT, "nvidia-smi said nothing");
    if (rc != RV_OK) {
        free (rows);
        return rc;
    }
    qsort (rows, n, sizeof (*rows), by_place);
    *ret = rows;
    *ret_n = n;
    return RV_OK;
}

static int show_json (const struct jobstep *step, const struct gpu_row *rows,
                      size_t n)
{
    json_t *list = json_array ();

    for (size_t i = 0; i < n; i++)
        json_array_append_new (list, row_json (step, &rows[i]));
    return jsonout_print (json_pack ("{s:s, s:I, s:o, s:o}", "schema",
                                     "rv.gpu/1", "job_id",
                                     (json_int_t)step->job_id, "name",
                                     jsonout_text (step->name), "gpus", list))
                   || fflush (stdout)
               ? CMD_FAILED
               : CMD_OK;
}

static int show (const struct jobstep *step, const struct gpu_row *rows,
                 size_t n, bool again)
{
    bool terminal = isatty (STDOUT_FILENO);
    const char *no_colour = getenv ("NO_COLOR");
    unsigned columns = terminal ? terminal_columns () : WIDE_COLUMNS + 1;
    char *text = table (step, rows, n, columns > WIDE_COLUMNS ? &wide : &narrow,
                        terminal && (!no_colour || !*no_colour));

    if (!text)
        return CMD_FAILED;
    if (again && terminal)
        redraw (text, columns);
    else
        fputs (text, stdout);
    free (text);
    return fflush (stdout) ? CMD_FAILED : CMD_OK;
}

/* srun's last line says why, or the program's. */
static int refuse (const struct cmd_ctx *ctx, const struct jobstep *step,
                   const struct proc_result *r)
{
    const char *from = r->err;
    size_t len;

    while (!strncmp (from, "srun: ", 6) && strchr (from, '\n')
           && strchr (from, '\n')[1])
        from = strchr (from, '\n') + 1;
    len = strcspn (from, "\n");
    return cmd_fail (ctx, CMD_FAILED, NULL,
                     "cannot look at the GPUs of job %u (%s): nvidia-smi ended "
                     "with status %d: %.*s",
                     step->job_id, step->name, r->status,
                     (int)(len > 300 ? 300 : len), from);
}

/* Does the job not run any more, as slurmctld itself says? Its steps end
 * before it does. */
static bool has_ended (const struct jobstep *step)
{
    struct slurm_ask ask = {.fd = -1};
    struct cluster_jobs jobs = {0};
    bool done = false, ended = false;

    if (cluster_job_begin (&ask, step->job_id, NULL) == RV_OK
        && cluster_job_poll (&ask, ASK_MS, &done, &jobs, NULL) == RV_OK)
        ended = done && jobs.n && strcmp (jobs.job[0].state, "RUNNING") != 0;
    slurm_ask_cancel (&ask);
    cluster_jobs_fini (&jobs);
    return ended;
}

static int look (const struct cmd_ctx *ctx, const struct jobstep *step,
                 bool again, bool *ret_ended)
{
    char *const command[] = {(char *)"sh", (char *)"-c", (char *)ask, NULL};
    char **words = jobstep_argv (step, true, false, command);
    char **env = submit_environ ();
    struct proc_opts opts = {.env = env, .deadline_ms = ASK_MS};
    struct proc_result result;
    struct gpu_row *rows = NULL;
    struct rv_error err = {0};
    size_t n = 0;
    int status;

    if (!words || !env || proc_run (words, &opts, &result, &err)) {
        /* A step that is cancelled while it begins may keep srun. */
        if (words && env && again && (*ret_ended = has_ended (step)))
            status = CMD_OK;
        else
            status = cmd_fail (ctx, CMD_FAILED, NULL,
                               "cannot look at the GPUs of job %u (%s): %s",
                               step->job_id, step->name,
                               err.text[0] ? err.text : "out of memory");
    } else {
        if (result.status && again && (*ret_ended = has_ended (step)))
            status = CMD_OK;
        else if (result.status)
            status = refuse (ctx, step, &result);
        else if (read_rows (result.out, step, &rows, &n, &err))
            status = cmd_fail (ctx, CMD_FAILED, NULL,
                               "cannot look at the GPUs of job %u (%s): %s",
                               step->job_id, step->name, err.text);
        else
            status = ctx->json ? show_json (step, rows, n)
                               : show (step, rows, n, again);
        proc_result_fini (&result);
    }
    free (rows);
    submit_argv_free (words);
    submit_argv_free (env);
    return status;
}

static int watch (const struct cmd_ctx *ctx, const struct jobstep *step)
{
    struct sigaction act = {.sa_handler = on_signal}; /* no SA_RESTART */
    struct sigaction size = {.sa_handler = on_resize};
    bool ended = false;
    int status;

    sigaction (SIGINT, &act, NULL);
    sigaction (SIGTERM, &act, NULL);
    sigaction (SIGWINCH, &size, NULL);
    for (;;) {
        resized = 0;
        status = look (ctx, step, true, &ended);
        if (status != CMD_OK || told || ended)
            break;
        if (!resized)
            poll (NULL, 0, PAUSE_MS);
        if (told)
            break;
    }
    if (ended && !told)
        fprintf (stderr, "rv: job %u (%s) does not run any more\n",
                 step->job_id, step->name);
    return told ? 128 + told : status;
}

static int take_watch (struct cmd_ctx *ctx, int c, const char *value, void *arg)
{
    (void)ctx;
    (void)c;
    (void)value;
    *(bool *)arg = true;
    return CMD_OK;
}

static int cmd_gpu_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    static const struct option options[] = {
        {"watch", no_argument, NULL, 'w'},
        {NULL, 0, NULL, 0},
    };
    bool again = false, done;
    struct jobstep step;
    int status = cmd_options (ctx, argc, argv, "w", options, "look at GPUs",
                              take_watch, &again, &done);

    if (done)
        return status;
    if (argc - optind > 1)
        return cmd_usage_error (ctx, "cannot look at GPUs: name one job");
    status = jobstep_find (ctx, "look at", argv[optind], NULL, &step);
    if (status != CMD_OK)
        return status;
    if (step.gpus == 0)
        status = cmd_fail (ctx, CMD_UNMET, NULL,
                           "cannot look at the GPUs of job %u (%s): it has "
                           "none",
                           step.job_id, step.name);
    else
        status = again ? watch (ctx, &step) : look (ctx, &step, false, &done);
    jobstep_fini (&step);
    return status;
}

const struct cmd cmd_gpu = {
    .name = "gpu",
    .summary = "how busy the GPUs of a running job are; -w watches",
    .usage = usage,
    .json = true,
    .run = cmd_gpu_run,
};
