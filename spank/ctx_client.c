/* SPDX-License-Identifier: Apache-2.0
 * ctx_client.c - srun, sbatch, salloc: options become Slurm's own request
 *
 * Runs as the user, before the job exists. The order of a client:
 *   init       the command line is scanned and variables are set
 *   options    of #SBATCH lines; then of the environment, which the client
 *              reads now; then of the command line
 *   post_opt   the variables are taken out
 * An option whose callback comes after the environment was read, and that the
 * scan missed, would give a job without GPUs: it is refused. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <slurm/slurm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "cluster.h"
#include "ctx.h"
#include "envedit.h"
#include "exec/facts.h"
#include "plan/differ.h"
#include "plan/duration.h"
#include "plan/fsio.h"
#include "plan/request.h"
#include "script.h"
#include "site.h"
#include "wish.h"

#define CMDLINE_MAX (64u << 20)
#define SCRIPT_PEEK (64u << 10)

static struct plugin_args args;
static struct wish wish;
static struct envedit edit;
static struct envedit given; /* what [edit] had until the client read it */
static char **words;         /* of the command line; wish points into them */
static int n_words, stop;
static bool script_read; /* its #SBATCH lines are known */
static bool from_script; /* --rv-gpu came from one that was not */
static char *told;       /* what the callback of --rv-gpu brought last */
static char *told_mig;   /* and that of --rv-mig */
static bool mig_from_script;
static const char *partition_of_site; /* that rv.conf named, in our variable */
static int components;                /* of a heterogeneous job, seen so far */
static bool ours; /* our options or rv's own job: srun's step counts */
static bool off;  /* --rv-env=off */

__attribute__ ((format (printf, 1, 2), noreturn)) static void refuse (
    const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start (ap, fmt);
    error_vformat (text, sizeof (text), fmt, ap);
    va_end (ap);
    fprintf (stderr, "rv: %s\n", text);
    exit (1);
}

static const char *env (const char *name)
{
    return getenv (name);
}

/* is_program - is this [name], or the one that a site's wrapper of that name
 * starts, "sbatch.real" or "sbatch-orig"? */
static bool is_program (const char *name)
{
    size_t len = strlen (name);

    return strncmp (program_invocation_short_name, name, len) == 0
           && !isalnum ((unsigned char)program_invocation_short_name[len]);
}

/* which_client - 0 for others, such as scrontab. */
static int which_client (void)
{
    if (spank_context () == S_CTX_LOCAL)
        return CLI_SRUN;
    if (is_program ("sbatch"))
        return CLI_SBATCH;
    if (is_program ("salloc"))
        return CLI_SALLOC;
    return 0;
}

static void read_command_line (void)
{
    struct rv_error err = {0};
    size_t len = 0;
    char *buf;

    if (fsio_read ("/proc/self/cmdline", CMDLINE_MAX, &buf, &len, &err))
        refuse ("cannot read the command line: %s", err.text);
    n_words = cli_split (buf, len, &words);
    if (n_words < 0)
        refuse ("cannot read the command line: %s", strerror (ENOMEM));
    stop = cli_scan (wish.client, n_words, words, wish_seen, &wish);
}

/* A job asked for inside another is not governed by the outer one's options,
 * which sbatch and salloc would read from the environment, and is no job of rv,
 * whose batch script says so itself. A user may have taken SLURM_JOB_ID away. */
static void drop_outer_options (void)
{
    const char *differ = getenv (WISH_OPTION_ENV "rv_differ");
    const char *theirs = getenv ("RV_DIFFER");
    char name[96] = "SLURM_SPANK_";
    size_t at = strlen (name);

    if (!getenv ("SLURM_JOB_ID") && !getenv ("RV_STEP"))
        return;
    /* Slurm's word for what --rv-gpu got. Nested in a job without GPUs it
     * would fail each step there. */
    if (getenv (WISH_OPTION_ENV "rv_gpu") || getenv (WISH_OPTION_ENV "rv_mig"))
        unsetenv ("SLURM_GPUS");
    /* task_init's; without the option it is the user's */
    if (differ && theirs && strcmp (differ, theirs) == 0)
        unsetenv ("RV_DIFFER");
    for (size_t i = 0; i < options_count (); i++) {
        options_word (i, name + at, sizeof (name) - at);
        unsetenv (name);
    }
    if (getenv ("RV_REQUEST_DIR"))
        unsetenv ("RV_MIG");
    unsetenv ("RV_REQUEST_DIR");
}

