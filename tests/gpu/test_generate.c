/* SPDX-License-Identifier: Apache-2.0
 * test_generate.c - generation on a GPU: its kernels beside their host twins, its
 * logits beside the full forward's, its tokens beside the host's in f32 */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include "layer_set.h"

#include "decoder_impl.h"
#include "generate_impl.h"

#include "kernels/decode.h"

#define AT(i) set_at (s, i)
#define V     504

static void call_decode (struct set *s)
{
    size_t N = s->shape[0], T = s->shape[1], H = s->shape[2], G = s->shape[3];
    size_t D = s->shape[4];
    void *scratch = s->on_gpu ? NULL : malloc ((T + D) * sizeof (float));

    SET_CALL (s, keep_fwd, AT (0), AT (1), AT (2), AT (3), AT (4), AT (5),
              AT (6), N, T, H, G, D, NULL);
    SET_CALL (s, decode_fwd, AT (7), AT (2), AT (0), AT (1), AT (5), AT (6), N,
              T, H, G, D, 1 / sqrt ((double)D), scratch, NULL);
    free (scratch);
}

/* A row for each of five slots; the second is left out. */
static bool decode (enum type type, size_t shift, size_t T, size_t H, size_t G,
                    size_t D)
{
    enum { N = 5, SLOTS = 5 };
    struct set s = {.type = type, .shift = shift, .shape = {N, T, H, G, D}};
    float room = type == F32 ? 3e-6f : type == F16 ? 2e-3f : 1.6e-2f;
    int32_t *slot, *at;

    set_elem (&s, SLOTS * G * T * D, 1, type == F32 ? 1e-6f : room);
    set_elem (&s, SLOTS * G * T * D, 1, 0);
    set_elem (&s, N * (H + 2 * G) * D, 2, type == F32 ? 1e-6f : room);
    set_add (&s, F32, T * D / 2, 1, 0);
    set_add (&s, F32, T * D / 2, 1, 0);
    slot = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    at = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    set_elem (&s, N * H * D, 0, room);
    for (int i = 0; i < N; i++) {
        slot[i] = SLOTS - 1 - i;
        at[i] = i == 1 ? -1 : (int32_t)((T - 1) * (size_t)i / (N - 1));
    }
    return set_check (&s, call_decode);
}

static void test_decode (void)
{
    bool good = true;

    for (enum type t = F32; t <= F16; t++) {
        good &= decode (t, 0, 1, 1, 1, 64);
        good &= decode (t, 0, 300, 8, 2, 64);
        good &= decode (t, 0, 700, 6, 2, 128);
        good &= decode (t, 0, 33, 9, 3, 64);
        good &= decode (t, 0, 65, 14, 2, 256);
        good &= decode (t, 0, 40, 4, 4, 32);
        good &= decode (t, 1, 40, 4, 2, 64);
        good &= decode (t, 0, 19, 6, 3, 10);
        good &= decode (t, 0, 50, 5, 1, 80);
    }
    tap_ok (good, "kept keys and values, and queries over them");
}

static void call_attend (struct set *s)
{
    size_t N = s->shape[0], T = s->shape[1], H = s->shape[2], G = s->shape[3];
    size_t D = s->shape[4];
    void *scratch = s->on_gpu ? NULL : malloc ((T + D) * sizeof (float));

    SET_CALL (s, attend_fwd, AT (7), AT (0), AT (1), AT (2), AT (3), AT (4),
              AT (5), AT (6), AT (8), AT (9), N, T, H, G, D,
              1 / sqrt ((double)D), false, scratch, NULL);
    free (scratch);
    /* queries are undefined now */
    if (s->on_gpu)
        must (cudaMemset (AT (2), 0, N * (H + 2 * G) * D * 2));
    else
        memset (AT (2), 0, N * (H + 2 * G) * D * 2);
}

/* The first [n] rows of slot [from] become those of slot [to], of every head. */
static void copy_rows (struct set *s, int arg, int32_t to, int32_t from,
                       size_t n)
{
    size_t G = s->shape[3], row = s->shape[4] * 2, slot = s->shape[1] * row;
    char *x = s->a[arg].start;

    for (size_t g = 0; g < G; g++)
        memcpy (x + ((size_t)to * G + g) * slot,
                x + ((size_t)from * G + g) * slot, n * row);
}

/* Rows of which each but the first, its neighbour at -1 and the last has what it
 * can in common with one that is longer. */
