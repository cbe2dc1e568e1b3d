/* SPDX-License-Identifier: Apache-2.0
 * test_comm_nccl_lists.c - the backend nccl over made-up GPUs: lists of every
 * call and F32 that travels in 16 bits, at once and asynchronous */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_desk.h"

#define N_LIST 4

static const size_t sizes[N_LIST] = {3, 0, N, 1};

/* Tensors of one block each, and of one for each rank, as the rank gives them.
 * They lie apart by one element, which stays as it is. */
struct lists {
    struct desk d;
    train_dtype_t dtype;
    bool async;
    train_tensor_t one[N_LIST], all[N_LIST];
    DLTensor *ones[N_LIST], *alls[N_LIST];
};

static void lay (struct lists *l, char *data, train_tensor_t *t,
                 DLTensor **list, size_t blocks)
{
    size_t at = 0, elem = train_dtype_size (l->dtype);

    for (int i = 0; i < N_LIST; i++) {
        size_t n = sizes[i] * blocks;

        fill (&l->d, data + at * elem, l->dtype, n);
        on_gpu (&t[i], n ? data + at * elem : NULL, l->dtype, n, l->d.group);
        put (data, l->dtype, at + n, 99);
        list[i] = &t[i].t;
        at += n + 1;
    }
}

static void lay_both (struct lists *l)
{
    lay (l, l->d.in, l->one, l->ones, 1);
    lay (l, l->d.out, l->all, l->alls, (size_t)l->d.size);
}

/* The block of this rank in each tensor of [alls], as the list [ones]. */
static void lay_in_place (struct lists *l)
{
    lay_both (l);
    for (int i = 0; i < N_LIST; i++) {
        size_t skip = (size_t)l->d.rank * sizes[i];
        char *data = l->all[i].t.data;

        if (sizes[i] > 0)
            data += skip * train_dtype_size (l->dtype);
        for (size_t k = 0; k < sizes[i]; k++)
            put (data, l->dtype, k, given (l->d.rank, k));
        on_gpu (&l->one[i], data, l->dtype, sizes[i], l->d.group);
    }
}

/* Element k of block b of tensor i of [list]. */
typedef double (*value_f) (const struct lists *l, size_t n, size_t b, size_t k);

static bool laid_apart (const struct lists *l, const char *data)
{
    return data >= l->d.in && data < l->d.in + (N + 16) * 8;
}

static void want_list (struct lists *l, const char *what,
                       const train_tensor_t *list, size_t blocks, value_f value)
{
    for (int i = 0; i < N_LIST; i++) {
        for (size_t b = 0; b < blocks; b++) {
            for (size_t k = 0; k < sizes[i]; k++)
                want_value (&l->d, what, list[i].t.data, l->dtype,
                            b * sizes[i] + k, value (l, sizes[i], b, k));
        }
        if (sizes[i] > 0 && laid_apart (l, list[i].t.data))
            want_value (&l->d, "between", list[i].t.data, l->dtype, sizes[i],
                        99);
    }
}

static double summed (const struct lists *l, size_t n, size_t b, size_t k)
{
    (void)n, (void)b;
    return combined (l->d.size, k, TRAIN_SUM);
}

/* What the root gave; of a block of what each gave; of this rank's block. */
static double of_root (const struct lists *l, size_t n, size_t b, size_t k)
{
    (void)l, (void)n, (void)b;
    return given (l->d.size - 1, k);
}

static double gathered (const struct lists *l, size_t n, size_t b, size_t k)
{
    (void)l, (void)n;
    return given ((int)b, k);
}

static double scattered (const struct lists *l, size_t n, size_t b, size_t k)
{
    (void)b;
    return combined (l->d.size, (size_t)l->d.rank * n + k, TRAIN_MAX);
}

static train_status_t wait_for (struct lists *l, train_status_t status,
                                train_work_t **work)
{
    return status == TRAIN_OK ? train_work_wait (*work, -1, &l->d.err) : status;
}

/* The list arrays are the call's alone: asynchronous work may not look at
 * them. */
static void forget (struct lists *l)
{
    memset (l->ones, 0, sizeof (l->ones));
    memset (l->alls, 0, sizeof (l->alls));
}

