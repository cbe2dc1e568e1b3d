/* SPDX-License-Identifier: Apache-2.0
 * settings.c - what rv takes when the user says nothing */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "settings.h"

#include <stdlib.h>
#include <string.h>

int settings_load (struct settings *ret, struct rv_error *err)
{
    struct settings s = {.gpus = 1, .time_s = SETTINGS_TIME_S};
    char *user = site_conf_user_path ();
    int status;

    site_conf_init (&s.conf);
    status = site_conf_load (&s.conf, site_conf_site_path (), user, err);
    free (user);
    if (status == RV_OK)
        status = site_conf_state_dir (&s.conf, &s.state_dir, err);
    if (status != RV_OK) {
        settings_fini (&s);
        return status;
    }
    if (s.conf.gpus >= 0)
        s.gpus = (uint32_t)s.conf.gpus;
    if (s.conf.time_s != 0)
        s.time_s = s.conf.time_s;
    if (s.conf.mem_bytes > 0)
        s.mem_bytes = s.conf.mem_bytes;
    /* Whole seconds: a part of one is a second. */
    if (s.conf.nccl_timeout_ms > 0)
        s.nccl_timeout_s = (s.conf.nccl_timeout_ms + 999) / 1000;
    *ret = s;
    return RV_OK;
}

void settings_fini (struct settings *s)
{
    if (!s)
        return;
    site_conf_fini (&s->conf);
    free (s->state_dir);
    s->state_dir = NULL;
}
