/* SPDX-License-Identifier: Apache-2.0
 * settings.c - what rv takes when the user says nothing */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "settings.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/fsio.h"

/* ${XDG_STATE_HOME:-~/.local/state}/rv; a relative XDG value is ignored, as
 * the XDG base directory specification says. */
static char *default_state_dir (void)
{
    const char *base = getenv ("XDG_STATE_HOME"), *home = getenv ("HOME");
    struct passwd *pw;

    if (base && base[0] == '/')
        return fsio_join (base, "rv");
    if (!home || home[0] != '/') {
        pw = getpwuid (getuid ());
        home = pw ? pw->pw_dir : NULL;
    }
    return home ? fsio_join (home, ".local/state/rv") : NULL;
}

int settings_load (struct settings *ret, struct rv_error *err)
{
    struct settings s = {.gpus = 1, .time_s = SETTINGS_TIME_S};

    s.state_dir = default_state_dir ();
    if (!s.state_dir)
        return error_set (err, RV_EIO,
                          "there is no home folder for rv's state; set "
                          "XDG_STATE_HOME");
    *ret = s;
    return RV_OK;
}

void settings_fini (struct settings *s)
{
    if (!s)
        return;
    free (s->account);
    free (s->qos);
    free (s->type);
    free (s->partition);
    free (s->state_dir);
    memset (s, 0, sizeof (*s));
}
