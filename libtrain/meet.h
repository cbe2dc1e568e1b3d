/* SPDX-License-Identifier: Apache-2.0
 * meet.h - the ranks of a group meet at an address and a port, MASTER_ADDR and
 * MASTER_PORT or those of home.h, where rank 0 waits for them. Inside libtrain
 * only.
 *
 * Rank 0 refuses whoever shows another token, and hears at once when a rank
 * that has come leaves again; what goes wrong there is told to every rank in
 * the same words. Under torchrun (TORCHELASTIC_USE_AGENT_STORE) its agent
 * listens at the port itself, so the meeting is at one of the next ports. */
#ifndef TRAIN_MEET_H
#define TRAIN_MEET_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

struct meet;

struct meet_place {
    const char *called; /* in messages: "MASTER_ADDR ", or "" */
    const char *hosts;  /* name or numeric address; or several by which rank 0
                           may be reached, best first, separated by a space */
    uint16_t port;
    int n_ports;    /* the meeting is at one of port .. port+n_ports-1 */
    uint64_t token; /* the same on all ranks of this group, and no others */
};

/* meet_open - come together.
 *   ret   end with meet_close
 * TRAIN_ETIMEDOUT names who did not come; TRAIN_EMISMATCH a meeting of others
 * is there, or two claim one rank; TRAIN_EPEER one left; TRAIN_EIO the port
 * cannot be had. */
train_status_t meet_open (struct meet **ret, const struct meet_place *place,
                          int rank, int size, int64_t deadline_ms,
                          train_error_t *err);

/* meet_exchange - (size * len) bytes of all ranks, in rank order.
 * Collective; errors as meet_open. */
train_status_t meet_exchange (struct meet *meet, void *all, const void *mine,
                              size_t len, int64_t deadline_ms,
                              train_error_t *err);

/* meet_host - numeric address of this node as the others see it. */
const char *meet_host (const struct meet *meet);

/* meet_at - by which of its hosts this rank reached rank 0; "" on rank 0. */
const char *meet_at (const struct meet *meet);

void meet_close (struct meet *meet); /* NULL is fine */

#endif
