/* SPDX-License-Identifier: Apache-2.0
 * group_survive.h - how ranks of a broken group find each other again. Inside
 * libtrain only. */
#ifndef TRAIN_GROUP_SURVIVE_H
#define TRAIN_GROUP_SURVIVE_H

#include "group_impl.h"

/* survive_init - listen, and tell the others where. Collective, by [join].
 *   ret     written; survive_fini also after a failure
 *   group   address is known already */
train_status_t survive_init (struct survive **ret, const train_group_t *group,
                             struct join *join, train_error_t *err);
void survive_fini (struct survive *survive); /* NULL is fine */

#endif
