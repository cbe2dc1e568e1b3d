/* SPDX-License-Identifier: Apache-2.0
 * test_group_nccl_lists.c - lists of every call and F32 that travels in 16
 * bits, with backend nccl on two real GPUs, or on one: at once, asynchronous,
 * and in learnt steps
 *
 *   test_group_nccl_lists [hosts]   as test_group_nccl has it */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include <math.h>
#include <string.h>

#include "nccl_ranks.h"
#include "nccl_values.h"

#define N_LIST 4

static const size_t sizes[N_LIST] = {3, 0, N, 1};

struct lists {
    struct rank *r;
    train_dtype_t dtype;
    bool async;
    train_tensor_t one[N_LIST], all[N_LIST];
    DLTensor *ones[N_LIST], *alls[N_LIST];
};

static void lay (struct lists *l, char *at, train_tensor_t *t, DLTensor **list,
                 size_t blocks)
{
    size_t elem = train_dtype_size (l->dtype);

    for (int i = 0; i < N_LIST; i++) {
        size_t n = sizes[i] * blocks;

        on_gpu (&t[i], n ? at : NULL, l->dtype, n, l->r->rank);
        fill (l->r, at, l->dtype, n);
        list[i] = &t[i].t;
        at += (n + 64) * elem;
    }
}

static void lay_both (struct lists *l, bool in_place)
{
    size_t elem = train_dtype_size (l->dtype);

    lay (l, l->r->in, l->one, l->ones, 1);
    lay (l, l->r->out, l->all, l->alls, (size_t)ranks);
    for (int i = 0; in_place && i < N_LIST; i++) {
        size_t skip = (size_t)l->r->rank * sizes[i] * elem;

        if (sizes[i] > 0)
            l->one[i].t.data = (char *)l->all[i].t.data + skip;
    }
}

static train_status_t call (struct lists *l, char kind)
{
    train_group_t *g = l->r->group;
    train_error_t *err = &l->r->err;
    DLTensor **one = l->ones, **all = l->alls;
    train_work_t *w = NULL;
    train_status_t s;
    int root = ranks - 1;

    if (!l->async)
        return kind == 'r'
                   ? train_all_reduce_list (g, one, N_LIST, TRAIN_SUM, err)
               : kind == 'b' ? train_broadcast_list (g, one, N_LIST, root, err)
               : kind == 'g' ? train_all_gather_list (g, one, all, N_LIST, err)
                             : train_reduce_scatter_list (g, all, one, N_LIST,
                                                          TRAIN_AVG, err);
    s = kind == 'r'
            ? train_all_reduce_list_async (g, one, N_LIST, TRAIN_SUM, &w, err)
        : kind == 'b'
            ? train_broadcast_list_async (g, one, N_LIST, root, &w, err)
        : kind == 'g'
            ? train_all_gather_list_async (g, one, all, N_LIST, &w, err)
            : train_reduce_scatter_list_async (g, all, one, N_LIST, TRAIN_AVG,
                                               &w, err);
    memset (l->ones, 0, sizeof (l->ones)); /* the call's alone */
    memset (l->alls, 0, sizeof (l->alls));
    return s == TRAIN_OK ? train_work_wait (w, -1, err) : s;
}

static void want_gathered (struct lists *l)
{
    for (int i = 0; i < N_LIST; i++) {
        for (int b = 0; b < ranks && sizes[i]; b++)
            want (l->r, "all_gather_list",
                  (char *)l->all[i].t.data
                      + (size_t)b * sizes[i] * train_dtype_size (l->dtype),
                  l->dtype, sizes[i], 0, TRAIN_SUM, b);
    }
}

static void want_ones (struct lists *l, const char *what, train_op_t op, int of,
                       bool block)
{
    for (int i = 0; i < N_LIST; i++) {
        if (sizes[i])
            want (l->r, what, l->one[i].t.data, l->dtype, sizes[i],
                  block ? (size_t)l->r->rank * sizes[i] : 0, op, of);
    }
}

static void lists (struct lists *l)
{
    lay_both (l, false);
    try_ok (l->r, "all_reduce_list", call (l, 'r'));
    want_ones (l, "all_reduce_list", TRAIN_SUM, -1, false);
    lay_both (l, false);
    try_ok (l->r, "broadcast_list", call (l, 'b'));
    want_ones (l, "broadcast_list", TRAIN_SUM, ranks - 1, false);
    lay_both (l, false);
    try_ok (l->r, "all_gather_list", call (l, 'g'));
    want_gathered (l);
    lay_both (l, false);
    try_ok (l->r, "reduce_scatter_list", call (l, 's'));
    want_ones (l, "reduce_scatter_list", TRAIN_AVG, -1, true);
    lay_both (l, true);
    try_ok (l->r, "reduce_scatter_list in place", call (l, 's'));
    want_ones (l, "reduce_scatter_list in place", TRAIN_AVG, -1, true);
}

static void body_lists (struct rank *r)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};
    struct lists l = {.r = r};

    for (int i = 0; i < 6; i++) {
        l.dtype = dtypes[i % 3];
        l.async = i >= 3;
        lists (&l);
    }
}

