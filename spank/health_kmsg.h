/* SPDX-License-Identifier: Apache-2.0
 * health_kmsg.h - the Xids in the kernel's log since the last look. */
#ifndef RV_SPANK_HEALTH_KMSG_H
#define RV_SPANK_HEALTH_KMSG_H

#include "health.h"
#include "plan/error.h"

/* Where the last look is kept: root's alone, gone with the boot it is of. */
#define HEALTH_STATE_DIR "/run/rv"

/* health_kmsg_read - the records of [path] that it has now; never waits.
 *   path        /dev/kmsg
 *   skip, after as health_read_log
 *   ret         written
 * RV_EIO where it cannot be opened. */
int health_kmsg_read (const char *path, bool skip, uint64_t after,
                      struct health_xids *ret, struct rv_error *err);

/* health_seen_load - the record that the last look of this boot ended with.
 *   dir    HEALTH_STATE_DIR
 *   node   Slurm's name of this node
 * False where there was none in this boot, or where the file or its folder is
 * not this user's alone: then the whole log is new. */
bool health_seen_load (const char *dir, const char *node, uint64_t *ret_seq);

/* health_seen_save - keep it. RV_EIO or RV_EINVAL (a name with a slash): the
 * next look will begin with the boot again. */
int health_seen_save (const char *dir, const char *node, uint64_t seq,
                      struct rv_error *err);

#endif
