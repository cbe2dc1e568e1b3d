/* SPDX-License-Identifier: Apache-2.0
 * gemm_lt_pick.c - time cuBLASLt's candidates on the device and keep the best */
#include "config.h"

#include "gemm_lt_impl.h"

#include <stdlib.h>

#define CANDIDATES 32
#define FINALISTS  5
#define ROUNDS     7
#define TRIAL_ROOM ((size_t)128 << 20)
#define TRIAL_MS   0.5f /* of one measurement: short products run several times */
#define LONG_MS    0.1f /* a product that draws all the power there is, */
#define WARM_MS    120  /* if it runs for so long */

struct trial {
    struct gemm_lt *g;
    const struct gemm_lt_plan *plan;
    const struct gemm_lt_op *op;
    void *c;
    cudaStream_t stream;
    cudaEvent_t from, to;
};

bool gemm_lt_in_place (const struct gemm_lt *g, const struct lt_algo *algo)
{
    uint32_t scheme = LT_REDUCTION_INPLACE;
    size_t size;

    return g->api->config_get (algo, LT_CONFIG_REDUCTION, &scheme,
                               sizeof (scheme), &size)
               != LT_SUCCESS
           || (scheme & LT_REDUCTION_INPLACE);
}

static int preferences (const struct gemm_lt *g, const struct gemm_lt_key *k,
                        void *pref)
{
    const uint32_t schemes = LT_REDUCTION_ALL & ~(uint32_t)LT_REDUCTION_INPLACE;
    const struct {
        int what;
        uint32_t bytes;
    } aligns[] = {
        {LT_PREF_ALIGN_A, k->align_b},
        {LT_PREF_ALIGN_B, k->align_a},
        {LT_PREF_ALIGN_C, k->align_c},
        {LT_PREF_ALIGN_D, k->align_c},
    };
    uint64_t room = g->workspace_bytes;
    int rc = g->api->pref_set (pref, LT_PREF_WORKSPACE, &room, sizeof (room));

    for (size_t i = 0; i < 4 && rc == LT_SUCCESS; i++)
        rc = g->api->pref_set (pref, aligns[i].what, &aligns[i].bytes,
                               sizeof (aligns[i].bytes));
    if (rc == LT_SUCCESS && g->opts.deterministic)
        rc = g->api->pref_set (pref, LT_PREF_REDUCTIONS, &schemes,
                               sizeof (schemes));
    return rc;
}

/* Candidates, best guess first; those that will not do are left out. */
static int candidates (struct gemm_lt *g, const struct gemm_lt_plan *p,
                       struct lt_found list[CANDIDATES], int *ret_n)
{
    void *pref = NULL;
    int rc = g->api->pref_create (&pref), n = 0, kept = 0;

    if (rc != LT_SUCCESS)
        return rc;
    rc = preferences (g, &p->choice.key, pref);
    if (rc == LT_SUCCESS)
        rc = g->api->heuristic (g->handle, p->desc, p->la, p->lb, p->lc, p->lc,
                                pref, CANDIDATES, list, &n);
    g->api->pref_destroy (pref);
    for (int i = 0; i < n && rc == LT_SUCCESS; i++) {
        if (list[i].state != LT_SUCCESS
            || list[i].workspace > g->workspace_bytes
            || (g->opts.deterministic && gemm_lt_in_place (g, &list[i].algo)))
            continue;
        list[kept++] = list[i];
    }
    *ret_n = kept;
    return rc;
}

/* Milliseconds of one product, the mean of [times]; < 0: it failed. */
static float measure (const struct trial *t, const struct lt_algo *algo,
                      int times)
{
    float ms = -1;

    if (cudaEventRecord (t->from, t->stream) != cudaSuccess)
        return -1;
    for (int i = 0; i < times; i++) {
        if (gemm_lt_launch (t->g, t->plan, t->op, algo, t->c, t->stream)
            != LT_SUCCESS)
            return -1;
    }
    if (cudaEventRecord (t->to, t->stream) != cudaSuccess
        || cudaEventSynchronize (t->to) != cudaSuccess
        || cudaEventElapsedTime (&ms, t->from, t->to) != cudaSuccess)
        return -1;
    return ms / (float)times;
}