static void body_steps (struct rank *r)
{
    struct lists l = {.r = r, .dtype = TRAIN_F32};

    for (int i = 0; i < 6; i++) {
        l.async = i & 1;
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        lists (&l);
        try_ok (r, "step_end", train_step_end (r->group, &r->err));
    }
}

static void body_overlap (struct rank *r)
{
    struct lists l = {.r = r, .dtype = TRAIN_F32};

    lay_both (&l, false);
    l.one[3].t.data = (char *)l.one[2].t.data + (N - 1) * 4;
    for (int i = 0; i < 4; i++) {
        if (call (&l, "rbgs"[i]) != TRAIN_EINVAL
            || !strstr (r->err.text, "tensors 2 and 3 share memory"))
            note (r, "overlap", r->err.text);
    }
    lists (&l);
}

/* Rank 1's sizes differ, their sum does not. */
static void body_disagree (struct rank *r)
{
    struct lists l = {.r = r, .dtype = TRAIN_F32};

    lay_both (&l, false);
    l.one[0].shape[0] -= r->rank;
    l.one[3].shape[0] += r->rank;
    r->seen->status = call (&l, 'b');
    r->seen->err = r->err;
}

/* Bits of all kinds: NaN, subnormal, too large. Halfway goes to even, by the
 * host's functions, which have a test of their own. */
static uint32_t bits_of (float x)
{
    uint32_t b;

    memcpy (&b, &x, 4);
    return b;
}

static float value (int rank, size_t i)
{
    uint32_t bits = (uint32_t)(i * 40503u) * 2654435761u + (uint32_t)rank * 77u;
    float x;

    memcpy (&x, &bits, 4);
    return x;
}

static float rounded (float x, train_dtype_t wire)
{
    return wire == TRAIN_BF16 ? half_from_bf16 (half_to_bf16 (x))
                              : half_from_f16 (half_to_f16 (x));
}

static void give_values (struct rank *r)
{
    for (size_t i = 0; i < N; i++)
        ((float *)r->host)[i] = value (r->rank, i);
    upload (r, r->in, N * 4);
}

static void want_values (struct rank *r, const char *what, int of,
                         train_dtype_t wire, bool casts)
{
    char text[100];

    download (r, r->in, N * 4);
    for (size_t i = 0; i < N; i++) {
        float x = ((float *)r->host)[i], y = value (of, i);

        if (casts)
            y = rounded (y, wire);
        if (bits_of (x) == bits_of (y) || (isnan (x) && isnan (y)))
            continue;
        snprintf (text, sizeof (text), "[%zu] is %a, want %a of %a (type %d)",
                  i, x, y, value (of, i), wire);
        note (r, what, text);
        return;
    }
}

static void reduce_wire (struct rank *r, train_dtype_t wire, int root)
{
    train_tensor_t t;

    on_gpu (&t, r->in, TRAIN_F32, N, r->rank);
    fill (r, r->in, TRAIN_F32, N);
    if (try_ok (
            r, "reduce_wire",
            train_reduce_wire (r->group, &t.t, TRAIN_SUM, root, wire, &r->err)))
        want (r, "reduce_wire", r->in, TRAIN_F32, N, 0, TRAIN_SUM,
              r->rank == root ? -1 : r->rank);
}

static void body_wires (struct rank *r)
{
    static const train_dtype_t wires[] = {TRAIN_BF16, TRAIN_F16};
    train_work_t *w = NULL;
    train_tensor_t t;

    for (int i = 0; i < 2 * ranks; i++) {
        int root = i / 2;

        give_values (r);
        on_gpu (&t, r->in, TRAIN_F32, N, r->rank);
        try_ok (
            r, "broadcast_wire",
            train_broadcast_wire (r->group, &t.t, root, wires[i & 1], &r->err));
        want_values (r, "broadcast_wire", root, wires[i & 1], true);
        give_values (r);
        if (try_ok (r, "broadcast_wire_async",
                    train_broadcast_wire_async (r->group, &t.t, root,
                                                wires[i & 1], &w, &r->err)))
            try_ok (r, "broadcast_wire_async",
                    train_work_wait (w, -1, &r->err));
        want_values (r, "broadcast_wire_async", root, wires[i & 1], true);
        reduce_wire (r, wires[i & 1], root);
    }
}

int main (int argc, char **argv)
{
    as_hosts = argc > 1 && strcmp (argv[1], "hosts") == 0;
    if (!open_ranks ())
        tap_skip_all ("needs a GPU and libnccl.so.2");
    printf ("# ranks: %d\n", ranks);
    tap_ok (run (body_lists, 0), "lists of every call, at once and later");
    tap_ok (run (body_steps, 0), "lists in learnt steps");
    tap_ok (run (body_overlap, 0), "tensors that share memory are refused");
    tap_ok (run (body_wires, 0), "F32 that travels in 16 bits");
    if (ranks > 1)
        tap_ok (
            run (body_disagree, 0)
                && said (0, TRAIN_EMISMATCH, "rank 1 called broadcast_list", 0)
                && said (1, TRAIN_EMISMATCH, "rank 1 called broadcast_list", 0),
            "sizes differ: both are told");
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 0;
}

#endif
