/* SPDX-License-Identifier: Apache-2.0
 * up.c - start a sandbox: shape, files, daemons, wait until nodes are idle
 *
 * Every daemon is forked first and waits at a gate; sandbox.json then records
 * all of them in one write, and only after that they are let through to their
 * exec, one after the other as they need each other. So no daemon ever runs
 * that is not on record: a child whose parent is killed finds its gate closed
 * and ends. The children hold the folder's lock until their exec, so the next
 * `up` or `down` does not look before that. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"
#include "sandbox/accounting.h"
#include "sandbox/cgroup.h"
#include "sandbox/files.h"
#include "sandbox/folder.h"
#include "sandbox/ident.h"
#include "sandbox/ports.h"
#include "sandbox/site.h"
#include "sandbox/updown.h"
#include "where.h"

extern char **environ;

#define UP_MS 60000

static volatile sig_atomic_t interrupted;

static void on_signal (int sig)
{
    interrupted = sig;
}

struct launch {
    struct sandbox *sb;
    int gate[SANDBOX_MAX_DAEMONS]; /* write ends, -1 once opened */
    int port_fd[SANDBOX_MAX_PORTS];
    int n_ports;
    char **env;
    const char *user;
    long long end; /* of the patience, monotonic ms */
};

/* ---- shape ---- */

static int choose_type (struct sandbox *sb, const struct site *site,
                        const struct sandbox_wish *wish, struct rv_error *err)
{
    const char *type = wish->type          ? wish->type
                       : !sb->real_gpus    ? "a100"
                       : site->gpu_type[0] ? site->gpu_type
                                           : NULL;

    if (!type)
        return error_set (err, RV_EINVAL,
                          "the GPUs of this machine are of several or unknown "
                          "types; name one with --type");
    snprintf (sb->type, sizeof (sb->type), "%s", type);
    return RV_OK;
}

static int choose_shape (struct sandbox *sb, const struct site *site,
                         const struct sandbox_wish *wish, struct rv_error *err)
{
    int share;

    sb->real_gpus =
        site->real_gpus > 0 && !wish->made_up && !wish->mig && wish->gpus != 0;
    sb->gpus = wish->gpus >= 0 ? wish->gpus
               : sb->real_gpus ? site->real_gpus
                               : 4;
    sb->nodes = wish->nodes ? wish->nodes : 2;
    /* One real GPU is one node unless asked otherwise. */
    if (!wish->nodes && sb->real_gpus && sb->gpus < sb->nodes)
        sb->nodes = sb->gpus;
    if (sb->real_gpus && sb->gpus > site->real_gpus)
        return error_set (err, RV_EINVAL,
                          "this machine has %d GPUs, not %d; --made-up serves "
                          "any number of made-up ones",
                          site->real_gpus, sb->gpus);
    sb->mig = wish->mig;
    share = sandbox_share (sb, 1) + sandbox_slices (sb, 1);
    sb->cpus = wish->cpus ? wish->cpus : site->cpus / sb->nodes;
    if (!wish->cpus && sb->cpus < share)
        sb->cpus = share; /* one task a GPU must fit */
    if (sb->cpus < 1)
        sb->cpus = 1;
    sb->pmix = site->pmix;
    sb->cgroup = wish->cgroup;
    sb->accounting = wish->accounting;
    return sb->gpus ? choose_type (sb, site, wish, err) : RV_OK;
}

static int name_cluster (struct sandbox *sb, struct rv_error *err)
{
    unsigned id;

    if (getrandom (&id, sizeof (id), 0) != sizeof (id))
        return error_set (err, RV_EIO, "getrandom: %s", strerror (errno));
    snprintf (sb->cluster, sizeof (sb->cluster), "rv%08x", id);
    ident_boot_id (sb->boot_id);
    return RV_OK;
}

static int list_daemons (struct sandbox *sb, const struct site *site,
                         struct rv_error *err)
{
    char key[96], sock[96], pid[96], seed[96];
    const char *munged[] = {site->munged, "-F", "--force", "--num-threads=2",
                            key,          sock, pid,       seed,
                            NULL};
    const char *ctld[] = {site->slurmctld, "-D", "-i", NULL};
    int rc;

