/* SPDX-License-Identifier: Apache-2.0
 * login.c - what rv doctor looks at on the machine where it was started */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor/doctor.h"
#include "plan/fsio.h"
#include "proc.h"
#include "where.h"

#define SRUN_MS 15000

void doctor_set (struct doctor_check *check, enum doctor_state state,
                 const char *hint, const char *fmt, ...)
{
    va_list ap;

    check->state = state;
    check->hint = hint;
    va_start (ap, fmt);
    error_vformat (check->text, sizeof (check->text), fmt, ap);
    va_end (ap);
}

bool doctor_same_release (const char *a, const char *b)
{
    size_t la = strcspn (a, "."), n;

    if (!a[la])
        return false;
    n = la + 1 + strcspn (a + la + 1, ".-");
    return n > la + 1 && !strncmp (a, b, n)
           && (b[n] == '\0' || b[n] == '.' || b[n] == '-');
}

void doctor_settings (struct doctor_check *check, struct settings *ret,
                      bool *ret_loaded)
{
    struct rv_error err = {0};
    char *user = site_conf_user_path ();

    check->name = "settings";
    *ret_loaded = settings_load (ret, &err) == RV_OK;
    if (!*ret_loaded)
        doctor_set (check, DOCTOR_FAIL, "put that right; see rv.conf(5)", "%s",
                    err.text);
    else
        doctor_set (check, DOCTOR_OK, NULL, "site %s%s, user %s%s",
                    site_conf_site_path (),
                    access (site_conf_site_path (), F_OK) ? " (none)" : "",
                    user ? user : "without HOME",
                    user && access (user, F_OK) ? " (none)" : "");
    free (user);
}

void doctor_programs (struct doctor_check *check)
{
    struct rv_error err = {0};
    char *exec = NULL, *plugin = NULL;

    check->name = "programs";
    if (where_program ("rv-exec", &exec, &err))
        doctor_set (check, DOCTOR_FAIL, "install rv whole: make install", "%s",
                    err.text);
    else if (where_plugin (&plugin, &err))
        doctor_set (check, DOCTOR_WARN, "install rv whole: make install",
                    "%s; srun, sbatch and salloc have no --rv option",
                    err.text);
    else
        doctor_set (check, DOCTOR_OK, NULL, "%s, %s", exec, plugin);
    free (exec);
    free (plugin);
}

void doctor_controller (struct doctor_check *check,
                        const struct doctor_site *site,
                        const struct rv_error *err)
{
    check->name = "controller";
    if (site)
        doctor_set (check, DOCTOR_OK, NULL,
                    "cluster '%s' answers: Slurm %s, %zu nodes", site->cluster,
                    site->slurm, site->n_nodes);
    else
        doctor_set (check, DOCTOR_FAIL,
                    err->code == RV_EMISMATCH
                        ? NULL
                        : "ask where slurm.conf is (SLURM_CONF), or start a "
                          "private Slurm with 'rv sandbox up'",
                    "%s", err->text);
}

/* The first line of a program's words, or the error that kept it from any. */
static bool ask (char *const argv[], struct proc_result *result,
                 struct rv_error *err)
{
    struct proc_opts opts = {.deadline_ms = SRUN_MS};

    if (proc_run (argv, &opts, result, err))
        return false;
    if (!result->status)
        return true;
    result->err[strcspn (result->err, "\n")] = '\0';
    error_set (err, RV_EIO, "%s ended with status %d: %s", argv[0],
               result->status, result->err);
    proc_result_fini (result);
    return false;
}

void doctor_release (struct doctor_check *check, const struct doctor_site *site)
{
    char *argv[] = {"srun", "--version", NULL};
    struct proc_result result;
    struct rv_error err = {0};
    char *version;

    check->name = "release";
    if (!ask (argv, &result, &err)) {
        doctor_set (check, DOCTOR_FAIL, "put Slurm's commands into PATH", "%s",
                    err.text);
        return;
    }
    result.out[strcspn (result.out, "\n")] = '\0';
    version = strrchr (result.out, ' ');
    version = version ? version + 1 : result.out;
    if (!doctor_same_release (RV_SLURM_VERSION, version))
        doctor_set (check, DOCTOR_FAIL,
                    "build rv and its plugin against this release",
                    "srun is of Slurm %s, rv and its plugin were built for %s",
                    version, RV_SLURM_VERSION);
    else if (!doctor_same_release (RV_SLURM_VERSION, site->slurm))
        doctor_set (check, DOCTOR_WARN,
                    "Slurm allows that for a while; rebuild when the nodes "
                    "follow",
                    "the controller is of Slurm %s, rv was built for %s",
                    site->slurm, RV_SLURM_VERSION);
    else
        doctor_set (check, DOCTOR_OK, NULL,
                    "rv %s was built for Slurm %s, srun is %s", PACKAGE_VERSION,
                    RV_SLURM_VERSION, version);
    proc_result_fini (&result);
}

