/* SPDX-License-Identifier: Apache-2.0
 * slurm_ask.h - one question to Slurm, in a child with a deadline.
 *
 * libslurm waits a minute for a configuration file that is not there and then
 * ends the process; without a controller it tries again for many seconds and
 * prints. So each question runs in a child of its own, whose answer comes back
 * as JSON, and whose words are looked at only where none comes. The parent
 * never calls libslurm. */
#ifndef RV_SLURM_ASK_H
#define RV_SLURM_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/error.h"

/* slurm_ask_f - runs in the child after slurm_init.
 *   arg   the caller's, as it was when the child was made
 * Returns a new object or array; NULL with errno set to Slurm's error. */
typedef json_t *(*slurm_ask_f) (const void *arg);

struct slurm_ask {
    pid_t pid; /* 0 = no question is open */
    int fd;
    int log;            /* what libslurm prints; -1 = not kept */
    bool reached;       /* the controller has answered a ping */
    int64_t give_up_at; /* monotonic milliseconds */
    char *buf;
    size_t len, size;
};

/* slurm_ask_begin - put a question and return at once.
 *   ask   written; end it with slurm_ask_poll or slurm_ask_cancel
 * RV_ENOTFOUND when SLURM_CONF names a file that cannot be read, or a folder. */
int slurm_ask_begin (struct slurm_ask *ask, slurm_ask_f f, const void *arg,
                     struct rv_error *err);

/* slurm_ask_poll - has the answer come?
 *   timeout_ms   how long to wait for it; 0 = only look
 *   ret_done     written: false = not yet, call again
 *   ret          written when done and RV_OK; json_decref it
 * RV_ETIMEDOUT when no controller answers, RV_EMISMATCH when it is of a release
 * that rv's libslurm does not understand, RV_EFORMAT when libslurm ends over
 * slurm.conf; RV_ENOTFOUND no such job, RV_ESTATE it has already ended, RV_EIO
 * any other error of libslurm, in its words. */
int slurm_ask_poll (struct slurm_ask *ask, int timeout_ms, bool *ret_done,
                    json_t **ret, struct rv_error *err);

/* slurm_ask_cancel - drop an open question. One that is not open is fine. */
void slurm_ask_cancel (struct slurm_ask *ask);

/* slurm_ask_patience - from now on slurm_ask_wait asks again for so long where
 * no controller answers, with a line on stderr; at first it does not. */
void slurm_ask_patience (int ms);

/* slurm_ask_wait - begin and poll to the end. */
int slurm_ask_wait (slurm_ask_f f, const void *arg, json_t **ret,
                    struct rv_error *err);

#endif
