/* SPDX-License-Identifier: Apache-2.0
 * health_nvml.c - the state of a node's GPUs, from NVML
 *
 * The library belongs to the driver, so it is loaded by name and nothing of
 * its header is compiled in: the few declarations below are as nvml.h has them
 * since 11.0 (NVML API Reference). A function that an older driver lacks is a
 * question not asked, but for those without which nothing can be said. */
#include "config.h"

#include "health_nvml.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvml.h"

enum {
    NVML_OK = 0,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
};

enum { UNCORRECTED = 1, VOLATILE = 0 };

struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

#define PROCESSES_MAX 256

struct calls {
    struct nvml nvml;
    /* may be NULL */
    int (*pci) (void *, struct nvml_pci *);
    int (*mig) (void *, unsigned *, unsigned *);
    int (*ecc) (void *, int, int, unsigned long long *);
    int (*rows) (void *, unsigned *, unsigned *, unsigned *, unsigned *);
    int (*pages) (void *, int *);
    int (*processes) (void *, unsigned *, struct nvml_process *);
};

static int load (const char *path, struct calls *ret, struct rv_error *err)
{
    int rc = nvml_open (path, &ret->nvml, err);
    void *lib = ret->nvml.lib;

    if (rc)
        return rc;
    nvml_find (lib, "nvmlDeviceGetPciInfo_v3", &ret->pci);
    nvml_find (lib, "nvmlDeviceGetMigMode", &ret->mig);
    nvml_find (lib, "nvmlDeviceGetTotalEccErrors", &ret->ecc);
    nvml_find (lib, "nvmlDeviceGetRemappedRows", &ret->rows);
    nvml_find (lib, "nvmlDeviceGetRetiredPagesPendingStatus", &ret->pages);
    nvml_find (lib, "nvmlDeviceGetComputeRunningProcesses_v3", &ret->processes);
    if (!ret->processes)
        nvml_find (lib, "nvmlDeviceGetComputeRunningProcesses_v2",
                   &ret->processes);
    return RV_OK;
}

/* told - is this a state of the GPU rather than an answer? */
static bool told (int rc, struct health_gpu *gpu)
{
    gpu->lost = gpu->lost || rc == NVML_GPU_IS_LOST;
    gpu->needs_reset = gpu->needs_reset || rc == NVML_RESET_REQUIRED;
    return rc == NVML_OK;
}

static void name_gpu (const struct calls *call, void *dev, unsigned index,
                      struct health_gpu *gpu)
{
    struct nvml_pci pci = {0};

    if (call->pci && call->pci (dev, &pci) == NVML_OK && pci.bus_id[0])
        snprintf (gpu->bus, sizeof (gpu->bus), "%.*s",
                  (int)sizeof (pci.bus_id) - 1, pci.bus_id);
    else
        snprintf (gpu->bus, sizeof (gpu->bus), "%u", index);
}

/* Whole GPUs of the job: a card cut by MIG carries other jobs too. */
static bool is_mine (const struct calls *call, void *dev, const char *gpus)
{
    unsigned minor, mig = 0, pending;

    if (!call->nvml.minor || call->nvml.minor (dev, &minor) != NVML_OK)
        return false;
    if (call->mig && call->mig (dev, &mig, &pending) != NVML_OK)
        mig = 0;
    return mig == 0 && health_listed (gpus, minor);
}

static void ask_memory (const struct calls *call, void *dev,
                        struct health_gpu *gpu)
{
    unsigned correctable, uncorrectable, pending = 0, failed = 0;
    unsigned long long n = 0;
    int waiting = 0;

    if (call->ecc && told (call->ecc (dev, UNCORRECTED, VOLATILE, &n), gpu))
        gpu->uncorrected = n;
    if (call->rows
        && told (
            call->rows (dev, &correctable, &uncorrectable, &pending, &failed),
            gpu)) {
        gpu->remap_failed = failed != 0;
        gpu->remap_pending = pending != 0;
    }
    if (call->pages && told (call->pages (dev, &waiting), gpu) && waiting)
        gpu->remap_pending = true;
}

/* Those that are gone by now, and root's (a monitor's), are no one's rest. */
static void ask_processes (const struct calls *call, void *dev,
                           bool (*has_job) (pid_t pid), struct health_gpu *gpu)
{
    struct nvml_process process[PROCESSES_MAX];
    unsigned n = PROCESSES_MAX;

    if (!call->processes || !told (call->processes (dev, &n, process), gpu))
        return;
    for (unsigned i = 0; i < n && i < PROCESSES_MAX; i++) {
        char path[32];
        struct stat st;

        snprintf (path, sizeof (path), "/proc/%u", process[i].pid);
        if (stat (path, &st) || st.st_uid == 0
            || (has_job && has_job ((pid_t)process[i].pid)))
            continue;
        if (gpu->n_left++ == 0) {
            gpu->left_pid = (pid_t)process[i].pid;
            gpu->left_uid = st.st_uid;
        }
    }
}

int health_nvml_read (const char *path, const char *gpus,
                      bool (*has_job) (pid_t pid),
                      struct health_gpu ret[HEALTH_GPUS], size_t *ret_n,
                      struct rv_error *err)
{
    struct calls call = {0};
    unsigned n;
    int rc = load (path, &call, err);

    if (rc)
        return rc;
    n = call.nvml.n;
    if (n > HEALTH_GPUS)
        n = HEALTH_GPUS;
    for (unsigned i = 0; i < n; i++) {
        struct health_gpu *gpu = &ret[i];
        void *dev = NULL;

        memset (gpu, 0, sizeof (*gpu));
        snprintf (gpu->bus, sizeof (gpu->bus), "%u", i);
        if (!told (call.nvml.handle (i, &dev), gpu))
            continue;
        name_gpu (&call, dev, i, gpu);
        gpu->mine = is_mine (&call, dev, gpus);
        ask_memory (&call, dev, gpu);
        if (gpu->mine)
            ask_processes (&call, dev, has_job, gpu);
    }
    *ret_n = n;
    return RV_OK;
}
