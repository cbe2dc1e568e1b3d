/* SPDX-License-Identifier: Apache-2.0
 * request.h - what a user asks of the plugin or of rv, and what it becomes.
 *
 * Pure: text in, numbers and text out. Shared by spank_rv.so and rv. */
#ifndef RV_PLAN_REQUEST_H
#define RV_PLAN_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"
#include "plan/gres.h"

struct gpu_request {
    char type[GRES_NAME_MAX]; /* "" = any */
    uint32_t count;           /* of the job, > 0 */
};

/* request_parse_gpu - "4", "a100:4" -> type and count. A malformed value is
 * RV_EINVAL with an example of a right one. */
int request_parse_gpu (const char *text, struct gpu_request *ret,
                       struct rv_error *err);

/* What one node type of the cluster offers. */
struct node_offer {
    const char *gres; /* the node's Gres text */
    uint32_t nodes;   /* nodes that have exactly it */
};

/* request_check_gpu - can the cluster ever meet [req]?
 *   offers   (n) every distinct node configuration
 * RV_ENOTFOUND: no such type (text lists the types there are, nearest first);
 * RV_EINVAL: more GPUs than the cluster has (text says how many there are). */
int request_check_gpu (const struct gpu_request *req,
                       const struct node_offer *offers, size_t n,
                       struct rv_error *err);

/* name_nearest - the candidate most like [word] (edit distance, case
 * ignored), or NULL when none is near. Used for types, keys and options. */
const char *name_nearest (const char *word, const char *const *candidates,
                          size_t n);

#endif
