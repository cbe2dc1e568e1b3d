/* SPDX-License-Identifier: Apache-2.0
 * exchange.h - all ranks swap one blob over TCP, through rank 0.
 *
 * For steps without PMIx. Rank 0 listens, the others connect and stay
 * connected. Both sides prove with a token that they belong to the same step;
 * whoever cannot is dropped, so a stray on the port does no harm. The token
 * tells steps apart; it is no secret and keeps no attacker out.
 *
 * Wire, all numbers little endian:
 *   hello    "rvx1" token:8 rank:4 size:4      a rank, once connected
 *   welcome  "rvx1" ~token:8                   rank 0's answer
 *   frame    "rvxf" status:4 epoch:4 len:4 payload
 * A rank's payload is its blob. Rank 0's is, with status 0, size times
 * (len:4 blob) in rank order, else the text of its error. */
#ifndef RV_JOB_EXCHANGE_H
#define RV_JOB_EXCHANGE_H

#include <stdint.h>

#include "job/job_impl.h"

#define EXCHANGE_PORTS 8
#define EXCHANGE_TOTAL (1u << 28) /* bytes of all blobs of one fence */

struct exchange_opts {
    uint64_t token;
    uint32_t rank, size;
    bool local;                    /* all ranks on this host: loopback only */
    uint16_t port[EXCHANGE_PORTS]; /* tried in this order by both sides */
    /* quick: addresses of rank 0 at hand, NULL-terminated. lookup: a name to
     * resolve when none of them answers, or NULL. Copied by exchange_create. */
    const char *const *quick;
    const char *lookup;
};

struct exchange;

/* exchange_create - opens nothing yet; that happens at the first swap. */
struct exchange *exchange_create (const struct exchange_opts *opts);

/* exchange_swap - collective; every rank's blob reaches every rank.
 *   ret_all   malloc'ed: size times (len:4 blob), checked; the caller frees it
 * RV_JOB_ETIMEDOUT names ranks that did not come, RV_JOB_EPEER one that left.
 * After a failure only destroy follows. */
rv_job_status_t exchange_swap (struct exchange *x, uint32_t epoch,
                               const void *blob, size_t len, int64_t end_ms,
                               unsigned char **ret_all, size_t *ret_len,
                               rv_job_error_t *err);

/* exchange_find - the blob of [rank] inside what exchange_swap gave. */
const unsigned char *exchange_find (const unsigned char *all, size_t all_len,
                                    uint32_t rank, size_t *ret_len);

void exchange_destroy (struct exchange *x); /* NULL is fine */

/* The two sides, each in a file of its own. */
#define EXCHANGE_HELLO   20
#define EXCHANGE_WELCOME 12
#define EXCHANGE_HEAD    16

struct exchange_peer {
    int fd;
    bool known;         /* said a good hello */
    uint32_t rank;      /* when known */
    unsigned char *buf; /* (have, cap) bytes read */
    size_t have, cap;
    bool done;   /* its frame is whole in buf */
    size_t sent; /* of the answer */
};

struct exchange {
    struct exchange_opts o;
    char *quick[8];
    char *lookup;
    /* rank 0 */
    int listen_fd;
    struct exchange_peer *peer; /* (n_peers) */
    size_t n_peers;
    int deaf_errno; /* why the last knock was not heard; 0: it was */
    int64_t deaf_until_ms;
    /* the others */
    int fd;
};

rv_job_status_t exchange_host (struct exchange *x, uint32_t epoch,
                               const void *blob, size_t len, int64_t end_ms,
                               unsigned char **ret_all, size_t *ret_len,
                               rv_job_error_t *err);
rv_job_status_t exchange_join (struct exchange *x, uint32_t epoch,
                               const void *blob, size_t len, int64_t end_ms,
                               unsigned char **ret_all, size_t *ret_len,
                               rv_job_error_t *err);

uint32_t exchange_get32 (const unsigned char *p);
void exchange_put32 (unsigned char *p, uint32_t v);
uint64_t exchange_get64 (const unsigned char *p);
void exchange_put64 (unsigned char *p, uint64_t v);
void exchange_head (unsigned char *p, uint32_t status, uint32_t epoch,
                    uint32_t len);

#endif
