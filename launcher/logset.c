/* SPDX-License-Identifier: Apache-2.0
 * logset.c - the logs of one job's ranks, shown together
 *
 * Lines of several ranks must not mix, so they go out whole. The bytes of one
 * rank go out as they come where they are asked for (raw), where `rv run -f`
 * leads standard output into a file or a pipe, and on a terminal, which draws
 * bars itself. Everywhere else a line that is drawn over is shown as it ends,
 * and meanwhile in the terminal's lowest line, or every BAR_MS as a line. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "logset.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proc.h"

#define BAR_MS      10000
#define OTHER_FILES 64 /* that a command has open beside the logs */

struct ranks {
    int first, last;
};

static struct ranks choose (const struct request *req,
                            const struct follow_opts *opts)
{
    if (opts->rank < 0)
        return (struct ranks){0, (int)req->tasks - 1};
    return (struct ranks){
        opts->rank, opts->rank + (opts->n_ranks > 1 ? opts->n_ranks - 1 : 0)};
}

/* How the log of a rank goes out. */
static void dress (struct logset *set, struct logtail *tail,
                   const struct follow_opts *opts, bool goes_on, bool several)
{
    bool terminal = isatty (tail->out_fd);
    bool exact = opts->exact_out && tail->out_fd == STDOUT_FILENO && !terminal;

    tail->lines = !opts->raw
                  && (several || tail->label[0] || opts->json
                      || !(exact || (terminal && goes_on)));
    tail->clean = tail->lines && !exact;
    if (terminal && goes_on && set->live.fd >= 0)
        tail->live = &set->live;
}

static int add (struct logset *set, const struct request *req, int rank,
                bool is_err, const struct follow_opts *opts,
                struct rv_error *err)
{
    struct logtail *tail = &set->tail[set->n++];
    bool to_err = !opts->json && (is_err || rank < 0);
    char text[24] = "";
    int status;

    if (opts->label && rank >= 0 && !opts->raw && !opts->json)
        snprintf (text, sizeof (text), "%d: ", rank);
    status =
        logtail_init (tail, request_log (req, req->job_id, rank, is_err),
                      to_err ? STDERR_FILENO : STDOUT_FILENO, true, text, err);
    if (opts->json)
        tail->as = (struct logtail_as){true, req->job_id, rank, is_err};
    return status;
}

static int add_rank (struct logset *set, const struct request *req, int rank,
                     const struct follow_opts *opts, bool goes_on, bool several,
                     struct rv_error *err)
{
    int status = RV_OK;

    for (int is_err = 0; is_err < 2 && status == RV_OK; is_err++)
        if (is_err ? opts->err : opts->out) {
            status = add (set, req, rank, is_err, opts, err);
            dress (set, &set->tail[set->n - 1], opts, goes_on, several);
        }
    return status;
}

/* Each log stays open, and a shell's usual limit of 1,024 files is that of 500
 * ranks; what may be had beyond it may be had without asking. */
static void allow_files (size_t logs)
{
    const rlim_t need = logs + OTHER_FILES;
    struct rlimit limit;

    if (getrlimit (RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
        return;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    setrlimit (RLIMIT_NOFILE, &limit);
}

int logset_init (struct logset *set, const struct request *req,
                 const struct follow_opts *opts, bool goes_on,
                 struct rv_error *err)
{
    struct ranks ranks = choose (req, opts);
    const size_t most = (size_t)(ranks.last - ranks.first + 1) * 2 + 2;
    int status = RV_OK;

    allow_files (most);
    live_init (&set->live);
    set->n = 0;
    set->tail = calloc (most, sizeof (*set->tail));
    if (!set->tail)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (int i = 0; opts->batch && i < 2 && status == RV_OK; i++) {
        status = add (set, req, -1, i, opts, err);
        if (goes_on && set->live.fd >= 0 && isatty (STDERR_FILENO))
            set->tail[set->n - 1].live = &set->live;
    }
    for (int rank = ranks.first; rank <= ranks.last && status == RV_OK; rank++)
        status = add_rank (set, req, rank, opts, goes_on,
                           ranks.last > ranks.first, err);
    for (size_t i = 0; opts->tail >= 0 && i < set->n && status == RV_OK; i++)
        status = logtail_skip (&set->tail[i], opts->tail, err);
    return status;
}

void logset_fini (struct logset *set)
{
    live_erase (&set->live);
    for (size_t i = 0; i < set->n; i++)
        logtail_fini (&set->tail[i]);
    free (set->tail);
    set->tail = NULL;
    set->n = 0;
}

/* The last one that changed stands in the lowest line. */
static void show_unfinished (struct logset *set, int64_t now)
{
    for (size_t i = set->n; i-- > 0;) {
        struct logtail *tail = &set->tail[i];

        if (!tail->live || !tail->lines || !tail->fresh || !tail->part_len)
            continue;
        if (live_show (&set->live, tail->label, tail->part, tail->part_len,
                       now))
            tail->fresh = false;
        return;
    }
}

int logset_poll (struct logset *set, bool last, struct rv_error *err)
{
    int64_t now = proc_now_ms ();
    int status = RV_OK;
    bool any;

    for (size_t i = 0; i < set->n && status == RV_OK; i++) {
        status = last ? logtail_finish (&set->tail[i], err)
                      : logtail_poll (&set->tail[i], &any, err);
        if (status == RV_OK && !last && !set->tail[i].live)
            status = logtail_show_bar (&set->tail[i], now, BAR_MS, err);
    }
    if (status == RV_OK && !last)
        show_unfinished (set, now);
    return status;
}

void logset_quiet (struct logset *set)
{
    live_erase (&set->live);
}

int logset_release (struct logset *set, bool show, struct rv_error *err)
{
    int status = RV_OK;

    for (size_t i = 0; i < set->n && status == RV_OK; i++)
        status = logtail_release (&set->tail[i], show, err);
    return status;
}