static void read_script (void)
{
    char *buf;
    size_t len;

    script_read = wish.wrap;
    if (wish.client != CLI_SBATCH || wish.wrap)
        return;
    buf = malloc (SCRIPT_PEEK);
    if (!buf)
        return;
    len = script_peek (stop < n_words ? words[stop] : NULL, buf, SCRIPT_PEEK);
    script_scan (buf, len, wish_seen_script, &wish);
    wish_take_script (&wish);
    script_read = len > 0;
    free (buf);
}

static void parse_gpu (struct gpu_request *req)
{
    struct rv_error err = {0};

    if (!wish.gpu)
        refuse ("cannot allocate '': --rv-gpu needs a value, such as 4 or "
                "a100:4");
    if (request_parse_gpu (wish.gpu, req, &err))
        refuse ("cannot allocate '%s': %s", wish.gpu, err.text);
}

static const char *or_unset (const char *name, const char *chosen)
{
    return chosen ? chosen : getenv (name);
}

/* ask_site - what rv.conf makes of the type. */
static void ask_site (struct gpu_request *req)
{
    const char *name = wish_partition_name (wish.client);
    const struct site_gpu *gpu;
    struct site_conf conf;
    struct rv_error err = {0};

    if (site_load (args.conf, &conf, &err))
        refuse ("cannot read rv.conf: %s", err.text);
    gpu = req->type[0] ? site_conf_gpu (&conf, req->type) : NULL;
    if (gpu) {
        if (gpu->max_per_job >= 0 && req->count > (uint64_t)gpu->max_per_job)
            refuse ("cannot allocate '%s': the site allows a job %lld GPUs of "
                    "type %s",
                    wish.gpu, (long long)gpu->max_per_job, gpu->type);
        site_gpu_type (gpu, req->type);
        if (gpu->partition && !or_unset (name, wish.partition)
            && envedit_set (&edit, name, gpu->partition))
            partition_of_site = getenv (name);
        name = wish_constraint_name (wish.client);
        if (gpu->constraint && !or_unset (name, wish.constraint))
            envedit_set (&edit, name, gpu->constraint);
    }
    site_conf_fini (&conf);
}

/* ask_cluster - the type as the nodes spell it, and that there are enough. */
static void ask_cluster (const struct gpu_request *req, struct wish_site *site)
{
    struct cluster_offers offers = {0};
    struct rv_error err = {0};
    int rc;

    memcpy (site->type, req->type, sizeof (site->type));
    site->per_node = req->count;
    site->cpus_per_gpu = 1;
    if (wish.elsewhere || cluster_offers_load (&offers))
        return;
    rc = request_check_gpu (req, offers.offer, offers.n, &err);
    if (rc == RV_OK)
        rc = wish_dedicated (req, offers.offer, offers.n, site, &err);
    cluster_offers_fini (&offers);
    if (rc)
        refuse ("cannot allocate '%s': %s", wish.gpu, err.text);
    if (wish.client == CLI_SRUN)
        site->cpus_per_gpu = cluster_cpus_per_gpu (
            wish.partition ? wish.partition : partition_of_site);
}

static void set_vars (const struct gpu_request *req,
                      const struct wish_site *site)
{
    struct wish_var vars[WISH_VARS_MAX];
    size_t n = wish_vars (&wish, req, site, vars);

    for (size_t i = 0; i < n; i++)
        envedit_set (&edit, vars[i].name, vars[i].value);
}

