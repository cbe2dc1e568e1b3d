/* SPDX-License-Identifier: Apache-2.0
 * state.h - what one sandbox is: its shape, its folder, its daemons. */
#ifndef RV_SANDBOX_STATE_H
#define RV_SANDBOX_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/error.h"

enum {
    SANDBOX_MAX_NODES = 64,
    SANDBOX_MAX_GPUS = 1024,
    SANDBOX_MAX_CPUS = 4096,
    /* A unix socket's name has 107 bytes. The longest one in the folder is
     * "/n64/spool/stepd.slurm.pmix.JOB.STEP" with ids of 7 and 4 digits. */
    SANDBOX_MAX_DIR = 60,
    SANDBOX_MAX_DAEMONS = SANDBOX_MAX_NODES + 4,
    SANDBOX_MAX_PORTS = SANDBOX_MAX_NODES + 2,
};

/* What a made-up slice is: a seventh of a card of 80 GB. */
#define SANDBOX_MIG      "1g.10gb"
#define SANDBOX_MIG_CARD 7

#define SANDBOX_STATE "sandbox.json"
/* Marks a folder as ours and is the lock; removed last. */
#define SANDBOX_MARK ".rv-sandbox"

struct sandbox_daemon {
    char name[16];  /* "munged", "slurmctld", "n1" */
    pid_t pid;      /* 0: not started */
    uint64_t start; /* clock ticks since boot */
    char **argv;    /* NULL-terminated, owned */
};

struct sandbox {
    char dir[SANDBOX_MAX_DIR + 1]; /* absolute, links resolved */
    char cluster[16];              /* "rv1a2b3c4d", unlike any other's */
    char boot_id[40];
    char type[64]; /* of the GPUs; "" without any */
    char *plugin;  /* path of spank_rv.so; NULL: none, owned */
    int nodes;
    int gpus;        /* of all nodes; n1 has the first share */
    int mig;         /* made-up slices, shared likewise */
    int cpus;        /* of one node */
    bool real_gpus;  /* /dev/nvidia*; else made up */
    bool pmix;       /* MpiDefault=pmix */
    bool cgroup;     /* jobs are confined by control groups */
    bool accounting; /* a database and slurmdbd */
    bool ready;      /* `up` saw every node idle */
    /* [0] slurmctld, [k] node nk, then slurmdbd where there is one */
    int port[SANDBOX_MAX_PORTS];
    struct sandbox_daemon daemon[SANDBOX_MAX_DAEMONS];
    int n_daemons;
};

/* sandbox_fini - free what [sb] owns and zero it. NULL is fine. */
void sandbox_fini (struct sandbox *sb);

/* sandbox_share - GPUs of node [k] (from 1): the total shared evenly, the
 * first nodes get what is left over. sandbox_first is the number of GPUs
 * before it. */
int sandbox_share (const struct sandbox *sb, int k);
int sandbox_first (const struct sandbox *sb, int k);

/* sandbox_slices - MIG slices of node [k]; sandbox_card is the number of the
 * first card that they lie on. Cards have SANDBOX_MIG_CARD slices each, belong
 * to one node and are counted over all nodes from 0. */
int sandbox_slices (const struct sandbox *sb, int k);
int sandbox_card (const struct sandbox *sb, int k);

/* sandbox_add - append a daemon that is not started yet. [argv] is copied.
 * RV_ENOMEM. */
int sandbox_add (struct sandbox *sb, const char *name, const char *const *argv,
                 struct rv_error *err);

/* sandbox_save - replace DIR/sandbox.json. */
int sandbox_save (const struct sandbox *sb, struct rv_error *err);

/* sandbox_load - read [dir]/sandbox.json into [sb] (written; fini it).
 * RV_ENOTFOUND when there is none, RV_EFORMAT when it is not ours. */
int sandbox_load (const char *dir, struct sandbox *sb, struct rv_error *err);

/* sandbox_alive - is that daemon the process that was started? */
bool sandbox_alive (const struct sandbox *sb, const struct sandbox_daemon *d);

/* sandbox_is_up - were all nodes idle once, and do all daemons live? Where
 * not, *ret_dead (may be NULL) is the name of a dead one, NULL when `up` did
 * not come to its end. */
bool sandbox_is_up (const struct sandbox *sb, const char **ret_dead);

#endif
