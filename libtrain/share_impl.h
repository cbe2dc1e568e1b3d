/* SPDX-License-Identifier: Apache-2.0
 * share_impl.h - what the files of shared tensors share. Inside libtrain only.
 */
#ifndef TRAIN_SHARE_IMPL_H
#define TRAIN_SHARE_IMPL_H

#include <stdbool.h>
#include <sys/types.h>

#include <train/share.h>

#include "backend.h"

#define SHARE_MAGIC 0x72767368u /* "rvsh" */
#define SHARE_QUEUE 64          /* given to us, not taken yet */
#define SHARE_TEXT  96
#define SHARE_GPUS  16

enum share_op {
    SHARE_GIVE = 1,
    SHARE_RELEASE = 2, /* [id] and [seq] alone */
    SHARE_REFUSE = 3,  /* those, and [text]: cannot be mapped; staged, please */
    SHARE_AGAIN = 4,   /* the answer: a give of kind MEMFD, or AUTO: no */
};

/* Between processes of one host: of one byte order. */
struct share_msg {
    uint32_t magic, op;
    uint64_t id;          /* of the block, the giver's */
    uint64_t seq;         /* of the give, the giver's */
    uint64_t process;     /* of the giver: share_process */
    uint64_t block_bytes; /* of what the handle stands for */
    uint64_t offset;      /* of the tensor in it */
    uint64_t sum;         /* of the tensor's bytes: share_sum, or XXH3 of what
                             was given from the host */
    uint32_t kind, dtype;
    uint32_t gpu; /* 1: it was given from a GPU */
    uint32_t unused;
    int64_t ndim;
    int64_t shape[TRAIN_MAX_DIMS];
    unsigned char handle[BACKEND_HANDLE]; /* of kinds that have no descriptor */
    char text[SHARE_TEXT];                /* which GPU; or why it is refused */
};

/* A stream of a GPU, to sum and to stage on. */
struct share_lane {
    const struct backend_ops *ops;
    int device;
    void *stream, *event;
    uint64_t *sum;
};

struct share_memfd {
    int fd; /* -1: none yet */
    char *map;
    size_t bytes;
};

struct train_share {
    train_share_kind_t kind;
    uint64_t id;
    size_t bytes, refs;
    char *data;              /* here or on the GPU */
    struct share_memfd host; /* of GPU memory: made when it is staged first */
    /* GPU memory alone: */
    bool gpu, own, strict; /* strict: no other kind will do */
    struct share_lane lane;
    int fd;               /* of CUDA_FD */
    uint64_t block_bytes; /* of the allocation */
    uint64_t base;        /* where [data] is in it */
    unsigned char handle[BACKEND_HANDLE];
    char name[SHARE_TEXT]; /* of the GPU */
    char why[SHARE_TEXT];  /* is it staged */
};

/* A tensor that a peer has of ours. */
struct given {
    struct given *next;
    train_share_t *share;
    struct share_msg msg;
};

/* Another's block that we see, once however often it was given. */
struct mapping {
    struct mapping *next; /* of the peer */
    train_share_kind_t kind;
    dev_t dev; /* MEMFD */
    ino_t ino;
    uint64_t id;                          /* CUDA_FD: the giver's */
    unsigned char handle[BACKEND_HANDLE]; /* CUDA_IPC */
    const struct backend_ops *ops;        /* of a GPU; NULL: the host */
    int device;
    char *map;
    size_t bytes, refs;
};

struct train_taken {
    struct train_taken *next; /* of the peer */
    train_peer_t *peer;       /* NULL: it was closed */
    struct mapping *mapping;  /* NULL: [copy] */
    const struct backend_ops *ops;
    void *copy; /* of staged bytes, on a GPU of ours */
    uint64_t id, seq;
    train_tensor_t tensor;
};

struct waiting {
    struct share_msg msg;
    int fd; /* -1: none came with it */
};

struct train_peer {
    int fd;
    char *name;
    int64_t timeout_ms;
    uint64_t max_bytes;
    int device;
    void (*log) (void *arg, const char *text);
    void *log_arg;
    bool ended, broken;
    bool staged, said; /* it cannot map GPU memory; that was told */
    struct given *given;
    struct mapping *mapping;
    struct train_taken *taken;
    struct waiting queue[SHARE_QUEUE];
    size_t first, queued;
    bool answered; /* [again] came */
    struct waiting again;
    struct share_lane lane[SHARE_GPUS]; /* ops NULL: not opened yet */
};

/* share_send - one message; [fd] goes with it unless it is -1. */
train_status_t share_send (train_peer_t *peer, const struct share_msg *msg,
                           int fd, int64_t deadline_ms, train_error_t *err);

/* share_read - wait for one message and act on it: a release is counted, a
 * refusal answered, what is given joins the queue. TRAIN_EPEER at the peer's
 * end: all its references are gone then. */
train_status_t share_read (train_peer_t *peer, int64_t deadline_ms,
                           train_error_t *err);

/* share_again - answer the refusal [why] of what was given. */
train_status_t share_again (train_peer_t *peer, struct given *given,
                            const char *why, int64_t deadline_ms,
                            train_error_t *err);

/* share_ungive - a reference less. */
void share_ungive (train_peer_t *peer, struct given *given);

/* share_process - tells this process from all that may be its peers. */
uint64_t share_process (void);

/* share_memfd_make - zeroed, sealed, mapped; [m] holds what was made. */
train_status_t share_memfd_make (struct share_memfd *m, size_t bytes,
                                 train_error_t *err);
void share_memfd_end (struct share_memfd *m);

/* share_gpus - what serves GPUs, or the reason why nothing does.
 * share_replace - by something else (tests); NULL: CUDA again. */
train_status_t share_gpus (const struct backend_ops **ret_ops,
                           train_error_t *err);
void share_replace (const struct backend_ops *gpu);

/* lane - share_lane_after: its stream goes on after what [stream] was given;
 * share_lane_sum: of [bytes] at [data] on its GPU, with all before it done. */
train_status_t share_lane_open (struct share_lane *lane,
                                const struct backend_ops *ops, int device,
                                train_error_t *err);
void share_lane_close (struct share_lane *lane);
train_status_t share_lane_after (struct share_lane *lane, void *stream,
                                 train_error_t *err);
train_status_t share_lane_sum (struct share_lane *lane, const void *data,
                               size_t bytes, uint64_t *ret_sum,
                               train_error_t *err);
/* share_sum - the same of host memory. */
uint64_t share_sum (const void *data, size_t bytes);

/* share_take_gpu - map what [w] gives, [bytes] of it being the tensor, and
 * compare: TRAIN_ENOTSUP says why that cannot be. */
train_status_t share_take_gpu (train_peer_t *peer, const struct waiting *w,
                               size_t bytes, struct mapping **ret,
                               train_error_t *err);
/* share_land - staged [bytes] at [from] to the peer's GPU, and compare. */
train_status_t share_land (train_peer_t *peer, const struct share_msg *msg,
                           const void *from, size_t bytes, train_taken_t *taken,
                           train_error_t *err);

/* mapping - one that is there, held once more; a new one, held once, ended by
 * share_unmap; NULL: no memory. */
struct mapping *share_mapping_add (train_peer_t *peer,
                                   const struct mapping *like);
void share_unmap (train_peer_t *peer, struct mapping *mapping);

#endif
