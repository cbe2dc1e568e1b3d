/* SPDX-License-Identifier: Apache-2.0
 * box_spank.c - a SPANK plugin that puts tasks into a container, as pyxis does
 *
 *   plugstack: required box.so root=DIR [bind=PATH...] [pytorch] [trap]
 *
 * With srun --box, in task_init: the first task of a node gives its environment
 * to all others, but for the variables that name a task (so NVIDIA/pyxis, in
 * spank_import_container_env and enroot_deny_env); then the root becomes DIR,
 * where each PATH is what it is outside. "pytorch": RANK and LOCAL_RANK anew
 * for each task, MASTER_PORT and WORLD_SIZE from the container, as pyxis and
 * enroot do for images of PyTorch. "trap": from here to the program's end an
 * open(2) ends the process; what stands behind in plugstack.conf is proved to
 * read no file and to load no library. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

SPANK_PLUGIN (box, 1)

/* Of all tasks of the node: mapped before they are forked. */
struct shared {
    int tasks, ready;
    size_t len;
    char env[1 << 20]; /* NAME=VALUE, each with its NUL */
};

static int enabled;
static struct shared *shared;

static int box_cb (int val, const char *optarg, int remote)
{
    (void)val;
    (void)optarg;
    enabled = remote;
    return 0;
}

static char name[] = "box", usage[] = "run in the test's container";
static struct spank_option option = {name, NULL, usage, 0, 0, box_cb};

int slurm_spank_init (spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return spank_option_register (sp, &option);
}

int slurm_spank_user_init (spank_t sp, int argc, char **argv)
{
    (void)sp;
    (void)argc;
    (void)argv;
    shared = mmap (NULL, sizeof (*shared), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return 0;
}

__attribute__ ((noreturn)) static void give_up (const char *what)
{
    fprintf (stderr, "box: %s: %s\n", what, strerror (errno));
    _exit (98);
}

static int names_a_task (const char *var)
{
    static const char *const kept[] = {
        "PATH=", "SLURM_PROCID=", "SLURM_LOCALID=", "SLURM_TASK_PID=",
        "PMIX_RANK="};

    for (size_t i = 0; i < sizeof (kept) / sizeof (kept[0]); i++)
        if (!strncmp (var, kept[i], strlen (kept[i])))
            return 1;
    return 0;
}

static void publish (spank_t sp)
{
    char **env = NULL;

    if (spank_get_item (sp, S_JOB_ENV, &env) != ESPANK_SUCCESS)
        give_up ("environment");
    for (; *env; env++) {
        size_t n = strlen (*env) + 1;

        if (names_a_task (*env) || shared->len + n > sizeof (shared->env))
            continue;
        memcpy (shared->env + shared->len, *env, n);
        shared->len += n;
    }
    __atomic_store_n (&shared->ready, 1, __ATOMIC_RELEASE);
}

static void import (spank_t sp)
{
    for (int i = 0; !__atomic_load_n (&shared->ready, __ATOMIC_ACQUIRE); i++) {
        if (i == 20000)
            give_up ("waiting for the first task");
        usleep (1000);
    }
    for (size_t i = 0; i < shared->len; i += strlen (shared->env + i) + 1) {
        char *var = strdup (shared->env + i), *eq = strchr (var, '=');

        *eq = '\0';
        spank_setenv (sp, var, eq + 1, 1);
        free (var);
    }
}

static void copy_env (spank_t sp, const char *from, const char *to)
{
    char buf[64];

    if (spank_getenv (sp, from, buf, sizeof (buf)) == ESPANK_SUCCESS)
        spank_setenv (sp, to, buf, 1);
}

static void pytorch (spank_t sp)
{
    copy_env (sp, "SLURM_PROCID", "RANK");
    copy_env (sp, "SLURM_LOCALID", "LOCAL_RANK");
    copy_env (sp, "SLURM_STEP_NUM_TASKS", "WORLD_SIZE");
    spank_setenv (sp, "MASTER_PORT", "12345", 1);
}

static void write_file (const char *path, const char *text)
{
    int fd = open (path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write (fd, text, strlen (text)) < 0)
        give_up (path);
    close (fd);
}

static void new_namespace (void)
{
    uid_t uid = geteuid ();
    gid_t gid = getegid ();
    char map[64];

    if (unshare (uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) != 0)
        give_up ("unshare");
    if (uid) {
        write_file ("/proc/self/setgroups", "deny");
        snprintf (map, sizeof (map), "%u %u 1", uid, uid);
        write_file ("/proc/self/uid_map", map);
        snprintf (map, sizeof (map), "%u %u 1", gid, gid);
        write_file ("/proc/self/gid_map", map);
    }
    if (mount (NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        give_up ("mount /");
}

static void enter (const char *root, int argc, char **argv)
{
    char path[4096];

    new_namespace ();
    for (int i = 0; i < argc; i++)
        if (!strncmp (argv[i], "bind=", 5)) {
            snprintf (path, sizeof (path), "%s%s", root, argv[i] + 5);
            if (mount (argv[i] + 5, path, NULL, MS_BIND | MS_REC, NULL) != 0)
                give_up (path);
        }
    if (chroot (root) != 0 || chdir ("/") != 0)
        give_up (root);
}

static void on_open (int signal)
{
    static const char text[] = "box: a file was opened\n";

    (void)signal;
    (void)!write (STDERR_FILENO, text, sizeof (text) - 1);
    _exit (99);
}

static void trap (void)
{
    struct sock_filter code[] = {
        BPF_STMT (BPF_LD | BPF_W | BPF_ABS, 0), /* the number */
        BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
#ifdef SYS_open
        BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 2, 0),
#else
        BPF_STMT (BPF_LD | BPF_W | BPF_ABS, 0),
#endif
        BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 1, 0),
        BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog prog = {sizeof (code) / sizeof (code[0]), code};

    signal (SIGSYS, on_open);
    if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        || prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0)
        give_up ("seccomp");
}

static int has (int argc, char **argv, const char *word)
{
    while (argc-- > 0)
        if (!strcmp (argv[argc], word))
            return 1;
    return 0;
}

int slurm_spank_task_init (spank_t sp, int argc, char **argv)
{
    if (!enabled || argc < 1 || strncmp (argv[0], "root=", 5) != 0)
        return 0;
    if (shared == MAP_FAILED)
        give_up ("mmap");
    if (__atomic_fetch_add (&shared->tasks, 1, __ATOMIC_RELAXED) == 0)
        publish (sp);
    import (sp);
    if (has (argc, argv, "pytorch"))
        pytorch (sp);
    enter (argv[0] + 5, argc, argv);
    if (has (argc, argv, "trap"))
        trap ();
    return 0;
}
