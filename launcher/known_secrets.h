/* SPDX-License-Identifier: Apache-2.0
 * known_secrets.h - copies of secrets that no job needs any more. The batch step
 * removes them; not so where it never ran, was killed, or did not learn whether
 * the job starts again. */
#ifndef RV_KNOWN_SECRETS_H
#define RV_KNOWN_SECRETS_H

#include "cmd_job.h"

/* known_forget_ended - of requests whose jobs have all ended, as Slurm says. */
void known_forget_ended (const struct known *known);

/* known_forget_gone - of requests that are older than an hour and of which Slurm
 * has no job that runs or waits: it keeps those that have ended for minutes.
 *   cluster   the name of the one that was asked; others' requests stay
 *   now       Unix */
void known_forget_gone (const struct known *known, const char *cluster,
                        int64_t now);

/* known_forget_secrets - both, of jobs that Slurm was asked for just now. */
void known_forget_secrets (const struct known *known);

#endif
