/* SPDX-License-Identifier: Apache-2.0
 * group_mpi.c - a rank of a group with backend mpi beside one with backend
 * host: what each call writes has the same bits
 *
 *   group_mpi same        every call, type, operation and size
 *   group_mpi own         the program begins and ends MPI itself
 *   group_mpi level       it began MPI for one thread
 *   group_mpi after       another group was made before MPI began
 *   group_mpi many        host groups, one after the other
 *   group_mpi built       nothing: exit status 0 where there is MPI, else 1
 *   group_mpi mismatch    rank 1 reduces another number of elements
 *   group_mpi late        the last rank does not come in time
 *   group_mpi depart      rank 1 departs from a step that was learnt
 *   group_mpi stopped     the last rank is stopped (SIGSTOP) while data moves
 * Prints "rank R: ..." a line: "ok", or what was wrong, or the error that the
 * mode is about. Exit status: 0, 1 for what is wrong, 2 for wrong usage. */
#include "config.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group_mpi.h"
#if HAVE_MPI
#include <mpi.h>
#endif

#define LARGE 550001 /* of F64: more than one part */
#define MANY  30
#define TYPES 6 /* with arithmetic */

/* The same call on both groups, each with memory of its own. */
struct side {
    train_group_t *group;
    char *in, *out;
    train_tensor_t t, all;            /* of [n] and of [n] a rank, in [in]... */
    train_tensor_t to, all_to;        /* ...and in [out] */
    train_tensor_t mine_in, mine_out; /* this rank's block of all */
};

struct
try {
    const char *name;
    int dtype, op, root;
    size_t n;
    int rank, size;
};

typedef train_status_t (*call_f) (const struct try *t, struct side *s,
                                  train_error_t *err);

static int wrong;

static int complain (const struct try *t, const char *what, const char *more)
{
    printf ("rank %d of %d: %s (dtype %d, op %d, root %d, n %zu) %s: %s\n",
            t->rank, t->size, t->name, t->dtype, t->op, t->root, t->n, what,
            more);
    wrong = 1;
    return 1;
}

/* No NaN, and no zero of either sign. */
static void fill (char *data, size_t bytes, int dtype, uint32_t seed)
{
    size_t elem = train_dtype_size ((train_dtype_t)dtype), n = bytes / elem;

    for (size_t i = 0; i < n; i++) {
        uint32_t x = (seed = seed * 1664525u + 1013904223u) >> 8;
        float f = ((float)(x % 4001) + 0.3f) / 977 * (x & 1 ? 1 : -1);
        double d = f;
        uint16_t half = (uint16_t)((x & 0xbfff) | 1);
        int64_t l = (int64_t)x * 0x9e3779b97f4a7c15LL;
        const void *from = dtype == TRAIN_F32   ? (const void *)&f
                           : dtype == TRAIN_F64 ? (const void *)&d
                           : dtype == TRAIN_F16 ? (const void *)&half
                           : dtype == TRAIN_BF16
                               ? (const void *)((const char *)&f + 2)
                               : (const void *)&l;

        memcpy (data + i * elem, from, elem);
    }
}

static void view (train_tensor_t *t, char *data, const struct try *try,
                  size_t n)
{
    int64_t shape[1] = {(int64_t)n};

    if (train_tensor_view (t, data, (train_dtype_t)try->dtype, 1, shape, NULL)
        != TRAIN_OK)
        complain (try, "view", "refused");
}

static void prepare (const struct try *t, struct side *s)
{
    size_t elem = train_dtype_size ((train_dtype_t)t->dtype);
    size_t all = t->n * (size_t)t->size, at = (size_t)t->rank * t->n * elem;

    fill (s->in, all * elem, t->dtype, (uint32_t)(t->rank * 7919 + t->op));
    memset (s->out, 0x5a, all * elem);
    view (&s->t, s->in, t, t->n);
    view (&s->all, s->in, t, all);
    view (&s->to, s->out, t, t->n);
    view (&s->all_to, s->out, t, all);
    view (&s->mine_in, s->in + at, t, t->n);
    view (&s->mine_out, s->out + at, t, t->n);
}

