/* SPDX-License-Identifier: Apache-2.0
 * run_fan.c - the jobs of one request of `rv run`: which, and their submission
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "run_fan.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/claim.h"
#include "plan/fsio.h"
#include "siblings.h"
#include "submit.h"

#define LOOKS 50 /* requests that are looked at for one that a node has seen */

static int newest_first (const struct dirent **a, const struct dirent **b)
{
    return strcmp ((*b)->d_name, (*a)->d_name);
}

static int is_request (const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Has a job been seen to reach the folder? A node that does not see it would
 * only have jobs that fail, and rv cannot look there; what one of the last
 * requests' ranks left there tells. */
static bool was_reached (const char *state_dir)
{
    char *root = fsio_join (state_dir, "requests");
    struct dirent **names = NULL;
    int n = root ? scandir (root, &names, is_request, newest_first) : -1;
    bool found = false;

    for (int i = 0; i < n; i++) {
        char *dir =
            i < LOOKS && !found ? fsio_join (root, names[i]->d_name) : NULL;

        found = found || (dir && claim_has_started (dir));
        free (dir);
        free (names[i]);
    }
    free (names);
    free (root);
    return found;
}

/* An option that makes one job of the request; NULL = none. */
static const char *option_against (const struct run_opts *opts)
{
    for (size_t i = 0; i < opts->slurm.n; i++) {
        const struct run_slurm_opt *o = &opts->slurm.opt[i];
        const char *name = o->name ? o->name : o->value;

        if (!strcmp (name, "array"))
            return "the tasks of --array are jobs already";
        if (strstr (name, "mail-type"))
            return "--mail-type would tell of each of the jobs";
        if ((!o->name || !strcmp (name, "dependency")) && o->value
            && strstr (o->value, "singleton"))
            return "--dependency=singleton lets one job of a name in at a time";
    }
    return NULL;
}

void run_fan_choose (struct run_fan *fan, bool up, int room)
{
    const struct settings *s = fan->settings;
    struct fanout_wish wish = {
        .most =
            fan->opts->fanout ? fan->opts->fanout : site_conf_fanout (&s->conf),
        .room = room,
        .never = up ? "a shell is one job" : option_against (fan->opts),
    };

    if (!wish.never && wish.most > 1 && !s->conf.state_dir
        && !was_reached (s->state_dir)) {
        snprintf (fan->reached, sizeof (fan->reached),
                  "no job has been seen to reach %.300s yet", s->state_dir);
        wish.never = fan->reached;
    }
    fanout_choose (fan->plans, &wish, &fan->choice);
    for (size_t k = 0; k < fan->choice.n + fan->choice.n_spare; k++)
        fan->job[k].item = fan->choice.order[k];
}

int run_fan_words (struct run_fan *fan, size_t k, struct rv_error *err)
{
    const struct strategy_plan *plan = &fan->plans->item[fan->job[k].item].plan;
    const struct checkpoint *c = &fan->opts->checkpoint;
    struct run_more more = {0};
    unsigned kept = fan->req->candidate;
    int rc;

    if (fan->job[k].argv)
        return RV_OK;
    if (c->signal && plan->time_s >= 0 && c->seconds >= plan->time_s)
        return error_set (err, RV_EINVAL,
                          "--checkpoint's %u seconds before the limit are not "
                          "within its %lld",
                          c->seconds, (long long)plan->time_s);
    rc = run_more_make (fan->opts, fan->settings, plan->constraint, &more, err);
    fan->req->candidate = (unsigned)k + 1;
    if (rc == RV_OK
        && !(fan->job[k].argv = submit_argv (plan, fan->req, &more.submit)))
        rc = error_set (err, RV_ENOMEM, "out of memory");
    fan->req->candidate = kept;
    run_more_fini (&more);
    return rc;
}

/* One sbatch call. [k] 0 is the first, whose files are there. */
static int submit_one (struct run_fan *fan, size_t k, struct rv_error *err)
{
    struct run_fan_job *job = &fan->job[k];
    struct rv_error why = {0};
    int rc = run_fan_words (fan, k, err);

    fan->from->plan = &fan->plans->item[job->item].plan;
    fan->from->candidate = (unsigned)k + 1;
    if (rc == RV_OK && k)
        rc = request_add (fan->from, fan->req, err);
    if (rc == RV_OK)
        rc = submit_again (job->argv, &job->job_id, err);
    if (rc != RV_OK)
        return rc;
    fan->n_submitted++;
    fan->req->root[fan->req->n_roots++] = job->job_id;
    if (request_submitted (fan->req, job->job_id, job->argv, &why) != RV_OK)
        fprintf (stderr, "rv: job %u was submitted, but cannot be noted: %s\n",
                 job->job_id, why.text);
    return RV_OK;
}

/* Has a job of the request claimed the command? Then no other is needed. */
static bool is_claimed (const struct run_fan *fan)
{
    const struct claim c = {.dir = fan->req->dir};
    struct claim_holder h = {.number = -1};

    return fan->n_submitted && claim_read (&c, &h, NULL) == RV_OK
           && h.number >= 0;
}

/* "1 (a100 in gpu): sbatch: ...; 2 (...): ..." */
static int all_refused (const struct run_fan *fan, int rc, struct rv_error *err)
{
    char text[512] = "";
    size_t at = 0;

    if (fan->n_tried == 1)
        return error_set (err, rc, "%s", fan->job[0].why);
    for (size_t k = 0; k < fan->n_tried && at < sizeof (text); k++)
        at += (size_t)snprintf (text + at, sizeof (text) - at,
                                "%sstrategy %zu: %s", k ? "; " : "",
                                fan->job[k].item + 1, fan->job[k].why);
    return error_set (err, rc, "%s", text);
}

static void tell_refused (const struct run_fan *fan)
{
    for (size_t k = 0; k < fan->n_tried; k++)
        if (!fan->job[k].job_id)
            fprintf (stderr, "rv: strategy %zu (%s) was not submitted: %s\n",
                     fan->job[k].item + 1,
                     fan->plans->item[fan->job[k].item].partition,
                     fan->job[k].why);
}

/* One that began before the last was noted could not end that one. */
static void end_losers (struct run_fan *fan)
{
    struct rv_error why = {0};
    uint32_t winner = 0;

    if (siblings_stop_if_started (fan->req->dir, &winner, &why) != RV_OK)
        fprintf (stderr,
                 "rv: cannot end the jobs that another one has forestalled, "
                 "which end by themselves: %s\n",
                 why.text);
    for (size_t k = 0; k < fan->n_tried; k++)
        if (fan->job[k].job_id && fan->job[k].job_id == winner) {
            fan->req->job_id = winner;
            fan->req->candidate = (unsigned)k + 1;
        }
}

int run_fan_submit (struct run_fan *fan, struct rv_error *err)
{
    size_t all = fan->choice.n + fan->choice.n_spare, first = 0;
    int rc = RV_OK;

    for (size_t k = 0; k < all && fan->n_submitted < fan->choice.n; k++) {
        struct rv_error why = {0};

        if (is_claimed (fan))
            break;
        fan->n_tried = k + 1;
        if ((rc = submit_one (fan, k, &why)) == RV_OK)
            continue;
        snprintf (fan->job[k].why, sizeof (fan->job[k].why), "%s", why.text);
        /* A limit holds for the others too, and where nobody has answered the
         * job may be there. */
        if (rc == RV_ESTATE || rc == RV_ETIMEDOUT || rc == RV_ENOTFOUND)
            break;
    }
    if (fan->n_submitted == 0)
        return all_refused (fan, rc, err);
    tell_refused (fan);
    while (!fan->job[first].job_id)
        first++;
    fan->req->job_id = fan->job[first].job_id;
    fan->req->candidate = (unsigned)first + 1;
    if (fan->n_submitted > 1)
        end_losers (fan);
    return RV_OK;
}

const struct plans_item *run_fan_item (const struct run_fan *fan)
{
    size_t k =
        fan->req->job_id && fan->req->candidate ? fan->req->candidate - 1 : 0;

    return &fan->plans->item[fan->job[k].item];
}

void run_fan_print (const struct run_fan *fan)
{
    const struct fanout *f = &fan->choice;

    if (fan->plans->n == 1)
        return;
    if (f->alone[0]) {
        printf ("fan-out    none: %s\n", f->alone);
        return;
    }
    printf ("fan-out    %zu jobs, of which the first that starts runs the "
            "command\n",
            f->n);
    for (size_t i = 0; i < fan->plans->n; i++)
        if (f->fate[i] != FANOUT_SUBMIT)
            printf ("           not %zu: %s\n", i + 1, f->why[i]);
}

json_t *run_fan_json (const struct run_fan *fan)
{
    json_t *list = json_array ();

    for (size_t k = 0; k < fan->n_tried; k++)
        if (fan->job[k].job_id)
            json_array_append_new (
                list, json_pack ("{s:I, s:I}", "job_id",
                                 (json_int_t)fan->job[k].job_id, "strategy",
                                 (json_int_t)fan->job[k].item));
    return list;
}

void run_fan_fini (struct run_fan *fan)
{
    for (size_t k = 0; k < FANOUT_MOST; k++) {
        submit_argv_free (fan->job[k].argv);
        fan->job[k].argv = NULL;
    }
}