    snprintf (key, sizeof (key), "--key-file=%s/munge.key", sb->dir);
    snprintf (sock, sizeof (sock), "--socket=%s/munge.socket", sb->dir);
    snprintf (pid, sizeof (pid), "--pid-file=%s/munged.pid", sb->dir);
    snprintf (seed, sizeof (seed), "--seed-file=%s/munge.seed", sb->dir);
    rc = sandbox_add (sb, "munged", munged, err);
    if (!rc)
        rc = sandbox_add (sb, "slurmctld", ctld, err);
    for (int k = 1; !rc && k <= sb->nodes; k++) {
        char name[16];
        const char *node[] = {site->slurmd, "-D", "-N", name, NULL};

        snprintf (name, sizeof (name), "n%d", k);
        rc = sandbox_add (sb, name, node, err);
    }
    if (!rc && sb->accounting)
        rc = accounting_add (sb, site->user, err);
    return rc;
}

/* ---- children ---- */

/* Ours without what another Slurm, or a step around us, has set. */
static char **make_env (const struct sandbox *sb)
{
    static const char *const drop[] = {"SLURM", "PMI", "RV_", "SBATCH_",
                                       "SRUN_"};
    size_t n = 0, kept = 0;
    char **env;

    while (environ[n])
        n++;
    if (!(env = calloc (n + 3, sizeof (*env))))
        return NULL;
    for (size_t i = 0; i < n; i++) {
        bool keep = true;

        for (size_t j = 0; j < sizeof (drop) / sizeof (drop[0]); j++)
            keep = keep && strncmp (environ[i], drop[j], strlen (drop[j]));
        if (keep)
            env[kept++] = environ[i];
    }
    /* Only slurmdbd looks at the second. */
    if (asprintf (&env[kept], "SLURM_CONF=%s/slurm.conf", sb->dir) < 0
        || asprintf (&env[kept + 1],
                     ACCOUNTING_SOCKET_ENV "=%s/" ACCOUNTING_SOCKET, sb->dir)
               < 0) {
        free (env);
        return NULL;
    }
    return env;
}

static void free_env (char **env)
{
    char **last = env;

    if (!env)
        return;
    while (last[2])
        last++;
    free (last[0]); /* the only two that are ours */
    free (last[1]);
    free (env);
}