struct entry {
    float ms;
    int number;
};

static int by_time (const void *x, const void *y)
{
    const struct entry *a = x, *b = y;

    if (a->ms != b->ms)
        return a->ms < b->ms ? -1 : 1;
    return a->number - b->number;
}

static int by_value (const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;

    return (a > b) - (a < b);
}

/* The fastest in turns, so that a clock that drifts wrongs none: medians. */
static void final (const struct trial *t, const struct lt_found *list,
                   struct entry *e, int n)
{
    float ms[FINALISTS][ROUNDS];
    int times = 1 + (int)(TRIAL_MS / (e[0].ms + 1e-3f));

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++)
            ms[i][round] = measure (t, &list[e[i].number].algo, times);
    }
    for (int i = 0; i < n; i++) {
        qsort (ms[i], ROUNDS, sizeof (float), by_value);
        e[i].ms = ms[i][ROUNDS / 2];
    }
    qsort (e, (size_t)n, sizeof (*e), by_time);
}

/* A card at the limit of its power lowers its clock after some time, and then
 * another candidate is the best: an H200's 256x128 tiles win the first 50 ms of
 * 16384 x 16384 x 2048 and lose 6 % later. So long products are tried warm. */
static void warm_up (const struct trial *t, const struct lt_algo *algo)
{
    float ms = measure (t, algo, 1);

    if (ms > LONG_MS && ms < WARM_MS)
        (void)measure (t, algo, (int)(WARM_MS / ms));
}

/* All twice, after a product that warms up; then the best few once more. Returns
 * the number of the best, < 0: none runs. */
static int contest (const struct trial *t, const struct lt_found *list, int n,
                    struct gemm_lt_choice *choice)
{
    struct entry e[CANDIDATES];
    float guess = 0;
    int good = 0, finalists;

    warm_up (t, &list[0].algo);
    for (int i = 0; i < n; i++) {
        float ms;

        if (measure (t, &list[i].algo, 1) < 0)
            continue;
        ms = measure (t, &list[i].algo, 2);
        if (ms >= 0)
            e[good++] = (struct entry){ms, i};
        if (i == 0)
            guess = ms;
    }
    if (good == 0)
        return -1;
    qsort (e, (size_t)good, sizeof (*e), by_time);
    finalists = good < FINALISTS ? good : FINALISTS;
    final (t, list, e, finalists);
    for (int i = 0; i < finalists; i++) {
        if (e[i].number == 0)
            guess = e[i].ms;
    }
    choice->ms = e[0].ms;
    choice->first_ms = guess;
    return e[0].number;
}

/* A product that is added to cannot be tried in place: it, or the rows of it that
 * a quarter of the unused memory takes, is tried in memory of the trial's own. */
static enum gemm_lt_status own_room (struct trial *t, struct gemm_lt_op *part,
                                     void **ret_room)
{
    size_t row = part->ldc * (part->out == GEMM_LT_F32 ? 4 : 2);
    size_t unused = 0, all = 0, rows;

    (void)cudaMemGetInfo (&unused, &all);
    rows = (unused / 4 > TRIAL_ROOM ? unused / 4 : TRIAL_ROOM) / row;
    rows = rows < 256 ? 256 : rows - rows % 256;
    if (rows < part->m)
        part->m = rows;
    if (cudaMalloc (ret_room, part->m * row) != cudaSuccess) {
        (void)cudaGetLastError ();
        return GEMM_LT_ENOMEM;
    }
    t->c = *ret_room;
    return cudaMemsetAsync (t->c, 0, part->m * row, t->stream) == cudaSuccess
               ? GEMM_LT_OK
               : GEMM_LT_EDEVICE;
}