static void allocate (void)
{
    struct gpu_request req;
    struct wish_site site;
    struct rv_error err = {0};

    parse_gpu (&req);
    if (wish.inside)
        return;
    if (wish_check (&wish, &err))
        refuse ("cannot allocate '%s': %s", wish.gpu, err.text);
    ask_site (&req);
    ask_cluster (&req, &site);
    set_vars (&req, &site);
}

/* told_as - what was typed behind --rv-mig, for messages. */
static const char *told_as (const char *value)
{
    return value && value[0] ? value : "--rv-mig";
}

/* check_nccl - where slices are sure to lie on cards of their own, anything
 * goes. */
static void check_nccl (const struct mig_request *req,
                        const struct mig_choice *choice)
{
    char path[4096], version[32], warn[256];
    struct rv_error err = {0};
    bool found;

    if (choice->per_node < 2)
        return;
    found = nccl_find (getenv, LOADER_CACHE, path, sizeof (path), version,
                       sizeof (version));
    if (wish_check_nccl (found ? version : NULL,
                         getenv ("NCCL_MULTI_RANK_GPU_ENABLE"), req->count,
                         warn, &err))
        refuse ("cannot allocate '%s': %s", told_as (wish.mig), err.text);
    if (warn[0])
        fprintf (stderr, "rv: %s\n", warn);
}

/* choose_slices - the type as the nodes spell it, by rv.conf. */
static void choose_slices (const struct mig_request *req,
                           struct mig_choice *choice, char *partition,
                           size_t size)
{
    struct cluster_offers offers = {0};
    struct site_conf conf;
    struct rv_error err = {0};
    struct mig_rule *rules;
    size_t n;
    int rc;

    if (site_load (args.conf, &conf, &err))
        refuse ("cannot read rv.conf: %s", err.text);
    if (wish.elsewhere || cluster_offers_load (&offers))
        refuse ("cannot allocate '%s': %s", told_as (wish.mig),
                wish.elsewhere ? "rv knows the slices of its own cluster "
                                 "alone; use --gres=gpu:PROFILE:N"
                               : "slurmctld does not tell its nodes");
    rules = site_mig_rules (&conf, &n);
    rc = mig_resolve (req, offers.offer, offers.n, rules, n, choice, &err);
    cluster_offers_fini (&offers);
    if (rc)
        refuse ("cannot allocate '%s': %s", told_as (wish.mig), err.text);
    snprintf (partition, size, "%s",
              choice->rule && choice->rule->partition ? choice->rule->partition
                                                      : "");
    free (rules);
    site_conf_fini (&conf);
}

static void allocate_slices (void)
{
    struct gpu_request gpus = {0};
    struct mig_choice choice;
    struct mig_request req;
    struct wish_site site = {.cpus_per_gpu = 1};
    struct rv_error err = {0};
    char partition[256];

    if (mig_parse (wish.mig, &req, &err))
        refuse ("cannot allocate '%s': %s", told_as (wish.mig), err.text);
    if (wish.inside)
        return;
    if (wish_check_mig (&wish, req.count, &err))
        refuse ("cannot allocate '%s': %s", told_as (wish.mig), err.text);
    choose_slices (&req, &choice, partition, sizeof (partition));
    check_nccl (&req, &choice);
    gpus.count = req.count;
    memcpy (gpus.type, choice.type, sizeof (gpus.type));
    memcpy (site.type, choice.type, sizeof (site.type));
    site.per_node = choice.per_node;
    if (partition[0] && !wish.partition)
        envedit_set (&edit, wish_partition_name (wish.client), partition);
    if (wish.client == CLI_SRUN)
        site.cpus_per_gpu = cluster_cpus_per_gpu (
            partition[0] && !wish.partition ? partition : wish.partition);
    set_vars (&gpus, &site);
}

static void check_env (const char *text, bool *ret_on)
{
    struct rv_error err = {0};

    if (wish_parse_env (text, ret_on, &err))
        refuse ("cannot set --rv-env to '%s': %s", text ? text : "", err.text);
}

