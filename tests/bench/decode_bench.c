/* SPDX-License-Identifier: Apache-2.0
 * decode_bench.c - what a token costs: the products of a 1b model for few rows,
 * by cuBLASLt and by our own kernel, attention over kept keys, and a draw
 *
 *   decode_bench [ROWS...]         microseconds of one call within a graph of CALLS
 *                                  with other weights each, and the rate that the
 *                                  weights come at
 *   decode_bench layer [ROWS...]   of one of CALLS layers of a token, joined as
 *                                  generation joins them
 * Eight rows have their first 128 keys in common. */
#include "config.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/decode.h"
#include "kernels/decode_product.h"
#include "kernels/gemm_lt.h"

#include "gpu_time.h"

#define CALLS 16
#define POOL  ((size_t)1 << 30) /* bytes of weights */

static const struct shape {
    const char *name;
    size_t in, out;
    bool norm, pair, add;
} shapes[] = {
    {"qkv", 2048, 3072, true, false, false},
    {"out", 2048, 2048, false, false, true},
    {"gate_up", 2048, 8192, true, true, false},
    {"down", 8192, 2048, false, false, true},
    {"head", 2048, 50304, true, false, false},
};

static struct {
    const struct shape *s;
    uint16_t *pool, *x, *y, *norm, *normed;
    struct gemm_lt *lt;
    cudaStream_t stream;
    size_t N;
    int split; /* < 0: cuBLASLt */
    bool early, plain;
    int32_t *slot, *at, *lead, *shared;
    float *table;
} b;

static void one (int i)
{
    const struct shape *s = b.s;
    size_t rows = s->out * (s->pair ? 2 : 1), size = rows * s->in;
    const uint16_t *w = b.pool + (size_t)i * size % (POOL / 2 - size) / 8 * 8;
    struct kern_product p = {.x = b.x,
                             .w = w,
                             .y = b.y,
                             .N = b.N,
                             .in = s->in,
                             .out = s->out,
                             .eps = 1e-6,
                             .pair = s->pair,
                             .early = b.early,
                             .split = b.split};
    char why[GEMM_LT_WHY] = "";

    p.norm = s->norm && !b.plain ? b.norm : NULL;
    p.normed = b.normed;
    p.add = s->add && !b.plain ? b.y : NULL;
    if (b.split >= 0)
        kern_product_bf16_cuda (&p, b.stream);
    else if (gemm_lt_fwd (b.lt, b.y, b.x, w, NULL, GEMM_LT_BF16, b.N, s->in,
                          rows, b.stream, why)
             != GEMM_LT_OK)
        printf ("%s\n", why);
}

/* Of one of CALLS calls in a graph. */
static float graph_ms (void (*call) (int i))
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    float ms[ROUNDS];

    call (0); /* cuBLASLt chooses */
    must (cudaStreamSynchronize (b.stream));
    must (cudaStreamBeginCapture (b.stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < CALLS; i++)
        call (i);
    must (cudaStreamEndCapture (b.stream, &graph));
    must (cudaGraphInstantiate (&exec, graph, 0));
    must (cudaEventCreate (&from));
    must (cudaEventCreate (&to));
    for (int i = -2; i < ROUNDS; i++) {
        float took;

        must (cudaEventRecord (from, b.stream));
        must (cudaGraphLaunch (exec, b.stream));
        must (cudaEventRecord (to, b.stream));
        must (cudaEventSynchronize (to));
        must (cudaEventElapsedTime (&took, from, to));
        if (i >= 0)
            ms[i] = took / CALLS;
    }
    must (cudaGraphExecDestroy (exec));
    must (cudaGraphDestroy (graph));
    qsort (ms, ROUNDS, sizeof (*ms), by_value);
    return ms[ROUNDS / 2];
}

static void show (const char *way)
{
    const struct shape *s = b.s;
    double bytes = 2.0 * (double)(s->in * s->out * (s->pair ? 2 : 1));
    double ms = (double)graph_ms (one);

    printf ("%-8s %3zu rows %-16s %7.2f us %6.0f GB/s\n", s->name, b.N, way,
            1e3 * ms, bytes / ms / 1e6);
    fflush (stdout);
}

