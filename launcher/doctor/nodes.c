/* SPDX-License-Identifier: Apache-2.0
 * nodes.c - one short step over the idle nodes: is rv whole there?
 *
 * A job has one partition, so there is one step a partition, for the nodes
 * that no earlier one has asked. The step is given up when it cannot start at
 * once (srun --immediate): the doctor must not wait in the queue. Each of its
 * tasks writes one line:
 *     rv-doctor TAB node TAB plugin TAB folder TAB rv-exec's version TAB GPUs
 * where plugin is what the plugin left in the environment, folder is "rw", "r"
 * or "none", and GPUs is what rv-exec --gpus says, or "bad". */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"
#include "doctor/doctor.h"
#include "plan/fsio.h"
#include "proc.h"
#include "submit.h"
#include "version.h"
#include "where.h"

#define TAG       "rv-doctor"
#define STEP_MS   30000
#define ALL_MS    60000 /* after it, no further step is begun */
#define WORDS_MAX 32

/* $1 rv-exec, $2 a folder below the state folder that we made just now. Its
 * name alone is no proof: another one may lie there on a local disk. */
static const char script[] =
    "folder=none\n"
    "if [ -r \"$2/token\" ]; then folder=r\n"
    "  if : >\"$2/at-$SLURMD_NODENAME\"; then folder=rw; fi\n"
    "fi 2>/dev/null\n"
    "version=$(\"$1\" --version 2>/dev/null)\n"
    "gpus=$(\"$1\" --gpus 2>/dev/null) || gpus=bad\n"
    "printf '" TAG "\\t%s\\t%s\\t%s\\t%s\\t%s\\n' \"$SLURMD_NODENAME\" "
    "\"${RV_PLUGIN-}\" \"$folder\" \"$version\" \"$gpus\"\n";

static const char exec_version[] = RV_VERSION_LINE ("rv-exec");

struct step {
    const struct settings *settings;
    char *dir, *rv_exec;
    char name[40]; /* of the job: unique, so that it can be found again */
    char why[300]; /* what srun said last; "" = nothing */
};

static void judge_answer (struct doctor_node *node, bool plugin_here)
{
    const char *sep = "";
    char wrong[300] = "";
    size_t n = 0;
    struct {
        bool bad;
        const char *text;
    } faults[] = {
        {plugin_here && !node->plugin[0],
         "the plugin is not loaded there: plugstack.conf or spank_rv.so is "
         "missing"},
        {node->plugin[0] && strcmp (node->plugin, PACKAGE_VERSION),
         "the plugin there is of another version"},
        {!node->rv_exec[0], "rv-exec does not run there"},
        {node->rv_exec[0] && strcmp (node->rv_exec, exec_version),
         "rv-exec there is of another build"},
        {!node->dir_seen, "the state folder is not the one that is seen here"},
        {node->dir_seen && !node->dir_usable,
         "the state folder cannot be written there"},
    };

    node->state = DOCTOR_OK;
    for (size_t i = 0; i < sizeof (faults) / sizeof (faults[0]); i++) {
        if (!faults[i].bad || n >= sizeof (wrong))
            continue;
        node->state = DOCTOR_FAIL;
        n += (size_t)snprintf (wrong + n, sizeof (wrong) - n, "%s%s", sep,
                               faults[i].text);
        sep = "; ";
    }
    if (node->state == DOCTOR_FAIL)
        snprintf (node->text, sizeof (node->text), "%s", wrong);
    else
        snprintf (node->text, sizeof (node->text),
                  "%s%s, rv-exec and the state folder are there",
                  node->plugin[0] ? "plugin " : "no plugin, as here",
                  node->plugin);
}

void doctor_judge (struct doctor_node *node, bool plugin_here)
{
    if (node->answered) {
        judge_answer (node, plugin_here);
    } else if (!node->idle) {
        node->state = DOCTOR_UNKNOWN;
        snprintf (node->text, sizeof (node->text), "not asked: it is %s",
                  node->slurm_state);
    } else if (!node->text[0]) {
        node->state = DOCTOR_UNKNOWN;
        snprintf (node->text, sizeof (node->text),
                  "not asked: it is in no partition that is up");
    }
    /* Known without a step, and reason enough for each of the others. */
    if (node->slurm[0]
        && !doctor_same_release (RV_SLURM_VERSION, node->slurm)) {
        node->state = DOCTOR_FAIL;
        snprintf (node->text, sizeof (node->text),
                  "slurmd there is of Slurm %s, rv and its plugin were built "
                  "for %s",
                  node->slurm, RV_SLURM_VERSION);
    }
}

