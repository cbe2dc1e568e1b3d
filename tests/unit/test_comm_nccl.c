/* SPDX-License-Identifier: Apache-2.0
 * test_comm_nccl.c - the backend nccl over made-up GPUs: every call, type and
 * reduction against plain values, and tensors that are elsewhere */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group_ranks.h"
#include "nccl_desk.h"

static void reductions (struct desk *d, train_dtype_t dtype, train_op_t op)
{
    size_t size = (size_t)d->size, elem = train_dtype_size (dtype);
    size_t block = N * elem;
    train_tensor_t t, all;

    fill (d, d->out, dtype, N);
    on_gpu (&t, d->out, dtype, N, d->group);
    try_ok (d, "all_reduce", train_all_reduce (d->group, &t.t, op, &d->err));
    for (size_t i = 0; i < N; i++)
        want_value (d, "all_reduce", d->out, dtype, i,
                    combined (d->size, i, op));
    fill (d, d->out, dtype, N);
    try_ok (d, "reduce", train_reduce (d->group, &t.t, op, 1, &d->err));
    for (size_t i = 0; i < N; i++)
        want_value (d, "reduce", d->out, dtype, i,
                    d->rank == 1 ? combined (d->size, i, op)
                                 : given (d->rank, i));
    fill (d, d->in, dtype, N * size);
    on_gpu (&all, d->in, dtype, N * size, d->group);
    try_ok (d, "reduce_scatter",
            train_reduce_scatter (d->group, &all.t, &t.t, op, &d->err));
    for (size_t i = 0; i < N; i++)
        want_value (d, "reduce_scatter", d->out, dtype, i,
                    combined (d->size, N * (size_t)d->rank + i, op));
    /* in place: this rank's block */
    on_gpu (&t, d->in + (size_t)d->rank * block, dtype, N, d->group);
    try_ok (d, "reduce_scatter",
            train_reduce_scatter (d->group, &all.t, &t.t, op, &d->err));
    for (size_t i = 0; i < N; i++)
        want_value (d, "reduce_scatter in place", t.t.data, dtype, i,
                    combined (d->size, N * (size_t)d->rank + i, op));
}

static void body_reductions (struct job *job, int rank, train_group_t *group)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16,
                                           TRAIN_F16, TRAIN_I64, TRAIN_I32};
    size_t bytes = N * 8 * FAKE_RANKS;
    struct desk d = {job, group, rank, job->size, NULL, NULL, {0}};

    d.in = fake_alloc (train_group_local_rank (group), bytes);
    d.out = fake_alloc (train_group_local_rank (group), bytes);
    for (size_t i = 0; i < sizeof (dtypes) / sizeof (*dtypes); i++) {
        bool whole = dtypes[i] == TRAIN_I64 || dtypes[i] == TRAIN_I32;

        for (train_op_t op = TRAIN_SUM; op <= TRAIN_PROD; op++) {
            if (!whole || op != TRAIN_AVG)
                reductions (&d, dtypes[i], op);
        }
    }
    if (job->shared->seen[rank].status == TRAIN_OK)
        try_ok (&d, "barrier", train_barrier (group, &d.err));
}

/* Blocks whose values say from whom to whom they go. */
static double block_value (int from, int to, size_t i)
{
    return from * 16 + to + (double)(i % 2) * 100;
}

static void clear (struct desk *d, size_t n)
{
    memset (d->out, 0xee, n * (size_t)d->size * 4);
    for (int r = 0; r < d->size; r++) {
        for (size_t i = 0; i < n; i++)
            put (d->in, TRAIN_I32, (size_t)r * n + i,
                 block_value (d->rank, r, i));
    }
}

static void want_block (struct desk *d, const char *what, const char *data,
                        size_t n, int from, int to)
{
    for (size_t i = 0; i < n; i++)
        want_value (d, what, data, TRAIN_I32, i, block_value (from, to, i));
}

static void all_to_all (struct desk *d, size_t n)
{
    size_t all = n * (size_t)d->size;
    train_tensor_t in, out;

    on_gpu (&in, d->in, TRAIN_I32, all, d->group);
    on_gpu (&out, d->out, TRAIN_I32, all, d->group);
    clear (d, n);
    try_ok (d, "all_to_all",
            train_all_to_all (d->group, &in.t, &out.t, &d->err));
    for (int r = 0; r < d->size; r++)
        want_block (d, "all_to_all", d->out + (size_t)r * n * 4, n, r, d->rank);
    try_ok (d, "all_to_all",
            train_all_to_all (d->group, &in.t, &in.t, &d->err));
    for (int r = 0; r < d->size; r++)
        want_block (d, "all_to_all in place", d->in + (size_t)r * n * 4, n, r,
                    d->rank);
}

