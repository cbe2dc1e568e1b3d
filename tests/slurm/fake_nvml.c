/* SPDX-License-Identifier: Apache-2.0
 * fake_nvml.c - a libnvidia-ml.so.1 whose cards stand in a text file
 *
 *   cc -shared -fPIC -DFAKE_STATE='"/path"' -o libnvidia-ml.so.1 fake_nvml.c
 *
 * FAKE_STATE is read by nvmlInit_v2, a word a line:
 *   hang | crash | fail=CODE     what nvmlInit_v2 does
 *   stop=PID                     it sends SIGSTOP there
 *   who                          it writes who asks into FAKE_STATE.who
 *   nobody                       who asks will not find its node's slurmd
 *   gpu                          one card more; what follows is of it
 *   ecc=N failed pending pages lost reset mig pid=N
 *   slice=GI                     MIG, with one slice more: GPU instance GI,
 *                                compute instance 0
 * The UUIDs are GPU-fake-CARD and MIG-fake-CARD-GI.
 * Cards without a word are healthy, have minor numbers from 0 and buses
 * 00000000:10:00.0, 00000000:11:00.0 ... Missing files are no cards. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, LOST = 15, RESET = 16 };

struct card {
    unsigned index;
    unsigned long long ecc;
    int failed, pending, pages, lost, reset, mig;
    unsigned pid;
    struct slice {
        unsigned card, gi;
    } slice[7];
    unsigned n_slices;
};

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static struct card cards[16];
static unsigned n_cards;

/* Who is asking, what may it become, and what has it open? */
static int tell_who (void)
{
    FILE *f = fopen (FAKE_STATE ".who", "we");
    uid_t uid[3];
    gid_t gid[3], group[16];
    int n = getgroups (16, group);

    if (!f || getresuid (&uid[0], &uid[1], &uid[2])
        || getresgid (&gid[0], &gid[1], &gid[2]))
        return -1;
    fprintf (f, "uid %u %u %u\ngid %u %u %u\ngroups", uid[0], uid[1], uid[2],
             gid[0], gid[1], gid[2]);
    for (int i = 0; i < n; i++)
        fprintf (f, " %u", group[i]);
    fprintf (f, "\nfiles");
    for (int fd = 0; fd < 1024; fd++)
        if (fd != fileno (f) && fcntl (fd, F_GETFD) >= 0)
            fprintf (f, " %d", fd);
    fprintf (f, "\nroot %s\n", setuid (0) && seteuid (0) ? "never" : "again");
    fprintf (f, "traced %s\n", prctl (PR_GET_DUMPABLE) ? "maybe" : "never");
    return fclose (f);
}

static int read_word (const char *word)
{
    struct card *c = n_cards ? &cards[n_cards - 1] : NULL;

    if (strcmp (word, "hang") == 0)
        for (;;)
            pause ();
    if (strcmp (word, "crash") == 0)
        raise (SIGSEGV);
    if (strncmp (word, "fail=", 5) == 0)
        return (int)strtol (word + 5, NULL, 10);
    if (strncmp (word, "stop=", 5) == 0)
        return kill ((pid_t)strtol (word + 5, NULL, 10), SIGSTOP);
    if (strcmp (word, "who") == 0)
        return tell_who ();
    if (strcmp (word, "nobody") == 0)
        return setenv ("SLURMD_NODENAME", "nobody", 1);
    if (strcmp (word, "gpu") == 0 && n_cards < 16) {
        cards[n_cards].index = n_cards;
        n_cards++;
    } else if (!c) {
        abort ();
    } else if (strncmp (word, "ecc=", 4) == 0) {
        c->ecc = strtoull (word + 4, NULL, 10);
    } else if (strncmp (word, "pid=", 4) == 0) {
        c->pid = (unsigned)strtoul (word + 4, NULL, 10);
    } else if (strncmp (word, "slice=", 6) == 0 && c->n_slices < 7) {
        c->mig = 1;
        c->slice[c->n_slices++] =
            (struct slice){c->index, (unsigned)strtoul (word + 6, NULL, 10)};
    } else {
        c->failed |= strcmp (word, "failed") == 0;
        c->pending |= strcmp (word, "pending") == 0;
        c->pages |= strcmp (word, "pages") == 0;
        c->lost |= strcmp (word, "lost") == 0;
        c->reset |= strcmp (word, "reset") == 0;
        c->mig |= strcmp (word, "mig") == 0;
    }
    return OK;
}