static bool attend (enum type type, size_t N, size_t T, size_t H, size_t G,
                    size_t D)
{
    struct set s = {.type = type, .shape = {N, T, H, G, D}};
    float room = type == F16 ? 2e-3f : 1.6e-2f;
    int32_t *slot, *at, *lead, *shared;
    int k, v;

    k = set_elem (&s, N * G * T * D, 1, room);
    v = set_elem (&s, N * G * T * D, 1, 0);
    set_elem (&s, N * (H + 2 * G) * D, 2, 0);
    set_add (&s, F32, T * D / 2, 1, 0);
    set_add (&s, F32, T * D / 2, 1, 0);
    slot = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    at = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    set_elem (&s, N * H * D, 0, room);
    lead = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    shared = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    for (size_t i = 0; i < N; i++) {
        lead[i] = slot[i] = (int32_t)(N - 1 - i);
        at[i] = i == 1 ? -1 : (int32_t)((T - 1) * i / (N - 1));
        shared[i] = 0;
    }
    for (size_t i = 2; i + 1 < N; i++) {
        lead[i] = slot[N - 1];
        shared[i] = at[i] * 3 / 4;
        copy_rows (&s, k, slot[i], lead[i], (size_t)shared[i]);
        copy_rows (&s, v, slot[i], lead[i], (size_t)shared[i]);
    }
    return set_check (&s, call_attend);
}

static void test_attend (void)
{
    bool good = true;

    for (enum type t = BF16; t <= F16; t++) {
        good &= attend (t, 5, 1, 1, 1, 64);
        good &= attend (t, 5, 16, 4, 2, 64);
        good &= attend (t, 5, 300, 8, 2, 64);
        good &= attend (t, 5, 700, 6, 2, 128);
        good &= attend (t, 5, 130, 32, 4, 64);
        good &= attend (t, 5, 65, 16, 2, 128);
        good &= attend (t, 5, 80, 20, 2, 64);
        good &= attend (t, 5, 40, 4, 4, 32);
        good &= attend (t, 5, 33, 6, 3, 10);
        good &= attend (t, 5, 50, 5, 1, 80);
        good &= attend (t, 40, 300, 32, 8, 64);
        good &= attend (t, 64, 300, 32, 8, 64);
        good &= attend (t, 33, 300, 32, 8, 128);
    }
    tap_ok (good, "queries over keys of which the last are new");
}

static void call_share (struct set *s)
{
    SET_CALL (s, share_fwd, AT (0), AT (1), AT (2), AT (3), AT (4), 2,
              s->shape[0], 4, s->shape[1], s->shape[2], s->shape[3], NULL);
}

/* Of four slots 2 goes to 0, 3 to 1. */
static bool share (enum type type, size_t shift, size_t L, size_t G, size_t T,
                   size_t D)
{
    struct set s = {.type = type, .shift = shift, .shape = {L, G, T, D}};
    int32_t *x[3];

    set_elem (&s, L * 4 * G * T * D, 1, 0);
    set_elem (&s, L * 4 * G * T * D, 1, 0);
    for (int i = 0; i < 3; i++)
        x[i] = (int32_t *)(void *)s.a[set_add (&s, INT, 2, 1, 0)].start;
    for (int i = 0; i < 2; i++) {
        x[0][i] = i + 2;
        x[1][i] = i;
        x[2][i] = (int32_t)T - i;
    }
    return set_check (&s, call_share);
}

static void test_share (void)
{
    bool good = true;

    for (enum type t = F32; t <= F16; t++) {
        good &= share (t, 0, 3, 2, 40, 64);
        good &= share (t, 1, 2, 3, 9, 64);
        good &= share (t, 0, 1, 1, 5, 10);
    }
    tap_ok (good, "copies of a prompt's keys and values");
}

static struct kern_draw_rules rules;

static void call_draw (struct set *s)
{
    size_t N = s->shape[0], vocab = s->shape[1];
    void *scratch = s->on_gpu ? NULL : malloc (kern_draw_scratch (vocab));

    SET_CALL (s, draw, AT (0), AT (4), AT (1), AT (2), AT (3), AT (2), AT (5),
              N, vocab, &rules, scratch, NULL);
    free (scratch);
}

/* Slots are texts. */
static bool draw (enum type type, size_t N, size_t vocab,
                  struct kern_draw_rules how, float bad)
{
    struct set s = {.type = type, .shape = {N, vocab}};
    int32_t *ids = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    int z = set_elem (&s, N * vocab, 4, 0);
    int32_t *text = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    int32_t *at = (int32_t *)(void *)s.a[set_add (&s, INT, N, 1, 0)].start;
    int32_t *seen;

