/* SPDX-License-Identifier: Apache-2.0
 * agree.h - before the program starts: are the ranks alike, and where do they
 * meet?
 *
 * Fence 1: every rank puts its place and digests of what must be equal
 * (facts.h); on each node one rank reads the program. Rank 0 looks at all of
 * them. Fence 2: its verdict, address and ports. Where digests differ, fence 3
 * brings the facts themselves and fence 4 the last word. So a rank reads two
 * values in the usual case, however many there are. */
#ifndef RV_EXEC_AGREE_H
#define RV_EXEC_AGREE_H

#include <stdint.h>

#include "exec/cause.h"
#include "plan/command.h"
#include "rv/job.h"

struct meeting {
    char addr[64];       /* numeric, of rank 0's node */
    char local_addr[64]; /* numeric, of this rank's node */
    uint16_t port;       /* reserved there for the program */
    int port_fd;         /* holds it; -1 on the other ranks */
    struct cause cause;  /* who may name the cause */
};

struct agree_in {
    const struct command *cmd;
    char *const *argv;
    const char *refuse; /* rank 0: why it cannot start at all; NULL */
};

/* agree - collective. The address is loopback when all ranks are on one host
 * (the same boot of the same machine and the same network namespace, whatever
 * the nodes are called), else rank 0's best.
 * RV_JOB_EMISMATCH: it must not start. Rank 0's text says why; the others' is
 * empty, for one line is enough. */
rv_job_status_t agree (rv_job_t *job, const struct agree_in *in,
                       struct meeting *ret, rv_job_error_t *err);

#endif