static void check_timeout (const char *text)
{
    struct rv_error err = {0};
    int64_t ms;

    if (!text || duration_parse (text, &ms, &err))
        refuse ("cannot set --rv-nccl-timeout to '%s': %s", text ? text : "",
                text ? err.text : "no value; write 90s or 30m");
    if (ms < 1000)
        refuse ("cannot set --rv-nccl-timeout to '%s': less than a second; "
                "write 90s or 30m",
                text);
}

static void check_differ (const char *text)
{
    struct rv_error err = {0};

    if (!text || !text[0])
        refuse ("cannot set --rv-differ: no value; write a list such as "
                "driver,NCCL_IB_HCA");
    if (differ_check (text, &err))
        refuse ("cannot set --rv-differ to '%s': %s", text, err.text);
    if (strlen (text) >= DIFFER_MAX)
        refuse ("cannot set --rv-differ: more than %d characters",
                DIFFER_MAX - 1);
}

/* Without PMIx a step outlives a dead rank, and its peers wait for it. */
static void kill_on_bad_exit (void)
{
    bool pmix;

    if (wish.client != CLI_SRUN || !ours || wish.kill)
        return;
    pmix =
        wish.mpi ? strncmp (wish.mpi, "pmix", 4) == 0 : cluster_mpi_is_pmix ();
    if (!pmix)
        envedit_set (&edit, "SLURM_KILL_BAD_EXIT", "1");
}

int client_init (spank_t sp, int argc, char **argv)
{
    struct rv_error err = {0};
    int client = which_client ();
    bool on;

    if (args_parse (argc, argv, &args, &err))
        refuse ("cannot read plugstack.conf: %s", err.text);
    options_register (sp);
    if (!client)
        return 0;
    if (client != CLI_SRUN) {
        drop_outer_options ();
        envedit_drop_rank ();
    }
    wish_init (&wish, (enum cli_client)client, env);
    read_command_line ();
    read_script ();
    /* A step that one of our ranks starts is ours, as its job is. */
    ours = wish.gpu_asked || wish.timeout_asked || wish.differ_asked
           || wish.mig_asked || wish.isolate_asked || getenv ("RV_REQUEST_DIR")
           || getenv ("RV_STEP");
    if (wish.timeout_asked)
        check_timeout (wish.timeout);
    if (wish.differ_asked)
        check_differ (wish.differ);
    if (wish.env_asked) {
        check_env (wish.env, &on);
        ours = on;
        off = !on;
    }
    if (wish.mig_asked)
        allocate_slices ();
    else if (wish.gpu_asked)
        allocate ();
    kill_on_bad_exit ();
    return 0;
}

/* A script from a pipe cannot be looked at: what is not on the command line
 * then is its own. */
static bool may_have_missed (const char *name)
{
    if (wish.client != CLI_SBATCH || script_read)
        return true;
    for (int i = stop; i < n_words; i++)
        if (cli_might_be (words[i], name))
            return true;
    return false;
}

static void gpu_option (const char *value)
{
    free (told);
    told = strdup (value);
    if (!told)
        refuse ("cannot allocate '%s': %s", value, strerror (ENOMEM));
    if (!wish.client)
        refuse ("cannot allocate '%s': --rv-gpu is an option of srun, sbatch "
                "and salloc; use --gpus",
                value);
    if (wish.gpu_asked && !from_script)
        return;
    if (may_have_missed ("rv-gpu"))
        refuse ("cannot allocate '%s': --rv-gpu stands behind a word that "
                "rv does not know; put it before the other options",
                value);
    from_script = true;
    envedit_undo (&edit);
    wish.gpu_asked = true;
    wish.gpu = told;
    allocate ();
}

