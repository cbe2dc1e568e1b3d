/* SPDX-License-Identifier: Apache-2.0
 * generate_bench.c - a rollout on one GPU: generate_bench PRESET TEXTS PROMPT NEW
 * [WORD...], words: ragged (lengths drawn 32 to NEW), f16, runs=N, group=N (so many
 * texts read one prompt once), top_k=N, top_p=N (hundredths), invariant; models are
 * those of PyTorch's twin, a Llama shape of 50304 words, at temperature 1
 *
 * Prints one JSON line: the median run's seconds and tokens kept a second. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <train/generate.h>

#define VOCAB 50304

static const struct {
    const char *name;
    int layers, dim, heads, kv_heads, ffn;
} presets[] = {
    {"124m", 12, 768, 12, 12, 2048},
    {"350m", 24, 1024, 16, 16, 2816},
    {"1b", 16, 2048, 32, 8, 8192},
};

static train_generate_options_t words = {.temperature = 1, .seed = 7};

struct lengths {
    int *want, *have; /* (texts) */
};

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "generate_bench: %s\n", err->text);
    exit (1);
}

static double now (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int by_value (const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int number (const char *text)
{
    long n = strtol (text, NULL, 10);

    if (n < 1 || n > 1 << 20) {
        fprintf (stderr, "generate_bench: '%s' is not in 1..%d\n", text,
                 1 << 20);
        exit (2);
    }
    return (int)n;
}

static bool count (void *arg, int text, int32_t id)
{
    struct lengths *l = arg;

    (void)id;
    return ++l->have[text] < l->want[text];
}

static train_decoder_t *make (const char *name, train_dtype_t dtype)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .vocab = VOCAB,
                                .rope_theta = 10000,
                                .norm_eps = 1e-6,
                                .dtype = dtype,
                                .device = {kDLCUDA, 0}};
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    for (size_t i = 0; i < sizeof (presets) / sizeof (*presets); i++) {
        if (strcmp (presets[i].name, name) != 0)
            continue;
        c.layers = presets[i].layers;
        c.dim = presets[i].dim;
        c.heads = presets[i].heads;
        c.kv_heads = presets[i].kv_heads;
        c.ffn = presets[i].ffn;
    }
    need (train_decoder_create (&c, &m, &err), &err);
    need (train_decoder_draw (m, 1, &err), &err);
    return m;
}

static void *room (size_t n, size_t size)
{
    void *p = calloc (n, size);

    if (!p)
        exit (1);
    return p;
}

static double once (train_decoder_t *m, int texts, int prompt, int new,
                    struct lengths *l)
{
    size_t B = (size_t)texts, P = (size_t)prompt;
    int32_t *tokens = room (B * P, sizeof (*tokens));
    int32_t *ids = room (B * (size_t) new, sizeof (*ids));
    const int32_t **prompts = room (B, sizeof (*prompts));
    int *n = room (B, sizeof (*n)), *got = room (B, sizeof (*got));
    train_generate_options_t o = words;
    train_error_t err = {0};
    double begin;

    o.size = sizeof (o);
    o.max_new = new;
    o.on_token = count;
    o.arg = l;
    for (size_t b = 0; b < B; b++) {
        prompts[b] = tokens + b * P;
        n[b] = prompt;
        l->have[b] = 0;
        for (size_t t = 0; t < P; t++)
            tokens[b * P + t] = (int32_t)((b / 8 * 7919 + t * 104729) % VOCAB);
    }
    begin = now ();
    need (train_generate (ids, got, m, prompts, n, texts, &o, &err), &err);
    begin = now () - begin;
    free (tokens);
    free (ids);
    free (prompts);
    free (n);
    free (got);
    return begin;
}

int main (int argc, char **argv)
{
    train_dtype_t dtype = TRAIN_BF16;
    int texts, prompt, new, runs = 3;
    struct lengths l;
    double seconds[64], kept = 0;
    bool ragged = false;
    train_decoder_t *m;

    if (argc < 5)
        return 2;
    texts = number (argv[2]);
    prompt = number (argv[3]);
    new = number (argv[4]);
    for (int i = 5; i < argc; i++) {
        ragged |= strcmp (argv[i], "ragged") == 0;
        dtype = strcmp (argv[i], "f16") == 0 ? TRAIN_F16 : dtype;
        if (strncmp (argv[i], "runs=", 5) == 0)
            runs = number (argv[i] + 5) % 64;
        if (strncmp (argv[i], "group=", 6) == 0)
            words.group = number (argv[i] + 6);
        words.batch_invariant |= strcmp (argv[i], "invariant") == 0;
        if (strncmp (argv[i], "top_k=", 6) == 0)
            words.top_k = number (argv[i] + 6);
        if (strncmp (argv[i], "top_p=", 6) == 0)
            words.top_p = number (argv[i] + 6) / 100.0;
    }
    m = make (argv[1], dtype);
    l.want = room ((size_t)texts, sizeof (int));
    l.have = room ((size_t)texts, sizeof (int));
    for (int b = 0; b < texts; b++) {
        l.want[b] =
            ragged
                ? 32 + (int)((unsigned)b * 2654435761u % (unsigned)(new - 31))
                : new;
        kept += l.want[b];
    }
    once (m, texts, prompt, new, &l);
    for (int i = 0; i < runs; i++)
        seconds[i] = once (m, texts, prompt, new, &l);
    qsort (seconds, (size_t)runs, sizeof (*seconds), by_value);
    printf ("{\"op\":\"rollout\",\"preset\":\"%s\",\"texts\":%d,\"prompt\":%d,"
            "\"new\":%d,\"group\":%d,\"ragged\":%s,\"dtype\":\"%s\","
            "\"rollout_s\":%.4f,"
            "\"rollout_tok_s\":%.0f}\n",
            argv[1], texts, prompt, new, words.group, ragged ? "true" : "false",
            train_dtype_name (dtype), seconds[runs / 2],
            kept / seconds[runs / 2]);
    train_decoder_destroy (m);
    free (l.want);
    free (l.have);
    return 0;
}
