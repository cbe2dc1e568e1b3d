/* SPDX-License-Identifier: Apache-2.0
 * test_gpuids.c - names of a node's cards from a real NVML and a real driver
 *
 * What the plugin does before the tasks of a step, on a gres.conf that names
 * every /dev/nvidiaN of this machine. */
#include "config.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "spank/gpuids.h"

#define CARDS 64

static double now_s (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A line for each card that is there; their minors in [minor]. */
static size_t write_gres (const char *dir, int minor[CARDS])
{
    char text[CARDS * 64], *path = fsio_join (dir, "gres.conf");
    size_t n = 0, len = 0;

    for (int i = 0; i < CARDS; i++) {
        char name[32];

        snprintf (name, sizeof (name), "/dev/nvidia%d", i);
        if (access (name, F_OK))
            continue;
        len += (size_t)snprintf (text + len, sizeof (text) - len,
                                 "Name=gpu File=%s\n", name);
        minor[n++] = i;
    }
    if (n > 0 && (!path || fsio_write (path, text, len, 0644, NULL)))
        n = 0;
    free (path);
    return n;
}

int main (void)
{
    static struct gpuids nvml, files;
    char dir[] = "/tmp/rv-gpuids.XXXXXX";
    struct gpuids_where where = {
        .driver = "/proc/driver", .conf_dir = dir, .node = "here"};
    int minor[CARDS];
    size_t n, named = 0, same = 0;
    double start, took;

    n = mkdtemp (dir) ? write_gres (dir, minor) : 0;
    if (n == 0)
        tap_skip_all ("no /dev/nvidiaN");
    start = now_s ();
    gpuids_read (&where, &nvml);
    took = now_s () - start;
    printf ("# %.3f s, state %d, %s\n", took, (int)nvml.state,
            nvml.why[0] ? nvml.why : "no complaint");
    where = (struct gpuids_where){.nvml = "/no/such/nvml",
                                  .driver = "/proc/driver",
                                  .conf_dir = dir,
                                  .node = "here"};
    gpuids_read (&where, &files);
    for (size_t i = 0; i < n; i++) {
        printf ("# /dev/nvidia%d: NVML %s, driver's files %s\n", minor[i],
                nvml.name[i], files.name[i][0] ? files.name[i] : "-");
        named += strncmp (nvml.name[i], "GPU-", 4) == 0;
        same += !files.name[i][0] || !strcmp (nvml.name[i], files.name[i]);
    }
    tap_ok (nvml.state == GPUIDS_KNOWN, "NVML answers");
    tap_ok (took < 2, "within 2 s");
    /* A container may see fewer cards than it has device files. */
    tap_ok (named > 0, "cards have UUIDs");
    tap_ok (same == n, "the driver's files say the same");
    fsio_remove_tree (dir, NULL);
    return tap_end ();
}