static const char *other_bits (const struct side *sides, size_t bytes)
{
    static char text[100];
    bool out = memcmp (sides[0].in, sides[1].in, bytes) == 0;
    const char *a = out ? sides[0].out : sides[0].in;
    const char *b = out ? sides[1].out : sides[1].in;
    size_t i = 0;

    while (i < bytes && a[i] == b[i])
        i++;
    snprintf (text, sizeof (text), "byte %zu of %zu of %s is %#x, on host %#x",
              i, bytes, out ? "out" : "in", b[i] & 0xff, a[i] & 0xff);
    return text;
}

static int compare (struct try *t, struct side *sides, call_f call)
{
    size_t bytes =
        t->n * (size_t)t->size * train_dtype_size ((train_dtype_t)t->dtype);
    train_error_t err;

    for (int i = 0; i < 2; i++) {
        prepare (t, &sides[i]);
        if (call (t, &sides[i], &err) != TRAIN_OK)
            return complain (t, i ? "on mpi" : "on host", err.text);
    }
    if (memcmp (sides[0].in, sides[1].in, bytes) != 0
        || memcmp (sides[0].out, sides[1].out, bytes) != 0)
        return complain (t, "on mpi", other_bits (sides, bytes));
    return 0;
}

#define CALL(name, ...)                                                        \
    static train_status_t name (const struct try *t, struct side *s,           \
                                train_error_t *err)                            \
    {                                                                          \
        (void)t;                                                               \
        return train_##__VA_ARGS__;                                            \
    }
#define OP   ((train_op_t)t->op)
#define LAST (t->size - 1 - t->root)

CALL (all_reduce, all_reduce (s->group, &s->t.t, OP, err))
CALL (reduce, reduce (s->group, &s->t.t, OP, t->root, err))
CALL (reduce_scatter, reduce_scatter (s->group, &s->all.t, &s->to.t, OP, err))
CALL (reduce_scatter_in,
      reduce_scatter (s->group, &s->all.t, &s->mine_in.t, OP, err))
CALL (broadcast, broadcast (s->group, &s->t.t, t->root, err))
CALL (all_gather, all_gather (s->group, &s->t.t, &s->all_to.t, err))
CALL (all_gather_in, all_gather (s->group, &s->mine_in.t, &s->all.t, err))
CALL (gather, gather (s->group, &s->t.t, &s->all_to.t, t->root, err))
CALL (gather_in, gather (s->group, &s->mine_in.t, &s->all.t, t->root, err))
CALL (scatter, scatter (s->group, &s->all.t, &s->to.t, t->root, err))
CALL (scatter_in, scatter (s->group, &s->all.t, &s->mine_in.t, t->root, err))
CALL (all_to_all, all_to_all (s->group, &s->all.t, &s->all_to.t, err))
CALL (all_to_all_in, all_to_all (s->group, &s->all.t, &s->all.t, err))
CALL (send_recv, send_recv (s->group, &s->t.t, t->root, LAST, err))

static train_status_t all_reduce_list (const struct try *t, struct side *s,
                                       train_error_t *err)
{
    DLTensor *list[] = {&s->t.t, &s->to.t};

    return train_all_reduce_list (s->group, list, 2, OP, err);
}

static train_status_t broadcast_list (const struct try *t, struct side *s,
                                      train_error_t *err)
{
    DLTensor *list[] = {&s->t.t, &s->to.t};

    return train_broadcast_list (s->group, list, 2, t->root, err);
}

static train_status_t all_gather_list (const struct try *t, struct side *s,
                                       train_error_t *err)
{
    DLTensor *in[] = {&s->t.t}, *out[] = {&s->all_to.t};

    (void)t;
    return train_all_gather_list (s->group, in, out, 1, err);
}

static train_status_t reduce_scatter_list (const struct try *t, struct side *s,
                                           train_error_t *err)
{
    DLTensor *in[] = {&s->all.t}, *out[] = {&s->to.t};

    return train_reduce_scatter_list (s->group, in, out, 1, OP, err);
}

