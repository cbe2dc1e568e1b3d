/* SPDX-License-Identifier: Apache-2.0
 * args.h - the words that stand behind spank_rv.so in plugstack.conf.
 *
 * Pure: no Slurm header, no environment, no file. */
#ifndef RV_SPANK_ARGS_H
#define RV_SPANK_ARGS_H

#include "plan/error.h"

enum args_env {
    ARGS_ENV_OFF, /* rank variables only where an --rv option or
                     RV_REQUEST_DIR asks for them (default) */
    ARGS_ENV_GPU, /* and in every step that has GPUs */
};

enum args_health {
    ARGS_HEALTH_OFF,    /* no check (default) */
    ARGS_HEALTH_REPORT, /* before and after a job with GPUs, into the log */
    ARGS_HEALTH_DRAIN,  /* and drain the node where it is unfit */
};

struct plugin_args {
    enum args_env env;
    enum args_health health;
    const char *conf; /* path of rv.conf, NULL = the built-in one; points into
                         argv */
    const char *nvml; /* path of the library, NULL = where the loader finds it;
                         points into argv */
};

/* args_parse - read the words of one plugstack line.
 *   argc, argv   (argc) words such as "env=gpu", borrowed
 *   ret          written on success only; no words give the defaults
 * RV_EINVAL: an unknown word, a word twice or a value that its word does not
 * take. */
int args_parse (int argc, char *const *argv, struct plugin_args *ret,
                struct rv_error *err);

#endif
