/* SPDX-License-Identifier: Apache-2.0
 * settings.h - what rv takes when the user says nothing: the user's rv.conf,
 * else the site's, else what is built in. */
#ifndef RV_SETTINGS_H
#define RV_SETTINGS_H

#include <stdint.h>

#include "plan/error.h"
#include "plan/site_conf.h"

#define SETTINGS_TIME_S (3 * 3600 - 60) /* 2:59:00 */

struct settings {
    struct site_conf conf; /* all of both files */
    char *state_dir;       /* absolute, malloc'ed */
    uint32_t gpus;
    int64_t time_s;         /* -1 = unlimited */
    int64_t mem_bytes;      /* 0 = the GPUs' share */
    int64_t nccl_timeout_s; /* 0 = not asked for */
};

/* settings_load - read both files; one that is not there is fine.
 *   ret   written on success; free with settings_fini
 * RV_EINVAL with file and line when one is wrong. */
int settings_load (struct settings *ret, struct rv_error *err);
void settings_fini (struct settings *s); /* NULL is fine */

#endif