static train_status_t all_reduce_async (const struct try *t, struct side *s,
                                        train_error_t *err)
{
    train_work_t *work[2];
    train_status_t status =
        train_all_reduce_async (s->group, &s->t.t, OP, &work[0], err);

    if (status != TRAIN_OK)
        return status;
    status = train_all_reduce_async (s->group, &s->to.t, OP, &work[1], err);
    if (status == TRAIN_OK)
        status = train_work_wait (work[1], -1, err);
    return train_work_wait (work[0], -1, err) != TRAIN_OK ? TRAIN_EINVAL
                                                          : status;
}

/* F32 alone; the operation picks the type in between. */
static train_status_t on_wire (const struct try *t, struct side *s,
                               train_error_t *err)
{
    train_dtype_t wire = t->op & 1 ? TRAIN_BF16 : TRAIN_F16;
    train_status_t status =
        train_reduce_wire (s->group, &s->t.t, OP, t->root, wire, err);

    if (status != TRAIN_OK)
        return status;
    return train_broadcast_wire (s->group, &s->t.t, t->root, wire, err);
}

/* A step that is learnt, then followed. */
static train_status_t steps (const struct try *t, struct side *s,
                             train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    for (int i = 0; i < 4 && status == TRAIN_OK; i++) {
        status = train_step_begin (s->group, err);
        if (status == TRAIN_OK)
            status = train_all_reduce (s->group, &s->t.t, OP, err);
        if (status == TRAIN_OK)
            status = train_broadcast (s->group, &s->to.t, t->root, err);
        if (status == TRAIN_OK)
            status = train_barrier (s->group, err);
        if (status == TRAIN_OK)
            status = train_step_end (s->group, err);
    }
    return status;
}

static train_status_t objects (const struct try *t, struct side *s,
                               train_error_t *err)
{
    size_t lens[64], len = 0;
    void *got = NULL;
    train_status_t status =
        train_gather_object (s->group, s->in, t->n, -1, &got, lens, err);

    if (status == TRAIN_OK && got)
        memcpy (s->out, got, t->n * (size_t)t->size);
    free (got);
    got = NULL;
    if (status == TRAIN_OK)
        status = train_broadcast_object (s->group, s->in, t->n, t->root, &got,
                                         &len, err);
    if (status == TRAIN_OK && len != t->n)
        return complain (t, "object", "of another length") ? TRAIN_EINVAL : 0;
    if (status == TRAIN_OK && got)
        memcpy (s->in, got, len);
    free (got);
    return status;
}

static const struct {
    const char *name;
    call_f call;
} reductions[] =
    {
        {"all_reduce", all_reduce},
        {"reduce", reduce},
        {"reduce_scatter", reduce_scatter},
        {"reduce_scatter in place", reduce_scatter_in},
        {"all_reduce_list", all_reduce_list},
        {"reduce_scatter_list", reduce_scatter_list},
        {"all_reduce_async", all_reduce_async},
        {"steps", steps},
},
  moves[] = {
      {"broadcast", broadcast},
      {"all_gather", all_gather},
      {"all_gather in place", all_gather_in},
      {"gather", gather},
      {"gather in place", gather_in},
      {"scatter", scatter},
      {"scatter in place", scatter_in},
      {"all_to_all", all_to_all},
      {"all_to_all in place", all_to_all_in},
      {"send_recv", send_recv},
      {"broadcast_list", broadcast_list},
      {"all_gather_list", all_gather_list},
      {"objects", objects},
};

#define N(list) (sizeof (list) / sizeof (*(list)))

static void try_reductions (struct try *t, struct side *sides)
{
    static const size_t counts[] = {0, 1, 1001, 40001};

    for (size_t i = 0; i < N (reductions) * N (counts) * TYPES * 5; i++) {
        size_t r = i / N (counts) / TYPES / 5;

        t->n = counts[i % N (counts)];
        t->dtype = (int)(i / N (counts) % TYPES);
        t->op = (int)(i / N (counts) / TYPES % 5);
        t->root = (int)i % t->size;
        t->name = reductions[r].name;
        if ((t->op == TRAIN_AVG && t->dtype >= TRAIN_I64)
            || (t->op > TRAIN_AVG && t->n == counts[3]))
            continue;
        if (compare (t, sides, reductions[r].call))
            return;
    }
    t->name = "on_wire";
    t->dtype = TRAIN_F32;
    for (t->op = 0; t->op < 5; t->op++) {
        for (size_t i = 0; i < N (counts); i++) {
            t->n = counts[i];
            t->root = (int)i % t->size;
            if (compare (t, sides, on_wire))
                return;
        }
    }
}

