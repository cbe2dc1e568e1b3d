/* SPDX-License-Identifier: Apache-2.0
 * run_defaults.h - Slurm's own options that rv.conf gives every `rv run`, and
 * who said each that a job has.
 *
 * The command line goes before the user's file, that before the site's. */
#ifndef RV_RUN_DEFAULTS_H
#define RV_RUN_DEFAULTS_H

#include <jansson.h>

#include "plan/site_conf.h"
#include "run_opts.h"

struct run_defaults {
    /* Of account, qos and partition, where the options have them. */
    enum run_from account, qos, partition;
    char **words; /* of `slurm`, cut; NULL-terminated */
};

/* run_defaults_apply - what the options do not say, from [conf].
 *   ret    written always; run_defaults_fini frees it, after [opts] is done
 *   conf   lends its text to [opts]
 *   opts   gets what it has not; words of `slurm` go before the user's
 * RV_EINVAL names the key of rv.conf whose value cannot be. */
int run_defaults_apply (struct run_defaults *ret, const struct site_conf *conf,
                        struct run_opts *opts, struct rv_error *err);
void run_defaults_fini (struct run_defaults *d); /* NULL is fine */

/* run_defaults_print - one line an option on stdout, as a part of --dry-run. */
void run_defaults_print (const struct run_defaults *d,
                         const struct run_opts *opts);

/* run_defaults_json - the same as an array; NULL when out of memory. */
json_t *run_defaults_json (const struct run_defaults *d,
                           const struct run_opts *opts);

#endif