static int64_t read_gpus (const char *text)
{
    char *end;
    long n;

    if (!text || !*text)
        return GPUS_UNKNOWN;
    if (!strcmp (text, "none"))
        return GPUS_NO_DRIVER;
    n = strtol (text, &end, 10);
    return *end || n < 0 ? GPUS_NO_ANSWER : n;
}

void doctor_take (struct doctor_site *site, char *line)
{
    char *field[5];

    for (size_t i = 0; i < 5; i++)
        if (!(field[i] = strsep (&line, "\t")))
            return;
    if (strcmp (field[0], TAG))
        return;
    for (size_t i = 0; i < site->n_nodes; i++) {
        struct doctor_node *node = &site->node[i];

        if (strcmp (node->name, field[1]) || node->answered)
            continue;
        node->plugin = strdup (field[2]);
        node->rv_exec = strdup (field[4]);
        node->gpus_there = read_gpus (line);
        node->dir_seen = field[3][0] == 'r';
        node->dir_usable = !strcmp (field[3], "rw");
        node->answered = node->plugin && node->rv_exec;
    }
}

/* What is well is said beside the rest, and gives way to what is not. */
static void add_text (struct doctor_node *node, enum doctor_state state,
                      const char *text)
{
    size_t n = strlen (node->text);

    if (state != DOCTOR_OK && node->state == DOCTOR_OK) {
        node->state = state;
        n = 0;
    }
    snprintf (node->text + n, sizeof (node->text) - n, "%s%s", n ? "; " : "",
              text);
    if (state == DOCTOR_FAIL)
        node->state = state;
}

static void compare (struct doctor_node *node, bool driver_elsewhere)
{
    long long want = node->gpus_slurm, n = node->gpus_there;
    char text[200];

    if (want < 0 || n == GPUS_UNKNOWN || (want == 0 && n < 0))
        return;
    if (n == GPUS_NO_ANSWER)
        snprintf (text, sizeof (text),
                  "NVML there hangs or fails, and gres says %lld GPUs", want);
    else if (n < 0)
        snprintf (text, sizeof (text),
                  "gres says %lld GPUs, and there is no driver", want);
    else if (n == want)
        snprintf (text, sizeof (text), "%lld GPUs by gres and by NVML", n);
    else
        snprintf (text, sizeof (text), "gres says %lld GPUs, NVML %lld", want,
                  n);
    if (n == GPUS_NO_ANSWER || (n >= 0 && n < want)
        || (n < 0 && driver_elsewhere))
        add_text (node, DOCTOR_FAIL, text);
    else if (n > want)
        add_text (node, DOCTOR_WARN, text);
    else
        add_text (node, DOCTOR_OK, text);
}

void doctor_compare (struct doctor_site *site)
{
    bool driver = false;

    for (size_t i = 0; i < site->n_nodes; i++)
        driver =
            driver || (site->node[i].answered && site->node[i].gpus_there > 0);
    for (size_t i = 0; i < site->n_nodes; i++)
        if (site->node[i].answered)
            compare (&site->node[i], driver);
}

/* srun's last words, without its name. */
static void note_why (struct step *step, const char *text)
{
    const char *end = text + strlen (text), *line;
    struct rv_error err = {0};

    while (end > text && end[-1] == '\n')
        end--;
    for (line = end; line > text && line[-1] != '\n'; line--)
        ;
    if (!strncmp (line, "srun: ", 6))
        line += 6;
    if (!strncmp (line, "error: ", 7))
        line += 7;
    error_set (&err, RV_EIO, "%.*s", line < end ? (int)(end - line) : 0, line);
    snprintf (step->why, sizeof (step->why), "%.250s", err.text);
}