static train_status_t call (struct lists *l, char kind)
{
    train_group_t *g = l->d.group;
    train_error_t *err = &l->d.err;
    DLTensor **one = l->ones, **all = l->alls;
    int root = l->d.size - 1;
    train_work_t *w = NULL;
    train_status_t s;

    if (!l->async)
        return kind == 'r'
                   ? train_all_reduce_list (g, one, N_LIST, TRAIN_SUM, err)
               : kind == 'b' ? train_broadcast_list (g, one, N_LIST, root, err)
               : kind == 'g' ? train_all_gather_list (g, one, all, N_LIST, err)
                             : train_reduce_scatter_list (g, all, one, N_LIST,
                                                          TRAIN_MAX, err);
    s = kind == 'r'
            ? train_all_reduce_list_async (g, one, N_LIST, TRAIN_SUM, &w, err)
        : kind == 'b'
            ? train_broadcast_list_async (g, one, N_LIST, root, &w, err)
        : kind == 'g'
            ? train_all_gather_list_async (g, one, all, N_LIST, &w, err)
            : train_reduce_scatter_list_async (g, all, one, N_LIST, TRAIN_MAX,
                                               &w, err);
    forget (l);
    return wait_for (l, s, &w);
}

static void lists (struct lists *l)
{
    size_t size = (size_t)l->d.size;

    lay_both (l);
    try_ok (&l->d, "all_reduce_list", call (l, 'r'));
    want_list (l, "all_reduce_list", l->one, 1, summed);
    lay_both (l);
    try_ok (&l->d, "broadcast_list", call (l, 'b'));
    want_list (l, "broadcast_list", l->one, 1, of_root);
    lay_both (l);
    try_ok (&l->d, "all_gather_list", call (l, 'g'));
    want_list (l, "all_gather_list", l->all, size, gathered);
    lay_both (l);
    try_ok (&l->d, "reduce_scatter_list", call (l, 's'));
    want_list (l, "reduce_scatter_list", l->one, 1, scattered);
    lay_in_place (l);
    try_ok (&l->d, "all_gather_list", call (l, 'g'));
    want_list (l, "all_gather_list in place", l->all, size, gathered);
    lay_both (l);
    for (int i = 0; i < N_LIST; i++)
        l->one[i].t.data = sizes[i] ? (char *)l->all[i].t.data
                                          + (size_t)l->d.rank * sizes[i]
                                                * train_dtype_size (l->dtype)
                                    : NULL;
    try_ok (&l->d, "reduce_scatter_list", call (l, 's'));
    want_list (l, "reduce_scatter_list in place", l->one, 1, scattered);
}

static void begin (struct lists *l, struct job *job, int rank,
                   train_group_t *group)
{
    int gpu = train_group_local_rank (group);

    *l = (struct lists){.d = {job, group, rank, job->size, NULL, NULL, {0}},
                        .dtype = TRAIN_F32};
    l->d.in = fake_alloc (gpu, (N + 16) * 8);
    l->d.out = fake_alloc (gpu, (N + 16) * 8 * (size_t)job->size);
}

static void body_lists (struct job *job, int rank, train_group_t *group)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_BF16, TRAIN_I64};
    struct lists l;

    begin (&l, job, rank, group);
    for (size_t i = 0; i < sizeof (dtypes) / sizeof (*dtypes); i++) {
        l.dtype = dtypes[i];
        l.async = false;
        lists (&l);
        l.async = true;
        lists (&l);
    }
}

static void body_steps (struct job *job, int rank, train_group_t *group)
{
    struct lists l;

    begin (&l, job, rank, group);
    for (int i = 0; i < 3; i++) {
        try_ok (&l.d, "step_begin", train_step_begin (group, &l.d.err));
        lists (&l);
        l.async = true;
        lists (&l);
        l.async = false;
        try_ok (&l.d, "step_end", train_step_end (group, &l.d.err));
    }
}

