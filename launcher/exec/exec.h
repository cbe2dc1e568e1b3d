/* SPDX-License-Identifier: Apache-2.0
 * exec.h - the two things that rv-exec does; both return its exit status. */
#ifndef RV_EXEC_H
#define RV_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/checkpoint.h"
#include "plan/command.h"
#include "plan/envfile.h"
#include "plan/error.h"

#define EXEC_FAILED 125 /* rv-exec itself, not the program */

struct exec_task {
    char *const *argv;
    const char *dir;        /* of the request; NULL: typed by a user */
    struct command cmd;     /* what [argv] tells (command_scan) */
    uint32_t gpus_per_node; /* of the request; 0 = unknown */
    struct envfile secrets; /* for the program alone; the user's own */
    int checkpoint_signal;  /* for the program, when SIGURG comes; 0 = none */
};

/* exec_task - be one rank: join, agree, run the program, report its end. */
int exec_task (const struct exec_task *t);

/* exec_batch - be the batch step of the request in [dir]. */
int exec_batch (const char *dir);

/* exec_gpus - print how many GPUs NVML, or else the driver's own list, has on
 * this node; "none" without either. Ends by SIGALRM when NVML hangs. */
int exec_gpus (void);

/* exec_connect - pass standard input to a TCP port of this node's loopback, and
 * what comes from there to standard output, until that ends. */
int exec_connect (const char *port);

/* What request.json tells the two of them. */
struct exec_request {
    char *name, *log_dir;
    char **srun_options; /* NULL-terminated */
    char *gpu_type;      /* NULL = several, or none has a name */
    uint64_t mem_bytes;  /* a node; 0 = not asked for */
    char *work_dir;      /* in the snapshot; NULL = there is none */
    char *submit_dir;    /* of rv run; with work_dir alone */
    char **outputs;      /* NULL-terminated; to be brought to submit_dir */
    uint32_t gpus, nodes, tasks, tasks_per_node, cpus_per_task;
    uint32_t secrets;    /* how many stand in DIR/secrets */
    uint32_t candidates; /* jobs of the request; 0 = an older rv */
    struct checkpoint checkpoint;
};

/* exec_request_read - read DIR/request.json, or request-N.json where RV_CANDIDATE
 * is N. RV_EFORMAT names what is missing. */
int exec_request_read (const char *dir, struct exec_request *ret,
                       struct rv_error *err);
void exec_request_fini (struct exec_request *r);

/* exec_request_enter - make the snapshot's working folder that of this process
 * and what it starts. Without a snapshot, or where the user names a folder of a
 * container, nothing. RV_EIO where it is not there. */
int exec_request_enter (const struct exec_request *r, struct rv_error *err);

/* exec_secrets_read - DIR/secrets, which must have [n] variables; 0 reads none.
 *   ret   written on success; free with envfile_fini
 * RV_ENOTFOUND where they are gone. */
int exec_secrets_read (const char *dir, uint32_t n, struct envfile *ret,
                       struct rv_error *err);

/* How the tasks of a job came to their end: SECRETS_DONE by themselves and well;
 * SECRETS_FAILED badly, which a requeue can be behind whose signal came to srun
 * first; SECRETS_TOLD by a signal of Slurm. */
enum secrets_end { SECRETS_DONE, SECRETS_FAILED, SECRETS_TOLD };

/* exec_secrets_forget - remove DIR/secrets at the end of the job's tasks; where
 * DIR is of the last task of an array that ends, the request's as well.
 *   how   where it is not SECRETS_DONE the job may have been put back into the
 *         queue, so slurmctld is asked, and where it does not say that the job
 *         has ended they stay (rv removes them later) */
void exec_secrets_forget (const char *dir, uint32_t job_id, uint32_t restart,
                          enum secrets_end how);

/* exec_argv_read - DIR/argv, each argument with a NUL behind it.
 *   ret_argv   NULL-terminated, one block: free (argv[0]) and free (argv) */
int exec_argv_read (const char *dir, char ***ret_argv, struct rv_error *err);

/* exec_argv_split - the same from bytes: [buf] (len, and a NUL behind it) is
 * cut in place and owned by the result on success. */
int exec_argv_split (char *buf, size_t len, char ***ret_argv,
                     struct rv_error *err);

#endif
