/* SPDX-License-Identifier: Apache-2.0
 * rv/job.h - who am I among the ranks of this job, and who are the others.
 *
 * librvjob boots a program into its job: by PMIx where the step has it, else
 * by Slurm's variables, else as a single task. It gives the rank, exchanges
 * small values, knows the job's deadline and can end the job.
 *
 * Every call returns rv_job_status_t and takes a nullable error last. Nothing
 * here prints or exits (but rv_job_abort) or keeps global state. One handle is
 * used by one thread at a time, by any thread. A process has one handle open at
 * a time: PMIx knows one client of a rank. The calls may be made from C++.
 * rv_job(3). */
#ifndef RV_JOB_H
#define RV_JOB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of train_status_t; values never change. */
typedef enum rv_job_status {
    RV_JOB_OK = 0,
    RV_JOB_EINVAL = 1, /* an argument is wrong; nothing was done */
    RV_JOB_ENOMEM = 2,
    RV_JOB_EIO = 3,       /* socket or file */
    RV_JOB_EFORMAT = 4,   /* a variable or a peer's message is malformed */
    RV_JOB_ENOTFOUND = 6, /* no such key */
    RV_JOB_ENOTSUP = 7,   /* not by this boot; the text says which could */
    RV_JOB_EPEER = 9,     /* another rank ended or does not answer */
    RV_JOB_EMISMATCH = 10,
    RV_JOB_ETIMEDOUT = 11,
    RV_JOB_EABORTED = 12,
    RV_JOB_ESTATE = 14, /* called in the wrong order, or after a failure */
} rv_job_status_t;

typedef struct rv_job_error {
    rv_job_status_t code;
    char text[512]; /* one line; ends in '+' when it was cut */
} rv_job_error_t;

typedef struct rv_job rv_job_t;

typedef struct rv_job_options {
    size_t size;        /* sizeof (rv_job_options_t); one of an older release,
                           smaller, leaves the rest at its defaults */
    const char *boot;   /* "pmix", "slurm", "single"; NULL: RV_BOOT, else the
                            first that serves, in that order */
    int64_t timeout_ms; /* of the boot itself; 0 = 8 s */
} rv_job_options_t;

/* rv_job_init - join the job.
 *   opts      NULL = defaults
 *   ret_job   written on success; end it with rv_job_finalize
 * A boot that is asked for and cannot serve is RV_JOB_ENOTSUP with the reason,
 * RV_JOB_ETIMEDOUT when PMIx does not answer within the deadline. One that is
 * not asked for is passed over where it is not there, does not answer or does
 * not let this process in (rv_job_boot_note says why). RV_JOB_EFORMAT or
 * RV_JOB_EMISMATCH, whoever asked, when the variables of the step contradict
 * themselves or PMIx: four ranks must not become four jobs of one. */
rv_job_status_t rv_job_init (const rv_job_options_t *opts, rv_job_t **ret_job,
                             rv_job_error_t *err);

/* rv_job_finalize - leave the job and free the handle. NULL is fine. Needed
 * before exec: a PMIx client that ends without it takes the step down. A rank
 * that joins PMIx again waits before until all others have left it: servers take
 * who leaves during a fence for dead (openpmix/openpmix#3931), and Open MPI 4's
 * mpirun now and then who has left. */
void rv_job_finalize (rv_job_t *job);

/* Facts of the job; they never fail on a handle that rv_job_init returned. */
uint32_t rv_job_rank (const rv_job_t *job); /* 0 .. size-1 */
uint32_t rv_job_size (const rv_job_t *job);
uint32_t rv_job_local_rank (const rv_job_t *job); /* among this node's tasks */
uint32_t rv_job_local_size (const rv_job_t *job);
uint32_t rv_job_node (const rv_job_t *job);  /* index of this node */
uint32_t rv_job_nodes (const rv_job_t *job); /* nodes of the step */
uint32_t rv_job_id (const rv_job_t *job);    /* Slurm job, 0 outside */
uint32_t rv_job_step (const rv_job_t *job);  /* Slurm step, 0 outside */
/* Name of the boot in use ("pmix", "slurm", "single"); static. */
const char *rv_job_boot (const rv_job_t *job);
/* Why boots before it were passed over; "" if none was. Lives with [job]. */
const char *rv_job_boot_note (const rv_job_t *job);

/* rv_job_timeout_ms - the deadline of waits in this job: RV_NCCL_TIMEOUT (whole
 * seconds), else NCCL_TIMEOUT, else 600 s. */
int64_t rv_job_timeout_ms (const rv_job_t *job);

/* rv_job_put - offer a value to the other ranks; visible after the fence. A
 * later value of a key takes the place of an earlier one.
 *   key     [a-z0-9._-], at most 63 characters; a key twice before a fence is
 *           RV_JOB_EINVAL
 *   value   (len) any bytes, len <= 3072 */
rv_job_status_t rv_job_put (rv_job_t *job, const char *key, const void *value,
                            size_t len, rv_job_error_t *err);

/* rv_job_fence - every rank has put what it puts, and all can be read.
 *   timeout_ms   0 = rv_job_timeout_ms. RV_JOB_ETIMEDOUT after it, and then
 *                every later call but finalize and abort is RV_JOB_ESTATE.
 * Collective: all ranks call it the same number of times. */
rv_job_status_t rv_job_fence (rv_job_t *job, int64_t timeout_ms,
                              rv_job_error_t *err);

/* rv_job_barrier - every rank has come here. Spreads nothing: what was put
 * stays for the next fence.
 *   timeout_ms, errors   as rv_job_fence
 * Collective, and counted with the fences: where one rank calls the one, all
 * do. */
rv_job_status_t rv_job_barrier (rv_job_t *job, int64_t timeout_ms,
                                rv_job_error_t *err);

/* rv_job_get - a value that [rank] put before a fence.
 *   buf       (size) written
 *   ret_len   its length; larger than size is RV_JOB_EINVAL and names it
 * RV_JOB_ENOTFOUND when that rank did not put the key. */
rv_job_status_t rv_job_get (rv_job_t *job, uint32_t rank, const char *key,
                            void *buf, size_t size, size_t *ret_len,
                            rv_job_error_t *err);

/* rv_job_address - numeric addresses by which other nodes reach this one, best
 * first (IPv4 before IPv6, no loopback while another is there; on one node
 * 127.0.0.1 comes last, and alone where nothing else is up).
 *   buf   (size) written: addresses separated by one space */
rv_job_status_t rv_job_address (rv_job_t *job, char *buf, size_t size,
                                rv_job_error_t *err);

/* rv_job_reserve_port - hold a TCP port of this node that no other program's
 * exclusive bind gets, and that a later bind with SO_REUSEADDR (PyTorch's
 * store, ours) does.
 *   ret_fd    the bound, not listening descriptor; keep it open as long as the
 *             port is needed, across exec too (no FD_CLOEXEC); close to free */
rv_job_status_t rv_job_reserve_port (rv_job_t *job, uint16_t *ret_port,
                                     int *ret_fd, rv_job_error_t *err);

/* rv_job_abort - end all ranks of the job with exit status [code].
 *   code   1..255; 0 becomes 1
 *   text   one line for the log, written to stderr as "rv[rank N on NODE]: ";
 *          NULL = none
 * With PMIx the step ends with that status; with Slurm's variables alone the
 * process ends with it and srun's --kill-on-bad-exit does the rest. Does not
 * return. */
void rv_job_abort (rv_job_t *job, int code, const char *text)
    __attribute__ ((noreturn));

#ifdef __cplusplus
}
#endif
#endif
