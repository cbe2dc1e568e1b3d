/* SPDX-License-Identifier: Apache-2.0
 * ctx_stepd.c - slurmstepd: the environment of each task
 *
 * stepd_init and stepd_option run as root and only keep words; they cannot
 * fail the step, so a bad plugstack word is logged and the plugin then does
 * nothing. stepd_user_init asks NVML, in a child that is the user, for steps
 * that need the names of devices. stepd_task_init runs as the user in the task's own process, reads
 * no file and loads no library. Nothing is set with spank_setenv elsewhere:
 * that would reach the batch script and every step it starts. */
#include "config.h"

#include <slurm/slurm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "affinity.h"
#include "args.h"
#include "ctx.h"
#include "plan/differ.h"
#include "plan/duration.h"
#include "plan/hostlist.h"
#include "plan/rank_env.h"
#include "stepd_gpus.h"
#include "wish.h"

static struct plugin_args args;
static uint32_t node_cpus; /* before Slurm bound anything */
static bool disabled;      /* by a bad plugstack word */
static bool asked;         /* some --rv option came with the step */
static bool off;           /* --rv-env=off */
static struct stepd_gpus_wish gpus;
static char timeout_text[64]; /* "" = not asked */
static char differ_text[DIFFER_MAX];

int stepd_init (spank_t sp, int argc, char **argv)
{
    struct rv_error err = {0};

    node_cpus = affinity_count ();
    options_register (sp);
    if (args_parse (argc, argv, &args, &err)) {
        slurm_error ("rv: cannot read plugstack.conf: %s", err.text);
        disabled = true;
    }
    return 0;
}

/* Called once or twice with the same value, as the release has it. */
int stepd_option (enum option option, const char *value)
{
    asked = true;
    gpus.slices |= option == OPTION_MIG;
    gpus.isolate |= option == OPTION_ISOLATE;
    gpus.whole |= option == OPTION_GPU;
    if (option == OPTION_ENV)
        off = value && strcmp (value, "off") == 0;
    if (option == OPTION_DIFFER)
        snprintf (differ_text, sizeof (differ_text), "%s",
                  value && value[0] ? value : "?");
    if (option == OPTION_NCCL_TIMEOUT)
        snprintf (timeout_text, sizeof (timeout_text), "%s",
                  value && value[0] ? value : "?");
    return 0;
}

__attribute__ ((format (printf, 1, 2), noreturn)) static void refuse (
    const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start (ap, fmt);
    error_vformat (text, sizeof (text), fmt, ap);
    va_end (ap);
    fprintf (stderr, "rv: %s\n", text);
    fflush (stderr);
    _exit (1);
}

struct task {
    spank_t sp;
    char value[65536]; /* of the variable asked for last; node lists are long */
};

static const char *task_get (void *arg, const char *name)
{
    struct task *t = arg;
    spank_err_t rc = spank_getenv (t->sp, name, t->value, sizeof (t->value));

    /* A value that did not fit is cut, and still a value. */
    return rc == ESPANK_SUCCESS || rc == ESPANK_NOSPACE ? t->value : NULL;
}

static int task_set (void *arg, const char *name, const char *value)
{
    struct task *t = arg;
    spank_err_t rc = value ? spank_setenv (t->sp, name, value, 1)
                           : spank_unsetenv (t->sp, name);

    return rc == ESPANK_SUCCESS ? 0 : (int)rc;
}

/* slurmstepd takes these out of the step's environment before any task, but
 * for releases from 23.11 on. */
static void drop_option_words (spank_t sp)
{
    char name[80];

    for (size_t i = 0; i < options_count (); i++) {
        options_word (i, name, sizeof (name));
        spank_unsetenv (sp, name);
    }
}

/* drop_given - what srun wrote of options that the plugin gave it. */
static void drop_given (struct task *t)
{
    static const char *const names[] = {
        "SLURM_GPUS",
        "SLURM_CPUS_PER_GPU",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_KILL_BAD_EXIT",
    };
    const char *given = task_get (t, GIVEN_VARIABLE), *at;

    if (!given)
        return;
    for (size_t i = 0; i < sizeof (names) / sizeof (names[0]); i++)
        if ((at = strstr (given, names[i])) && at[strlen (names[i])] == ',')
            spank_unsetenv (t->sp, names[i]);
    spank_unsetenv (t->sp, GIVEN_VARIABLE);
}

/* The batch script, the interactive shell and the extern step are no ranks:
 * what stands in their environment would reach every step they start. */
