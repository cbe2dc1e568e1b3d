/* SPDX-License-Identifier: Apache-2.0
 * gresfile.h - what the files of a node say of its GPUs: gres.conf, the
 * driver's mig-minors and GPU information.
 *
 * Pure: text in, tables out. */
#ifndef RV_SPANK_GRESFILE_H
#define RV_SPANK_GRESFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "devlist.h"

/* One device of Slurm; its place in the table is the node's index. */
struct gres_device {
    int card;   /* N of /dev/nvidiaN, -1 = no such file */
    int cap[2]; /* N of /dev/nvidia-caps/nvidia-capN, -1 = none */
};

struct gres_devices {
    struct gres_device dev[DEVLIST_MAX];
    size_t n;
    bool detected; /* an AutoDetect line applies: the table is not all */
};

/* gresfile_read - the GPUs of [node], as gres.conf(5) orders them.
 *   text   of gres.conf, NUL-terminated
 * Lines that cannot be read make the table empty: a wrong place would give a
 * task another's device. */
void gresfile_read (const char *text, const char *node,
                    struct gres_devices *ret);

/* gresfile_confined - does a cgroup.conf say ConstrainDevices=yes? */
bool gresfile_confined (const char *text);

struct mig_place {
    int card, gi, ci; /* ci -1: the GPU instance itself */
};

/* gresfile_minor - whose is nvidia-cap[cap]?
 *   text   of mig-minors: "gpu0/gi7/ci0/access 67" a line
 * False when no line has the number. */
bool gresfile_minor (const char *text, int cap, struct mig_place *ret);

/* gresfile_card - UUID and minor of one card.
 *   text    of /proc/driver/nvidia/gpus/BUS/information
 *   uuid    (DEVLIST_NAME_MAX) written: "GPU-..."
 * False when one of them is not there. */
bool gresfile_card (const char *text, int *ret_minor,
                    char uuid[DEVLIST_NAME_MAX]);

#endif