static void gather_scatter (struct desk *d, size_t n, int root)
{
    size_t all = n * (size_t)d->size;
    train_tensor_t one, in, out;

    on_gpu (&one, d->out, TRAIN_I32, n, d->group);
    on_gpu (&in, d->in, TRAIN_I32, all, d->group);
    clear (d, n);
    try_ok (d, "scatter",
            train_scatter (d->group, d->rank == root ? &in.t : NULL, &one.t,
                           root, &d->err));
    want_block (d, "scatter", d->out, n, root, d->rank);
    clear (d, n);
    on_gpu (&one, d->in, TRAIN_I32, n, d->group);
    on_gpu (&out, d->out, TRAIN_I32, all, d->group);
    try_ok (d, "gather",
            train_gather (d->group, &one.t, d->rank == root ? &out.t : NULL,
                          root, &d->err));
    for (int r = 0; r < d->size && d->rank == root; r++)
        want_block (d, "gather", d->out + (size_t)r * n * 4, n, r, 0);
    try_ok (d, "all_gather",
            train_all_gather (d->group, &one.t, &out.t, &d->err));
    for (int r = 0; r < d->size; r++)
        want_block (d, "all_gather", d->out + (size_t)r * n * 4, n, r, 0);
    /* in place */
    memcpy (d->out + (size_t)d->rank * n * 4, d->in, n * 4);
    on_gpu (&one, d->out + (size_t)d->rank * n * 4, TRAIN_I32, n, d->group);
    try_ok (d, "all_gather",
            train_all_gather (d->group, &one.t, &out.t, &d->err));
    for (int r = 0; r < d->size; r++)
        want_block (d, "all_gather in place", d->out + (size_t)r * n * 4, n, r,
                    0);
}

static void broadcast_send (struct desk *d, size_t n, int root)
{
    int to = (root + 1) % d->size;
    train_tensor_t t;

    on_gpu (&t, d->in, TRAIN_I32, n, d->group);
    clear (d, n);
    try_ok (d, "send_recv",
            train_send_recv (d->group, &t.t, root, to, &d->err));
    want_block (d, "send_recv", d->in, n, d->rank == to ? root : d->rank, 0);
    try_ok (d, "send_recv", train_send_recv (d->group, &t.t, to, to, &d->err));
    clear (d, n);
    try_ok (d, "broadcast", train_broadcast (d->group, &t.t, root, &d->err));
    want_block (d, "broadcast", d->in, n, root, 0);
}

static void body_moves (struct job *job, int rank, train_group_t *group)
{
    struct desk d = {job, group, rank, job->size, NULL, NULL, {0}};

    d.in = fake_alloc (train_group_local_rank (group), N * 4 * FAKE_RANKS);
    d.out = fake_alloc (train_group_local_rank (group), N * 4 * FAKE_RANKS);
    for (int pass = 0; pass < 2; pass++) { /* new and old connections */
        for (int root = 0; root < d.size; root++) {
            gather_scatter (&d, N, root);
            broadcast_send (&d, N, root);
        }
        all_to_all (&d, N);
    }
    gather_scatter (&d, 0, 1);
    broadcast_send (&d, 0, 1);
    all_to_all (&d, 0);
}

/* Objects, and groups made of the group's ranks, one of them alone. */
static void body_others (struct job *job, int rank, train_group_t *group)
{
    struct desk d = {job, group, rank, job->size, NULL, NULL, {0}};
    train_group_t *made = NULL;
    void *all = NULL, *bytes = NULL;
    size_t lens[FAKE_RANKS], len;
    train_tensor_t t;

    try_ok (&d, "gather_object",
            train_gather_object (group, "abcdef", (size_t)rank, -1, &all, lens,
                                 &d.err));
    if (!all || memcmp (all, "aab", 3) != 0 || lens[2] != 2)
        note (job, rank, "wrong objects", 0, 0, 0);
    try_ok (
        &d, "broadcast_object",
        train_broadcast_object (group, "hello", 5, 1, &bytes, &len, &d.err));
    if (len != 5 || memcmp (bytes, "hello", 5) != 0)
        note (job, rank, "wrong object", 0, 0, len);
    try_ok (&d, "split",
            train_group_split (group, rank == 0, 0, "part", &made, &d.err));
    if (made && strcmp (train_group_backend (made), "nccl") != 0)
        note (job, rank, "the part has another backend", 0, 0, 0);
    d.in = fake_alloc (train_group_local_rank (group), 4);
    put (d.in, TRAIN_F32, 0, 1 << rank);
    on_gpu (&t, d.in, TRAIN_F32, 1, group);
    if (made)
        try_ok (&d, "all_reduce of a part",
                train_all_reduce (made, &t.t, TRAIN_AVG, &d.err));
    want_value (&d, "part", d.in, TRAIN_F32, 0, rank == 0 ? 1 : 3);
    train_group_destroy (made);
    free (all);
    free (bytes);
}

