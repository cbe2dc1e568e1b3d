/* SPDX-License-Identifier: Apache-2.0
 * files.h - the configuration that a sandbox's daemons read. */
#ifndef RV_SANDBOX_FILES_H
#define RV_SANDBOX_FILES_H

#include "plan/error.h"
#include "sandbox/state.h"

struct files_site {
    const char *user;  /* name of the user that the daemons run as */
    long mem_mb;       /* memory of the machine, mebibytes */
    int slurm_release; /* 2205 for 22.05 */
    unsigned first_job_id;
    bool swap; /* control groups can limit swap */
};

/* files_slurm_conf, files_gres_conf, files_cgroup_conf, files_task_prolog -
 * the text of one file, malloc'ed; NULL when out of memory. Pure. */
char *files_slurm_conf (const struct sandbox *sb,
                        const struct files_site *site);
char *files_gres_conf (const struct sandbox *sb);
char *files_cgroup_conf (const struct sandbox *sb,
                         const struct files_site *site);
char *files_task_prolog (const struct sandbox *sb);

/* files_write - make every folder and file that the daemons of [sb] need.
 * The folder itself is there and empty but for its mark. */
int files_write (const struct sandbox *sb, const struct files_site *site,
                 struct rv_error *err);

#endif
