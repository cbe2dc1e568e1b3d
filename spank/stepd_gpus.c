/* SPDX-License-Identifier: Apache-2.0
 * stepd_gpus.c - slurmstepd: a device for each task
 *
 * Tasks of a node claim their devices in memory that they share, so two on one
 * device are found whatever Slurm did. slurmstepd itself never reads it. */
#include "config.h"

#include "stepd_gpus.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "gpuids.h"

#define DRIVER    "/proc/driver"
#define CONF_DIR  "/etc/slurm"
#define TASKS_MAX 4096

struct claim {
    atomic_uint rank; /* and 1; 0 = none yet */
    char name[DEVLIST_NAME_MAX];
};

static struct gpuids ids; /* of GPUIDS_NONE until asked */
static struct claim *claims;
static uint32_t n_claims;

static void share_claims (uint32_t n)
{
    void *p;

    if (n < 2 || n > TASKS_MAX)
        return;
    p = mmap (NULL, n * sizeof (*claims), PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return;
    claims = p;
    n_claims = n;
}

void stepd_gpus_look (const char *nvml, const char *node, const char *conf,
                      uint32_t n_tasks)
{
    struct gpuids_where where = {
        .nvml = nvml, .driver = DRIVER, .conf_dir = CONF_DIR, .node = node};
    char dir[4096];
    const char *end = conf ? strrchr (conf, '/') : NULL;

    if (end && end > conf && (size_t)(end - conf) < sizeof (dir)) {
        memcpy (dir, conf, (size_t)(end - conf));
        dir[end - conf] = '\0';
        where.conf_dir = dir;
    }
    gpuids_read (&where, &ids);
    share_claims (n_tasks);
}

/* The task that comes second finds the first. */
static int claim (const struct devlist_task *t, const char *name,
                  struct rv_error *err)
{
    if (t->local_rank >= n_claims)
        return RV_OK;
    snprintf (claims[t->local_rank].name, DEVLIST_NAME_MAX, "%s", name);
    atomic_store (&claims[t->local_rank].rank, t->rank + 1);
    for (uint32_t i = 0; i < n_claims; i++) {
        unsigned rank = atomic_load (&claims[i].rank);

        if (i != t->local_rank && rank > 0
            && strcmp (claims[i].name, name) == 0)
            return error_set (err, RV_EINVAL,
                              "ranks %u and %" PRIu32
                              " on %s were both given %s %s by "
                              "Slurm; leave out --gpu-bind",
                              rank - 1, t->rank, t->node,
                              t->slices ? "MIG slice" : "GPU", name);
    }
    return RV_OK;
}

/* name_it - CUDA's name in the place of Slurm's index. A whole GPU's index is
 * good for CUDA too; a slice's is not. */
static int name_it (const struct devlist_task *t, const struct devlist_own *own,
                    char *ret, struct rv_error *err)
{
    bool known = own->index >= 0 && own->index < DEVLIST_MAX;

    snprintf (ret, DEVLIST_NAME_MAX, "%s", own->name);
    if (devlist_index (own->name) < 0)
        return RV_OK;
    if (known && ids.name[own->index][0])
        snprintf (ret, DEVLIST_NAME_MAX, "%s", ids.name[own->index]);
    else if (ids.state != GPUIDS_NONE
             && (t->slices || (known && ids.slice[own->index])))
        return error_set (err, RV_EIO,
                          "rank %" PRIu32 " on %s: nothing tells CUDA's name "
                          "of Slurm's MIG slice %s: %s",
                          t->rank, t->node, own->name,
                          ids.why[0] ? ids.why
                                     : "gres.conf there does not name its "
                                       "device files, or the driver no such "
                                       "slice");
    return RV_OK;
}

int stepd_gpus_take (const struct stepd_gpus_wish *wish, struct devlist_task *t,
                     char ret[DEVLIST_NAME_MAX], struct rv_error *err)
{
    struct devlist_own own = {.index = -1};
    int rc;

    ret[0] = '\0';
    t->slices = wish->slices;
    t->local = ids.confined;
    if (!wish->slices && !wish->isolate)
        return wish->whole ? devlist_check (t, err) : RV_OK;
    rc = devlist_own (t, &own, err);
    rc = rc ? rc : name_it (t, &own, ret, err);
    return rc ? rc : claim (t, ret, err);
}