/* Steps: what is learnt is not compared again, and gives the same. */
static void body_steps (struct job *job, int rank, train_group_t *group)
{
    struct desk d = {job, group, rank, job->size, NULL, NULL, {0}};

    d.in = fake_alloc (train_group_local_rank (group), N * 8 * FAKE_RANKS);
    d.out = fake_alloc (train_group_local_rank (group), N * 8 * FAKE_RANKS);
    for (int i = 0; i < 3; i++) {
        try_ok (&d, "step_begin", train_step_begin (group, &d.err));
        reductions (&d, TRAIN_F32, TRAIN_SUM);
        all_to_all (&d, N);
        try_ok (&d, "barrier", train_barrier (group, &d.err));
        try_ok (&d, "step_end", train_step_end (group, &d.err));
    }
    gather_scatter (&d, N, 1);
}

/* A call comes after what the user's stream was given before it. */
static void body_ordered (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_group_options_t opts = {.size = sizeof (opts),
                                  .backend = "nccl",
                                  .name = "ordered",
                                  .timeout_ms = PATIENCE_MS,
                                  .stream = fake_stream ()};
    train_group_t *made = NULL;
    int32_t *x = fake_alloc (train_group_local_rank (group), sizeof (*x));
    train_tensor_t t;

    s->status = train_group_create (&opts, &made, &s->err);
    if (s->status != TRAIN_OK)
        return;
    *x = 1000;
    fake_store (opts.stream, x, rank);
    on_gpu (&t, x, TRAIN_I32, 1, group);
    if (rank > 0) /* rank 0's stands still a while */
        fake_release (opts.stream);
    else
        fake_release_later (opts.stream, 300);
    s->status = train_all_reduce (made, &t.t, TRAIN_SUM, &s->err);
    if (*x != job->size * (job->size - 1) / 2)
        note (job, rank, "the call came too early", *x, 0, 0);
    train_group_destroy (made);
}

/* Each refusal leaves the group as it is. */
static void body_elsewhere (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int gpu = train_group_local_rank (group);
    float host[4] = {1, 2, 3, 4}, *here = fake_alloc (gpu, sizeof (host));
    float *there = fake_alloc (gpu + 1, sizeof (host));
    const struct {
        void *data;
        int type, id;
        train_status_t status;
        const char *text;
    } cases[] = {
        {host, kDLCPU, 0, TRAIN_ENOTSUP, "this tensor is in host memory"},
        {host, kDLCUDAHost, 0, TRAIN_ENOTSUP, "this tensor is in host memory"},
        {there, kDLCUDA, gpu + 1, TRAIN_ENOTSUP, "this tensor is on GPU"},
        {host, kDLROCM, 0, TRAIN_ENOTSUP, "is on device type 10"},
        {host, kDLCUDA, gpu, TRAIN_EINVAL, "its memory is the host's"},
        {there, kDLCUDA, gpu, TRAIN_EINVAL, "its memory is that of GPU"},
        {NULL, kDLCUDA, gpu, TRAIN_EINVAL, "no data"},
    };
    train_tensor_t t;

    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        view_of (&t, host, TRAIN_F32, 4);
        t.t.data = cases[i].data;
        t.t.device.device_type = (DLDeviceType)cases[i].type;
        t.t.device.device_id = cases[i].id;
        if (train_all_reduce (group, &t.t, TRAIN_SUM, &s->err)
                != cases[i].status
            || !strstr (s->err.text, cases[i].text)
            || (cases[i].status == TRAIN_ENOTSUP
                && (!strstr (s->err.text, "backend nccl moves memory of GPU")
                    || !strstr (s->err.text, "backend host moves"))))
            note (job, rank, s->err.text, (int)i, 0, 0);
    }
    memcpy (here, host, sizeof (host));
    on_gpu (&t, here, TRAIN_F32, 4, group);
    s->status = train_all_reduce (group, &t.t, TRAIN_SUM, &s->err);
    if (here[3] != 4 * job->size)
        note (job, rank, "wrong sum after refusals", 0, 0, 3);
}

