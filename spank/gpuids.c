/* SPDX-License-Identifier: Apache-2.0
 * gpuids.c - what CUDA calls the devices that Slurm counts
 *
 * The child writes what files tell first, then what NVML says, which replaces
 * it: where NVML hangs, the former is there. The parent may be slurmstepd; it
 * believes nothing of what it reads but that they are words for the user's own
 * environment.
 * Sources: NVML API Reference; CUDA environment variables,
 * CUDA_VISIBLE_DEVICES; Multi-Instance GPU User Guide. */
#include "config.h"

#include "gpuids.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "child.h"
#include "gresfile.h"
#include "nvml.h"
#include "plan/fsio.h"

#define FILE_MAX_BYTES (1u << 20)
#define CARDS_MAX      64
#define SLICES_MAX     16 /* of one card; today seven */
#define REPORT_MAX     (DEVLIST_MAX * (DEVLIST_NAME_MAX + 16))

struct card {
    int minor;
    char uuid[DEVLIST_NAME_MAX];
    struct {
        int gi, ci;
        char uuid[DEVLIST_NAME_MAX];
    } slice[SLICES_MAX];
    size_t n;
};

struct cards {
    struct card card[CARDS_MAX];
    size_t n;
};

struct calls {
    struct nvml nvml;
    int (*uuid) (void *, char *, unsigned);
    /* may be NULL: drivers that know no MIG */
    int (*mig_mode) (void *, unsigned *, unsigned *);
    int (*mig_count) (void *, unsigned *);
    int (*mig_handle) (void *, unsigned, void **);
    int (*gi) (void *, unsigned *);
    int (*ci) (void *, unsigned *);
};

static char *slurp (const char *dir, const char *name)
{
    char *path = fsio_join (dir, name), *buf = NULL;

    if (path && fsio_read (path, FILE_MAX_BYTES, &buf, NULL, NULL))
        buf = NULL;
    free (path);
    return buf;
}

/* ---- what files tell ---- */

static void cards_of_driver (const char *driver, struct cards *ret)
{
    char *pattern = fsio_join (driver, "nvidia/gpus/*/information");
    glob_t files;

    ret->n = 0;
    if (!pattern || glob (pattern, 0, NULL, &files)) {
        free (pattern);
        return;
    }
    for (size_t i = 0; i < files.gl_pathc && ret->n < CARDS_MAX; i++) {
        struct card *c = &ret->card[ret->n];
        char *text = slurp ("/", files.gl_pathv[i] + 1);

        /* The driver writes '?' for a card that nobody has used yet. */
        c->n = 0;
        if (text && gresfile_card (text, &c->minor, c->uuid)
            && !strchr (c->uuid, '?'))
            ret->n++;
        free (text);
    }
    globfree (&files);
    free (pattern);
}

static const struct card *card_of (const struct cards *cards, int minor)
{
    for (size_t i = 0; i < cards->n; i++)
        if (cards->card[i].minor == minor)
            return &cards->card[i];
    return NULL;
}

/* ---- what NVML says ---- */

static int load (const char *path, struct calls *ret, struct rv_error *err)
{
    int rc = nvml_open (path, &ret->nvml, err);
    void *lib = ret->nvml.lib;

    if (rc)
        return rc;
    nvml_find (lib, "nvmlDeviceGetUUID", &ret->uuid);
    nvml_find (lib, "nvmlDeviceGetMigMode", &ret->mig_mode);
    nvml_find (lib, "nvmlDeviceGetMaxMigDeviceCount", &ret->mig_count);
    nvml_find (lib, "nvmlDeviceGetMigDeviceHandleByIndex", &ret->mig_handle);
    nvml_find (lib, "nvmlDeviceGetGpuInstanceId", &ret->gi);
    nvml_find (lib, "nvmlDeviceGetComputeInstanceId", &ret->ci);
    if (!ret->uuid || !ret->nvml.minor)
        return error_set (err, RV_EIO, "NVML: it is too old to name a card");
    return RV_OK;
}