/* Rank 1's second tensor is one element shorter, the sum of all is the same. */
static void body_disagree (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    struct lists l;

    begin (&l, job, rank, group);
    l.async = job->arg >= 128;
    lay_both (&l);
    if (rank == 1) {
        l.one[0].shape[0]--;
        l.all[0].shape[0] -= job->size;
        l.one[3].shape[0]++;
        l.all[3].shape[0] += job->size;
    }
    s->status = call (&l, (char)(job->arg & 127));
    s->err = l.d.err;
    if (rank == 0 && get (l.one[2].t.data, TRAIN_F32, 1) != given (0, 1))
        note (job, rank, "data was touched", 0, 0, 1);
}

/* Each is refused and leaves the group as it is. */
static void body_shared (struct job *job, int rank, train_group_t *group)
{
    static const char kinds[] = {'r', 'b', 'g', 's'};
    struct lists l;

    begin (&l, job, rank, group);
    for (int i = 0; i < 8; i++) {
        l.async = i >= 4;
        lay_both (&l);
        /* the last of 1 begins in the last element of the one of N */
        l.one[3].t.data = (char *)l.one[2].t.data + (N - 1) * 4;
        if (call (&l, kinds[i % 4]) != TRAIN_EINVAL
            || !strstr (l.d.err.text, "tensors 2 and 3 share memory"))
            note (job, rank, l.d.err.text, i, 0, 0);
    }
    for (int i = 2; i < 4; i++) { /* not this rank's block */
        l.async = false;
        lay_both (&l);
        l.one[2].t.data = (char *)l.all[2].t.data + 4;
        if (call (&l, kinds[i]) != TRAIN_EINVAL
            || !strstr (l.d.err.text, "both tensors 2 overlap; in place is"))
            note (job, rank, l.d.err.text, i, 0, 0);
    }
    lists (&l);
}

/* By half.h's definition, in constants: halfway goes to the even one. */
static const struct {
    float from, bf16, f16;
} casts[] = {
    {1.0f, 1.0f, 1.0f},
    {1.00390625f, 1.0f, 1.00390625f},
    {1.01171875f, 1.015625f, 1.01171875f},
    {1.00048828125f, 1.0f, 1.0f},
    {1.00146484375f, 1.0f, 1.001953125f},
    {65519.0f, 65536.0f, 65504.0f},
    {70000.0f, 70144.0f, INFINITY},
    {-0.0f, -0.0f, -0.0f},
    {NAN, NAN, NAN},
};
#define N_CASTS (sizeof (casts) / sizeof (*casts))

static float cast_to (size_t i, train_dtype_t wire)
{
    return wire == TRAIN_BF16 ? casts[i].bf16 : casts[i].f16;
}

static void want_float (struct desk *d, const char *what, size_t i, float x,
                        float want)
{
    bool nan = isnan (x) && isnan (want);

    if (!nan && (x != want || signbit (x) != signbit (want)))
        note (d->job, d->rank, what, (int)(x * 1000), (int)(want * 1000), i);
}

static void put_casts (struct desk *d, train_tensor_t *t, bool mine)
{
    on_gpu (t, d->in, TRAIN_F32, N_CASTS, d->group);
    for (size_t i = 0; i < N_CASTS; i++)
        ((float *)d->in)[i] = mine ? casts[i].from : 7;
}

static void wires (struct lists *l, train_dtype_t wire, int root)
{
    struct desk *d = &l->d;
    train_work_t *w = NULL;
    train_tensor_t t;

    put_casts (d, &t, d->rank == root);
    try_ok (d, "broadcast_wire",
            l->async
                ? wait_for (l,
                            train_broadcast_wire_async (d->group, &t.t, root,
                                                        wire, &w, &d->err),
                            &w)
                : train_broadcast_wire (d->group, &t.t, root, wire, &d->err));
    for (size_t i = 0; i < N_CASTS; i++)
        want_float (d, "broadcast_wire", i, ((float *)d->in)[i],
                    cast_to (i, wire));
    put_casts (d, &t, true);
    try_ok (d, "reduce_wire",
            l->async
                ? wait_for (l,
                            train_reduce_wire_async (d->group, &t.t, TRAIN_MAX,
                                                     root, wire, &w, &d->err),
                            &w)
                : train_reduce_wire (d->group, &t.t, TRAIN_MAX, root, wire,
                                     &d->err));
    for (size_t i = 0; i < N_CASTS; i++)
        want_float (d, "reduce_wire", i, ((float *)d->in)[i],
                    d->rank == root ? cast_to (i, wire) : casts[i].from);
}

