/* SPDX-License-Identifier: Apache-2.0
 * xid.h - what NVIDIA's driver says in the kernel's log.
 *
 * Pure: text in, numbers out. Sources: NVIDIA's Xid catalog
 * (docs.nvidia.com/deploy/xid-errors) for the meaning, the kernel's
 * Documentation/ABI/testing/dev-kmsg for the form of a record. */
#ifndef RV_SPANK_XID_H
#define RV_SPANK_XID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum xid_class {
    XID_APPLICATION, /* the program's own fault, or the end of one that died;
                        the next job is not in danger */
    XID_NOTE,        /* worth a line: the GPU goes on, the number alone does
                        not decide, or the catalog does not know it */
    XID_HARDWARE,    /* the GPU needs a reset, the node a reboot or a hand */
};

struct xid {
    uint64_t seq;    /* of the record; grows from boot to boot */
    unsigned number; /* such as 79 */
    char bus[24];    /* such as "0000:3b:00" */
    bool none;       /* 154 with the action "None": all is well again */
};

/* xid_class - by the first thing that the catalog asks to be done. */
enum xid_class xid_class (const struct xid *x);

/* xid_text - a few words on it, such as "GPU has fallen off the bus". */
const char *xid_text (unsigned number);

/* xid_parse - is this record of /dev/kmsg an Xid?
 *   line, len   one record, without its newline; need not end in NUL
 *   ret         written where it is
 *   ret_seq     written where the record has a prefix, else untouched; NULL
 *               is fine
 * Only what the kernel itself wrote counts (facility 0), and only where the
 * message begins with the driver's words: users choose names of programs,
 * which stand in other messages of the kernel and at the end of this one. */
bool xid_parse (const char *line, size_t len, struct xid *ret,
                uint64_t *ret_seq);

#endif