static void products (void)
{
    for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++) {
        b.s = &shapes[i];
        b.split = -1;
        show ("cuBLASLt");
        b.early = false;
        b.split = 0;
        show ("own, in turn");
        b.early = true;
        b.plain = true;
        show ("own, plain");
        b.plain = false;
        show ("own");
        for (b.split = 4; b.split <= 6; b.split++) {
            char way[32];

            snprintf (way, sizeof (way), "own, %d parts", b.split);
            if (b.s->in / 64 / (size_t)b.split > 0)
                show (way);
        }
    }
}

enum { H = 32, G = 8, D = 64, T = 400, WORDS = 50304, PROMPT = 128 };
#define LAYER ((size_t)2048 * (3072 + 2048 + 2 * 8192 + 8192)) /* weights */

static void one_attention (int i)
{
    size_t layer = b.N * G * T * D;
    uint16_t *k = b.pool + (size_t)i * 2 * layer;

    kern_attend_fwd_bf16_cuda (b.y, k, k + layer, b.x, b.table, b.table, b.slot,
                               b.at, b.lead, b.shared, b.N, T, H, G, D, 0.125,
                               b.early, NULL, b.stream);
}

static void stand (size_t length)
{
    int32_t *to[] = {b.slot, b.at, b.lead, b.shared}, host[4][64];

    for (size_t n = 0; n < b.N; n++) {
        host[0][n] = (int32_t)n;
        host[1][n] = (int32_t)length - 1;
        host[2][n] = (int32_t)(n / 8 * 8);
        host[3][n] = n % 8 == 0        ? 0
                     : length < PROMPT ? (int32_t)length - 1
                                       : PROMPT - 1;
    }
    for (int i = 0; i < 4; i++)
        must (cudaMemcpy (to[i], host[i], 4 * b.N, cudaMemcpyHostToDevice));
}

static void attention (size_t length)
{
    double ms;

    stand (length);
    for (int early = 0; early < 2; early++) {
        b.early = early;
        ms = (double)graph_ms (one_attention);
        printf ("attention %3zu rows %4zu keys%s %7.2f us %6.0f GB/s\n", b.N,
                length, early ? ", early" : "", 1e3 * ms,
                4.0 * (double)(b.N * G * length * D) / ms / 1e6);
    }
}

static void one_draw (int i)
{
    const struct kern_draw_rules rules = {.heat = 1, .seed = 7};
    uint16_t *logits = b.pool + (size_t)i % 4 * b.N * WORDS;

    kern_draw_bf16_cuda (b.slot, b.table, logits, b.slot, b.at, b.slot, NULL,
                         b.N, WORDS, &rules, NULL, b.stream);
}

static void draws (void)
{
    printf ("draw      %3zu rows of %d %7.2f us\n", b.N, WORDS,
            1e3 * (double)graph_ms (one_draw));
}

static struct {
    uint16_t *w, *x, *x2, *qkv, *att, *act, *scaled, *cache;
    float *squares;
    size_t keys;
} l;

static void link_to (struct kern_product *to, const struct kern_product *from)
{
    to->x = from->scaled;
    to->sums = from->squares;
    to->n_sums = kern_product_squares (from->in, from->out);
}

/* Layer i: four products and attention. */
static void one_layer (int i)
{
    const uint16_t *w = l.w + (size_t)i * LAYER;
    uint16_t *k = l.cache + (size_t)i * 2 * b.N * G * T * D;
    struct kern_product common = {.N = b.N, .eps = 1e-6, .early = true};
    struct kern_product qkv = common, out = common, up = common, down = common;

    down.x = l.act, down.w = w + 2048 * (3072 + 2048 + 16384);
    down.y = l.x, down.add = l.x2, down.in = 8192, down.out = 2048;
    down.next = b.norm, down.scaled = l.scaled, down.squares = l.squares;
    qkv.w = w, qkv.y = l.qkv, qkv.in = 2048, qkv.out = 3072;
    link_to (&qkv, &down);
    out.x = l.att, out.w = w + 2048 * 3072, out.y = l.x2, out.add = l.x;
    out.in = out.out = 2048;
    out.next = b.norm, out.scaled = l.scaled, out.squares = l.squares;
    up.w = w + 2048 * 3072 + 2048 * 2048, up.y = l.act, up.in = 2048;
    up.out = 8192, up.pair = true;
    link_to (&up, &out);
    kern_product_bf16_cuda (&qkv, b.stream);
    if (l.keys > 0)
        kern_attend_fwd_bf16_cuda (l.att, k, k + b.N * G * T * D, l.qkv,
                                   b.table, b.table, b.slot, b.at, b.lead,
                                   b.shared, b.N, T, H, G, D, 0.125, true, NULL,
                                   b.stream);
    kern_product_bf16_cuda (&out, b.stream);
    kern_product_bf16_cuda (&up, b.stream);
    kern_product_bf16_cuda (&down, b.stream);
}

