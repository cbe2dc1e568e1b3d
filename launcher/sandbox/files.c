/* SPDX-License-Identifier: Apache-2.0
 * files.c - the configuration that a sandbox's daemons read
 *
 * Sources: slurm.conf(5), gres.conf(5), cgroup.conf(5), munged(8). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "sandbox/accounting.h"

/* Of devices for local use, in the kernel's devices.txt. */
#define LOCAL_MAJOR 60

/* Real GPUs of several virtual nodes need a map, see files_task_prolog; not
 * where a job can open its own alone, and CUDA counts those. */
static bool needs_map (const struct sandbox *sb)
{
    return sb->real_gpus && sb->nodes > 1 && !sb->cgroup;
}

static void put_daemons (FILE *f, const struct sandbox *sb, const char *user)
{
    const char *dir = sb->dir;

    fprintf (f,
             "ClusterName=%s\n"
             "SlurmctldHost=localhost(127.0.0.1)\n"
             "SlurmctldPort=%d\n"
             "SlurmUser=%s\n"
             "SlurmdUser=%s\n"
             "AuthType=auth/munge\n"
             "AuthInfo=socket=%s/munge.socket\n"
             /* The default listens on every interface. */
             "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n",
             sb->cluster, sb->port[0], user, user, dir);
    fprintf (f,
             "StateSaveLocation=%s/state\n"
             "SlurmdSpoolDir=%s/%%n/spool\n"
             "TmpFS=%s/%%n/tmp\n"
             "SlurmctldPidFile=%s/slurmctld.pid\n"
             "SlurmdPidFile=%s/%%n/slurmd.pid\n"
             "SlurmctldLogFile=%s/log/slurmctld.log\n"
             "SlurmdLogFile=%s/log/%%n.log\n"
             "PlugStackConfig=%s/plugstack.conf\n"
             "MailProg=/bin/true\n",
             dir, dir, dir, dir, dir, dir, dir, dir);
}

static void put_accounting (FILE *f, const struct sandbox *sb)
{
    if (!sb->accounting) {
        fputs ("AccountingStorageType=accounting_storage/none\n", f);
        return;
    }
    fprintf (f,
             "AccountingStorageType=accounting_storage/slurmdbd\n"
             "AccountingStorageHost=127.0.0.1\n"
             "AccountingStoragePort=%d\n"
             /* AuthInfo does not count here: this is munged's socket. */
             "AccountingStoragePass=%s/munge.socket\n"
             "AccountingStorageEnforce=associations,limits,qos\n",
             accounting_port (sb), sb->dir);
    if (sb->gpus || sb->mig)
        fprintf (f, "AccountingStorageTRES=gres/gpu%s%s\n",
                 sb->type[0] ? ",gres/gpu:" : "", sb->type);
}

static void put_policy (FILE *f, const struct sandbox *sb)
{
    fprintf (f,
             "MpiDefault=%s\n"
             "ProctrackType=proctrack/%s\n"
             "TaskPlugin=task/%s\n"
             "SwitchType=switch/none\n"
             "ReturnToService=2\n"
             "SelectType=select/cons_tres\n"
             "SelectTypeParameters=CR_Core_Memory\n"
             "JobAcctGatherType=jobacct_gather/none\n"
             /* Nodes may claim more than the machine has. */
             "SlurmdParameters=config_overrides\n"
             "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0\n"
             /* Two cores may carry dozens of daemons and ranks. */
             "MessageTimeout=30\n"
             "TCPTimeout=10\n",
             sb->pmix ? "pmix" : "none", sb->cgroup ? "cgroup" : "linuxproc",
             sb->cgroup ? "cgroup" : "none");
    if (sb->gpus || sb->mig)
        fputs ("GresTypes=gpu\n", f);
    put_accounting (f, sb);
    if (needs_map (sb))
        fprintf (f, "TaskProlog=%s/task-prolog\n", sb->dir);
}

/* " Gres=gpu:a100:2,gpu:1g.10gb:1" of one node. */
static void put_gres (FILE *f, const struct sandbox *sb, int k)
{
    int gpus = sandbox_share (sb, k), slices = sandbox_slices (sb, k);

    if (gpus)
        fprintf (f, " Gres=gpu:%s:%d", sb->type, gpus);
    if (slices)
        fprintf (f, "%sgpu:" SANDBOX_MIG ":%d", gpus ? "," : " Gres=", slices);
}