    rules = how;
    rules.seed = 7;
    set_add (&s, F32, N, 0, 1e-5f);
    seen = (int32_t *)(void *)s
               .a[set_add (&s, INT, N * kern_seen_words (vocab), 1, 0)]
               .start;
    for (size_t i = 0; i < N * kern_seen_words (vocab); i++)
        seen[i] = (int32_t)((uint32_t)i * 2654435761u & 0x11811u);
    for (size_t i = 0; i < N; i++) {
        ids[i] = 77;
        text[i] = (int32_t)i;
        at[i] = i == 1 ? -1 : (int32_t)(3 * i);
    }
    if (bad != 0)
        set_value (type, s.a[z].start, vocab / 2, bad);
    return set_check (&s, call_draw);
}

static void test_draw (void)
{
    const struct kern_draw_rules one = {.heat = 1}, best = {.heat = 0};
    bool good = true;

    for (enum type t = F32; t <= F16; t++) {
        good &= draw (t, 300, 37, one, 0);
        good &= draw (t, 300, 37, best, 0);
        good &= draw (t, 3, 1, one, 0);
        good &= draw (t, 40, 5000, (struct kern_draw_rules){.heat = 0.3}, 0);
        good &= draw (t, 40, 5000, (struct kern_draw_rules){.heat = 1e-9}, 0);
        good &= draw (t, 5, 5000, best, 0);
        good &= draw (t, 3, 100, one, NAN);
        good &= draw (t, 3, 100, best, INFINITY);
    }
    tap_ok (good, "draws are the host's");
}

/* In halves many logits are equal, so that cuts fall between equals. */
static void test_cuts (void)
{
    static const struct kern_draw_rules all[] = {
        {.heat = 1, .top_k = 1},
        {.heat = 1, .top_k = 20},
        {.heat = 0.7, .top_k = 4999},
        {.heat = 1, .top_p = 0.3},
        {.heat = 2, .top_p = 0.9},
        {.heat = 1, .top_p = 1e-9},
        {.heat = 1, .min_p = 0.2},
        {.heat = 1, .min_p = 1},
        {.heat = 1, .top_k = 50, .top_p = 0.5, .min_p = 0.7},
        {.heat = 1, .repetition = 1.3},
        {.heat = 0, .repetition = 3},
        {.heat = 0.9, .repetition = 0.8, .top_k = 33, .top_p = 0.8},
    };
    char text[160];

    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        bool good = true;

        for (enum type t = F32; t <= F16; t++) {
            good &= draw (t, 60, 5000, all[i], 0);
            good &= draw (t, 200, 37, all[i], 0);
            good &= draw (t, 2, 70001, all[i], 0);
        }
        snprintf (text, sizeof (text),
                  "the host's draws at %g, repetition %g, top %d, p %g, min %g",
                  all[i].heat, all[i].repetition, all[i].top_k, all[i].top_p,
                  all[i].min_p);
        tap_ok (good, text);
    }
}

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

static train_decoder_t *make (train_dtype_t dtype, bool gpu, bool more)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .layers = 3,
                                .dim = 128,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 64,
                                .ffn = 192,
                                .vocab = V,
                                .tie = more,
                                .rope_theta = 10000,
                                .norm_eps = 1e-5,
                                .dtype = dtype,
                                .qkv_bias = more,
                                .qk_norm = more};
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    if (gpu)
        c.device = (DLDevice){kDLCUDA, 0};
    need (train_decoder_create (&c, &m, &err), &err);
    need (train_decoder_draw (m, 5, &err), &err);
    return m;
}

