/* SPDX-License-Identifier: Apache-2.0
 * doctor.h - what rv doctor looks at: this machine, and the nodes.
 *
 * A check never fails as a call: what is wrong stands in its result. One
 * thread. */
#ifndef RV_DOCTOR_DOCTOR_H
#define RV_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"
#include "settings.h"

enum doctor_state {
    DOCTOR_OK,
    DOCTOR_WARN,    /* it works, with less than there could be */
    DOCTOR_FAIL,    /* a job will not do what it should */
    DOCTOR_UNKNOWN, /* could not be looked at */
};

struct doctor_check {
    const char *name; /* "state_dir"; static */
    enum doctor_state state;
    char text[400];   /* what was found; one line */
    const char *hint; /* what would work; static, NULL = nothing to do */
};

struct doctor_node {
    char *name;
    char *slurm;             /* release of its slurmd; "" = unknown */
    char *gres;              /* "gpu:a100:4"; "" = none */
    const char *slurm_state; /* "idle", "allocated"; static */
    bool idle;               /* reachable and free: a step can start there */
    bool picked; /* on the list that the user gave, or there is none */
    enum doctor_state state;
    char *plugin;    /* the plugin's version; NULL = unknown, "" = not loaded */
    char *rv_exec;   /* the line of rv-exec --version; NULL, "" likewise */
    bool answered;   /* the step wrote its line */
    bool dir_seen;   /* the state folder is the one that we see */
    bool dir_usable; /* and can be written in */
    int64_t gpus_slurm; /* by gres, whole ones; -1 = unknown, or slices too */
    int64_t gpus_there; /* by the driver; negative: enum doctor_gpus */
    char text[400];
};

enum doctor_gpus {
    GPUS_NO_DRIVER = -1,
    GPUS_NO_ANSWER = -2, /* NVML hung or crashed */
    GPUS_UNKNOWN = -3,   /* not asked */
};

struct doctor_partition {
    char *name;
    size_t *node; /* (n) indices into site->node */
    size_t n;
};

/* What the controller says. */
struct doctor_site {
    char *cluster, *slurm, *plugstack, *mpi_default;
    struct doctor_node *node;
    size_t n_nodes;
    struct doctor_partition *part; /* those that are up */
    size_t n_parts;
};

/* doctor_site_load - ask the controller.
 *   ret   written on success; free with doctor_site_fini
 * Errors as those of slurm_ask_wait. */
int doctor_site_load (struct doctor_site *ret, struct rv_error *err);
void doctor_site_fini (struct doctor_site *site); /* NULL is fine */

/* The checks of this machine; each writes its own. */
void doctor_settings (struct doctor_check *check, struct settings *ret,
                      bool *ret_loaded);
void doctor_programs (struct doctor_check *check);
void doctor_controller (struct doctor_check *check,
                        const struct doctor_site *site, /* NULL = none */
                        const struct rv_error *err);
void doctor_release (struct doctor_check *check,
                     const struct doctor_site *site);
/* ret_loaded: srun here has the options of the plugin. */
void doctor_plugin (struct doctor_check *check, const struct doctor_site *site,
                    bool *ret_loaded);
void doctor_pmix (struct doctor_check *check);
/* Makes the folder where it is missing, as rv run does. */
void doctor_state_dir (struct doctor_check *check, const char *state_dir);

/* doctor_conf - what rv.conf names against what [site] has: a default that is
 * not there fails, a section warns. */
void doctor_conf (struct doctor_check *check, const struct site_conf *conf,
                  const struct doctor_site *site);

/* doctor_pick - mark the nodes that [list] names; NULL marks all.
 * RV_EINVAL for a malformed list, RV_ENOTFOUND for a node that is not there. */
int doctor_pick (struct doctor_site *site, const char *list,
                 struct rv_error *err);

/* doctor_nodes - run one short step on each picked node that is idle, a
 * partition at a time, and judge every picked node.
 *   settings       account and qos of the step, and its state folder
 *   plugin_here    the login node loads the plugin: so must the others
 * Ends within a minute and a half. RV_EIO when the state folder cannot be
 * used, RV_ENOTFOUND without srun or rv-exec. */
int doctor_nodes (struct doctor_site *site, const struct settings *settings,
                  bool plugin_here, struct doctor_check *check,
                  struct rv_error *err);

/* doctor_take - read one line that the step wrote into its node; lines of
 * others are passed over (exposed for its test). */
void doctor_take (struct doctor_site *site, char *line);

/* doctor_judge - state and text of one node from what is known of it (exposed
 * for its test). */
void doctor_judge (struct doctor_node *node, bool plugin_here);

/* doctor_compare - gres against the driver's GPUs, over the nodes that answered:
 * a driver that only some nodes have is missing on the others (exposed for its
 * test). After doctor_judge. */
void doctor_compare (struct doctor_site *site);

/* doctor_same_release - do two versions ("22.05.8") share major and minor?
 */
bool doctor_same_release (const char *a, const char *b);

/* doctor_set - fill [check] but for its name. */
void doctor_set (struct doctor_check *check, enum doctor_state state,
                 const char *hint, const char *fmt, ...)
    __attribute__ ((format (printf, 4, 5)));

#endif
