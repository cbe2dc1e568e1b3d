/* SPDX-License-Identifier: Apache-2.0
 * agree.h - where the ranks of a step meet: rank 0's address and ports. */
#ifndef RV_EXEC_AGREE_H
#define RV_EXEC_AGREE_H

#include <stdint.h>

#include "exec/cause.h"
#include "rv/job.h"

struct meeting {
    char addr[64];       /* numeric, of rank 0's node */
    char local_addr[64]; /* numeric, of this rank's node */
    uint16_t port;       /* reserved there for the program */
    int port_fd;         /* holds it; -1 on the other ranks */
    int64_t timeout_s;   /* rank 0's deadline of waits */
    struct cause cause;  /* who may name the cause */
};

/* agree - collective, one fence. Loopback when all ranks are on one host (the
 * same boot of the same machine and the same network namespace, whatever the
 * nodes are called), else rank 0's best address. */
rv_job_status_t agree (rv_job_t *job, struct meeting *ret, rv_job_error_t *err);

#endif
