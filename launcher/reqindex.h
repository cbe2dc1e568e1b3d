/* SPDX-License-Identifier: Apache-2.0
 * reqindex.h - what was read of the requests' folders the last time, so that
 * thousands need not be read again.
 *
 * STATE_DIR/requests/.index is a copy of what stands in the folders, and no
 * more: it may be removed at any time, and is not written where it cannot be. An
 * entry counts as long as the folder of the request and jobs/ in it have the
 * times that they had before they were read, for what changes there is a new
 * name in one of the two: each file is replaced, or linked, never written in
 * place. Of a folder whose time is less than a minute old only `rv run` itself
 * notes what stands in it, since times are coarse and clocks differ. Each line has
 * a sum of its bytes, and one that is torn is passed over. */
#ifndef RV_REQINDEX_H
#define RV_REQINDEX_H

#include "reqdir.h"

/* When a folder was changed last: of itself, and of jobs/ in it, in ns. */
struct reqindex_times {
    int64_t dir, jobs;
};

struct reqindex_entry {
    struct request req; /* without dir; id is the folder's name */
    struct reqindex_times times;
};

struct reqindex {
    struct reqindex_entry *entry; /* by id, the last first */
    size_t n, at;                 /* at: the next to look at */
    size_t fresh;                 /* requests that it lacked, or had wrong */
};

/* reqindex_load - a file that is not there, of another version or not readable is
 * an empty index.
 *   root   the folder of the requests */
void reqindex_load (const char *root, struct reqindex *ret);

/* reqindex_times - RV_ENOTFOUND unless both folders are there.
 *   root_fd   of the folder of the requests
 *   name      of the request's */
int reqindex_times (int root_fd, const char *name, struct reqindex_times *ret);

/* reqindex_take - the request of that folder, if the index has it as it is now.
 * Names must come in the index' order.
 *   ret   written when true, without dir; its texts are the caller's then */
bool reqindex_take (struct reqindex *index, const char *name,
                    const struct reqindex_times *times, struct request *ret);

/* reqindex_wants - may it be kept, by its kind and the age of [times]? Counts it
 * as fresh then.
 *   now   Unix */
bool reqindex_wants (struct reqindex *index, const struct request *req,
                     const struct reqindex_times *times, int64_t now);

/* reqindex_note - append a request that has just been submitted, as it was read
 * back, if it is of one job: of such a one nothing that the index has changes
 * before that job has run. Several processes may do so at once. Where the file
 * cannot be written the request is just not in it.
 *   root    the folder of the requests
 *   times   as they were before it was read */
void reqindex_note (const char *root, const struct request *req,
                    const struct reqindex_times *times);

/* reqindex_save - write the [n] requests as the new index, if so much has changed
 * that it is worth it, or most of the file's lines are of no use any more. Those whose times are 0 are left out. */
void reqindex_save (const char *root, const struct reqindex *index,
                    const struct request *req,
                    const struct reqindex_times *times, size_t n);

void reqindex_fini (struct reqindex *index);

#endif
