/* SPDX-License-Identifier: Apache-2.0
 * log.c - what rv-exec says, one line a fact, on stderr */
#include "config.h"

#include "exec/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/error.h"

static enum log_level threshold = LOG_WARN;
static char prefix[160] = "rv: ";

void log_init (int verbose)
{
    static const char *const word[] = {"error", "warn", "info", "debug"};
    const char *level = getenv ("RV_LOG");

    for (int i = LOG_ERROR; level && i <= LOG_DEBUG; i++)
        if (!strcmp (level, word[i]))
            threshold = (enum log_level)i;
    if (verbose && threshold < LOG_INFO)
        threshold = LOG_INFO;
}

const char *log_node (void)
{
    static char host[128];
    const char *node = getenv ("SLURMD_NODENAME");

    if (node && *node)
        return node;
    if (!host[0] && gethostname (host, sizeof (host) - 1))
        host[0] = '?';
    return host;
}

void log_rank (uint32_t rank)
{
    snprintf (prefix, sizeof (prefix), "rv[rank %u on %.100s]: ", rank,
              log_node ());
}

/* One write, so that lines of several ranks do not mix. */
void log_line (enum log_level level, const char *fmt, ...)
{
    char text[700], line[900];
    va_list ap;
    int n;

    if (level > threshold)
        return;
    va_start (ap, fmt);
    error_vformat (text, sizeof (text), fmt, ap);
    va_end (ap);
    n = snprintf (line, sizeof (line), "%s%s\n", prefix, text);
    if (write (STDERR_FILENO, line, (size_t)n) < 0) {
        /* nobody listens; the exit status still tells */
    }
}