static void try_moves (struct try *t, struct side *sides)
{
    static const size_t counts[] = {0, 1, 1001, 40001};

    t->op = 0;
    for (size_t m = 0; m < N (moves); m++) {
        t->name = moves[m].name;
        for (size_t i = 0; i < N (counts) * (TYPES + 1); i++) {
            t->n = counts[i % N (counts)];
            t->dtype = (int)(i / N (counts)); /* U8 too */
            t->root = (int)(i % (size_t)t->size);
            if (compare (t, sides, moves[m].call))
                return;
        }
    }
}

static void try_large (struct try *t, struct side *sides)
{
    t->dtype = TRAIN_F64;
    t->n = LARGE;
    t->op = TRAIN_SUM;
    t->root = t->size - 1;
    for (size_t m = 0; m < N (moves) + N (reductions); m++) {
        bool moving = m < N (moves);
        size_t i = moving ? m : m - N (moves);

        t->name = moving ? moves[i].name : reductions[i].name;
        if (compare (t, sides, moving ? moves[i].call : reductions[i].call))
            return;
    }
}

/* Subgroups in another order, of another size. */
static void try_split (struct try *t, struct side *sides)
{
    struct side parts[2] = {sides[0], sides[1]};
    struct try sub = *t;
    train_error_t err;

    sub.name = "split";
    for (int i = 0; i < 2; i++) {
        if (train_group_split (sides[i].group, t->rank == 1, -t->rank, "part",
                               &parts[i].group, &err)
            != TRAIN_OK) {
            complain (&sub, i ? "on mpi" : "on host", err.text);
            return;
        }
    }
    sub.rank = train_group_rank (parts[1].group);
    sub.size = train_group_size (parts[1].group);
    if (sub.size > 1 && strcmp (train_group_backend (parts[1].group), "mpi"))
        complain (&sub, "backend", train_group_backend (parts[1].group));
    sub.n = 1001;
    sub.dtype = TRAIN_BF16;
    sub.root = 0;
    sub.op = TRAIN_AVG;
    compare (&sub, parts, all_reduce);
    compare (&sub, parts, all_to_all);
    train_group_destroy (parts[0].group);
    train_group_destroy (parts[1].group);
}

static void want_refused (const struct try *t, train_status_t status,
                          const char *text, const char *want)
{
    if (status != TRAIN_ENOTSUP || !strstr (text, want))
        complain (t, train_status_name (status), text);
}

/* What the backend does not do is said at the call, and breaks nothing. */
static void try_refusals (struct try *t, struct side *s)
{
    train_group_t *left = NULL;
    train_error_t err = {0};
    train_status_t status;

    t->name = "GPU";
    t->n = 4;
    t->dtype = TRAIN_F32;
    prepare (t, s);
    s->t.t.device.device_type = kDLCUDA;
    status = train_all_reduce (s->group, &s->t.t, TRAIN_SUM, &err);
    want_refused (t, status, err.text, "backend mpi moves host memory");
    t->name = "survivors";
    status = train_group_survivors (s->group, 0, NULL, &left, &err);
    want_refused (t, status, err.text, "backend mpi has no survivors");
    t->name = "barrier";
    if (train_barrier (s->group, &err) != TRAIN_OK)
        complain (t, "after refusals", err.text);
}

train_group_t *join (const char *backend, const char *name, int64_t timeout_ms)
{
    train_group_options_t opts = {.size = sizeof (opts),
                                  .backend = backend,
                                  .name = name,
                                  .timeout_ms = timeout_ms};
    train_group_t *group = NULL;
    train_error_t err;

    if (train_group_create (&opts, &group, &err) == TRAIN_OK)
        return group;
    printf ("rank ?: %s: %s\n", train_status_name (err.code), err.text);
    return NULL;
}