static void ask_slices (const struct calls *call, void *dev, struct card *c)
{
    unsigned mode = 0, pending, max = 0;

    if (!call->mig_mode || !call->mig_count || !call->mig_handle || !call->gi
        || !call->ci || call->mig_mode (dev, &mode, &pending) || !mode
        || call->mig_count (dev, &max))
        return;
    for (unsigned i = 0; i < max && c->n < SLICES_MAX; i++) {
        char *uuid = c->slice[c->n].uuid;
        unsigned gi, ci;
        void *mig;

        if (call->mig_handle (dev, i, &mig) || call->gi (mig, &gi)
            || call->ci (mig, &ci) || call->uuid (mig, uuid, DEVLIST_NAME_MAX))
            continue;
        c->slice[c->n].gi = (int)gi;
        c->slice[c->n++].ci = (int)ci;
    }
}

/* A card that does not answer is left out; others may be the job's. */
static void cards_of_nvml (const struct calls *call, struct cards *ret)
{
    unsigned minor;

    ret->n = 0;
    for (unsigned i = 0; i < call->nvml.n && ret->n < CARDS_MAX; i++) {
        struct card *c = &ret->card[ret->n];
        void *dev;

        c->n = 0;
        if (call->nvml.handle (i, &dev) || call->nvml.minor (dev, &minor)
            || call->uuid (dev, c->uuid, sizeof (c->uuid)))
            continue;
        c->minor = (int)minor;
        ask_slices (call, dev, c);
        ret->n++;
    }
}

/* ---- the child ---- */

static void say_slice (int fd, int index, const struct cards *cards,
                       const struct mig_place *at)
{
    const struct card *c = card_of (cards, at->card);

    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        if (c->slice[i].gi == at->gi && c->slice[i].ci == at->ci) {
            dprintf (fd, "id %d %s\n", index, c->slice[i].uuid);
            return;
        }
    if (c->n == 0)
        dprintf (fd, "id %d MIG-%s/%d/%d\n", index, c->uuid, at->gi, at->ci);
}

/* say - the names of all devices, as far as [cards] has them. */
static void say (int fd, const struct gres_devices *devices,
                 const struct cards *cards, const char *minors)
{
    for (size_t i = 0; i < devices->n; i++) {
        const struct gres_device *d = &devices->dev[i];
        const struct card *c = card_of (cards, d->card);
        struct mig_place at;

        if (d->cap[0] < 0 && c)
            dprintf (fd, "id %zu %s\n", i, c->uuid);
        for (int k = 0; k < 2 && minors && d->cap[k] >= 0; k++)
            if (gresfile_minor (minors, d->cap[k], &at) && at.ci >= 0)
                say_slice (fd, (int)i, cards, &at);
    }
}

/* say_kinds - which devices are slices, whoever can name them. */
static void say_kinds (int fd, const struct gres_devices *devices)
{
    for (size_t i = 0; i < devices->n; i++)
        if (devices->dev[i].cap[0] >= 0)
            dprintf (fd, "slice %zu\n", i);
}

/* become_user - for good. In slurmstepd the real user is root still. */
static bool become_user (void)
{
    uid_t uid = geteuid ();
    gid_t gid = getegid ();

    if (getuid () == uid && getgid () == gid)
        return true;
    if (setresgid (gid, gid, gid) || setresuid (uid, uid, uid))
        return false;
    /* The change of user has forgotten it. */
    prctl (PR_SET_PDEATHSIG, SIGKILL);
    return uid == 0 || setuid (0) != 0;
}

/* What slurmstepd has open is not for a driver's library, and would be held
 * by a child that hangs. */
static int own_files (int fd)
{
    int null = open ("/dev/null", O_RDWR);

    for (int i = 0; i < 3 && null >= 0; i++)
        if (i != fd)
            dup2 (null, i);
    if (fd < 3 || dup2 (fd, 3) != 3)
        return fd;
#ifdef SYS_close_range
    syscall (SYS_close_range, 4u, ~0u, 0);
#endif
    return 3;
}

static bool there_is_driver (const char *driver)
{
    char *path = fsio_join (driver, "nvidia");
    struct stat st;
    bool yes = path && stat (path, &st) == 0;

    free (path);
    return yes;
}

