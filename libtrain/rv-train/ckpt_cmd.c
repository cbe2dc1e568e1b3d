/* SPDX-License-Identifier: Apache-2.0
 * ckpt_cmd.c - rv-train ckpt: list, show, verify and remove checkpoints */
#include "config.h"

#include "ckpt_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_report.h"
#include "libtrain/err.h"

struct job {
    const char *action, *path;
    long keep; /* 0: not given */
    bool json;
    struct ckpt_seen *seen; /* (n), those with the most steps first */
    size_t n;
    bool folder; /* [path] is a folder of checkpoints, not one */
    bool told;   /* an answer was printed */
};

static bool is (const struct job *j, const char *action)
{
    return strcmp (j->action, action) == 0;
}

static train_status_t read_keep (const char *text, long *ret,
                                 train_error_t *err)
{
    char *end;

    *ret = strtol (text, &end, 10);
    if (*end || *ret < 1 || *ret > 1000000)
        return err_set (err, TRAIN_EINVAL,
                        "--keep '%s': a number from 1 to 1000000 works", text);
    return TRAIN_OK;
}

static train_status_t check_args (const struct job *j, train_error_t *err)
{
    bool known = j->action
                 && (is (j, "list") || is (j, "show") || is (j, "verify")
                     || is (j, "prune"));

    if (!known)
        return err_set (err, TRAIN_EINVAL,
                        "'%s' is no action: list, show, verify and prune are",
                        j->action ? j->action : "");
    if (!j->path)
        return err_set (err, TRAIN_EINVAL, "%s takes a folder", j->action);
    if (is (j, "prune") != (j->keep > 0))
        return err_set (err, TRAIN_EINVAL,
                        "--keep N goes with prune, and prune with it");
    return TRAIN_OK;
}

static train_status_t read_args (struct job *j, int argc, char *const *argv,
                                 train_error_t *err)
{
    for (int i = 0; i < argc; i++)
        if (strcmp (argv[i], "--json") == 0)
            j->json = true;
        else if (strcmp (argv[i], "--keep") == 0 && i + 1 < argc)
            TRY (read_keep (argv[++i], &j->keep, err));
        else if (argv[i][0] == '-' || j->path)
            return err_set (err, TRAIN_EINVAL,
                            "'%s' is one too many, no option, or lacks its "
                            "value",
                            argv[i]);
        else if (!j->action)
            j->action = argv[i];
        else
            j->path = argv[i];
    return check_args (j, err);
}

/* Takes [path]. One that cannot be opened is seen as damaged. */
static train_status_t look_at (struct job *j, char *path, int64_t step,
                               train_error_t *err)
{
    struct ckpt_seen *p = realloc (j->seen, (j->n + 1) * sizeof (*p));

    if (!p) {
        free (path);
        return err_set (err, TRAIN_ENOMEM, "no memory for a list");
    }
    j->seen = p;
    p += j->n++;
    *p = (struct ckpt_seen){.path = path, .step = step};
    if (train_ckpt_open (path, &p->ckpt, &p->damage) == TRAIN_OK)
        p->step = train_ckpt_step (p->ckpt);
    return TRAIN_OK;
}

static train_status_t look_all (struct job *j, train_error_t *err)
{
    char *latest = NULL;
    int64_t *step = NULL;
    size_t n = 0;
    train_status_t status;

    TRY (train_ckpt_list (j->path, &step, &n, err));
    if (n == 0)
        return err_set (err, TRAIN_ENOTFOUND, "%s holds no checkpoint",
                        j->path);
    status = TRAIN_OK;
    train_ckpt_find (j->path, &latest, NULL);
    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        char *path = NULL;

        if ((status = train_ckpt_path (j->path, step[i], &path, err))
            == TRAIN_OK)
            status = look_at (j, path, step[i], err);
        if (status == TRAIN_OK)
            j->seen[i].latest = latest && strcmp (path, latest) == 0;
    }
    free (latest);
    free (step);
    return status;
}

/* A checkpoint by itself, the latest of a folder for show, else all. */
static train_status_t look (struct job *j, train_error_t *err)
{
    char *found = NULL;
    train_status_t status = train_ckpt_find (j->path, &found, err);

    j->folder = status != TRAIN_OK || strcmp (found, j->path) != 0;
    if (j->folder && !is (j, "show")) {
        free (found);
        return look_all (j, err);
    }
    if (status != TRAIN_OK)
        return status;
    TRY (look_at (j, found, 0, err));
    j->seen[0].latest = j->folder;
    return TRAIN_OK;
}

static bool sum (struct ckpt_seen *s)
{
    if (s->ckpt && !s->verified)
        s->verified = train_ckpt_verify (s->ckpt, &s->damage) == TRAIN_OK;
    return s->verified;
}

/* The newest good ones stay, and all that is damaged: it counts for nothing. */
static train_status_t prune (struct job *j, train_error_t *err)
{
    long good = 0;

    for (size_t i = 0; i < j->n; i++) {
        struct ckpt_seen *s = &j->seen[i];

        if (good < j->keep) {
            good += sum (s);
        } else if (s->ckpt && !s->latest) {
            TRY (train_ckpt_remove (j->path, s->step, err));
            s->removed = true;
        }
    }
    return TRAIN_OK;
}

/* The first damage is the command's error; list tells of it alone. */
static train_status_t verdict (const struct job *j, train_error_t *err)
{
    for (size_t i = 0; i < j->n && !is (j, "list"); i++)
        if (j->seen[i].damage.code != TRAIN_OK)
            return err_set (err, j->seen[i].damage.code, "%s",
                            j->seen[i].damage.text);
    return TRAIN_OK;
}

static train_status_t report (struct job *j, train_error_t *err)
{
    bool whole = is (j, "show");

    if (j->json && !ckpt_report_json (j->action, j->seen, j->n, whole))
        return err_set (err, TRAIN_ENOMEM, "no memory for JSON");
    if (!j->json && whole && j->seen[0].ckpt)
        ckpt_report_whole (&j->seen[0]);
    else if (!j->json && !whole)
        ckpt_report_list (j->seen, j->n);
    fflush (stdout);
    j->told = true;
    return TRAIN_OK;
}

static train_status_t serve (struct job *j, train_error_t *err)
{
    TRY (look (j, err));
    if (is (j, "prune") && !j->folder)
        return err_set (err, TRAIN_EINVAL,
                        "%s is one checkpoint: prune takes a folder of them",
                        j->path);
    for (size_t i = 0; i < j->n && is (j, "verify"); i++)
        sum (&j->seen[i]);
    if (is (j, "prune"))
        TRY (prune (j, err));
    TRY (report (j, err));
    return verdict (j, err);
}

static bool is_file (const char *path)
{
    size_t len = strlen (path);

    return len > 12 && strcmp (path + len - 12, ".safetensors") == 0;
}

train_status_t ckpt_cmd (int argc, char *const *argv, bool *ret_untold,
                         train_error_t *err)
{
    struct job j = {0};
    train_status_t status;

    TRY (read_args (&j, argc, argv, err));
    if (is (&j, "show") && !j.json && is_file (j.path))
        return ckpt_report_file (j.path, err);
    status = serve (&j, err);
    *ret_untold = j.json && !j.told;
    for (size_t i = 0; i < j.n; i++) {
        train_ckpt_close (j.seen[i].ckpt);
        free (j.seen[i].path);
    }
    free (j.seen);
    return status;
}
