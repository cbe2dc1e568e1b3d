/* SPDX-License-Identifier: Apache-2.0
 * safetensors_load.h - a load of tensors under way: threads that read, and the
 * one that has the copier's ring. Inside libtrain only. */
#ifndef TRAIN_SAFETENSORS_LOAD_H
#define TRAIN_SAFETENSORS_LOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "copy_impl.h"
#include "safetensors.h"

#define LOAD_READERS 64

/* One tensor. Its wire is its bytes in the type of the destination, compact. */
struct load_item {
    const train_st_entry_t *entry;
    const struct st_part *part;
    uint64_t at;    /* of its bytes in the file */
    uint64_t bytes; /* of the wire */
    int in_size;    /* of an element in the file */
    int from, to;   /* kern_elem; KERN_RAW: nothing is converted */
    struct side dst;
};

/* A chunk on its way, chunk c in slot c % slots. */
struct load_slot {
    const struct load_item *item;
    uint64_t off, n; /* of the item's wire */
    uint64_t sum;    /* of what was read; keyed by its place in the tensor */
    uint64_t device; /* what the device's sum of this slot was before */
    bool full;
};

/* A place in all that is loaded. */
struct load_cursor {
    size_t item;
    uint64_t off;
};

struct load {
    train_copier_t *copier;
    struct load_item *item; /* (n_items) by file and place, none empty */
    size_t n_items;
    uint64_t chunk, n; /* bytes of a chunk; chunks */
    uint64_t every;    /* as train_copy.every */
    int slots;         /* at most COPY_SLOTS */
    bool ring;         /* chunks go through the ring */
    int readers, running;
    pthread_t thread[LOAD_READERS];
    atomic_bool cold;     /* something was not in the page cache */
    atomic_bool plain;    /* the files do not say what is in it */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t room, filled;
    struct load_slot slot[COPY_SLOTS];
    uint64_t taken, retired;        /* chunks */
    struct load_cursor next, ahead; /* to be read; to be read ahead */
    uint64_t next_at, ahead_at;     /* the same in bytes of the files */
    bool stop;
    train_status_t status; /* the first failure of a reader */
    train_error_t err;
};

/* load_start - the threads; load_stop ends them, after a failure too.
 * load_wait - until chunk [c] lies in its slot; or a reader's failure. */
train_status_t load_start (struct load *load, train_error_t *err);
void load_stop (struct load *load);
train_status_t load_wait (struct load *load, uint64_t c, train_error_t *err);

/* load_retire - chunk [c], the oldest, has left its slot. */
void load_retire (struct load *load, uint64_t c);

/* load_room - where the bytes of chunk [c] lie in the ring. */
char *load_room (const struct load *load, uint64_t c);

#endif
