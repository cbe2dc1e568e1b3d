/* SPDX-License-Identifier: Apache-2.0
 * job_impl.h - what the parts of librvjob share, and the table of a boot.
 *
 * job.c keeps the values: puts are packed into one blob a fence ("epoch"), and
 * a boot only has to spread one blob per rank and hand any rank's blob out
 * again. To add a boot: one file that ends in a const struct boot_ops, and one
 * line in boot_table (boot.c). */
#ifndef RV_JOB_IMPL_H
#define RV_JOB_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"
#include "rv/job.h"

#define JOB_KEY_MAX   63
#define JOB_VALUE_MAX 3072
#define JOB_BLOB_MAX  (1 << 20) /* of one rank and fence */
#define JOB_BOOT_MS   8000      /* of PMIx; what comes next is up within 10 s */
#define JOB_TIMEOUT_S 600       /* default of rv_job_timeout_ms */
#define JOB_RANKS_MAX (1 << 20)
#define JOB_FETCH_MS  10000 /* a value that a fence has spread is near */
#define JOB_ABORT_MS  3000  /* for the abort to leave this process */

struct boot_ops {
    const char *name; /* (required) "pmix" */

    /* open (required) - join and fill the facts of [job] (rank, size, ...).
     *   asked     the caller named this boot; false: it is one of several
     *   end_ms    deadline on the clock of job_now_ms
     * RV_JOB_ENOTSUP when this process is not started that way, or, where it
     * is not asked, the boot does not take it in: the next boot may serve. Owns job->priv until close. Nothing is left on failure. */
    rv_job_status_t (*open) (struct rv_job *job, bool asked, int64_t end_ms,
                             rv_job_error_t *err);

    /* fence (required) - collective: spread this rank's [blob] (len, may be 0)
     * of [epoch] (0, 1, ...) and return when all ranks' can be fetched. After a
     * failure only abort and close follow. */
    rv_job_status_t (*fence) (struct rv_job *job, uint32_t epoch,
                              const void *blob, size_t len, int64_t end_ms,
                              rv_job_error_t *err);

    /* fetch (required) - the blob that [rank] spread in [epoch].
     *   ret_blob   malloc'ed, the caller frees it */
    rv_job_status_t (*fetch) (struct rv_job *job, uint32_t epoch, uint32_t rank,
                              void **ret_blob, size_t *ret_len,
                              rv_job_error_t *err);

    /* abort (optional, default: nothing) - tell the launcher to end all ranks
     * with [code]; returns, and the caller ends the process. Bounded time. */
    void (*abort) (struct rv_job *job, int code, const char *text);

    /* close (required) - leave; job->priv may be NULL or half made. */
    void (*close) (struct rv_job *job);
};

struct rv_job {
    const struct boot_ops *ops;
    void *priv; /* of the boot */
    uint32_t rank, size, local_rank, local_size, node, nodes;
    uint32_t job_id, step_id;
    int64_t timeout_ms;
    bool broken;      /* a collective failed: finalize or abort */
    uint32_t epoch;   /* fences and barriers done */
    uint32_t *values; /* (n_values) those that spread values */
    uint32_t n_values;
    unsigned char *blob; /* (blob_len) puts since the last fence */
    size_t blob_len;
    char note[512];
};

extern const struct boot_ops boot_pmix;
extern const struct boot_ops boot_slurm;
extern const struct boot_ops boot_single;

/* The boots in order of preference; NULL ends it. */
extern const struct boot_ops *const boot_table[];

/* job_error - write [code] and text, as error_set does. Returns code. */
rv_job_status_t job_error (rv_job_error_t *err, rv_job_status_t code,
                           const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));

/* job_error_from - take over what libplan reported. Returns its code. */
rv_job_status_t job_error_from (rv_job_error_t *err,
                                const struct rv_error *from);

/* job_now_ms - CLOCK_MONOTONIC in milliseconds. */
int64_t job_now_ms (void);

/* job_env_u32 - a variable as a number.
 *   ret   written on success
 * RV_JOB_ENOTFOUND when unset or empty, RV_JOB_EFORMAT when it is not a plain
 * decimal number up to [max]. */
rv_job_status_t job_env_u32 (const char *name, uint32_t max, uint32_t *ret,
                             rv_job_error_t *err);

/* job_step_facts - fill rank, size, node and the rest from the variables of a
 * Slurm step. RV_JOB_ENOTSUP outside a step (also in the batch script, which
 * has SLURM_PROCID but no step), RV_JOB_EFORMAT when they disagree. */
rv_job_status_t job_step_facts (struct rv_job *job, rv_job_error_t *err);

/* job_ids - job and step id from the variables; 0 where there is none. */
void job_ids (uint32_t *ret_job, uint32_t *ret_step);

/* blob_put, blob_find - the packing of puts into blobs: one byte of key
 * length, the key, two bytes of value length (little endian), the value.
 * blob_put grows *blob; RV_JOB_EINVAL when the key is there already.
 * blob_find checks all lengths: a peer sent it. RV_JOB_ENOTFOUND,
 * RV_JOB_EFORMAT.
 *   ret_value   points into the blob */
rv_job_status_t blob_put (unsigned char **blob, size_t *len, const char *key,
                          const void *value, size_t value_len,
                          rv_job_error_t *err);
rv_job_status_t blob_find (const unsigned char *blob, size_t len,
                           const char *key, const unsigned char **ret_value,
                           size_t *ret_len, rv_job_error_t *err);

/* A blob that comes in pieces, of which the first begins with the length of the
 * whole, four bytes, little endian. */
struct blob_in {
    uint32_t rank;       /* whose it is, for messages */
    unsigned char *blob; /* (len) to be freed; NULL: nothing has come */
    size_t len, at;      /* all of it; what is there */
};

/* blob_add - the next piece, and checked: a peer sent it. It is over when [at] is
 * [len].
 *   piece   (size) NULL: what came is no bytes
 * RV_JOB_EFORMAT, RV_JOB_ENOMEM. */
rv_job_status_t blob_add (struct blob_in *in, const void *piece, size_t size,
                          rv_job_error_t *err);

/* deadline_call - run fn (arg) on another thread and wait for it until
 * [end_ms]. For foreign calls that know no deadline. The thread stays for the
 * next call, until deadline_end.
 *   fn       its return value goes to *ret
 *   undo     called on that thread, after fn, when nobody waits any more; it
 *            takes back what fn did and frees arg. May be NULL (arg leaks)
 *   arg      the callee owns it from a timeout on; not on the stack
 * RV_JOB_OK, RV_JOB_ETIMEDOUT (no text), RV_JOB_ENOMEM. */
typedef int (*deadline_f) (void *arg);
typedef void (*deadline_undo_f) (void *arg, int result);
rv_job_status_t deadline_call (deadline_f fn, deadline_undo_f undo, void *arg,
                               int64_t end_ms, int *ret);

/* deadline_end - let the thread go that waits for a next call. */
void deadline_end (void);

#endif