char *files_slurm_conf (const struct sandbox *sb, const struct files_site *site)
{
    long mem = site->mem_mb / sb->nodes;
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream (&text, &size);

    if (!f)
        return NULL;
    if (mem < sb->cpus)
        mem = sb->cpus;
    fputs ("# Written by rv sandbox; every `up` writes it anew.\n", f);
    put_daemons (f, sb, site->user);
    put_policy (f, sb);
    fprintf (f, "FirstJobId=%u\n", site->first_job_id);
    /* A job that names no memory must not take the whole node. */
    fprintf (f, "DefMemPerCPU=%ld\n", mem / sb->cpus);
    for (int k = 1; k <= sb->nodes; k++) {
        fprintf (f,
                 "NodeName=n%d NodeHostname=localhost NodeAddr=127.0.0.1 "
                 "Port=%d CPUs=%d Boards=1 SocketsPerBoard=1 "
                 "CoresPerSocket=%d ThreadsPerCore=1 RealMemory=%ld",
                 k, sb->port[k], sb->cpus, sb->cpus, mem);
        put_gres (f, sb, k);
        fputs (" State=UNKNOWN\n", f);
    }
    fprintf (f,
             "PartitionName=gpu Nodes=n[1-%d] Default=YES MaxTime=INFINITE "
             "State=UP\n",
             sb->nodes);
    return fclose (f) ? NULL : text;
}

/* A slice has three devices: its card, its GPU instance and its compute
 * instance, numbered as NVIDIA's driver does (mig-minors: 135 for a card, 9 for
 * each of its GPU instances, of which seven small ones are 7 to 13). */
#define CARD_CAPS     135
#define INSTANCE_CAPS 9
#define FIRST_CAP     3
#define FIRST_1G      7

struct slice {
    int card, gi_cap, ci_cap;
};

static struct slice slice_of (const struct sandbox *sb, int k, int i)
{
    int card = sandbox_card (sb, k) + i / SANDBOX_MIG_CARD;
    int gi = FIRST_1G + i % SANDBOX_MIG_CARD;
    int cap = FIRST_CAP + CARD_CAPS * card + INSTANCE_CAPS * gi;

    return (struct slice){card, cap, cap + 1};
}

static void put_slices (FILE *f, const struct sandbox *sb, int k)
{
    for (int i = 0; i < sandbox_slices (sb, k); i++) {
        struct slice s = slice_of (sb, k, i);
        char dev[SANDBOX_MAX_DIR + 32];

        snprintf (dev, sizeof (dev), "%s/n%d/dev", sb->dir, k);
        fprintf (f,
                 "NodeName=n%d Name=gpu Type=" SANDBOX_MIG
                 " MultipleFiles=%s/nvidia%d,%s/nvidia-caps/nvidia-cap%d,"
                 "%s/nvidia-caps/nvidia-cap%d\n",
                 k, dev, s.card, dev, s.gi_cap, dev, s.ci_cap);
    }
}

char *files_gres_conf (const struct sandbox *sb)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream (&text, &size);

    if (!f)
        return NULL;
    for (int k = 1; k <= sb->nodes; k++) {
        int n = sandbox_share (sb, k), first = sandbox_first (sb, k);

        if (n)
            fprintf (f, "NodeName=n%d Name=gpu Type=%s File=", k, sb->type);
        if (n && sb->real_gpus)
            fprintf (f, "/dev/nvidia[%d-%d]\n", first, first + n - 1);
        else if (n)
            fprintf (f, "%s/n%d/dev/gpu[0-%d]\n", sb->dir, k, n - 1);
        put_slices (f, sb, k);
    }
    return fclose (f) ? NULL : text;
}

/* The limits of a sandbox with --cgroup. Swap would let a job grow past its
 * memory without being told. */
static char *confining_conf (const struct sandbox *sb, bool swap)
{
    char *text;

    if (asprintf (&text,
                  "CgroupPlugin=cgroup/v1\n"
                  "CgroupMountpoint=%s/cgroup\n"
                  "ConstrainDevices=yes\n"
                  "ConstrainRAMSpace=yes\n"
                  "%s",
                  sb->dir,
                  swap ? "ConstrainSwapSpace=yes\nAllowedSwapSpace=0\n" : "")
        < 0)
        return NULL;
    return text;
}

