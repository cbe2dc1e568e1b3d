/* SPDX-License-Identifier: Apache-2.0
 * rank_env.h - the variables of one rank, from the facts of its step.
 *
 * One function for both callers: the plugin's task_init and rv-exec (where the
 * plugin did not run). It reads and writes the environment through callbacks
 * and does nothing else: no file, no library, no allocation that can fail the
 * task.
 *
 * Variables: RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK
 * RV_STEP RV_SET, OMP_NUM_THREADS if unset; MASTER_ADDR and MASTER_PORT where
 * given; RV_NCCL_TIMEOUT and, with an explicit timeout, TORCH_NCCL_HEARTBEAT_
 * TIMEOUT_SEC=max(480,T) and DEEPSPEED_TIMEOUT=ceil(T/60) if unset.
 *
 * RV_SET is the function's note to itself, words NAME=VALUE: "RANK=3" first,
 * the task that it was written for, then each variable that was written only
 * because it was unset, such as "OMP_NUM_THREADS=2". Such a variable is ours as
 * long as it has that value.
 *
 * A value is stale, and replaced, when RV_STEP is set and names another step,
 * and RV_BOOT is then unset. Those of the rank are too where RV_SET names
 * another task: a plugin that starts containers may give all tasks of a node
 * the environment of one (NVIDIA/pyxis). With RV_STEP unset a value of the
 * user's stays (PyTorch, DeepSpeed and NCCL documentation give the names).
 * OMP_NUM_THREADS is replaced where stale and ours; the timeouts are where an
 * explicit one is given, and go, if ours, where RV_STEP names another job.
 *
 * A second call in the same step (rv-exec after the plugin) keeps what stands.
 * The exception is the pair MASTER_ADDR, MASTER_PORT: where the port is the
 * formula's, the plugin wrote the pair for tasks without rv-exec, and a given
 * address or port replaces it. An explicit timeout replaces RV_NCCL_TIMEOUT;
 * the default of 600 is written only where neither RV_NCCL_TIMEOUT nor
 * NCCL_TIMEOUT, which libtrain reads in its place, is set. */
#ifndef RV_PLAN_RANK_ENV_H
#define RV_PLAN_RANK_ENV_H

#include <stdbool.h>
#include <stdint.h>

struct rank_env_in {
    uint32_t job_id, step_id; /* RV_STEP is "JOB.STEP" */
    uint32_t rank, world_size;
    uint32_t local_rank, local_size; /* among the tasks of this node */
    uint32_t node_rank;
    uint32_t cpus;           /* of the affinity mask; 0 = unknown, and then
                                OMP_NUM_THREADS is left alone */
    bool renew_threads;      /* replace an OMP_NUM_THREADS that is ours */
    bool one_device;         /* one GPU visible: LOCAL_RANK is 0 */
    const char *master_addr; /* NULL = leave MASTER_ADDR alone */
    uint16_t master_port;    /* 0 = leave MASTER_PORT alone */
    int64_t nccl_timeout_s;  /* 0 = not asked for: default 600, no others */
};

/* get: value or NULL, valid until the next call. set: NULL value unsets;
 * returns 0. */
typedef const char *(*rank_env_get_f) (void *arg, const char *name);
typedef int (*rank_env_set_f) (void *arg, const char *name, const char *value);

/* rank_env - write the variables of one rank. Returns 0, or the first nonzero
 * value of [set]. RV_STEP is written last, so a call that failed half-way can
 * be repeated. */
int rank_env (const struct rank_env_in *in, rank_env_get_f get,
              rank_env_set_f set, void *arg);

/* rank_env_is_ours - does [name], of value [value], stand as rank_env left it?
 * set: value of RV_SET. Both may be NULL: false. */
bool rank_env_is_ours (const char *set, const char *name, const char *value);

/* rank_env_formula_port - 20000 + (31*job + step) % 12000: below the ephemeral
 * range, for steps that have no rv-exec to reserve one. */
uint16_t rank_env_formula_port (uint32_t job_id, uint32_t step_id);

/* rank_env_visible - how many devices a CUDA_VISIBLE_DEVICES value names;
 * -1 for NULL (unset), 0 for "", "NoDevFiles" or "-1". Opaque strings count;
 * as for CUDA, an empty or negative entry ends the list. */
int rank_env_visible (const char *cuda_visible_devices);

#endif