/* The layouts of [part], which has fewer rows than the plan's product. */
static int cut (const struct gemm_lt *g, struct gemm_lt_plan *small,
                const struct gemm_lt_op *part)
{
    const struct gemm_lt_key *k = &small->choice.key;
    int in = part->in == GEMM_LT_F32    ? LT_F32
             : part->in == GEMM_LT_BF16 ? LT_BF16
                                        : LT_F16;
    int out = part->out == GEMM_LT_F32 ? LT_F32 : in;
    int rc;

    rc = g->api->layout_create (&small->lb, in, part->ta ? part->m : k->k,
                                part->ta ? k->k : part->m, (int64_t)k->lda);
    if (rc == LT_SUCCESS)
        rc = g->api->layout_create (&small->lc, out, k->n, part->m,
                                    (int64_t)k->ldc);
    return rc;
}

static enum gemm_lt_status try_all (struct trial *t,
                                    const struct lt_found *list, int n,
                                    struct gemm_lt_choice *choice, int *ret)
{
    struct gemm_lt_op part = *t->op;
    struct gemm_lt_plan small = *t->plan;
    enum gemm_lt_status status = GEMM_LT_OK;
    void *room = NULL;
    bool own = part.beta != 0;
    int rc = LT_SUCCESS;

    if (own) {
        small.lb = small.lc = NULL;
        status = own_room (t, &part, &room);
        if (status == GEMM_LT_OK)
            rc = cut (t->g, &small, &part);
        t->op = &part;
        t->plan = &small;
    }
    if (status == GEMM_LT_OK && rc == LT_SUCCESS)
        *ret = contest (t, list, n, choice);
    if (own && small.lb)
        t->g->api->layout_destroy (small.lb);
    if (own && small.lc)
        t->g->api->layout_destroy (small.lc);
    if (room)
        (void)cudaFree (room);
    return rc == LT_SUCCESS ? status : GEMM_LT_EDEVICE;
}

static enum gemm_lt_status timed (struct gemm_lt *g, struct gemm_lt_plan *p,
                                  const struct gemm_lt_op *op,
                                  const struct lt_found *list, int n,
                                  cudaStream_t stream, int *ret)
{
    struct trial t = {
        .g = g, .plan = p, .op = op, .c = op->c, .stream = stream};
    enum gemm_lt_status status = GEMM_LT_EDEVICE;

    if (cudaEventCreate (&t.from) != cudaSuccess)
        return status;
    if (cudaEventCreate (&t.to) == cudaSuccess) {
        status = try_all (&t, list, n, &p->choice, ret);
        (void)cudaEventDestroy (t.to);
    }
    (void)cudaEventDestroy (t.from);
    return status;
}

static bool captured (cudaStream_t stream)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing (stream, &state) != cudaSuccess
           || state != cudaStreamCaptureStatusNone;
}

enum gemm_lt_status gemm_lt_pick (struct gemm_lt *g, struct gemm_lt_plan *p,
                                  const struct gemm_lt_op *op,
                                  cudaStream_t stream, char *why)
{
    struct lt_found list[CANDIDATES];
    enum gemm_lt_status status = GEMM_LT_OK;
    bool trial = !g->opts.untimed && !captured (stream);
    char name[200];
    int n = 0, best = 0, rc = candidates (g, p, list, &n);

    gemm_lt_name (&p->choice.key, name, sizeof (name));
    if (rc != LT_SUCCESS || n == 0)
        return gemm_lt_say (why, GEMM_LT_ENOTSUP,
                            "%s: cuBLASLt has no algorithm: %s", name,
                            g->api->status_text (rc ? rc : LT_NOT_SUPPORTED));
    if (trial)
        status = timed (g, p, op, list, n, stream, &best);
    if (status == GEMM_LT_OK && best < 0)
        status = GEMM_LT_EDEVICE;
    if (status != GEMM_LT_OK)
        return gemm_lt_say (why, status,
                            "%s: its candidates cannot be timed: %s", name,
                            status == GEMM_LT_ENOMEM
                                ? "no GPU memory for the trial"
                                : cudaGetErrorString (cudaGetLastError ()));
    p->choice.algo = list[best].algo;
    p->choice.workspace = list[best].workspace;
    p->choice.picked = (uint32_t)best;
    p->choice.candidates = (uint32_t)n;
    p->chosen = trial || g->opts.untimed;
    return GEMM_LT_OK;
}