char *files_cgroup_conf (const struct sandbox *sb,
                         const struct files_site *site)
{
    if (sb->cgroup)
        return confining_conf (sb, site->swap);
    /* No plugin of ours uses cgroups, but slurmd loads one that looks at the
     * machine first and stops on what it does not like: systemd missing,
     * version 1 and 2 mixed, no right to make a scope. Version 1's does
     * nothing until it is used; newer releases can go without. */
    return strdup (site->slurm_release >= 2311 ? "CgroupPlugin=disabled\n"
                                               : "CgroupPlugin=cgroup/v1\n");
}

char *files_task_prolog (const struct sandbox *sb)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream (&text, &size);

    if (!f)
        return NULL;
    /* Slurm counts a node's devices from 0, in the order of gres.conf; CUDA
     * counts the machine's. A value that is no local index was mapped before
     * (a step without GPUs of its own inherits it) or is a UUID. */
    fputs ("#!/bin/sh\n"
           "# Written by rv sandbox: node's GPU index to the machine's.\n"
           "case $SLURMD_NODENAME in\n",
           f);
    for (int k = 1; k <= sb->nodes; k++)
        fprintf (f, "n%d) first=%d n=%d ;;\n", k, sandbox_first (sb, k),
                 sandbox_share (sb, k));
    fputs ("*) exit 0 ;;\n"
           "esac\n"
           "[ -n \"$CUDA_VISIBLE_DEVICES\" ] || exit 0\n"
           "out=\n"
           "IFS=,\n"
           "for i in $CUDA_VISIBLE_DEVICES; do\n"
           "    case $i in *[!0-9]*|'') exit 0 ;; esac\n"
           "    [ \"$i\" -lt \"$n\" ] || exit 0\n"
           "    out=$out${out:+,}$((first + i))\n"
           "done\n"
           "echo \"export CUDA_VISIBLE_DEVICES=$out\"\n",
           f);
    return fclose (f) ? NULL : text;
}

static int make_folder (const struct sandbox *sb, const char *name,
                        struct rv_error *err)
{
    char *path = fsio_join (sb->dir, name);
    int rc = RV_OK;

    if (!path)
        return error_set (err, RV_ENOMEM, "out of memory");
    /* Slurm wants others to be able to enter its spool; the sandbox folder
     * itself keeps them out. */
    if (mkdir (path, 0755) || chmod (path, 0755))
        rc = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    free (path);
    return rc;
}

/* Takes [text]. Nothing here must outlive a crash of the machine, so no fsync:
 * the folder is made anew by the next `up`. */
static int put_file_take (const struct sandbox *sb, const char *name,
                          char *text, size_t len, mode_t mode,
                          struct rv_error *err)
{
    char *path = fsio_join (sb->dir, name);
    FILE *f = NULL;
    int rc = RV_OK;

    if (!path || !text)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    else if (!(f = fopen (path, "wxe")) || fchmod (fileno (f), mode)
             || fwrite (text, 1, len, f) != len)
        rc = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    if (f && fclose (f) && !rc)
        rc = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    free (path);
    free (text);
    return rc;
}

static int put_text_take (const struct sandbox *sb, const char *name,
                          char *text, mode_t mode, struct rv_error *err)
{
    return put_file_take (sb, name, text, text ? strlen (text) : 0, mode, err);
}

/* A link to /dev/null is a character device to Slurm, needs no right to make
 * device nodes, and is not left behind as one. Where jobs are confined it must
 * be a device that nothing else is: one of the numbers for local use, without a
 * driver (open(2) gives ENXIO to who may open it and EPERM to who may not). */
static bool make_gpu (const struct sandbox *sb, int index, const char *name)
{
    if (!sb->cgroup)
        return !symlink ("/dev/null", name);
    return !mknod (name, S_IFCHR | 0666, makedev (LOCAL_MAJOR, (unsigned)index))
           && !chmod (name, 0666);
}

static int make_slice_file (const struct sandbox *sb, int k, int minor,
                            const char *name, struct rv_error *err)
{
    char path[SANDBOX_MAX_DIR + 96];

    snprintf (path, sizeof (path), "%s/n%d/dev/%s", sb->dir, k, name);
    if (!make_gpu (sb, minor, path) && errno != EEXIST)
        return error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    return RV_OK;
}

