/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.c - --checkpoint=SIGNAL@SECONDS */
#include "plan/checkpoint.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What a program can handle, and Slurm and terminals do not use themselves. */
static const struct {
    int signal;
    const char *name;
} known[] = {
    {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}, {SIGTERM, "TERM"}, {SIGINT, "INT"},
    {SIGHUP, "HUP"},   {SIGQUIT, "QUIT"}, {SIGALRM, "ALRM"},
};
#define N_KNOWN (sizeof (known) / sizeof (known[0]))

const char *checkpoint_signal_name (int signal)
{
    for (size_t i = 0; i < N_KNOWN; i++)
        if (known[i].signal == signal)
            return known[i].name;
    return NULL;
}

static int find (const char *name, size_t len)
{
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strlen (known[i].name) == len
            && !strncasecmp (known[i].name, name, len))
            return known[i].signal;
    return 0;
}

static int signal_of (const char *name, size_t len)
{
    bool sig = len > 3 && !strncasecmp (name, "SIG", 3);

    return find (sig ? name + 3 : name, sig ? len - 3 : len);
}

int checkpoint_signal (const char *name)
{
    return signal_of (name, strlen (name));
}

int checkpoint_parse (const char *text, struct checkpoint *ret,
                      struct rv_error *err)
{
    struct checkpoint out = {SIGUSR1, CHECKPOINT_SECONDS};
    size_t len = text ? strcspn (text, "@") : 0;

    if (text && (len || !text[len]) && !(out.signal = signal_of (text, len)))
        return error_set (err, RV_EINVAL,
                          "'%.*s' is no signal for checkpoints; USR1, USR2, "
                          "TERM, INT, HUP, QUIT and ALRM are",
                          (int)len, text);
    if (text && text[len]) {
        const char *digits = text + len + 1;
        size_t n = strspn (digits, "0123456789");
        unsigned long seconds = n && n < 7 ? strtoul (digits, NULL, 10) : 0;

        if (digits[n] || seconds < 1 || seconds > CHECKPOINT_SECONDS_MAX)
            return error_set (err, RV_EINVAL,
                              "'%s' is no whole number of seconds from 1 to %d",
                              digits, CHECKPOINT_SECONDS_MAX);
        out.seconds = (uint32_t)seconds;
    }
    *ret = out;
    return RV_OK;
}
