/* SPDX-License-Identifier: Apache-2.0
 * health.c - is a node fit for the next job? What was seen becomes findings */
#include "config.h"

#include "health.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* leaves room for "(and 4294967295 more)" */
#define REASON_MAX (HEALTH_TEXT - 32)

struct out {
    health_found_f found;
    void *arg;
};

__attribute__ ((format (printf, 3, 4))) static void tell (
    const struct out *out, enum health_level level, const char *fmt, ...)
{
    char text[HEALTH_TEXT];
    va_list ap;

    va_start (ap, fmt);
    vsnprintf (text, sizeof (text), fmt, ap);
    va_end (ap);
    out->found (out->arg, level, text);
}

void health_judge_gpu (const struct health_gpu *gpu, health_found_f found,
                       void *arg)
{
    struct out out = {found, arg};

    if (gpu->lost)
        tell (&out, HEALTH_BAD, "GPU %s has fallen off the bus", gpu->bus);
    if (gpu->needs_reset)
        tell (&out, HEALTH_BAD, "GPU %s needs a reset", gpu->bus);
    if (gpu->remap_failed)
        tell (&out, HEALTH_BAD, "GPU %s: row remapping failed", gpu->bus);
    if (gpu->uncorrected)
        tell (&out, HEALTH_BAD,
              "GPU %s: %" PRIu64 " uncorrectable ECC errors since its reset",
              gpu->bus, gpu->uncorrected);
    /* NVIDIA: new work may start meanwhile. A line for each job of the node
     * would be many, so where the job has it. */
    if (gpu->remap_pending && gpu->mine)
        tell (&out, HEALTH_NOTE,
              "GPU %s: a row is remapped or a page retired at its next reset",
              gpu->bus);
    if (gpu->n_left)
        tell (&out, HEALTH_BAD,
              "GPU %s: %u left-over processes, such as %d of uid %u", gpu->bus,
              gpu->n_left, (int)gpu->left_pid, (unsigned)gpu->left_uid);
}

static void forget_bus (struct health_xids *xids, const char *bus)
{
    size_t kept = 0;

    for (size_t i = 0; i < xids->n; i++)
        if (strcmp (xids->xid[i].bus, bus) != 0)
            xids->xid[kept++] = xids->xid[i];
    xids->n = kept;
}

static void add_xid (struct health_xids *xids, const struct xid *x)
{
    if (x->number == 154 && x->none) {
        forget_bus (xids, x->bus);
        return;
    }
    if (xid_class (x) == XID_APPLICATION)
        return;
    for (size_t i = 0; i < xids->n; i++)
        if (xids->xid[i].number == x->number
            && strcmp (xids->xid[i].bus, x->bus) == 0)
            return;
    if (xids->n < HEALTH_XIDS)
        xids->xid[xids->n++] = *x;
}

void health_read_log (struct health_xids *xids, const char *text, size_t len,
                      bool skip, uint64_t after)
{
    const char *end = text + len;

    while (text < end) {
        const char *newline = memchr (text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;
        uint64_t seq = UINT64_MAX;
        struct xid x;
        bool is_xid = xid_parse (text, (size_t)(stop - text), &x, &seq);

        if (seq != UINT64_MAX && (seq > xids->seq || !xids->any)) {
            xids->seq = seq;
            xids->any = true;
        }
        if (is_xid && !(skip && seq <= after))
            add_xid (xids, &x);
        text = newline ? newline + 1 : end;
    }
}

void health_judge_xids (const struct health_xids *xids, health_found_f found,
                        void *arg)
{
    struct out out = {found, arg};

    for (size_t i = 0; i < xids->n; i++) {
        const struct xid *x = &xids->xid[i];

        tell (&out, xid_class (x) == XID_HARDWARE ? HEALTH_BAD : HEALTH_NOTE,
              "GPU %s: Xid %u, %s", x->bus, x->number, xid_text (x->number));
    }
}

/* number - digits at *at, which moves behind them; -1 where there are none. */
static long number (const char **at)
{
    char *end;
    long n;

    if (**at < '0' || **at > '9')
        return -1;
    n = strtol (*at, &end, 10);
    *at = end;
    return n;
}

bool health_listed (const char *list, unsigned minor)
{
    bool found = false;

    if (!list)
        return false;
    for (;;) {
        long first = number (&list), last = first;

        if (first >= 0 && *list == '-') {
            list++;
            last = number (&list);
        }
        if (first < 0 || last < first)
            return false;
        found =
            found
            || (minor >= (unsigned long)first && minor <= (unsigned long)last);
        if (*list == '\0')
            return found;
        if (*list++ != ',')
            return false;
    }
}

size_t health_format (char *buf, size_t size, enum health_level level,
                      const char *text)
{
    int n = snprintf (buf, size, "%s %s", level == HEALTH_BAD ? "bad" : "note",
                      text);
    size_t len = n < 0 ? 0 : (size_t)n;

    if (len > size - 2)
        len = size - 2;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)buf[i] < ' ')
            buf[i] = '?';
    buf[len++] = '\n';
    buf[len] = '\0';
    return len;
}

/* begins - the rest of [line] behind [word]. */
static const char *begins (const char *line, const char *word)
{
    size_t len = strlen (word);

    return strncmp (line, word, len) == 0 ? line + len : NULL;
}

static void read_line (const char *line, const struct out *out,
                       struct health_verdict *v)
{
    const char *rest;
    char *end;

    if ((rest = begins (line, "note "))) {
        if (out->found)
            out->found (out->arg, HEALTH_NOTE, rest);
    } else if ((rest = begins (line, "bad "))) {
        if (out->found)
            out->found (out->arg, HEALTH_BAD, rest);
        if (v->n_bad++ == 0)
            snprintf (v->reason, sizeof (v->reason), "%.*s", REASON_MAX, rest);
    } else if ((rest = begins (line, "seq ")) && *rest >= '0' && *rest <= '9') {
        v->seq = strtoull (rest, &end, 10);
        v->has_seq = *end == '\0';
    }
}

void health_read_report (const char *text, size_t len, health_found_f found,
                         void *arg, struct health_verdict *ret)
{
    const char *end = text + len, *newline;
    struct out out = {found, arg};
    struct health_verdict v = {0};
    size_t used;

    while ((newline = memchr (text, '\n', (size_t)(end - text)))) {
        char line[HEALTH_TEXT + 8];
        size_t n = (size_t)(newline - text);

        if (n < sizeof (line)) {
            memcpy (line, text, n);
            line[n] = '\0';
            read_line (line, &out, &v);
        }
        text = newline + 1;
    }
    used = strlen (v.reason);
    if (v.n_bad > 1 && used < sizeof (v.reason))
        snprintf (v.reason + used, sizeof (v.reason) - used, " (and %u more)",
                  v.n_bad - 1);
    *ret = v;
}