void doctor_plugin (struct doctor_check *check, const struct doctor_site *site,
                    bool *ret_loaded)
{
    char *argv[] = {"srun", "--help", NULL};
    const char *stack = site->plugstack[0] ? site->plugstack : "plugstack.conf";
    struct proc_result result;
    struct rv_error err = {0};

    check->name = "plugin";
    *ret_loaded = false;
    if (!ask (argv, &result, &err)) {
        doctor_set (check, DOCTOR_FAIL,
                    "correct plugstack.conf; see rv-spank(8)", "%s", err.text);
        return;
    }
    *ret_loaded = strstr (result.out, "--rv-gpu") != NULL;
    if (*ret_loaded)
        doctor_set (check, DOCTOR_OK, NULL, "srun has the --rv options");
    else
        doctor_set (check, DOCTOR_WARN,
                    "add the line of rv's plugstack.conf.example there; "
                    "rv run works without",
                    "srun has no --rv option: %s does not load spank_rv.so, or "
                    "it is of another release",
                    stack);
    proc_result_fini (&result);
}

void doctor_pmix (struct doctor_check *check)
{
    char *argv[] = {"srun", "--mpi=list", NULL};
    struct proc_result result;
    struct rv_error err = {0};

    check->name = "pmix";
    if (!ask (argv, &result, &err)) {
        doctor_set (check, DOCTOR_UNKNOWN, NULL, "%s", err.text);
        return;
    }
    /* Which stream the list is on depends on the release. */
    if (strstr (result.out, "pmix") || strstr (result.err, "pmix"))
        doctor_set (check, DOCTOR_OK, NULL, "srun --mpi=pmix is there");
    else
        doctor_set (check, DOCTOR_WARN,
                    "install Slurm's PMIx plugin (Debian: "
                    "slurm-wlm-basic-plugins and libpmix2)",
                    "srun has no --mpi=pmix: ranks meet by Slurm's variables, "
                    "and MPI programs may not start");
    proc_result_fini (&result);
}

/* Can a folder be made in it? */
static bool usable (const char *dir)
{
    char *probe = fsio_join (dir, "doctor-XXXXXX");
    bool good = probe && mkdtemp (probe);
    int saved = errno;

    if (good)
        rmdir (probe);
    free (probe);
    errno = saved;
    return good;
}

void doctor_state_dir (struct doctor_check *check, const char *state_dir)
{
    struct rv_error err = {0};
    struct stat st;

    check->name = "state_dir";
    if (fsio_mkdir_p (state_dir, 0700, &err))
        doctor_set (check, DOCTOR_FAIL,
                    "set state_dir in rv.conf to a folder of yours that the "
                    "nodes share",
                    "%s", err.text);
    else if (stat (state_dir, &st))
        doctor_set (check, DOCTOR_FAIL, NULL, "%s: %s", state_dir,
                    strerror (errno));
    else if (st.st_uid != geteuid ())
        doctor_set (check, DOCTOR_FAIL,
                    "set state_dir in rv.conf to a folder of your own",
                    "%s belongs to user %u", state_dir, (unsigned)st.st_uid);
    else if (st.st_mode & 077)
        doctor_set (check, DOCTOR_FAIL,
                    "chmod 700 it; it holds logs and "
                    "environments of jobs",
                    "%s can be entered by others (mode %04o)", state_dir,
                    (unsigned)st.st_mode & 07777);
    else if (!usable (state_dir))
        doctor_set (check, DOCTOR_FAIL, NULL, "%s cannot be written in: %s",
                    state_dir, strerror (errno));
    else
        doctor_set (check, DOCTOR_OK, NULL, "%s", state_dir);
}