/* Minors behind those of all whole GPUs: cards first, then what is on them. */
static int make_slices (const struct sandbox *sb, int k, struct rv_error *err)
{
    int rc = RV_OK;

    for (int i = 0; !rc && i < sandbox_slices (sb, k); i++) {
        struct slice s = slice_of (sb, k, i);
        int caps = sb->gpus + SANDBOX_MAX_GPUS;
        char name[48];

        snprintf (name, sizeof (name), "nvidia%d", s.card);
        rc = make_slice_file (sb, k, sb->gpus + s.card, name, err);
        snprintf (name, sizeof (name), "nvidia-caps/nvidia-cap%d", s.gi_cap);
        rc = rc ? rc : make_slice_file (sb, k, caps + s.gi_cap, name, err);
        snprintf (name, sizeof (name), "nvidia-caps/nvidia-cap%d", s.ci_cap);
        rc = rc ? rc : make_slice_file (sb, k, caps + s.ci_cap, name, err);
    }
    return rc;
}

static int make_gpus (const struct sandbox *sb, int k, struct rv_error *err)
{
    for (int i = 0; i < sandbox_share (sb, k); i++) {
        char name[SANDBOX_MAX_DIR + 32];

        snprintf (name, sizeof (name), "%s/n%d/dev/gpu%d", sb->dir, k, i);
        if (!make_gpu (sb, sandbox_first (sb, k) + i, name))
            return error_set (err, RV_EIO, "%s: %s", name, strerror (errno));
    }
    return RV_OK;
}

static int make_node (const struct sandbox *sb, int k, struct rv_error *err)
{
    static const char *const sub[] = {"", "/spool", "/tmp", "/dev",
                                      "/dev/nvidia-caps"};
    int rc = RV_OK;

    for (size_t i = 0; !rc && i < sizeof (sub) / sizeof (sub[0]); i++) {
        char name[48];

        snprintf (name, sizeof (name), "n%d%s", k, sub[i]);
        rc = make_folder (sb, name, err);
    }
    if (!rc && !sb->real_gpus)
        rc = make_gpus (sb, k, err);
    return rc ? rc : make_slices (sb, k, err);
}

static int put_key (const struct sandbox *sb, struct rv_error *err)
{
    char *key = malloc (64);

    if (key && getrandom (key, 64, 0) != 64) {
        free (key);
        return error_set (err, RV_EIO, "getrandom: %s", strerror (errno));
    }
    return put_file_take (sb, "munge.key", key, 64, 0400, err);
}

static int put_plugstack (const struct sandbox *sb, struct rv_error *err)
{
    char *text = NULL;

    if (asprintf (&text, "%s%s\n", sb->plugin ? "required " : "# no plugin",
                  sb->plugin ? sb->plugin : "")
        < 0)
        text = NULL;
    return put_text_take (sb, "plugstack.conf", text, 0644, err);
}

/* slurmdbd wants its file to be nobody else's. */
static int put_database (const struct sandbox *sb, const char *user,
                         struct rv_error *err)
{
    char *tables = NULL;
    int rc = make_folder (sb, "db", err);

    if (!rc)
        rc = accounting_tables (&tables, err);
    if (!rc)
        rc = put_text_take (sb, "mariadb.sql", tables, 0600, err);
    if (!rc)
        rc = put_text_take (sb, "slurmdbd.conf", accounting_conf (sb, user),
                            0600, err);
    return rc;
}

int files_write (const struct sandbox *sb, const struct files_site *site,
                 struct rv_error *err)
{
    int rc = make_folder (sb, "log", err);

    if (!rc)
        rc = make_folder (sb, "state", err);
    for (int k = 1; !rc && k <= sb->nodes; k++)
        rc = make_node (sb, k, err);
    if (!rc)
        rc = put_key (sb, err);
    if (!rc)
        rc = put_text_take (sb, "slurm.conf", files_slurm_conf (sb, site), 0644,
                            err);
    if (!rc)
        rc = put_text_take (sb, "gres.conf", files_gres_conf (sb), 0644, err);
    if (!rc)
        rc = put_text_take (sb, "cgroup.conf", files_cgroup_conf (sb, site),
                            0644, err);
    if (!rc && needs_map (sb))
        rc = put_text_take (sb, "task-prolog", files_task_prolog (sb), 0755,
                            err);
    if (!rc && sb->accounting)
        rc = put_database (sb, site->user, err);
    return rc ? rc : put_plugstack (sb, err);
}
