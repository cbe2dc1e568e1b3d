/* SPDX-License-Identifier: Apache-2.0
 * gres.h - generic resources as Slurm writes them, GPUs among them.
 *
 * Reads "gpu:4" "gpu:a100:4(S:0-1)" "gpu:a100:2,gpu:1g.10gb:4"
 * "gres/gpu=4" "gres:gpu:a100:2" "gpu:a100:2(IDX:0-1)" and "(null)". */
#ifndef RV_PLAN_GRES_H
#define RV_PLAN_GRES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

#define GRES_NAME_MAX 64

struct gres_entry {
    char name[GRES_NAME_MAX]; /* "gpu" */
    char type[GRES_NAME_MAX]; /* "a100", "" when untyped */
    uint64_t count;
};

struct gres_list {
    struct gres_entry *entry;
    size_t n;
};

/* gres_parse - split a gres string. An empty string, "(null)" and "none" give
 * an empty list. K, M, G suffixes of counts are taken. RV_EINVAL names the
 * entry that is wrong. */
int gres_parse (const char *text, struct gres_list *list, struct rv_error *err);
void gres_fini (struct gres_list *list);

/* gres_is_mig - is [type] a MIG profile, such as "1g.10gb", "a100_1g.10gb",
 * "nvidia_a100_1g.10gb" or "1c.3g.20gb"? Any case. */
bool gres_is_mig (const char *type);

/* gres_count - GPUs of [type] in [list]; NULL or "" counts every type that is
 * not a MIG profile. Types compare without case, as users type them. */
uint64_t gres_count (const struct gres_list *list, const char *type);

#endif
