/* SPDX-License-Identifier: Apache-2.0
 * claim.c - of several jobs of one request, one runs its command */
#include "config.h"

#include "exec/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/fsio.h"

#define POLL_MS   1000
#define UNKNOWN_N 3 /* answers in a row: a controller may just have started */
#define PATH_SIZE 4096
#define CLAIM_MAX 256 /* bytes of a claim */

static void before (const struct claim *c, const char *operation)
{
    if (c->before)
        c->before (c->arg, operation);
}

static int make_path (const char *dir, const char *name, char buf[PATH_SIZE],
                      struct rv_error *err)
{
    int n = snprintf (buf, PATH_SIZE, "%s/%s", dir, name);

    return n > 0 && n < PATH_SIZE
               ? RV_OK
               : error_set (err, RV_EINVAL, "%s: the path is too long", dir);
}

static int claim_path (const struct claim *c, int number, char buf[PATH_SIZE],
                       struct rv_error *err)
{
    char name[24] = "claim";

    if (number)
        snprintf (name, sizeof (name), "claim.%d", number);
    return make_path (c->dir, name, buf, err);
}

static int parse (const char *path, const char *text, struct claim_holder *ret,
                  struct rv_error *err)
{
    int n = 0;

    if (sscanf (text, "job %" SCNu32 " restart %" SCNu32 " first %" SCNu32 "%n",
                &ret->job_id, &ret->restart, &ret->root, &n)
            == 3
        && !strcmp (text + n, "\n"))
        return RV_OK;
    return error_set (err, RV_EFORMAT, "%s names no job", path);
}

int claim_read (const struct claim *c, struct claim_holder *ret,
                struct rv_error *err)
{
    char path[PATH_SIZE], *text;
    struct claim_holder found = {.number = -1};

    for (int number = 0;; number++) {
        struct rv_error why = {0};
        int rc = claim_path (c, number, path, err);

        if (rc)
            return rc;
        before (c, "read");
        rc = fsio_read (path, CLAIM_MAX, &text, NULL, &why);
        if (rc == RV_ENOTFOUND)
            break;
        if (rc)
            return error_set (err, rc, "%s", why.text);
        rc = parse (path, text, &found, err);
        free (text);
        if (rc)
            return rc;
        found.number = number;
    }
    *ret = found;
    return RV_OK;
}

/* A file of our own that names the job. */
static int write_own (const struct claim *c, uint32_t job_id, uint32_t restart,
                      char path[PATH_SIZE], struct rv_error *err)
{
    char name[64], text[CLAIM_MAX];
    int n, rc;

    snprintf (name, sizeof (name), ".claim-%u-%u-%d", c->job_id, c->restart,
              (int)getpid ());
    if ((rc = make_path (c->dir, name, path, err)))
        return rc;
    n = snprintf (text, sizeof (text),
                  "job %" PRIu32 " restart %" PRIu32 " first %" PRIu32 "\n",
                  job_id, restart, c->root);
    before (c, "write");
    return fsio_write_unsynced (path, text, (size_t)n, 0600, err);
}

/* Did our link go through? The answer to link itself may be that of a second
 * try whose first one had succeeded. */
static bool is_linked (const struct claim *c, const char *own)
{
    struct stat st;

    before (c, "stat");
    return stat (own, &st) == 0 && st.st_nlink > 1;
}

/* May another job run the command still? Asked behind a change of our own to
 * the folder, so that no cache of a network file system answers. */
static bool too_late (const struct claim *c, const struct claim_holder *h)
{
    before (c, "look");
    return h->number >= 0 && h->root != c->root && claim_has_started (c->dir);
}

/* Try to become the claim after [h]. [ret_got] false: another has it, or the
 * command has begun. */
static int try_link (const struct claim *c, const struct claim_holder *h,
                     uint32_t job_id, uint32_t restart, bool *ret_got,
                     struct rv_error *err)
{
    char own[PATH_SIZE], path[PATH_SIZE];
    int rc, failed = 0;

    if ((rc = claim_path (c, h->number + 1, path, err))
        || (rc = write_own (c, job_id, restart, own, err)))
        return rc;
    if (too_late (c, h)) {
        unlink (own);
        return RV_OK;
    }
    before (c, "link");
    if (link (own, path))
        failed = errno;
    *ret_got = is_linked (c, own);
    before (c, "unlink");
    unlink (own);
    if (*ret_got || failed == EEXIST)
        return RV_OK;
    if (failed == EPERM || failed == ENOTSUP || failed == ENOSYS)
        return error_set (err, RV_ENOTSUP, "%s has no hard links", c->dir);
    return error_set (err, RV_EIO, "%s: %s", path,
                      strerror (failed ? failed : EIO));
}

/* May this job claim after [h]?
 *   unknown   answers of that kind in a row, counted here */
static bool may_follow (const struct claim *c, const struct claim_holder *h,
                        int *unknown)
{
    enum claim_said said;

    if (h->number < 0 || h->root == c->root)
        return true;
    said = c->ask (c->arg, h->job_id);
    *unknown = said == CLAIM_UNKNOWN ? *unknown + 1 : 0;
    return said == CLAIM_OVER || *unknown >= UNKNOWN_N;
}

static bool is_ours (const struct claim *c, const struct claim_holder *h)
{
    return h->number >= 0 && h->job_id == c->job_id && h->restart == c->restart;
}

int claim_take (const struct claim *c, bool *ret_won,
                struct claim_holder *ret_holder, struct rv_error *err)
{
    struct claim_holder h;
    int unknown = 0, rc;

    for (;;) {
        bool got = false;

        if ((rc = claim_read (c, &h, err)))
            return rc;
        if (is_ours (c, &h))
            break;
        if (too_late (c, &h))
            break;
        if (!may_follow (c, &h, &unknown))
            poll (NULL, 0, c->poll_ms ? c->poll_ms : POLL_MS);
        else if ((rc = try_link (c, &h, c->job_id, c->restart, &got, err)))
            return rc;
    }
    *ret_won = is_ours (c, &h);
    *ret_holder = h;
    return RV_OK;
}

int claim_hand_on (const struct claim *c, uint32_t next, struct rv_error *err)
{
    struct claim_holder h;
    bool got = false;
    int rc = claim_read (c, &h, err);

    if (rc == RV_OK && !is_ours (c, &h))
        rc = error_set (err, RV_ESTATE, "job %u holds the claim", h.job_id);
    if (rc == RV_OK)
        rc = try_link (c, &h, next, 0, &got, err);
    if (rc == RV_OK && !got)
        rc = error_set (err, RV_ESTATE, "another job has claimed meanwhile");
    return rc;
}

int claim_started (const char *dir, struct rv_error *err)
{
    char path[PATH_SIZE];
    int fd, rc = make_path (dir, "started", path, err);

    if (rc)
        return rc;
    fd = open (path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || close (fd))
        return error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    return RV_OK;
}

bool claim_has_started (const char *dir)
{
    char path[PATH_SIZE];

    /* open(2) asks the server of a network file system, stat(2) may not. */
    int fd = make_path (dir, "started", path, NULL)
                 ? -1
                 : open (path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    close (fd);
    return true;
}
