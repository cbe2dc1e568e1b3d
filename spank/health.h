/* SPDX-License-Identifier: Apache-2.0
 * health.h - is a node fit for the next job? What was seen becomes findings.
 *
 * Pure: numbers and text in, lines out. health_nvml.h and health_kmsg.h look;
 * ctx_script.c acts. */
#ifndef RV_SPANK_HEALTH_H
#define RV_SPANK_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "xid.h"

#define HEALTH_BUS  32
#define HEALTH_TEXT 256
#define HEALTH_XIDS 64

/* One GPU as NVML has it. Zeroed means healthy and not asked. */
struct health_gpu {
    char bus[HEALTH_BUS]; /* such as "00000000:3B:00.0" */
    bool mine;            /* the job has it, and it is not cut by MIG */
    bool lost;            /* NVML: off the bus */
    bool needs_reset;     /* NVML: of no use before */
    uint64_t uncorrected; /* ECC errors since the last reset */
    bool remap_failed;    /* no spare row is left */
    bool remap_pending;   /* a row or page is replaced at the next reset */
    unsigned n_left;      /* processes of no job of the node, not root's */
    pid_t left_pid;       /* one of them */
    uid_t left_uid;
};

enum health_level {
    HEALTH_NOTE, /* worth a line in the log */
    HEALTH_BAD,  /* reason to give the node no more jobs */
};

/* A finding: one line without a newline, borrowed for the call. */
typedef void (*health_found_f) (void *arg, enum health_level level,
                                const char *text);

/* health_judge_gpu - what is to be said of it. */
void health_judge_gpu (const struct health_gpu *gpu, health_found_f found,
                       void *arg);

/* The Xids of one look at the kernel's log; zeroed to begin with. */
struct health_xids {
    struct xid xid[HEALTH_XIDS]; /* one of each bus and number */
    size_t n;
    uint64_t seq; /* of the newest record that was read */
    bool any;     /* one was */
};

/* health_read_log - take in records of /dev/kmsg.
 *   text, len   borrowed; records end in a newline
 *   after       records up to this one were seen by an earlier look; counts
 *               where [skip]
 * A driver's word that a GPU needs nothing any more (154, "None") takes back
 * what stood there of that GPU before. */
void health_read_log (struct health_xids *xids, const char *text, size_t len,
                      bool skip, uint64_t after);

/* health_judge_xids - what is to be said of them; programs' own faults pass in
 * silence. */
void health_judge_xids (const struct health_xids *xids, health_found_f found,
                        void *arg);

/* health_listed - does "0,2-3" hold [minor]? NULL and text that is no such
 * list hold nothing. */
bool health_listed (const char *list, unsigned minor);

/* What a child reports: a line "note TEXT", "bad TEXT" or "seq NUMBER" each. */
struct health_verdict {
    unsigned n_bad;
    char reason[HEALTH_TEXT]; /* for the node: the first bad, and how many */
    bool has_seq;
    uint64_t seq;
};

/* health_format - the line of a finding, for a child to write.
 *   buf   (size) written, ends in a newline
 * Returns its length. */
size_t health_format (char *buf, size_t size, enum health_level level,
                      const char *text);

/* health_read_report - such lines back to findings; others are passed over,
 * and so is a last line that was cut.
 *   found   called for each; may be NULL
 *   ret     written */
void health_read_report (const char *text, size_t len, health_found_f found,
                         void *arg, struct health_verdict *ret);

#endif
