/* SPDX-License-Identifier: Apache-2.0
 * site_conf.h - rv.conf: the site's GPU types and defaults, the user's on top.
 *
 * The site's file ($sysconfdir/rv/rv.conf) has [defaults], [gpu TYPE],
 * [mig PROFILE], [env] and [differ]. The user's (rv/rv.conf in
 * $XDG_CONFIG_HOME, else ~/.config) has [defaults], [env] and [differ] and is
 * read after it into the same struct: a key of the user's replaces the site's,
 * variables of [env] join, [differ] allow replaces the list. A [gpu] or [mig]
 * section counts from its first key on. rv.conf(5). */
#ifndef RV_PLAN_SITE_CONF_H
#define RV_PLAN_SITE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

/* Numbers are -1 and text is NULL where a file does not say. Text is owned by
 * the struct. */
struct site_gpu {
    char *type;       /* of the section's head, as users type it */
    char *gres;       /* "gpu:a100"; NULL = "gpu:" and the type */
    char *partition;  /* list by commas, as for sbatch -p */
    char *constraint; /* feature text, as for sbatch -C */
    char *alias;      /* other names of the type, by commas */
    int64_t vram_bytes;
    double cost; /* units of the site, per GPU and hour */
    int64_t max_per_job, max_per_user;
    int64_t mem_per_gpu_bytes;
    int64_t cpus_per_gpu;
};

struct site_mig {
    char *profile;
    char *gres; /* NULL = "gpu:" and the profile */
    char *partition;
    int64_t vram_bytes;
    double cost; /* per slice and hour */
    int64_t max_per_job;
};

struct site_env {
    char *name, *value;
};

#define SITE_SLURM_N 15

struct site_conf {
    char *account, *qos, *type, *partition;
    char *slurm[SITE_SLURM_N]; /* of sbatch's options; site_conf_default */
    uint64_t user;             /* which keys are the user's; the same */
    char *state_dir;           /* "/..." or "~/..."; see site_conf_state_dir */
    int64_t gpus;
    int64_t time_s;    /* 0 = not said, -1 = unlimited */
    int64_t mem_bytes; /* a node; 0 = all of it, as for Slurm */
    int fanout;        /* place in the list of choices; see site_conf_fanout */
    int64_t nccl_timeout_ms;
    struct site_gpu *gpu; /* (n_gpu) in the order of the file */
    size_t n_gpu;
    struct site_mig *mig;
    size_t n_mig;
    struct site_env *env;
    size_t n_env;
    char *differ; /* what ranks may differ in, by commas (conf_split) */
};

/* site_conf_init - nothing said. Needed before the reads; site_conf_fini frees
 * what they brought. */
void site_conf_init (struct site_conf *conf);
void site_conf_fini (struct site_conf *conf); /* NULL is fine */

/* site_conf_read_site - the site's file from an open descriptor (borrowed; see
 * conf_open_trusted for a reader that is root).
 *   name   stands in messages
 * RV_EINVAL "FILE:LINE: ..." when something in it is wrong. */
int site_conf_read_site (struct site_conf *conf, int fd, const char *name,
                         struct rv_error *err);

/* site_conf_read_user - the user's file, on top of what [conf] has. */
int site_conf_read_user (struct site_conf *conf, int fd, const char *name,
                         struct rv_error *err);

/* site_conf_load - both files; a file that is not there says nothing.
 *   site   path, opened by conf_open_trusted: [env] and state_dir in it decide
 *          for every user; NULL = leave out
 *   user   path; whose it is, is the caller's matter; NULL = leave out */
int site_conf_load (struct site_conf *conf, const char *site, const char *user,
                    struct rv_error *err);

/* site_conf_default - the text of a key of [defaults].
 *   key        "qos", "mail_type"; one of another type or unknown gives NULL
 *   ret_user   true when the user's file says it, false the site's; NULL = not
 *              wanted; untouched for an unknown key
 * NULL when no file says it, or the last that does says nothing ("qos ="): so a
 * user takes a default of the site away. Owned by [conf]. */
const char *site_conf_default (const struct site_conf *conf, const char *key,
                               bool *ret_user);

/* site_conf_user_path - where the user's file is: XDG_CONFIG_HOME, where that is
 * absolute, else HOME's .config. malloc'ed; NULL without either or out of
 * memory. Reads the environment: not for root. */
char *site_conf_user_path (void);

/* site_conf_state_dir - the folder of requests and logs: state_dir of [conf]
 * with ~ as HOME, else $XDG_STATE_HOME/rv, else ~/.local/state/rv. malloc'ed.
 * RV_ENOTFOUND when HOME is needed and not set. Reads the environment. */
int site_conf_state_dir (const struct site_conf *conf, char **ret,
                         struct rv_error *err);

/* site_conf_fanout - jobs that one request may have waiting at once; 1 is one.
 * What the file does not say is FANOUT_DEFAULT. */
unsigned site_conf_fanout (const struct site_conf *conf);

/* site_conf_site_path - $sysconfdir/rv/rv.conf; static. */
const char *site_conf_site_path (void);

/* site_conf_gpu - the section of a type or of one of its aliases, without case;
 * NULL when there is none. site_conf_mig - the same of a profile. */
const struct site_gpu *site_conf_gpu (const struct site_conf *conf,
                                      const char *type);
const struct site_mig *site_conf_mig (const struct site_conf *conf,
                                      const char *profile);

#endif
