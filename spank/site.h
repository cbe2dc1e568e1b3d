/* SPDX-License-Identifier: Apache-2.0
 * site.h - the site's rv.conf, in client processes only. */
#ifndef RV_SPANK_SITE_H
#define RV_SPANK_SITE_H

#include "plan/mig.h"
#include "plan/site_conf.h"

/* site_load - read it.
 *   path   of plugstack's conf=; NULL = the built-in one, which may be missing
 *   ret    written on success; site_conf_fini it
 * Never waits. A file that is not root's (or the caller's), or that others may
 * write, is RV_EINVAL; one that is named and not there RV_ENOTFOUND. */
int site_load (const char *path, struct site_conf *ret, struct rv_error *err);

/* site_mig_rules - its [mig PROFILE] sections.
 *   ret_n   written
 * malloc'ed; the text is borrowed from [conf], types are in the same block.
 * NULL when there are none or memory is out. */
struct mig_rule *site_mig_rules (const struct site_conf *conf, size_t *ret_n);

/* site_gpu_type - Slurm's type of a [gpu TYPE] section: of its gres, else the
 * section's own name.
 *   type   written; "" for a gres without a type */
void site_gpu_type (const struct site_gpu *gpu, char type[GRES_NAME_MAX]);

#endif