static void mig_option (const char *value)
{
    free (told_mig);
    told_mig = strdup (value);
    if (!told_mig)
        refuse ("cannot allocate '%s': %s", told_as (value), strerror (ENOMEM));
    if (!wish.client)
        refuse ("cannot allocate '%s': --rv-mig is an option of srun, sbatch "
                "and salloc; use --gres=gpu:PROFILE:N",
                told_as (value));
    if (wish.mig_asked && !mig_from_script)
        return;
    if (may_have_missed ("rv-mig"))
        refuse ("cannot allocate '%s': --rv-mig stands behind a word that "
                "rv does not know; put it before the other options",
                told_as (value));
    mig_from_script = true;
    envedit_undo (&edit);
    wish.mig_asked = true;
    wish.mig = told_mig;
    allocate_slices ();
}

int client_option (enum option option, const char *value)
{
    bool on;

    switch (option) {
    case OPTION_DIFFER:
        check_differ (value);
        break;
    case OPTION_ENV:
        check_env (value, &on);
        break;
    case OPTION_GPU:
        gpu_option (value ? value : "");
        break;
    case OPTION_NCCL_TIMEOUT:
        check_timeout (value);
        break;
    case OPTION_MIG:
        mig_option (value && strcmp (value, "(null)") != 0 ? value : "");
        break;
    case OPTION_ISOLATE:
        break;
    }
    return 0;
}

int client_post_opt (void)
{
    if (edit.n > 0)
        given = edit;
    envedit_undo (&edit);
    if (wish.inside || (!wish.gpu_asked && !wish.mig_asked))
        return 0;
    if (wish.mig_asked) {
        if (components++ > 0)
            refuse ("cannot allocate '%s': --rv-mig does not go with "
                    "heterogeneous jobs; give each component "
                    "--gres=gpu:PROFILE:N",
                    told_as (wish.mig));
        if (!told_mig || strcmp (told_mig, wish.mig ? wish.mig : "") != 0)
            refuse ("cannot allocate '%s': Slurm took the command line as "
                    "'%s'; put --rv-mig before the other options",
                    told_as (wish.mig), told_as (told_mig));
        return 0;
    }
    if (components++ > 0)
        refuse ("cannot allocate '%s': --rv-gpu does not go with "
                "heterogeneous jobs; give each component --gpus",
                wish.gpu);
    if (!told || strcmp (told, wish.gpu) != 0)
        refuse ("cannot allocate '%s': Slurm took the command line as '%s'; "
                "put --rv-gpu before the other options",
                wish.gpu, told ? told : "");
    return 0;
}

/* set_head_addr - where MASTER_ADDR will point; task_init asks nobody. An
 * address of an outer step is stale, one without a step is the user's. */
static void set_head_addr (uint32_t job_id, uint32_t step_id)
{
    char addr[64];

    if (getenv ("RV_HEAD_ADDR") && !getenv ("RV_STEP"))
        return;
    if (cluster_head_addr (job_id, step_id, addr, sizeof (addr)) == 0)
        setenv ("RV_HEAD_ADDR", addr, 1);
    else
        unsetenv ("RV_HEAD_ADDR");
}

/* Later releases of srun write their options into the tasks' environment. A
 * nested srun would take those that nobody typed for the user's, so the tasks
 * are told which to drop; this name passes --export=NONE. */
static void tell_given (void)
{
    char text[ENVEDIT_MAX * 32] = "";
    size_t used = 0;

    for (size_t i = 0; i < given.n; i++)
        used += (size_t)snprintf (text + used, sizeof (text) - used, "%s,",
                                  given.name[i]);
    if (used > 0)
        setenv (GIVEN_VARIABLE, text, 1);
}

int client_user_init (spank_t sp)
{
    uint32_t job_id, step_id;

    tell_given ();
    if (spank_get_item (sp, S_JOB_ID, &job_id) != ESPANK_SUCCESS
        || spank_get_item (sp, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS)
        return 0;
    if (off && getenv ("RV_STEP"))
        unsetenv ("RV_HEAD_ADDR"); /* the outer step's */
    /* An interactive shell would hand it to each step that it starts. */
    if (off || step_id > SLURM_MAX_NORMAL_STEP_ID)
        return 0;
    if (ours || (args.env == ARGS_ENV_GPU && cluster_job_has_gpus (job_id)))
        set_head_addr (job_id, step_id);
    return 0;
}