/* In the child: wait at the gate, then become the daemon. Never returns. */
static void child (const struct launch *l, int i, int gate)
{
    const struct sandbox_daemon *d = &l->sb->daemon[i];
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    int null = open ("/dev/null", O_RDWR | O_CLOEXEC), log;
    char path[SANDBOX_MAX_DIR + 32], go;
    sigset_t none;
    ssize_t n;

    snprintf (path, sizeof (path), "%s/log/%s.out", l->sb->dir, d->name);
    log = open (path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    for (int j = 0; j <= i; j++)
        if (l->gate[j] >= 0)
            close (l->gate[j]); /* else no gate closes when the parent dies */
    setsid ();
    sigaction (SIGINT, &by_default, NULL);
    sigaction (SIGTERM, &by_default, NULL);
    sigaction (SIGHUP, &by_default, NULL);
    sigemptyset (&none);
    sigprocmask (SIG_SETMASK, &none, NULL);
    umask (022);
    do
        n = read (gate, &go, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1 || null < 0 || log < 0 || chdir ("/") || dup2 (null, 0) < 0
        || dup2 (log, 1) < 0 || dup2 (log, 2) < 0)
        _exit (126);
    execve (d->argv[0], d->argv, l->env);
    dprintf (2, "%s: %s\n", d->argv[0], strerror (errno));
    _exit (127);
}

static int fork_one (struct launch *l, int i, struct rv_error *err)
{
    struct sandbox_daemon *d = &l->sb->daemon[i];
    int gate[2];

    if (pipe2 (gate, O_CLOEXEC))
        return error_set (err, RV_EIO, "pipe: %s", strerror (errno));
    l->gate[i] = gate[1];
    d->pid = fork ();
    if (!d->pid)
        child (l, i, gate[0]);
    close (gate[0]);
    if (d->pid < 0) {
        d->pid = 0;
        return error_set (err, RV_EIO, "fork: %s", strerror (errno));
    }
    if (!ident_start (d->pid, &d->start))
        return error_set (err, RV_EIO, "%s: ended at once", d->name);
    return RV_OK;
}

static void open_gate (struct launch *l, int i)
{
    if (write (l->gate[i], "g", 1) == 1) {
        close (l->gate[i]);
        l->gate[i] = -1;
    } /* else it is dead, and the next look finds that */
}

/* ---- waiting ---- */

/* The last lines of a daemon's log that tell why: the very last one often
 * says no more than that it failed. */
static void last_words (const struct sandbox *sb, const char *name, char *buf,
                        size_t size)
{
    char path[SANDBOX_MAX_DIR + 32], *text, *save = NULL;
    const char *last[3] = {NULL, NULL, NULL};
    size_t used = 0;

    snprintf (buf, size, "see its log");
    snprintf (path, sizeof (path), "%s/log/%s.out", sb->dir, name);
    if (fsio_read (path, (size_t)16 << 20, &text, NULL, NULL))
        return;
    for (char *line = strtok_r (text, "\n", &save); line;
         line = strtok_r (NULL, "\n", &save)) {
        if (!strstr (line, "fatal") && !strstr (line, "rror"))
            continue;
        last[0] = last[1];
        last[1] = last[2];
        last[2] = line;
    }
    for (int i = 0; i < 3 && used < size; i++)
        if (last[i])
            used += (size_t)snprintf (buf + used, size - used, "%s%s",
                                      used ? " | " : "", last[i]);
    free (text);
}

/* Did a child end, did a signal come, is the time over? */
static int look_around (const struct launch *l, const char *what,
                        struct rv_error *err)
{
    char words[400];

    if (interrupted)
        return error_set (err, RV_EABORTED, "stopped by %s",
                          strsignal (interrupted));
    for (int i = 0; i < l->sb->n_daemons; i++) {
        const struct sandbox_daemon *d = &l->sb->daemon[i];
        int status;

        if (waitpid (d->pid, &status, WNOHANG) != d->pid)
            continue;
        last_words (l->sb, d->name, words, sizeof (words));
        return error_set (err, RV_EIO, "%s ended (%s %d): %s", d->name,
                          WIFSIGNALED (status) ? "signal" : "status",
                          WIFSIGNALED (status) ? WTERMSIG (status)
                                               : WEXITSTATUS (status),
                          words);
    }
    if (proc_now_ms () >= l->end)
        return error_set (err, RV_ETIMEDOUT, "%s within %d s", what,
                          UP_MS / 1000);
    return RV_OK;
}

static bool answers (const struct sandbox *sb, const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok;

    snprintf (addr.sun_path, sizeof (addr.sun_path), "%s/%s", sb->dir, name);
    ok = fd >= 0 && !connect (fd, (struct sockaddr *)&addr, sizeof (addr));
    if (fd >= 0)
        close (fd);
    return ok;
}

static int wait_socket (const struct launch *l, const char *name,
                        const char *what, struct rv_error *err)
{
    int rc;

    while (!answers (l->sb, name)) {
        if ((rc = look_around (l, what, err)))
            return rc;
        poll (NULL, 0, 2);
    }
    return RV_OK;
}

static int wait_ports (const struct launch *l, int from, int to,
                       struct rv_error *err)
{
    int rc;

    for (int i = from; i <= to; i++)
        while (!ports_listening (l->sb->port[i])) {
            if ((rc = look_around (l, "a daemon did not listen", err)))
                return rc;
            poll (NULL, 0, 2);
        }
    return RV_OK;
}

/* How many nodes are idle; one that was drained tells why and is an error. */
static int count_idle (int *ret_idle, struct rv_error *err)
{
    node_info_msg_t *msg = NULL;
    int idle = 0, rc = RV_OK;

    *ret_idle = 0;
    if (slurm_load_node (0, &msg, SHOW_ALL))
        return RV_OK; /* not yet */
    for (uint32_t i = 0; !rc && i < msg->record_count; i++) {
        const node_info_t *node = &msg->node_array[i];
        uint32_t base = node->node_state & NODE_STATE_BASE;

        if (node->node_state & NODE_STATE_DRAIN)
            rc = error_set (err, RV_EIO, "node %s was drained: %s",
                            node->name ? node->name : "?",
                            node->reason ? node->reason : "no reason given");
        idle += base == NODE_STATE_IDLE
                && !(node->node_state & NODE_STATE_NO_RESPOND);
    }
    slurm_free_node_info_msg (msg);
    *ret_idle = idle;
    return rc;
}

static int wait_nodes (const struct launch *l, struct rv_error *err)
{
    char conf[SANDBOX_MAX_DIR + 16];
    int idle = 0, rc;

    snprintf (conf, sizeof (conf), "%s/slurm.conf", l->sb->dir);
    if (setenv ("SLURM_CONF", conf, 1))
        return error_set (err, RV_ENOMEM, "out of memory");
    slurm_init (conf);
    while (!(rc = count_idle (&idle, err)) && idle < l->sb->nodes) {
        if ((rc = look_around (l, "the nodes did not register", err)))
            break;
        poll (NULL, 0, 5);
    }
    slurm_fini ();
    return rc;
}

/* ---- the whole ---- */

static int start_accounting (struct launch *l, struct rv_error *err)
{
    int first = accounting_daemon (l->sb), port = l->sb->nodes + 1, rc;

    if ((rc = wait_socket (l, ACCOUNTING_SOCKET, "mariadbd did not answer",
                           err)))
        return rc;
    open_gate (l, first + 1);
    if ((rc = wait_ports (l, port, port, err)))
        return rc;
    return accounting_register (l->sb, l->user, l->env, err);
}

static int start_daemons (struct launch *l, struct rv_error *err)
{
    struct sandbox *sb = l->sb;
    int rc = RV_OK;

    for (int i = 0; !rc && i < sb->n_daemons; i++)
        rc = fork_one (l, i, err);
    if (!rc)
        rc = sandbox_save (sb, err);
    if (rc)
        return rc;
    open_gate (l, 0);
    if (sb->accounting)
        open_gate (l, accounting_daemon (sb));
    rc = wait_socket (l, "munge.socket", "munged did not answer", err);
    if (!rc && sb->accounting)
        rc = start_accounting (l, err);
    if (rc)
        return rc;
    open_gate (l, 1);
    if ((rc = wait_ports (l, 0, 0, err)))
        return rc;
    /* A slurmd that finds no controller would try again a second later. */
    for (int i = 2; i < 2 + sb->nodes; i++)
        open_gate (l, i);
    if ((rc = wait_nodes (l, err)) || (rc = wait_ports (l, 1, sb->nodes, err)))
        return rc;
    sb->ready = true;
    return sandbox_save (sb, err);
}

/* After a failure. They are children that nobody has waited for, so their ids
 * cannot be another's. */
static void kill_children (struct sandbox *sb)
{
    for (int i = 0; i < sb->n_daemons; i++)
        if (sb->daemon[i].pid > 0) {
            kill (sb->daemon[i].pid, SIGKILL);
            while (waitpid (sb->daemon[i].pid, NULL, 0) < 0 && errno == EINTR)
                ;
        }
}

static void launch_fini (struct launch *l)
{
    for (int i = 0; i < SANDBOX_MAX_DAEMONS; i++)
        if (l->gate[i] >= 0)
            close (l->gate[i]);
    for (int i = 0; i < l->n_ports; i++)
        close (l->port_fd[i]);
    free_env (l->env);
}

/* Files and daemons in a folder that is ours, locked and empty. */
static int start (struct sandbox *sb, const struct site *site,
                  struct rv_error *err)
{
    struct launch l = {
        .sb = sb, .user = site->user, .end = proc_now_ms () + UP_MS};
    int n = sb->nodes + 1 + sb->accounting, rc;

    for (int i = 0; i < SANDBOX_MAX_DAEMONS; i++)
        l.gate[i] = -1;
    rc = ports_reserve (n, l.port_fd, sb->port, err);
    if (!rc)
        l.n_ports = n;
    if (!rc && !(l.env = make_env (sb)))
        rc = error_set (err, RV_ENOMEM, "out of memory");
    if (!rc)
        rc = name_cluster (sb, err);
    if (!rc)
        rc = list_daemons (sb, site, err);
    if (!rc)
        rc = files_write (sb, &site->files, err);
    if (!rc && sb->cgroup)
        rc = cgroup_make (sb, err);
    if (!rc)
        rc = start_daemons (&l, err);
    if (rc)
        kill_children (sb);
    launch_fini (&l);
    return rc;
}

/* Is the running [sb] what [wish] says, as far as it says anything? */
static int compare (const struct sandbox *sb, const struct sandbox_wish *wish,
                    struct rv_error *err)
{
    if ((!wish->nodes || wish->nodes == sb->nodes)
        && (wish->gpus < 0 || wish->gpus == sb->gpus)
        && (!wish->mig || wish->mig == sb->mig)
        && (!wish->cpus || wish->cpus == sb->cpus)
        && (!wish->type || !strcmp (wish->type, sb->type))
        && !(wish->made_up && sb->real_gpus) && !(wish->no_plugin && sb->plugin)
        && !(wish->cgroup && !sb->cgroup)
        && !(wish->accounting && !sb->accounting))
        return RV_OK;
    return error_set (err, RV_EMISMATCH,
                      "one is up in %s with another shape: %d nodes, %d GPUs, "
                      "%d MIG slices, "
                      "%d CPUs a node%s%s%s",
                      sb->dir, sb->nodes, sb->gpus, sb->mig, sb->cpus,
                      sb->plugin ? "" : ", no plugin",
                      sb->cgroup ? "" : ", no control groups",
                      sb->accounting ? "" : ", no accounting");
}

/* With the lock: is one up? Else the folder is empty afterwards. */
static int take_folder (const char *dir, const struct sandbox_wish *wish,
                        struct sandbox *ret, bool *ret_was,
                        struct rv_error *err)
{
    struct sandbox old;
    bool known = !sandbox_load (dir, &old, NULL);
    int rc;

    *ret_was = known && sandbox_is_up (&old, NULL);
    if (*ret_was) {
        if ((rc = compare (&old, wish, err)))
            sandbox_fini (&old);
        else
            *ret = old;
        return rc;
    }
    rc = sandbox_sweep (dir, known ? &old : NULL, err);
    if (known)
        sandbox_fini (&old);
    return rc ? rc : folder_clear (dir, err);
}

static void catch_signals (void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction (SIGINT, &action, NULL);
    sigaction (SIGTERM, &action, NULL);
    sigaction (SIGHUP, &action, NULL);
}

int sandbox_up (const char *dir, const struct sandbox_wish *wish,
                struct sandbox *ret, bool *ret_was, struct rv_error *err)
{
    struct sandbox sb = {0};
    struct site site;
    int lock = -1, rc = site_probe (&site, err);

    *ret_was = false;
    snprintf (sb.dir, sizeof (sb.dir), "%s", dir);
    if (!rc)
        rc = choose_shape (&sb, &site, wish, err);
    if (!rc && wish->cgroup)
        rc = cgroup_check (&site.files.swap, err);
    if (!rc && wish->accounting)
        rc = accounting_check (err);
    if (!rc && !wish->no_plugin)
        rc = where_plugin (&sb.plugin, err);
    if (!rc)
        rc = folder_lock (dir, 1, &lock, err);
    if (!rc) {
        catch_signals ();
        rc = take_folder (dir, wish, ret, ret_was, err);
        if (!rc && !*ret_was && !(rc = start (&sb, &site, err))) {
            *ret = sb;
            memset (&sb, 0, sizeof (sb));
        } else if (rc && !*ret_was) {
            sandbox_sweep (dir, &sb, NULL);
            folder_remove (dir, NULL);
        }
    }
    if (lock >= 0)
        close (lock);
    sandbox_fini (&sb);
    site_fini (&site);
    return rc;
}