static void env_awake (struct job *job, int rank)
{
    const struct backend_ops *gpu = NULL;

    (void)job;
    if (backend_find ("cuda", &gpu, NULL) == TRAIN_OK)
        (void)gpu->enter (rank);
}

/* A call by the group's thread wakes no GPU but this rank's. */
static void body_awake (struct job *job, int rank, train_group_t *group)
{
    struct desk d = {job, group, rank, job->size, NULL, NULL, {0}};
    train_work_t *work = NULL;
    train_tensor_t t;

    d.in = fake_alloc (train_group_local_rank (group), N * sizeof (float));
    fill (&d, d.in, TRAIN_F32, N);
    on_gpu (&t, d.in, TRAIN_F32, N, group);
    try_ok (&d, "issue",
            train_all_reduce_async (group, &t.t, TRAIN_SUM, &work, &d.err));
    try_ok (&d, "all_reduce", train_work_wait (work, -1, &d.err));
    for (size_t i = 0; i < N; i++)
        want_value (&d, "all_reduce", d.in, TRAIN_F32, i,
                    combined (d.size, i, TRAIN_SUM));
    if (fake_woken () != 1u << rank)
        note (job, rank, "GPUs awake", 0, fake_woken (), 1u << rank);
}

static void test_reductions (void **state)
{
    (void)state;
    run_both (body_reductions);
}

static void test_moves (void **state)
{
    (void)state;
    run_both (body_moves);
}

static void test_others (void **state)
{
    (void)state;
    run_both (body_others);
}

static void test_steps (void **state)
{
    (void)state;
    run_both (body_steps);
}

static void test_ordered (void **state)
{
    struct job job = {.layout = "aaa", .body = body_ordered, .backend = "nccl"};

    (void)state;
    fake_open (&desk_no_orders);
    run_job (&job);
    want_ok (&job);
    free_job (&job);
    fake_close ();
}

static void test_awake (void **state)
{
    struct job job = {.layout = "aaa",
                      .body = body_awake,
                      .backend = "nccl",
                      .env = env_awake};

    (void)state;
    fake_open (&desk_no_orders);
    run_job (&job);
    want_ok (&job);
    free_job (&job);
    fake_close ();
}

static void test_elsewhere (void **state)
{
    (void)state;
    run_both (body_elsewhere);
}

/* Every connection by the helper, as where NCCL makes them late. */
static void test_careful (void **state)
{
    (void)state;
    setenv ("NCCL_RUNTIME_CONNECT", "1", 1);
    run_both (body_reductions);
    unsetenv ("NCCL_RUNTIME_CONNECT");
}

/* One rank: results are the inputs, an average too. */
static void body_alone (struct job *job, int rank, train_group_t *group)
{
    struct desk d = {job, group, rank, 1, NULL, NULL, {0}};
    train_tensor_t in, out;

    d.in = fake_alloc (0, N * 4);
    d.out = fake_alloc (0, N * 4);
    on_gpu (&in, d.in, TRAIN_F32, N, group);
    on_gpu (&out, d.out, TRAIN_F32, N, group);
    fill (&d, d.in, TRAIN_F32, N);
    try_ok (&d, "all_reduce",
            train_all_reduce (group, &in.t, TRAIN_AVG, &d.err));
    try_ok (&d, "all_gather", train_all_gather (group, &in.t, &out.t, &d.err));
    for (size_t i = 0; i < N; i++)
        want_value (&d, "alone", d.out, TRAIN_F32, i, given (0, i));
    memset (d.out, 0, N * 4);
    try_ok (&d, "all_to_all", train_all_to_all (group, &in.t, &out.t, &d.err));
    try_ok (&d, "barrier", train_barrier (group, &d.err));
    for (size_t i = 0; i < N; i++)
        want_value (&d, "alone", d.out, TRAIN_F32, i, given (0, i));
}

static void test_alone (void **state)
{
    struct job job = {.layout = "a", .body = body_alone, .backend = "nccl"};

    (void)state;
    fake_open (&desk_no_orders);
    run_job (&job);
    want_ok (&job);
    free_job (&job);
    fake_close ();
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_reductions), cmocka_unit_test (test_moves),
        cmocka_unit_test (test_others),     cmocka_unit_test (test_ordered),
        cmocka_unit_test (test_elsewhere),  cmocka_unit_test (test_steps),
        cmocka_unit_test (test_careful),    cmocka_unit_test (test_alone),
        cmocka_unit_test (test_awake),
    };

    return cmocka_run_group_tests_name ("comm_nccl", tests, NULL, NULL);
}