/* srun was killed by the deadline: its job would go on. */
static void cancel (const struct step *step)
{
    struct cluster_jobs jobs = {0};

    if (cluster_jobs_load (&jobs, NULL))
        return;
    for (size_t i = 0; i < jobs.n; i++)
        if (jobs.job[i].active && !strcmp (jobs.job[i].name, step->name))
            cluster_cancel (jobs.job[i].job_id, NULL);
    cluster_jobs_fini (&jobs);
}

/* This process's environment with what makes a plugin set its variables, and
 * without what another job's plugin has set. */
static char **step_environ (const struct step *step)
{
    char **from = submit_environ (), **env;
    size_t n = 0, out = 0;

    while (from && from[n])
        n++;
    env = from ? calloc (n + 2, sizeof (*env)) : NULL;
    if (!env || asprintf (&env[out++], "RV_REQUEST_DIR=%s", step->dir) < 0) {
        free (env);
        submit_argv_free (from);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (strncmp (from[i], "RV_", 3))
            env[out++] = from[i];
        else
            free (from[i]);
    free (from);
    return env;
}

static void read_lines (struct doctor_site *site, char *text)
{
    char *line;

    while ((line = strsep (&text, "\n")))
        doctor_take (site, line);
}

static void run_srun (struct doctor_site *site, struct step *step,
                      char *const argv[])
{
    struct proc_opts opts = {.deadline_ms = STEP_MS};
    struct proc_result result;
    struct rv_error err = {0};
    char **env = step_environ (step);
    int status;

    if (!env) {
        snprintf (step->why, sizeof (step->why), "out of memory");
        return;
    }
    opts.env = env;
    status = proc_run (argv, &opts, &result, &err);
    submit_argv_free (env);
    step->why[0] = '\0';
    if (status == RV_ETIMEDOUT)
        cancel (step);
    if (status != RV_OK) {
        snprintf (step->why, sizeof (step->why), "%.250s", err.text);
        return;
    }
    note_why (step, result.err);
    read_lines (site, result.out);
    proc_result_fini (&result);
}

/* Each value in the word of its option: none can be taken for another. */
static bool step_words (const struct step *step, const char *partition,
                        const char *nodes, size_t n, char **words)
{
    const char *account = step->settings->conf.account;
    const char *qos = step->settings->conf.qos;
    size_t w = 0;
    bool good = true;
    struct {
        const char *option, *value;
    } given[] = {
        {"--partition=", partition},
        {"--nodelist=", nodes},
        {"--job-name=", step->name},
        {"--account=", account},
        {"--qos=", qos},
    };
    static const char *const fixed[] = {
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        "--mem=64M",
        "--time=1",
        "--immediate=10",
        "--mpi=none",
        "--kill-on-bad-exit=0",
        "--wait=20",
        "--input=none",
        "--quiet",
    };

    words[w++] = strdup ("srun");
    for (size_t i = 0; i < sizeof (fixed) / sizeof (fixed[0]); i++)
        words[w++] = strdup (fixed[i]);
    for (size_t i = 0; i < sizeof (given) / sizeof (given[0]); i++)
        if (given[i].value
            && asprintf (&words[w++], "%s%s", given[i].option, given[i].value)
                   < 0)
            words[w - 1] = NULL;
    for (int i = 0; i < 2; i++)
        if (asprintf (&words[w++], "--%s=%zu", i ? "ntasks" : "nodes", n) < 0)
            words[w - 1] = NULL;
    words[w++] = strdup ("/bin/sh");
    words[w++] = strdup ("-c");
    words[w++] = strdup (script);
    words[w++] = strdup (TAG);
    words[w++] = strdup (step->rv_exec);
    words[w++] = strdup (step->dir);
    words[w] = NULL;
    for (size_t i = 0; i < w; i++)
        good = good && words[i];
    return good;
}

/* Nodes of [part] that can be asked and were not, by commas. */
static size_t open_nodes (const struct doctor_site *site,
                          const struct doctor_partition *part, bool *asked,
                          char **ret_list)
{
    size_t size, n = 0;
    FILE *f = open_memstream (ret_list, &size);

    for (size_t i = 0; f && i < part->n; i++) {
        const struct doctor_node *node = &site->node[part->node[i]];

        if (!node->picked || !node->idle || asked[part->node[i]])
            continue;
        asked[part->node[i]] = true;
        fprintf (f, "%s%s", n++ ? "," : "", node->name);
    }
    if (f && fclose (f) == 0)
        return n;
    *ret_list = NULL;
    return 0;
}

static void ask_partition (struct doctor_site *site, struct step *step,
                           const struct doctor_partition *part, bool *asked)
{
    char *list = NULL, *words[WORDS_MAX] = {NULL};
    size_t n = open_nodes (site, part, asked, &list);

    if (n > 0 && step_words (step, part->name, list, n, words))
        run_srun (site, step, words);
    for (size_t i = 0; i < WORDS_MAX; i++)
        free (words[i]);
    free (list);
    for (size_t i = 0; n > 0 && i < part->n; i++) {
        struct doctor_node *node = &site->node[part->node[i]];

        if (asked[part->node[i]] && !node->answered && !node->text[0])
            snprintf (node->text, sizeof (node->text),
                      "it gave no answer in partition %.60s%s%.250s",
                      part->name, step->why[0] ? ": " : "", step->why);
    }
}

/* A folder of this run in the state folder, with a token that nodes see only
 * if the folder is shared. */
static int begin (struct step *step, struct rv_error *err)
{
    char *token = NULL;
    int status = where_program ("rv-exec", &step->rv_exec, err);

    if (status != RV_OK)
        return status;
    step->dir = fsio_join (step->settings->state_dir, "doctor-XXXXXX");
    if (!step->dir)
        return error_set (err, RV_ENOMEM, "out of memory");
    if (!mkdtemp (step->dir)) {
        status = error_set (err, RV_EIO, "%s: %s", step->settings->state_dir,
                            strerror (errno));
        free (step->dir);
        step->dir = NULL;
        return status;
    }
    snprintf (step->name, sizeof (step->name), "rv-%s",
              strrchr (step->dir, '/') + 1);
    token = fsio_join (step->dir, "token");
    status = token ? fsio_write (token, "", 0, 0600, err)
                   : error_set (err, RV_ENOMEM, "out of memory");
    free (token);
    return status;
}

static void end (struct step *step)
{
    if (step->dir)
        fsio_remove_tree (step->dir, NULL);
    free (step->dir);
    free (step->rv_exec);
}

static void sum_up (const struct doctor_site *site, struct doctor_check *check)
{
    size_t n[4] = {0}, picked = 0;

    for (size_t i = 0; i < site->n_nodes; i++)
        if (site->node[i].picked) {
            n[site->node[i].state]++;
            picked++;
        }
    if (n[DOCTOR_FAIL])
        doctor_set (check, DOCTOR_FAIL,
                    "see each node's line: rv, its plugin and the GPUs must be "
                    "there as here and in slurm.conf",
                    "%zu of %zu nodes lack something", n[DOCTOR_FAIL], picked);
    else if (n[DOCTOR_UNKNOWN])
        doctor_set (check, DOCTOR_WARN, "try again when they are idle",
                    "%zu of %zu nodes could not be asked", n[DOCTOR_UNKNOWN],
                    picked);
    else if (n[DOCTOR_WARN])
        doctor_set (check, DOCTOR_WARN, "see each node's line",
                    "%zu of %zu nodes have more than Slurm knows",
                    n[DOCTOR_WARN], picked);
    else
        doctor_set (check, DOCTOR_OK, NULL, "all %zu nodes are as this one",
                    picked);
}

int doctor_nodes (struct doctor_site *site, const struct settings *settings,
                  bool plugin_here, struct doctor_check *check,
                  struct rv_error *err)
{
    struct step step = {.settings = settings};
    bool *asked = calloc (site->n_nodes + 1, sizeof (*asked));
    long long stop = proc_now_ms () + ALL_MS;
    int status = asked ? begin (&step, err)
                       : error_set (err, RV_ENOMEM, "out of memory");

    check->name = "nodes";
    for (size_t i = 0;
         status == RV_OK && i < site->n_parts && proc_now_ms () < stop; i++)
        ask_partition (site, &step, &site->part[i], asked);
    end (&step);
    free (asked);
    if (status != RV_OK)
        return status;
    for (size_t i = 0; i < site->n_nodes; i++)
        doctor_judge (&site->node[i], plugin_here);
    doctor_compare (site);
    sum_up (site, check);
    return RV_OK;
}
