/* SPDX-License-Identifier: Apache-2.0
 * site.c - what this machine has: programs, PMIx, GPUs, memory */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/site.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"

/* Programs a sandbox is made of, and Debian's packages. */
static int find_programs (struct site *site, struct rv_error *err)
{
    struct {
        const char *name, *package;
        char **ret;
    } need[] = {
        {"munged", "munge", &site->munged},
        {"slurmctld", "slurmctld", &site->slurmctld},
        {"slurmd", "slurmd", &site->slurmd},
        {"slurmstepd", "slurmd", NULL},
        {"srun", "slurm-client", NULL},
        {"scancel", "slurm-client", NULL},
    };

    for (size_t i = 0; i < sizeof (need) / sizeof (need[0]); i++) {
        char *path = proc_find (need[i].name);

        if (!path)
            return error_set (err, RV_ENOTFOUND,
                              "%s is not installed (Debian: apt install %s)",
                              need[i].name, need[i].package);
        if (need[i].ret)
            *need[i].ret = path;
        else
            free (path);
    }
    return RV_OK;
}

/* The folder of Slurm's plugins lies beside libslurm, by one of these names. */
static bool find_slurm_plugin (const char *name, char path[PATH_MAX])
{
    static const char *const sub[] = {"slurm-wlm", "slurm", "."};
    Dl_info info;
    char lib[PATH_MAX], *slash;

    if (!dladdr ((void *)slurm_api_version, &info) || !info.dli_fname
        || !realpath (info.dli_fname, lib) || !(slash = strrchr (lib, '/')))
        return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof (sub) / sizeof (sub[0]); i++) {
        int n = snprintf (path, PATH_MAX, "%s/%s/%s", lib, sub[i], name);

        if (n > 0 && n < PATH_MAX && !access (path, R_OK))
            return true;
    }
    return false;
}

bool site_has_plugin (const char *name)
{
    char path[PATH_MAX];

    return find_slurm_plugin (name, path);
}

/* Slurm's plugin opens libpmix by name, up to 24.11 by the one that only the
 * development package has; without it every srun would fail. */
static bool pmix_works (void)
{
    static const char library[] = "libpmix.so.2"; /* its NUL counts */
    char path[PATH_MAX], *text;
    size_t len;
    void *handle;
    bool numbered;

    if (!find_slurm_plugin ("mpi_pmix.so", path)
        || fsio_read (path, (size_t)64 << 20, &text, &len, NULL))
        return false;
    numbered = memmem (text, len, library, sizeof (library)) != NULL;
    free (text);
    handle = dlopen (numbered ? library : "libpmix.so", RTLD_LAZY | RTLD_LOCAL);
    if (handle)
        dlclose (handle);
    return handle != NULL;
}

void site_gpu_type (const char *model, char *ret, size_t size)
{
    static const char *const brand[] = {"nvidia", "tesla", "quadro", "geforce",
                                        "rtx",    "gtx",   "titan"};

    ret[0] = '\0';
    while (*model) {
        size_t n = 0, i;
        char word[32];

        model += strspn (model, " \t-");
        for (; model[n] && !strchr (" \t-\n", model[n]); n++)
            if (n < sizeof (word) - 1)
                word[n] = (char)tolower ((unsigned char)model[n]);
        word[n < sizeof (word) ? n : sizeof (word) - 1] = '\0';
        model += n;
        for (i = 0; i < sizeof (brand) / sizeof (brand[0]); i++)
            if (!strcmp (word, brand[i]))
                break;
        if (i < sizeof (brand) / sizeof (brand[0]))
            continue;
        if (!word[0]
            || strspn (word, "abcdefghijklmnopqrstuvwxyz0123456789")
                   != strlen (word))
            return;
        /* "RTX 3090" */
        snprintf (ret, size, "%s%s",
                  isdigit ((unsigned char)word[0]) ? "rtx" : "", word);
        return;
    }
}

/* The type that all GPUs of the driver share, "" where they differ. */
static void read_gpu_type (struct site *site)
{
    glob_t files;
    char *text, type[64];

    if (glob ("/proc/driver/nvidia/gpus/*/information", 0, NULL, &files))
        return;
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *model;

        if (fsio_read (files.gl_pathv[i], 65536, &text, NULL, NULL))
            continue;
        model = strstr (text, "Model:");
        site_gpu_type (model ? model + 6 : "", type, sizeof (type));
        free (text);
        if (i && strcmp (type, site->gpu_type))
            type[0] = '\0';
        snprintf (site->gpu_type, sizeof (site->gpu_type), "%s", type);
        if (!type[0])
            break;
    }
    globfree (&files);
}

static int count_gpus (void)
{
    char path[32];
    int n = 0;

    while (n < SANDBOX_MAX_GPUS) {
        snprintf (path, sizeof (path), "/dev/nvidia%d", n);
        if (access (path, F_OK))
            break;
        n++;
    }
    return n;
}

/* Logs and outputs of jobs are named by job id and outlive the sandbox, so
 * each starts where no earlier one was: units of ten seconds since 2025, below
 * Slurm's MaxJobId for twenty years. */
static unsigned first_job_id (void)
{
    return (unsigned)((time (NULL) - 1735689600) / 10 % 60000000 + 1);
}

int site_probe (struct site *site, struct rv_error *err)
{
    struct passwd *pw = getpwuid (geteuid ());
    long pages = sysconf (_SC_PHYS_PAGES), page = sysconf (_SC_PAGE_SIZE);
    cpu_set_t set;
    int rc;

    memset (site, 0, sizeof (*site));
    if ((rc = find_programs (site, err)))
        return rc;
    if (!pw)
        return error_set (err, RV_EINVAL,
                          "user id %u has no name, and Slurm wants one",
                          (unsigned)geteuid ());
    snprintf (site->user, sizeof (site->user), "%s", pw->pw_name);
    site->files.user = site->user;
    site->files.mem_mb = pages > 0 ? pages / 1024 * page / 1024 : 1024;
    /* Of the headers: libslurm's soname changes with every release. */
    site->files.slurm_release = SLURM_VERSION_MAJOR (SLURM_VERSION_NUMBER) * 100
                                + SLURM_VERSION_MINOR (SLURM_VERSION_NUMBER);
    site->files.first_job_id = first_job_id ();
    site->cpus =
        sched_getaffinity (0, sizeof (set), &set) ? 1 : CPU_COUNT (&set);
    site->pmix = pmix_works ();
    site->real_gpus = count_gpus ();
    if (site->real_gpus)
        read_gpu_type (site);
    return RV_OK;
}

void site_fini (struct site *site)
{
    free (site->munged);
    free (site->slurmctld);
    free (site->slurmd);
    memset (site, 0, sizeof (*site));
}
