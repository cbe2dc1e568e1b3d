/* SPDX-License-Identifier: Apache-2.0
 * ckpt_world.h - made-up tensors shared by the ranks of made-up worlds, which
 * are threads; for one test program each, static */
#ifndef CKPT_WORLD_H
#define CKPT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <train/ckpt_pieces.h>

#include "ckpt_dir.h"
#include "ckpt_job.h"
#include "plan/fsio.h"

#define MAX_WORLD 5
#define N_TENSORS 6

static char dir[] = "/tmp/test_ckpt_pieces.XXXXXX";

/* Sizes that no number of ranks divides, an empty one, a scalar. */
static const struct tensor {
    const char *name;
    train_dtype_t dtype;
    int ndim;
    int64_t shape[2], numel;
    const char *file;
} tensors[N_TENSORS] = {
    {"embed.weight", TRAIN_BF16, 2, {13, 7}, 91, "model"},
    {"layers.0.norm", TRAIN_F32, 1, {11}, 11, "model"},
    {"m.embed.weight", TRAIN_F32, 2, {13, 7}, 91, "optim"},
    {"rng", TRAIN_U8, 1, {3}, 3, NULL},
    {"step", TRAIN_I64, 0, {0}, 1, NULL},
    {"none", TRAIN_F64, 2, {0, 4}, 0, "optim"},
};

#define BYTES 2048

/* All elements of all tensors, each byte by tensor, place and [mark]. */
struct model {
    unsigned char data[N_TENSORS][BYTES];
};

static inline void fill (struct model *m, unsigned mark)
{
    for (int t = 0; t < N_TENSORS; t++)
        for (int i = 0; i < BYTES; i++)
            m->data[t][i] =
                (unsigned char)(t * 31 + i * 7 + i / 251 + (int)mark * 101);
}

/* How ranks share a tensor: flat and padded as FSDP does it, everything on the
 * last rank, or whole tensors in turn. */
enum how { FLAT, LAST, TURNS, N_HOW };

static inline train_ckpt_piece_t piece (struct model *m, int t, int rank,
                                        int world, enum how how)
{
    const struct tensor *x = &tensors[t];
    int64_t per = (x->numel + world - 1) / world, first = 0, count = 0;

    if (how == FLAT) {
        first = per * rank < x->numel ? per * rank : x->numel;
        count = x->numel - first < per ? x->numel - first : per;
    } else if (how == LAST ? rank == world - 1 : rank == t % world) {
        count = x->numel;
    }
    return (train_ckpt_piece_t){
        .name = x->name,
        .dtype = x->dtype,
        .ndim = x->ndim,
        .shape = {x->shape[0], x->shape[1]},
        .first = first,
        .count = count,
        .data = m->data[t] + (size_t)first * train_dtype_size (x->dtype),
        .file = x->file,
    };
}

static inline void pieces (train_ckpt_piece_t *p, struct model *m, int rank,
                           int world, enum how how)
{
    for (int t = 0; t < N_TENSORS; t++)
        p[t] = piece (m, t, rank, world, how);
}

static inline train_ckpt_options_t options (const char *to, int64_t step)
{
    static const train_st_meta_t state[] = {{"lr", "0.1"},
                                            {"note", "\"\xc3\xa9\n"}};
    static const train_ckpt_bytes_t bytes[] = {{"products", "\0\xff\x10z", 4},
                                               {"empty", NULL, 0}};
    static const train_ckpt_bytes_t beside[] = {{"config.json", "{}\n", 3}};

    return (train_ckpt_options_t){
        .size = sizeof (train_ckpt_options_t),
        .dir = to,
        .step = step,
        .keep = 2,
        .strategy = "full_shard",
        .device = "NVIDIA H200",
        .state = state,
        .n_state = 2,
        .bytes = bytes,
        .n_bytes = 2,
        .beside = beside,
        .n_beside = 1,
        .timeout_s = 30,
    };
}

/* A rank of a job, as its thread in a run. */
struct rank {
    struct ckpt_job job;
    train_status_t status;
    train_error_t err;
};

static inline void *run_rank (void *arg)
{
    struct rank *r = arg;

    r->status = ckpt_job_run (&r->job, &r->err);
    return NULL;
}

/* All ranks of a world write at once. */
static inline train_status_t save_as (const char *to, int64_t step,
                                      struct model *m, int world, enum how how,
                                      train_error_t *err)
{
    train_ckpt_options_t o = options (to, step);
    struct rank r[MAX_WORLD] = {0};
    pthread_t thread[MAX_WORLD];
    char *temp = NULL;
    train_status_t status = TRAIN_OK;

    assert_int_equal (ckpt_dir_begin (to, step, &temp, NULL), 0);
    for (int k = 0; k < world; k++) {
        train_ckpt_piece_t p[N_TENSORS];

        pieces (p, m, k, world, how);
        assert_int_equal (
            ckpt_job_init (&r[k].job, p, N_TENSORS, &o, k, world, NULL), 0);
        r[k].job.temp = strdup (temp);
    }
    free (temp);
    for (int k = 0; k < world; k++)
        assert_int_equal (pthread_create (&thread[k], NULL, run_rank, &r[k]),
                          0);
    for (int k = world - 1; k >= 0; k--) {
        assert_int_equal (pthread_join (thread[k], NULL), 0);
        if (r[k].status != TRAIN_OK && (status = r[k].status, err))
            *err = r[k].err;
        ckpt_job_fini (&r[k].job);
    }
    return status;
}

static inline void save_well (const char *to, int64_t step, struct model *m,
                              int world, enum how how)
{
    train_error_t err = {0};

    if (save_as (to, step, m, world, how, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
}

static inline train_ckpt_t *open_latest (const char *where)
{
    train_ckpt_t *c = NULL;
    train_error_t err = {0};
    char *path = NULL;

    if (train_ckpt_find (where, &path, &err) != TRAIN_OK
        || train_ckpt_open (path, &c, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    free (path);
    return c;
}

/* Every rank of another world gets its own ranges and nothing around them. */
static inline void read_as (train_ckpt_t *c, const struct model *want,
                            int world, enum how how)
{
    static struct model got, sum;

    memset (&sum, 0xee, sizeof (sum));
    for (int k = 0; k < world; k++) {
        train_ckpt_piece_t p[N_TENSORS];
        train_error_t err = {0};

        memset (&got, 0xee, sizeof (got));
        pieces (p, &got, k, world, how);
        if (train_ckpt_read (c, p, N_TENSORS, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
        for (int t = 0; t < N_TENSORS; t++) {
            size_t size = train_dtype_size (tensors[t].dtype);
            size_t from = (size_t)p[t].first * size;
            size_t n = (size_t)p[t].count * size;

            for (size_t i = 0; i < BYTES; i++)
                if ((i < from || i >= from + n) && got.data[t][i] != 0xee)
                    fail_msg ("%s: byte %zu is written", p[t].name, i);
            if (n)
                memcpy (sum.data[t] + from, p[t].data, n);
        }
    }
    for (int t = 0; t < N_TENSORS; t++)
        assert_memory_equal (sum.data[t], want->data[t],
                             (size_t)tensors[t].numel
                                 * train_dtype_size (tensors[t].dtype));
}

static inline int set_up (void **state)
{
    (void)state;
    return mkdtemp (dir) && chdir (dir) == 0 ? 0 : -1;
}

static inline int tear_down (void **state)
{
    (void)state;
    return chdir ("/") || fsio_remove_tree (dir, NULL);
}

#endif