static bool is_ours (struct task *t)
{
    const char *gpus;
    uint32_t step;

    if (disabled || off
        || spank_get_item (t->sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS
        || step > SLURM_MAX_NORMAL_STEP_ID)
        return false;
    /* RV_STEP here is that of the rank that started this step: its variables
     * would be wrong for every task of this one. */
    if (asked || task_get (t, "RV_REQUEST_DIR") || task_get (t, "RV_STEP"))
        return true;
    gpus = task_get (t, "SLURM_STEP_GPUS");
    return args.env == ARGS_ENV_GPU && gpus && gpus[0];
}

/* hand_on_off - a job's options stand in the task's environment, for the steps
 * that it starts; with a step's --rv-env=off beside them those are off too, and
 * rv-exec does not miss the plugin. */
static void hand_on_off (struct task *t)
{
    static const char prefix[] = WISH_OPTION_ENV;
    char **env = NULL;

    if (spank_get_item (t->sp, S_JOB_ENV, &env) != ESPANK_SUCCESS)
        return;
    for (; env && *env; env++)
        if (strncmp (*env, prefix, sizeof (prefix) - 1) == 0) {
            task_set (t, WISH_OPTION_ENV "rv_env", "off");
            return;
        }
}

static uint32_t item (spank_t sp, spank_item_t which, const char *what)
{
    uint32_t value;
    spank_err_t rc = spank_get_item (sp, which, &value);

    if (rc != ESPANK_SUCCESS)
        refuse ("cannot start the task: Slurm does not tell %s: %s", what,
                spank_strerror (rc));
    return value;
}

static int64_t timeout_s (void)
{
    struct rv_error err = {0};
    int64_t ms;

    if (!timeout_text[0])
        return 0;
    if (duration_parse (timeout_text, &ms, &err))
        refuse ("cannot set --rv-nccl-timeout to '%s': %s", timeout_text,
                err.text);
    return (ms + 999) / 1000;
}

/* The list goes to rv-exec, which compares. */
static void set_differ (struct task *t)
{
    struct rv_error err = {0};

    if (!differ_text[0])
        return;
    if (differ_check (differ_text, &err))
        refuse ("cannot set --rv-differ to '%s': %s", differ_text, err.text);
    if (task_set (t, "RV_DIFFER", differ_text))
        refuse ("cannot set RV_DIFFER: no memory");
}

/* number - a variable that slurmstepd or srun wrote for this step. In a
 * heterogeneous step it counts over all components, where spank_get_item
 * counts in one. */
static bool number (struct task *t, const char *name, uint32_t *ret)
{
    const char *text = task_get (t, name);
    unsigned long n;
    char *end;

    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    n = strtoul (text, &end, 10);
    if (*end || n > UINT32_MAX)
        return false;
    *ret = (uint32_t)n;
    return true;
}

/* place - who this task is. Returns whether its step has other components. */
static bool place (struct task *t, struct rank_env_in *in)
{
    struct rank_env_in whole;

    in->job_id = item (t->sp, S_JOB_ID, "the job");
    in->step_id = item (t->sp, S_JOB_STEPID, "the step");
    in->rank = item (t->sp, S_TASK_GLOBAL_ID, "the rank");
    in->world_size = item (t->sp, S_JOB_TOTAL_TASK_COUNT, "the tasks");
    in->local_rank = item (t->sp, S_TASK_ID, "the local rank");
    in->local_size = item (t->sp, S_JOB_LOCAL_TASK_COUNT, "the local tasks");
    in->node_rank = item (t->sp, S_JOB_NODEID, "the node");
    if (!task_get (t, "SLURM_HET_SIZE"))
        return false;
    /* All components count their steps together, and tasks see one job. */
    number (t, "SLURM_JOB_ID", &in->job_id);
    whole = *in;
    if (!number (t, "SLURM_STEP_NUM_TASKS", &whole.world_size)
        || !number (t, "SLURM_PROCID", &whole.rank)
        || !number (t, "SLURM_NODEID", &whole.node_rank)
        || whole.world_size <= in->world_size || whole.rank >= whole.world_size)
        return false;
    *in = whole;
    return true;
}

static const char *first_host (const char *list, char *buf, size_t size)
{
    struct hostlist hosts = {0};
    const char *ret = NULL;

    if (!list || hostlist_parse (list, &hosts, NULL))
        return NULL;
    if (hosts.n > 0 && strlen (hosts.host[0]) < size)
        ret = memcpy (buf, hosts.host[0], strlen (hosts.host[0]) + 1);
    hostlist_fini (&hosts);
    return ret;
}

/* head_addr - srun looked it up; without its word (--export=NONE) the name of
 * the step's first node. Components are launched at the same time, so srun's
 * word may be missing in some: there the first component's first node, by
 * name, for all. NULL when unknown. */
static const char *head_addr (struct task *t, bool het, char *buf, size_t size)
{
    const char *value;

    if (het) {
        value = task_get (t, "SLURM_JOB_NODELIST_HET_GROUP_0");
        if (!value)
            value = task_get (t, "SLURM_JOB_NODELIST_PACK_GROUP_0");
        return first_host (value, buf, size);
    }
    value = task_get (t, "RV_HEAD_ADDR");
    if (!value || !value[0]) {
        value = task_get (t, "SLURM_DISTRIBUTION");
        if (value && strncmp (value, "arbitrary", 9) == 0)
            return NULL; /* rank 0 may be anywhere */
        return first_host (task_get (t, "SLURM_STEP_NODELIST"), buf, size);
    }
    if (strlen (value) >= size)
        return NULL; /* no host has such a name */
    return memcpy (buf, value, strlen (value) + 1);
}

static uint32_t step_cpus (struct task *t, uint32_t local)
{
    uint32_t per_task = 1;

    spank_get_item (t->sp, S_STEP_CPUS_PER_TASK, &per_task);
    return affinity_shared (affinity_count (), node_cpus, per_task, local);
}

/* What a job of rv or its user says where no option can. */
static void read_wish (struct task *t)
{
    const char *value = task_get (t, "RV_MIG");

    gpus.slices |= value && value[0];
    value = task_get (t, "RV_ISOLATE");
    gpus.isolate |= value && strcmp (value, "on") == 0;
    gpus.whole |= task_get (t, "RV_REQUEST_DIR") != NULL;
}

/* node_name - Slurm's, which on a machine of several nodes is not its own. */
static const char *node_name (struct task *t, char *buf, size_t size)
{
    const char *value = task_get (t, "SLURMD_NODENAME");

    if (!value || !value[0])
        value = getenv ("SLURMD_NODENAME");
    if (value && value[0] && strlen (value) < size)
        return memcpy (buf, value, strlen (value) + 1);
    if (gethostname (buf, size))
        return "this node";
    buf[size - 1] = '\0';
    buf[strcspn (buf, ".")] = '\0';
    return buf;
}

int stepd_user_init (spank_t sp)
{
    static struct task t;
    uint32_t n_tasks = 0;
    char node[256];

    t.sp = sp;
    if (!is_ours (&t))
        return 0;
    read_wish (&t);
    if (!gpus.slices && !gpus.isolate)
        return 0;
    if (spank_get_item (sp, S_JOB_LOCAL_TASK_COUNT, &n_tasks) != ESPANK_SUCCESS)
        n_tasks = 0;
    stepd_gpus_look (args.nvml, node_name (&t, node, sizeof (node)),
                     getenv ("SLURM_CONF"), n_tasks);
    return 0;
}

static char *kept (const char *value)
{
    return value ? strdup (value) : NULL;
}

/* set_device - the task's own GPU, where it is to see one. */
static void set_device (struct task *t, const struct rank_env_in *in)
{
    char node[256], own[DEVLIST_NAME_MAX];
    struct rv_error err = {0};
    char *visible = kept (task_get (t, "CUDA_VISIBLE_DEVICES"));
    char *step = kept (task_get (t, "SLURM_STEP_GPUS"));
    struct devlist_task d = {
        .visible = visible,
        .step = step,
        .rank = in->rank,
        .local_rank = in->local_rank,
        .local_size = in->local_size,
    };

    d.node = node_name (t, node, sizeof (node));
    if (!number (t, "SLURM_GPUS_ON_NODE", &d.on_node))
        d.on_node = 0;
    read_wish (t);
    if (stepd_gpus_take (&gpus, &d, own, &err))
        refuse ("cannot start the task: %s", err.text);
    if (own[0] && task_set (t, "CUDA_VISIBLE_DEVICES", own))
        refuse ("cannot set CUDA_VISIBLE_DEVICES: no memory");
    free (visible);
    free (step);
}

int stepd_task_init (spank_t sp)
{
    static struct task t; /* of this process alone, and large */
    struct rank_env_in in = {0};
    char addr[256];
    bool het;

    t.sp = sp;
    drop_option_words (sp);
    drop_given (&t);
    if (off)
        hand_on_off (&t);
    if (!is_ours (&t))
        return 0;
    het = place (&t, &in);
    in.cpus = step_cpus (&t, in.local_size);
    in.nccl_timeout_s = timeout_s ();
    set_device (&t, &in);
    in.one_device =
        rank_env_visible (task_get (&t, "CUDA_VISIBLE_DEVICES")) == 1;
    in.master_addr = head_addr (&t, het, addr, sizeof (addr));
    if (in.master_addr)
        in.master_port = rank_env_formula_port (in.job_id, in.step_id);
    /* Which components have srun's word is chance, and nobody reads it. */
    if ((het && task_set (&t, "RV_HEAD_ADDR", NULL))
        || rank_env (&in, task_get, task_set, &t)
        || task_set (&t, "RV_PLUGIN", PACKAGE_VERSION))
        refuse ("cannot set the variables of rank %u: no memory", in.rank);
    set_differ (&t);
    return 0;
}