static int same (void)
{
    /* MPI begins first: Open MPI 4 does not after another group */
    train_group_t *mpi = join ("mpi", "world", 300000);
    struct side sides[2] = {{.group = join ("host", "beside", 300000)},
                            {.group = mpi}};
    struct try t = {0};
    size_t bytes;

    if (!sides[0].group || !sides[1].group)
        return 1;
    t.rank = train_group_rank (sides[1].group);
    t.size = train_group_size (sides[1].group);
    bytes = (size_t)t.size * LARGE * sizeof (double);
    for (int i = 0; i < 2; i++) {
        sides[i].in = malloc (bytes);
        sides[i].out = malloc (bytes);
        if (!sides[i].in || !sides[i].out)
            return 1;
    }
    try_refusals (&t, &sides[1]);
    try_moves (&t, sides);
    try_reductions (&t, sides);
    try_large (&t, sides);
    try_split (&t, sides);
    for (int i = 0; i < 2; i++) {
        train_group_destroy (sides[i].group);
        free (sides[i].in);
        free (sides[i].out);
    }
    if (!wrong)
        printf ("rank %d: ok\n", t.rank);
    return wrong;
}

train_status_t sum (train_group_t *group, float *data, int64_t n,
                    train_error_t *err)
{
    train_tensor_t t;

    if (train_tensor_view (&t, data, TRAIN_F32, 1, &n, err) != TRAIN_OK)
        return err->code;
    return train_all_reduce (group, &t.t, TRAIN_SUM, err);
}

static int many (void)
{
    train_error_t err = {0};
    int rank = -1;

    for (int i = 0; i < MANY && err.code == TRAIN_OK; i++) {
        train_group_t *group = join ("host", "one of many", 20000);

        if (!group)
            return 1;
        rank = train_group_rank (group);
        train_barrier (group, &err);
        train_group_destroy (group);
    }
    printf ("rank %d: %s\n", rank, err.code == TRAIN_OK ? "ok" : err.text);
    return err.code != TRAIN_OK;
}

#if HAVE_MPI
static const bool with_mpi = true;

/* MPI stays the program's. */
static int own (int level)
{
    int got, rank, ended = 0, one = 1, all = 0;
    train_group_t *group;
    train_error_t err = {0};
    float data[3] = {1, 1, 1};

    MPI_Init_thread (NULL, NULL, level, &got);
    MPI_Comm_rank (MPI_COMM_WORLD, &rank);
    group = join ("mpi", "world", 60000);
    if (!group) {
        MPI_Barrier (MPI_COMM_WORLD);
        MPI_Finalize ();
        return 1;
    }
    wrong = sum (group, data, 3, &err) != TRAIN_OK;
    train_group_destroy (group);
    MPI_Finalized (&ended);
    MPI_Allreduce (&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize ();
    wrong |= ended || (int)data[2] != all;
    printf ("rank %d: %s\n", rank, wrong ? "wrong" : "ok");
    return wrong;
}
#else
static const bool with_mpi;

static int own (int level)
{
    (void)level;
    return join ("mpi", "world", 60000) != NULL;
}
#define MPI_THREAD_MULTIPLE 3
#define MPI_THREAD_SINGLE   0
#endif

int main (int argc, char **argv)
{
    if (argc == 2 && strcmp (argv[1], "same") == 0)
        return same ();
    if (argc == 2 && strcmp (argv[1], "after") == 0) {
        train_group_destroy (join ("host", "beside", 60000));
        return join ("mpi", "world", 60000) != NULL;
    }
    if (argc == 2 && strcmp (argv[1], "many") == 0)
        return many ();
    if (argc == 2 && strcmp (argv[1], "built") == 0)
        return with_mpi ? 0 : 1;
    if (argc == 2 && strcmp (argv[1], "own") == 0)
        return own (MPI_THREAD_MULTIPLE);
    if (argc == 2 && strcmp (argv[1], "level") == 0)
        return own (MPI_THREAD_SINGLE);
    if (argc == 2 && strcmp (argv[1], "stopped") == 0)
        return stopped ();
    if (argc == 2
        && (strcmp (argv[1], "mismatch") == 0 || strcmp (argv[1], "late") == 0
            || strcmp (argv[1], "depart") == 0))
        return fault (argv[1]);
    fputs (
        "usage: group_mpi same|own|level|after|many|built|mismatch|late|depart|"
        "stopped\n",
        stderr);
    return 2;
}
