/* SPDX-License-Identifier: Apache-2.0
 * mig.h - MIG slices: what users call them, and what the cluster has.
 *
 * A profile is "1g.10gb": compute slices and memory (NVIDIA's Multi-Instance
 * GPU User Guide). Slurm's types may put the card before it, as slurmd's
 * AutoDetect does: "a100_1g.10gb", "nvidia_a100_1g.10gb". Pure: text in, text
 * out. Shared by spank_rv.so and rv. */
#ifndef RV_PLAN_MIG_H
#define RV_PLAN_MIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"
#include "plan/gres.h"
#include "plan/request.h"

#define MIG_COUNT_MAX 1000000

struct mig_request {
    char profile[GRES_NAME_MAX]; /* as typed; "" = the site's default */
    uint32_t count;              /* slices of the job, > 0 */
};

/* mig_parse - "1g.10gb", "a100_1g.10gb:4" or "" -> profile and count (1).
 *   text   NULL is ""
 * RV_EINVAL says what is wrong and shows a right form. */
int mig_parse (const char *text, struct mig_request *ret, struct rv_error *err);

/* mig_profile - the profile at the end of a type: "1g.10gb" of
 * "nvidia_a100_1g.10gb". Points into [type]; NULL when it is none. */
const char *mig_profile (const char *type);

/* mig_match - may slices of Slurm's type [have] serve who typed [want]? The
 * profile must be the same, and a card before it, where both name one, a part
 * of the other's words: "a100" is one of "nvidia_a100-sxm4". Any case. */
bool mig_match (const char *want, const char *have);

/* What rv.conf says of a profile, in its order. */
struct mig_rule {
    const char *profile;   /* of the section's head */
    const char *type;      /* of its gres, "" = by the profile */
    int64_t max_per_job;   /* -1 = no limit */
    const char *partition; /* NULL = not said */
};

struct mig_choice {
    char type[GRES_NAME_MAX];    /* as the nodes spell it */
    uint64_t total;              /* slices of that type in the cluster */
    uint32_t per_node;           /* in the node that has most of them */
    const struct mig_rule *rule; /* that applies, NULL = none */
};

/* mig_resolve - the type to ask Slurm for.
 *   offers   (n) distinct node configurations
 *   rules    (n_rules) of rv.conf, may be empty
 * Without a profile: the first rule whose slices the nodes have, else the one
 * profile that there is. RV_ENOTFOUND: no node has it (the text lists what
 * there is, the nearest first). RV_EINVAL: more than the cluster or the site's
 * limit allows, or the words fit several types; the text says what would
 * work. */
int mig_resolve (const struct mig_request *req, const struct node_offer *offers,
                 size_t n, const struct mig_rule *rules, size_t n_rules,
                 struct mig_choice *ret, struct rv_error *err);

#endif