int nvmlInit_v2 (void)
{
    FILE *f = fopen (FAKE_STATE, "re");
    char word[64];
    int rc = OK;

    n_cards = 0;
    memset (cards, 0, sizeof (cards));
    while (f && rc == OK && fscanf (f, "%63s", word) == 1)
        rc = read_word (word);
    if (f)
        fclose (f);
    return rc;
}

const char *nvmlErrorString (int rc)
{
    return rc == 9 ? "Driver Not Loaded" : "Error";
}

int nvmlDeviceGetCount_v2 (unsigned *n)
{
    *n = n_cards;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2 (unsigned index, void **dev)
{
    *dev = &cards[index];
    return cards[index].lost ? LOST : OK;
}

int nvmlDeviceGetPciInfo_v3 (void *dev, struct pci *pci)
{
    const struct card *c = dev;

    snprintf (pci->bus_id, sizeof (pci->bus_id), "00000000:%02X:00.0",
              0x10 + c->index);
    return OK;
}

int nvmlDeviceGetMinorNumber (void *dev, unsigned *minor)
{
    *minor = ((const struct card *)dev)->index;
    return OK;
}

int nvmlDeviceGetMigMode (void *dev, unsigned *current, unsigned *pending)
{
    *current = *pending = (unsigned)((const struct card *)dev)->mig;
    return OK;
}

int nvmlDeviceGetTotalEccErrors (void *dev, int type, int counter,
                                 unsigned long long *n)
{
    const struct card *c = dev;

    *n = type == 1 && counter == 0 ? c->ecc : 1000000;
    return c->reset ? RESET : OK;
}

int nvmlDeviceGetRemappedRows (void *dev, unsigned *correctable,
                               unsigned *uncorrectable, unsigned *pending,
                               unsigned *failed)
{
    const struct card *c = dev;

    *correctable = *uncorrectable = 3;
    *pending = (unsigned)c->pending;
    *failed = (unsigned)c->failed;
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus (void *dev, int *pending)
{
    const struct card *c = dev;

    *pending = c->pages;
    return c->pages ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetComputeRunningProcesses_v3 (void *dev, unsigned *n,
                                             struct process *process)
{
    const struct card *c = dev;

    *n = c->pid != 0;
    if (c->pid)
        *process = (struct process){c->pid, 1 << 20, ~0u, ~0u};
    return OK;
}

static int is_card (const void *dev)
{
    for (unsigned i = 0; i < n_cards; i++)
        if (dev == &cards[i])
            return 1;
    return 0;
}

int nvmlDeviceGetUUID (void *dev, char *uuid, unsigned size)
{
    const struct slice *s = dev;

    if (is_card (dev))
        snprintf (uuid, size, "GPU-fake-%u", ((const struct card *)dev)->index);
    else
        snprintf (uuid, size, "MIG-fake-%u-%u", s->card, s->gi);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount (void *dev, unsigned *n)
{
    *n = ((const struct card *)dev)->mig ? 7 : 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex (void *dev, unsigned index, void **mig)
{
    struct card *c = dev;

    /* Places may be empty: the slices stand at the end. */
    if (index >= 7 || index < 7 - c->n_slices)
        return 6;
    *mig = &c->slice[index - (7 - c->n_slices)];
    return OK;
}

int nvmlDeviceGetGpuInstanceId (void *mig, unsigned *id)
{
    *id = ((const struct slice *)mig)->gi;
    return OK;
}

int nvmlDeviceGetComputeInstanceId (void *mig, unsigned *id)
{
    (void)mig;
    *id = 0;
    return OK;
}
