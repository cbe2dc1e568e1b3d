/* SPDX-License-Identifier: Apache-2.0
 * advice.c - what kind of failure this is, and what to do
 *
 * The first row that fits counts, so the more certain come first: what Slurm
 * and the kernel say, then the program's words, from special to general. */
#include "config.h"

#include "exec/advice.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

#define WORDS_MAX 10

enum when {
    SLURM,    /* one of [word] is in what Slurm said, and it ended the rank */
    KILLED,   /* the kernel killed for want of memory */
    TAIL,     /* one of [word] is in the program's last lines */
    ON_SIGNAL /* the end was [signal] */
};

struct row {
    enum when when;
    int signal;
    const char *word[WORDS_MAX];
    struct advice advice;
};

static const struct row rows[] = {
    {SLURM,
     0,
     {"DUE TO NODE FAILURE", "error: Node failure on"},
     {"node_failure", "a node failed",
      "submit again; 'sinfo -R' shows what Slurm knows of the node"}},
    {SLURM,
     0,
     {"DUE TO PREEMPTION"},
     {"preemption", "preempted by another job",
      "write checkpoints, or take a partition or QOS that is not preempted"}},
    {SLURM,
     0,
     {"DUE TO TIME LIMIT"},
     {"time_limit", "the time limit was reached",
      "ask for more by --time, or write checkpoints and go on from the last"}},
    {SLURM,
     0,
     {"Out Of Memory", "oom_kill event", "oom-kill event"},
     {"out_of_memory", NULL,
      "ask for more by --mem, or use less: fewer data workers, smaller "
      "batches"}},
    {KILLED,
     0,
     {NULL},
     {"out_of_memory", NULL,
      "ask for more by --mem, or use less: fewer data workers, smaller "
      "batches"}},
    {TAIL,
     0,
     {"GPU has fallen off the bus", "ncorrectable ECC error",
      "CUDA_ERROR_ECC_UNCORRECTABLE", "cudaErrorECCUncorrectable",
      "CUDA error: unknown error", "CUDA_ERROR_UNKNOWN", "GPU is lost",
      "cudaErrorNvlinkUncorrectable", "CUDA_ERROR_NVLINK_UNCORRECTABLE",
      "Failed to get device handle"},
     {"hardware", NULL,
      "leave this node out (-x), and tell the administrators: its GPU, not the "
      "program, failed"}},
    {TAIL,
     0,
     {"CUDA out of memory", "CUDA_ERROR_OUT_OF_MEMORY",
      "cudaErrorMemoryAllocation", "torch.OutOfMemoryError",
      "torch.cuda.OutOfMemoryError"},
     {"gpu_out_of_memory", NULL,
      "use a smaller batch, activation checkpointing or sharding, or a GPU "
      "with more memory"}},
    {TAIL,
     0,
     {"MemoryError", "std::bad_alloc", "Cannot allocate memory"},
     {"out_of_memory", NULL,
      "ask for more by --mem, or use less: fewer data workers, smaller "
      "batches"}},
    {TAIL,
     0,
     {"Duplicate GPU detected"},
     {"shared_gpu", NULL,
      "let each take the device of its LOCAL_RANK, and start one task a GPU"}},
    {TAIL,
     0,
     {"invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE"},
     {"missing_gpu", NULL,
      "use LOCAL_RANK, not RANK, to choose the device, and ask for as many "
      "GPUs as tasks"}},
    {TAIL,
     0,
     {"No CUDA GPUs are available", "no CUDA-capable device",
      "CUDA_ERROR_NO_DEVICE", "Found no NVIDIA driver",
      "CUDA driver version is insufficient", "Torch not compiled with CUDA",
      "cudaErrorNoDevice", "cudaErrorInsufficientDriver"},
     {"missing_gpu", NULL,
      "ask for GPUs (rv run -g, srun --rv-gpu or --gres), and compare the "
      "program's CUDA with the driver that nvidia-smi shows"}},
    {TAIL,
     0,
     {"Address already in use", "EADDRINUSE", "address already in use"},
     {"port_in_use", NULL,
      "listen on MASTER_PORT, which is reserved for this step, or on port 0"}},
    {TAIL,
     0,
     {"ncclSystemError", "ncclInternalError", "ncclUnhandledCudaError",
      "ncclRemoteError", "ncclInvalidUsage", "NCCL error", "NCCL WARN",
      "NCCL failure"},
     {"nccl", NULL,
      "run again with NCCL_DEBUG=INFO; NCCL_SOCKET_IFNAME chooses the network, "
      "and the first rank that complained is the one to look at"}},
    {TAIL,
     0,
     {"ModuleNotFoundError", "ImportError"},
     {"import_error", NULL,
      "activate the environment before submission, or name its python by a "
      "path that the nodes see"}},
    {TAIL,
     0,
     {"error while loading shared libraries", "cannot open shared object file"},
     {"missing_library", NULL,
      "load the same modules as at build time, or set LD_LIBRARY_PATH"}},
    {ON_SIGNAL,
     SIGKILL,
     {NULL},
     {"killed", NULL,
      "somebody or the kernel killed it: 'kill -9' ends a process like this, "
      "and so does a node without memory (dmesg on the node tells)"}},
    {ON_SIGNAL,
     SIGBUS,
     {NULL},
     {"crash", NULL,
      "often /dev/shm or the disk is full: 'df' on the node tells"}},
    {ON_SIGNAL,
     SIGILL,
     {NULL},
     {"crash", NULL, "the program was built for another CPU than this node's"}},
    {ON_SIGNAL,
     SIGSEGV,
     {NULL},
     {"crash", NULL,
      "'ulimit -c unlimited' keeps a core file; Python tells where with "
      "PYTHONFAULTHANDLER=1"}},
};

static bool says (const char *text, const struct row *row)
{
    for (size_t i = 0; text && i < WORDS_MAX && row->word[i]; i++)
        if (strstr (text, row->word[i]))
            return true;
    return false;
}

static bool fits (const struct row *row, const struct advice_in *in)
{
    switch (row->when) {
    case SLURM:
        return in->told_to_end && says (in->slurm, row);
    case KILLED:
        return in->oom;
    case TAIL:
        return !in->told_to_end && says (in->tail, row);
    case ON_SIGNAL:
        return !in->told_to_end && in->signal == row->signal;
    }
    return false;
}

const struct advice *advice_for (const struct advice_in *in)
{
    if (in->exit_status == 0 && !in->signal && !in->told_to_end)
        return NULL;
    for (size_t i = 0; i < sizeof (rows) / sizeof (*rows); i++)
        if (fits (&rows[i], in))
            return &rows[i].advice;
    return NULL;
}

const struct advice *advice_of (const char *kind)
{
    for (size_t i = 0; i < sizeof (rows) / sizeof (*rows); i++)
        if (!strcmp (rows[i].advice.kind, kind))
            return &rows[i].advice;
    return NULL;
}