static void child (int fd, void *arg)
{
    const struct gpuids_where *w = arg;
    static struct gres_devices devices;
    static struct cards cards;
    struct calls call = {0};
    struct rv_error err = {0};
    char *text, *minors;
    int rc;

    if (!become_user ()) {
        dprintf (fd, "why cannot become the user\n");
        return;
    }
    fd = own_files (fd);
    if (there_is_driver (w->driver))
        dprintf (fd, "driver\n");
    if ((text = slurp (w->conf_dir, "cgroup.conf")) && gresfile_confined (text))
        dprintf (fd, "confined\n");
    if ((text = slurp (w->conf_dir, "gres.conf")))
        gresfile_read (text, w->node, &devices);
    else
        dprintf (fd, "why cannot read %s/gres.conf as the user\n", w->conf_dir);
    say_kinds (fd, &devices);
    minors = slurp (w->driver, "nvidia-caps/mig-minors");
    cards_of_driver (w->driver, &cards);
    say (fd, &devices, &cards, minors);
    rc = load (w->nvml, &call, &err);
    if (rc == RV_OK) {
        dprintf (fd, "driver\n");
        cards_of_nvml (&call, &cards);
        say (fd, &devices, &cards, minors);
    } else if (rc != RV_ENOTFOUND || w->nvml)
        dprintf (fd, "driver\nwhy %s\n", err.text);
    dprintf (fd, "done\n");
}

/* ---- the parent ---- */

static void take_id (const char *line, struct gpuids *ret)
{
    char *end;
    long i = strtol (line, &end, 10);
    size_t len = *end == ' ' ? strlen (end + 1) : 0;

    if (end == line || i < 0 || i >= DEVLIST_MAX || len == 0
        || len >= DEVLIST_NAME_MAX || strpbrk (end + 1, ", \t"))
        return;
    memcpy (ret->name[i], end + 1, len + 1);
}

static void take_slice (const char *line, struct gpuids *ret)
{
    int i = devlist_index (line);

    if (i >= 0 && i < DEVLIST_MAX)
        ret->slice[i] = true;
}

void gpuids_parse (const char *text, size_t len, struct gpuids *ret)
{
    char line[512];
    bool driver = false, done = false;

    memset (ret, 0, sizeof (*ret));
    for (size_t at = 0, n; at < len; at += n + 1) {
        const char *end = memchr (text + at, '\n', len - at);

        if (!end)
            break;
        n = (size_t)(end - (text + at));
        if (n >= sizeof (line))
            continue;
        memcpy (line, text + at, n);
        line[n] = '\0';
        if (strncmp (line, "id ", 3) == 0)
            take_id (line + 3, ret);
        else if (strncmp (line, "slice ", 6) == 0)
            take_slice (line + 6, ret);
        else if (strncmp (line, "why ", 4) == 0)
            snprintf (ret->why, sizeof (ret->why), "%.*s", GPUIDS_WHY_MAX - 1,
                      line + 4);
        ret->confined |= strcmp (line, "confined") == 0;
        driver |= strcmp (line, "driver") == 0;
        done |= strcmp (line, "done") == 0;
    }
    ret->state = !driver                ? GPUIDS_NONE
                 : done && !ret->why[0] ? GPUIDS_KNOWN
                                        : GPUIDS_FAILED;
}

void gpuids_read (const struct gpuids_where *where, struct gpuids *ret)
{
    static char report[REPORT_MAX];
    size_t len;
    enum child_end end = child_run (child, (void *)where, GPUIDS_DEADLINE_MS,
                                    report, sizeof (report), &len);

    gpuids_parse (report, len, ret);
    if (end == CHILD_OK)
        return;
    ret->state = GPUIDS_FAILED;
    snprintf (ret->why, sizeof (ret->why), "%s",
              end == CHILD_TIMEOUT   ? "NVML did not answer within 2 s"
              : end == CHILD_CRASHED ? "NVML crashed"
                                     : "no process could be made to ask NVML");
}