/* The largest difference of logits over the largest logit. */
static double logits_off (train_dtype_t dtype, bool more)
{
    enum { T = 40 };
    train_decoder_t *m = make (dtype, true, more);
    enum type type = dtype == TRAIN_F32    ? F32
                     : dtype == TRAIN_BF16 ? BF16
                                           : F16;
    size_t bytes = (size_t)T * V * m->kern->elem_size;
    char *want = malloc (bytes), *got = malloc (bytes);
    double most = 0, worst = 0;
    struct kv_cache *cache = NULL;
    train_error_t err = {0};
    int32_t tokens[T];
    const void *part;
    void *dev = NULL;

    for (int t = 0; t < T; t++)
        tokens[t] = (int32_t)((unsigned)t * 2654435761u % V);
    must (cudaMalloc (&dev, bytes));
    need (train_decoder_forward (m, dev, tokens, NULL, 1, T, NULL, NULL, &err),
          &err);
    must (cudaMemcpy (want, dev, bytes, cudaMemcpyDeviceToHost));
    need (kv_create (m, 2, T, T, T, &cache, &err), &err);
    for (int t = 0, n; t < T; t += n) {
        struct kv_rows r;

        n = t == 0 ? 23 : t < 30 ? 1 : T - t;
        r = kv_rows (cache, (size_t)n, (size_t)n);
        for (int i = 0; i < n; i++) {
            r.tokens[i] = tokens[t + i];
            r.slot[i] = 1;
            r.at[i] = t + i;
            r.last[i] = i;
        }
        need (kv_feed (cache, (size_t)n, (size_t)n, 0, &err), &err);
        need (kv_logits (cache, (size_t)n, &part, &err), &err);
        memcpy (got + bytes / T * (size_t)t, part, bytes / T * (size_t)n);
    }
    for (size_t i = 0; i < (size_t)T * V; i++) {
        double x = (double)value_of (type, want, i);

        most = fmax (most, fabs (x));
        x = fabs ((double)value_of (type, got, i) - x);
        worst = x <= worst ? worst : isnan (x) ? (double)INFINITY : x;
    }
    kv_destroy (cache);
    train_decoder_destroy (m);
    must (cudaFree (dev));
    free (want);
    free (got);
    return worst / most;
}

static void test_logits (void)
{
    static const struct {
        train_dtype_t dtype;
        double bound;
    } all[] = {{TRAIN_F32, 1e-5}, {TRAIN_BF16, 0.03}, {TRAIN_F16, 0.004}};
    char text[96];

    for (size_t i = 0; i < 6; i++) {
        double off = logits_off (all[i / 2].dtype, i & 1);

        snprintf (text, sizeof (text), "%s%s: logits %.1e from the forward's",
                  train_dtype_name (all[i / 2].dtype), i & 1 ? ", more" : "",
                  off);
        tap_ok (off <= all[i / 2].bound, text);
    }
}

enum { TEXTS = 7, NEW = 24 };

static void run (train_decoder_t *m, int32_t *ids, int *n, double temperature,
                 int at_once, int top_k)
{
    static int32_t tokens[TEXTS][20];
    const int32_t *prompts[TEXTS];
    int length[TEXTS];
    train_generate_options_t o = {.size = sizeof (o),
                                  .max_new = NEW,
                                  .temperature = temperature,
                                  .at_once = at_once,
                                  .top_k = top_k,
                                  .seed = 3};
    train_error_t err = {0};
    int32_t stop = 11;

    o.stop = &stop;
    o.n_stop = 1;
    for (int b = 0; b < TEXTS; b++) {
        length[b] = 1 + b * 5 % 20;
        prompts[b] = tokens[b];
        for (int t = 0; t < 20; t++)
            tokens[b][t] = (b * 31 + t * 17) % V;
    }
    memset (ids, 0, TEXTS * NEW * sizeof (*ids));
    need (train_generate (ids, n, m, prompts, length, TEXTS, &o, &err), &err);
}

static void test_tokens (void)
{
    static const struct {
        double temperature;
        int at_once, top_k;
    } all[] = {{0, 0, 0}, {1, 0, 0}, {1, 3, 0}, {0.7, 2, 20}};
    train_decoder_t *host = make (TRAIN_F32, false, true);
    train_decoder_t *gpu = make (TRAIN_F32, true, true);
    int32_t want[TEXTS * NEW], got[TEXTS * NEW];
    int n[TEXTS], k[TEXTS];
    char text[96];

    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        run (host, want, n, all[i].temperature, 0, all[i].top_k);
        run (gpu, got, k, all[i].temperature, all[i].at_once, all[i].top_k);
        snprintf (
            text, sizeof (text),
            "f32 at temperature %g, %d at once, top %d: the host's tokens",
            all[i].temperature, all[i].at_once, all[i].top_k);
        tap_ok (memcmp (want, got, sizeof (want)) == 0
                    && memcmp (n, k, sizeof (n)) == 0,
                text);
    }
    train_decoder_destroy (host);
    train_decoder_destroy (gpu);
}

/* Each of 64 texts alone, in sevens and all at once, with and without the prompt
 * of their group read once: the same tokens, and the same bits of log-probs. */