/* The root has F32, the others what travels. */
static void mixed (struct desk *d)
{
    train_tensor_t t;

    on_gpu (&t, d->out, TRAIN_F16, N_CASTS, d->group);
    if (d->rank == 0) {
        put_casts (d, &t, true);
        try_ok (d, "mixed",
                train_broadcast_wire (d->group, &t.t, 0, TRAIN_F16, &d->err));
        return;
    }
    try_ok (d, "mixed", train_broadcast (d->group, &t.t, 0, &d->err));
    for (size_t i = 0; i < N_CASTS; i++)
        want_float (d, "mixed", i, (float)get (d->out, TRAIN_F16, i),
                    casts[i].f16);
}

static void body_wires (struct job *job, int rank, train_group_t *group)
{
    train_tensor_t t;
    struct lists l;

    begin (&l, job, rank, group);
    for (int pass = 0; pass < 3; pass++) {
        try_ok (&l.d, "step_begin", train_step_begin (group, &l.d.err));
        for (int root = 0; root < job->size; root++) {
            l.async = root & 1;
            wires (&l, TRAIN_BF16, root);
            wires (&l, TRAIN_F16, root);
        }
        if (job->size > 1)
            mixed (&l.d);
        try_ok (&l.d, "step_end", train_step_end (group, &l.d.err));
    }
    on_gpu (&t, NULL, TRAIN_F32, 0, group);
    try_ok (&l.d, "nothing",
            train_broadcast_wire (group, &t.t, 0, TRAIN_F16, &l.d.err));
    on_gpu (&t, l.d.in, TRAIN_I32, 4, group);
    if (train_broadcast_wire (group, &t.t, 0, TRAIN_F16, &l.d.err)
        != TRAIN_EINVAL)
        note (job, rank, "I32 travels as F16", 0, 0, 0);
}

static void test_lists (void **state)
{
    (void)state;
    run_both (body_lists);
}

static void test_steps (void **state)
{
    (void)state;
    run_both (body_steps);
}

static void test_shared (void **state)
{
    (void)state;
    run_both (body_shared);
}

static void test_wires (void **state)
{
    (void)state;
    run_both (body_wires);
}

static void run_one (struct job *job)
{
    fake_open (&desk_no_orders);
    run_job (job);
}

static void test_disagree (void **state)
{
    static const struct {
        char kind;
        const char *text;
    } cases[] = {
        {'r', "rank 1 called all_reduce_list (sum of 104 F32, sizes with"},
        {'b', "rank 1 called broadcast_list (104 F32 from rank 2, sizes with"},
        {'g', "rank 1 called all_gather_list (104 F32 each, sizes with hash"},
        {'s', "rank 1 called reduce_scatter_list (maximum of 104 F32 each, "},
    };

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct job job = {.layout = "aab",
                          .body = body_disagree,
                          .backend = "nccl",
                          .arg = cases[i % 4].kind + (i >= 4 ? 128 : 0)};

        run_one (&job);
        want (&job, "", TRAIN_EMISMATCH, cases[i % 4].text);
        free_job (&job);
        fake_close ();
    }
}

/* One rank, and connections that are made by the helper. */
static void test_others (void **state)
{
    static const rank_f bodies[] = {body_lists, body_steps, body_wires};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job job = {.layout = "a", .body = bodies[i], .backend = "nccl"};

        run_one (&job);
        want_ok (&job);
        free_job (&job);
        fake_close ();
    }
    setenv ("NCCL_RUNTIME_CONNECT", "1", 1);
    run_both (body_lists);
    run_both (body_wires);
    unsetenv ("NCCL_RUNTIME_CONNECT");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_lists),    cmocka_unit_test (test_steps),
        cmocka_unit_test (test_shared),   cmocka_unit_test (test_wires),
        cmocka_unit_test (test_disagree), cmocka_unit_test (test_others),
    };

    return cmocka_run_group_tests_name ("comm_nccl_lists", tests, NULL, NULL);
}
