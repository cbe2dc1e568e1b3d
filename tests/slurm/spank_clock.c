/* SPDX-License-Identifier: Apache-2.0
 * spank_clock.c - a SPANK plugin that loads another and times its callbacks
 *
 *   required .../spank_clock.so FOLDER .../spank_rv.so [WORDS...]
 *
 * Each call of a callback is one line of FOLDER/PID, where PID is the process
 * that runs the step (slurmstepd) or the client:
 *   CONTEXT CALLBACK NANOSECONDS
 * slurm_spank_task_init runs in a child of slurmstepd and is written under its
 * parent's id, so a file holds what one step costs on one node. Written after
 * the clock has stopped, in one write(2): tasks run at the same time. The
 * callbacks of options are the other plugin's own and are not seen. */
#include <dlfcn.h>
#include <fcntl.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN (rv, 1)

typedef int (*hook_f) (spank_t, int, char **);

static void *other;
static const char *folder;

static int64_t now_ns (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void note (const char *hook, pid_t pid, int64_t ns)
{
    static const char *const context[] = {
        [S_CTX_ERROR] = "error",   [S_CTX_LOCAL] = "local",
        [S_CTX_REMOTE] = "remote", [S_CTX_ALLOCATOR] = "allocator",
        [S_CTX_SLURMD] = "slurmd", [S_CTX_JOB_SCRIPT] = "job_script",
    };
    char path[4096], line[128];
    int len, fd;

    snprintf (path, sizeof (path), "%s/%d", folder, (int)pid);
    len = snprintf (line, sizeof (line), "%s %s %lld\n",
                    context[spank_context ()], hook, (long long)ns);
    fd = open (path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write (fd, line, (size_t)len) != len)
        slurm_error ("spank_clock: cannot write %s", path);
    if (fd >= 0)
        close (fd);
}

/* The first two words are ours. */
static int timed (const char *hook, pid_t pid, spank_t sp, int argc,
                  char **argv)
{
    int64_t start;
    hook_f f;
    int rc;

    if (!other && argc >= 2) {
        folder = argv[0];
        other = dlopen (argv[1], RTLD_LAZY | RTLD_LOCAL);
    }
    if (!other) {
        slurm_error ("spank_clock: cannot load the plugin: %s", dlerror ());
        return -1;
    }
    f = (hook_f)dlsym (other, hook);
    if (!f)
        return 0;
    start = now_ns ();
    rc = f (sp, argc - 2, argv + 2);
    note (hook, pid, now_ns () - start);
    return rc;
}

#define HOOK(name, pid)                                                        \
    int name (spank_t sp, int argc, char **argv)                               \
    {                                                                          \
        return timed (#name, pid, sp, argc, argv);                             \
    }

HOOK (slurm_spank_init, getpid ())
HOOK (slurm_spank_init_post_opt, getpid ())
HOOK (slurm_spank_local_user_init, getpid ())
HOOK (slurm_spank_user_init, getpid ())
HOOK (slurm_spank_task_init_privileged, getppid ())
HOOK (slurm_spank_task_init, getppid ())
HOOK (slurm_spank_task_post_fork, getpid ())
HOOK (slurm_spank_task_exit, getpid ())
HOOK (slurm_spank_job_prolog, getpid ())
HOOK (slurm_spank_job_epilog, getpid ())
HOOK (slurm_spank_slurmd_exit, getpid ())
HOOK (slurm_spank_exit, getpid ())
