/* SPDX-License-Identifier: Apache-2.0
 * gpus.c - rv-exec --gpus: how many GPUs the driver has on this node
 *
 * For rv doctor, in a step that was given none: where control groups hide the
 * devices from it, NVML counts nothing, and the driver's own list tells. */
#include "config.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/log.h"
#include "spank/nvml.h"

#define DRIVER_LIST "/proc/driver/nvidia/gpus"
#define DEADLINE_S  10 /* NVML may hang; the signal ends us */

/* -1 = there is no driver. */
static long listed (void)
{
    DIR *dir = opendir (DRIVER_LIST);
    const struct dirent *entry;
    long n = 0;

    if (!dir)
        return -1;
    while ((entry = readdir (dir)))
        n += entry->d_name[0] != '.';
    closedir (dir);
    return n;
}

int exec_gpus (void)
{
    struct nvml nvml = {0};
    struct rv_error err = {0};
    long n;
    int rc;

    alarm (DEADLINE_S);
    rc = nvml_open (NULL, &nvml, &err);
    n = rc == RV_OK && nvml.n ? (long)nvml.n : listed ();
    if (rc == RV_OK && n < 0)
        n = 0;
    if (rc != RV_OK && rc != RV_ENOTFOUND && n < 0) {
        log_line (LOG_ERROR, "cannot count GPUs: %s", err.text);
        return EXEC_FAILED;
    }
    /* "none" is a node without a driver. */
    if (n < 0 ? puts ("none") < 0 : printf ("%ld\n", n) < 0)
        return EXEC_FAILED;
    return fflush (stdout) ? EXEC_FAILED : 0;
}