static void layers (void)
{
    static const size_t keys[] = {0, 128, 256, 384};

    printf ("layer %2zu rows", b.N);
    for (size_t i = 0; i < 4; i++) {
        l.keys = keys[i];
        if (l.keys > 0)
            stand (l.keys);
        printf (", %zu keys %6.2f us", l.keys,
                1e3 * (double)graph_ms (one_layer));
    }
    printf ("\n");
    fflush (stdout);
}

/* Small values, no two cache lines of 8 MiB alike. */
static uint16_t *random_on_gpu (size_t n)
{
    size_t some = n < (size_t)1 << 22 ? n : (size_t)1 << 22;
    uint16_t *at = on_gpu (n * 2), *host = malloc (some * 2);
    uint32_t x = 7;

    if (host == NULL)
        exit (1);
    for (size_t i = 0; i < some; i++) {
        x = x * 1664525 + 1013904223;
        host[i] = (uint16_t)(0x3c00 | (x >> 9 & 0x807f));
    }
    must (cudaMemcpy (at, host, some * 2, cudaMemcpyHostToDevice));
    for (size_t have = some; have < n; have += some)
        must (cudaMemcpy (at + have, at,
                          (n - have < some ? n - have : some) * 2,
                          cudaMemcpyDeviceToDevice));
    free (host);
    return at;
}

static void make_layers (void)
{
    l.w = random_on_gpu (CALLS * LAYER);
    l.cache = random_on_gpu ((size_t)CALLS * 2 * 64 * G * T * D);
    l.x = on_gpu (64 * 2048 * 2);
    l.x2 = on_gpu (64 * 2048 * 2);
    l.qkv = on_gpu (64 * 3072 * 2);
    l.att = random_on_gpu (64 * 2048);
    l.act = random_on_gpu (64 * 8192);
    l.scaled = random_on_gpu (64 * 2048);
    l.squares = on_gpu (64 * 1024 * 4);
}

int main (int argc, char **argv)
{
    bool whole = argc > 1 && strcmp (argv[1], "layer") == 0;
    struct gemm_lt_opts opts = {.size = sizeof (opts)};
    char why[GEMM_LT_WHY] = "";

    b.pool = on_gpu (POOL);
    b.x = on_gpu ((size_t)1 << 24);
    b.y = on_gpu ((size_t)1 << 24);
    b.norm = on_gpu (1 << 16);
    b.normed = on_gpu ((size_t)1 << 20);
    b.slot = on_gpu (64 * sizeof (*b.slot));
    b.at = on_gpu (64 * sizeof (*b.at));
    b.lead = on_gpu (64 * sizeof (*b.lead));
    b.shared = on_gpu (64 * sizeof (*b.shared));
    b.table = on_gpu (T * D * sizeof (*b.table));
    must (cudaStreamCreate (&b.stream));
    if (gemm_lt_create (&b.lt, &opts, why) != GEMM_LT_OK) {
        fprintf (stderr, "%s\n", why);
        return 1;
    }
    if (whole)
        make_layers ();
    for (int i = 1 + whole; i < argc; i++) {
        long n = strtol (argv[i], NULL, 10);

        if (n < 1 || n > 64)
            return 2;
        b.N = (size_t)n;
        if (whole) {
            layers ();
            continue;
        }
        products ();
        attention (128);
        attention (256);
        attention (384);
        draws ();
    }
    gemm_lt_destroy (b.lt);
    return 0;
}
