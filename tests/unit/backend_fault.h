/* SPDX-License-Identifier: Apache-2.0
 * backend_fault.h - made-up GPUs in host memory, whose peer copies do what
 * public reports of wrong bytes tell. For tests alone. */
#ifndef TESTS_UNIT_BACKEND_FAULT_H
#define TESTS_UNIT_BACKEND_FAULT_H

#include "backend.h"

#define FAULT_GPUS 3

enum fault {
    FAULT_NONE = 0,
    FAULT_ZEROS,  /* pytorch/pytorch#157398: all zeros */
    FAULT_PARTLY, /* the same: zeros from the middle on */
    FAULT_STALE,  /* one page keeps what it had (FIDESlib#28: dropped) */
    FAULT_SWAP,   /* two pages trade places */
    FAULT_CHUNKS, /* chunks arrive in each other's place */
    FAULT_PAIR,   /* bytes go to another GPU's memory: these keep theirs */
    FAULT_FIRST,  /* pytorch/pytorch#87363: the first copy alone is wrong */
    FAULT_LAST,   /* pytorch/pytorch#127612: the last element */
    FAULT_BIT,    /* one bit */
    FAULTS
};

/* What is wrong; reset by fault_set. */
extern struct fault_state {
    enum fault peer;   /* of copies between GPUs */
    bool host_too;     /* and of those that go by the host */
    bool no_way;       /* the GPUs have no peer copies */
    size_t pin_limit;  /* bytes that can be pinned; 0 = any */
    int copies, peers; /* seen so far */
    int delay_ms;      /* of a copy */
    bool lazy;         /* copies by the host are made when they are waited for,
                          or a kernel runs: sources are read late */
    bool hold, held; /* a copy waits while [hold]; one does. Both by atomics */
    int unpinned;    /* blocks */
    int spoil_at;    /* the number of a copy by the host that is wrong */
} fault;

void fault_set (enum fault peer);

extern struct backend_ops backend_fault; /* const after main has begun */

#endif