static void check_batches (train_dtype_t dtype)
{
    enum { ALL = 64, P = 40 }; /* whole tiles of keys in common */
    static int32_t tokens[ALL / 8][P], want[ALL * NEW], got[ALL * NEW];
    static float want_logp[ALL * NEW], logp[ALL * NEW];
    train_decoder_t *m = make (dtype, true, true);
    const int32_t *prompts[ALL];
    int length[ALL], n[ALL];
    train_generate_options_t o = {.size = sizeof (o),
                                  .max_new = NEW,
                                  .temperature = 1,
                                  .top_k = 40,
                                  .seed = 3,
                                  .batch_invariant = true,
                                  .ret_logp = want_logp};
    train_error_t err = {0};
    bool good = true;
    char text[96];

    for (int b = 0; b < ALL; b++) {
        prompts[b] = tokens[b / 8];
        length[b] = P - b / 8 % 3;
        for (int t = 0; t < P; t++)
            tokens[b / 8][t] = (b / 8 * 31 + t * 17) % V;
    }
    need (train_generate (want, n, m, prompts, length, ALL, &o, &err), &err);
    o.ret_logp = logp;
    for (int i = 0; i < 4; i++) {
        o.at_once = i == 0 ? 1 : i == 1 ? 7 : 0;
        o.group = i == 3 ? 8 : 0;
        need (train_generate (got, n, m, prompts, length, ALL, &o, &err), &err);
        good &= memcmp (got, want, sizeof (got)) == 0;
        good &= memcmp (logp, want_logp, sizeof (logp)) == 0;
    }
    o.at_once = 7;
    need (train_generate (got, n, m, prompts, length, ALL, &o, &err), &err);
    good &= memcmp (got, want, sizeof (got)) == 0;
    snprintf (text, sizeof (text), "%s: the same bits alone, in sevens, in 64",
              train_dtype_name (dtype));
    tap_ok (good, text);
    train_decoder_destroy (m);
}

struct ends {
    int want[64], have[64];
};

static bool end_early (void *arg, int text, int32_t id)
{
    struct ends *e = arg;

    (void)id;
    return ++e->have[text] < e->want[text];
}

/* Texts that the listener ends one by one, so that fewer and fewer are stepped, get
 * the bits that they have in a run to the end: with a group's prompt read in one
 * place, and while others wait for their slots. */
static void check_ends (train_dtype_t dtype)
{
    enum { ALL = 64, P = 40 };
    static int32_t tokens[ALL / 8][P], want[ALL * NEW], got[ALL * NEW];
    train_decoder_t *m = make (dtype, true, true);
    const int32_t *prompts[ALL];
    int length[ALL], n[ALL];
    struct ends e;
    train_generate_options_t o = {.size = sizeof (o),
                                  .max_new = NEW,
                                  .temperature = 1,
                                  .seed = 3,
                                  .batch_invariant = true};
    train_error_t err = {0};
    bool good = true;
    char text[96];

    for (int b = 0; b < ALL; b++) {
        prompts[b] = tokens[b / 8];
        length[b] = P;
        for (int t = 0; t < P; t++)
            tokens[b / 8][t] = (b / 8 * 31 + t * 17) % V;
        e.want[b] = 1 + b * 7 % NEW;
    }
    need (train_generate (want, n, m, prompts, length, ALL, &o, &err), &err);
    o.on_token = end_early;
    o.arg = &e;
    o.group = 8;
    for (o.at_once = 0; o.at_once <= 50; o.at_once += 25) {
        memset (e.have, 0, sizeof (e.have));
        need (train_generate (got, n, m, prompts, length, ALL, &o, &err), &err);
        for (int b = 0; b < ALL; b++)
            good &= n[b] == e.want[b]
                    && memcmp (got + b * NEW, want + b * NEW,
                               (size_t)n[b] * sizeof (*got))
                           == 0;
    }
    snprintf (text, sizeof (text), "%s: the same bits to a listener's end",
              train_dtype_name (dtype));
    tap_ok (good, text);
    train_decoder_destroy (m);
}

int main (void)
{
    int n = 0;

    if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0)
        tap_skip_all ("no GPU");
    test_decode ();
    test_attend ();
    test_share ();
    test_draw ();
    test_cuts ();
    must (cudaDeviceSynchronize ());
    test_logits ();
    test_tokens ();
    check_batches (TRAIN_BF16);
    check_batches (TRAIN_F16);
    check_ends (TRAIN_BF16);
    check_ends (TRAIN_F16);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
