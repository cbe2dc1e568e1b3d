/* SPDX-License-Identifier: Apache-2.0
 * run_more.c - what the user and rv.conf add to a plan of `rv run` */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "run_more.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "where.h"

/* A rank in a container needs rv-exec and the request there, at the same
 * places. malloc'ed. */
static int mounts (const struct settings *settings, char **ret,
                   struct rv_error *err)
{
    const char *state = settings->state_dir;
    char *exec = NULL;
    int rc = where_program ("rv-exec", &exec, err);

    if (rc)
        return rc;
    if (strpbrk (state, ",:") || strpbrk (exec, ",:"))
        rc = error_set (err, RV_EINVAL,
                        "a container can have no folder with , or : in its "
                        "name: %s, %s",
                        state, exec);
    else if (asprintf (ret, "%s:%s,%s:%s", state, state, exec, exec) < 0)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    free (exec);
    return rc;
}

int run_more_make (const struct run_opts *opts, const struct settings *settings,
                   const char *constraint, struct run_more *ret,
                   struct rv_error *err)
{
    const struct run_slurm *slurm = &opts->slurm;
    char *paths = NULL;
    int rc;

    rc = run_slurm_constraint (constraint, slurm->constraint, ret->constraint,
                               sizeof (ret->constraint), err);
    if (!rc && slurm->container
        && !(rc = submit_has_option ("container-image", err)))
        rc = mounts (settings, &paths, err);
    if (!rc
        && (!(ret->words = run_slurm_words (slurm, false, NULL))
            || !(ret->step = run_slurm_words (slurm, true, paths))))
        rc = error_set (err, RV_ENOMEM, "out of memory");
    free (paths);
    ret->submit = (struct submit_more){
        .account = opts->account,
        .qos = opts->qos,
        .constraint = ret->constraint[0] ? ret->constraint : NULL,
        .words = ret->words,
    };
    return rc;
}

void run_more_fini (struct run_more *more)
{
    submit_argv_free (more->words);
    submit_argv_free (more->step);
    more->words = more->step = NULL;
}
