/* SPDX-License-Identifier: Apache-2.0
 * test_probe.c - the probe of peer copies on real GPUs, and a copier that asks
 * for it. Needs two GPUs; test_probe PROGRAM names rv-train. */
#include "config.h"

#include "tap.h"

#include <stdint.h>
#include <time.h>

#include "copy_impl.h"
#include "probe.h"

#if HAVE_CUDA

static int lines;

static void say (void *arg, const char *text)
{
    (void)arg;
    printf ("# %s\n", text);
    lines++;
}

static double now_s (void)
{
    return 1e-6 * (double)copy_now_us ();
}

static void pairs (int n)
{
    struct probe_pair *pair = calloc ((size_t)n * (size_t)n, sizeof (*pair));
    double begin = now_s ();
    train_error_t err = {0};
    bool good = true, fast = true;

    if (!pair
        || probe_pairs (&backend_cuda, n, &probe_default, pair, &err)
               != TRAIN_OK) {
        printf ("Bail out! %s\n", err.text);
        exit (1);
    }
    printf ("# %d GPUs in %.2f s\n", n, now_s () - begin);
    for (int i = 0; i < n * n; i++) {
        if (i / n == i % n)
            continue;
        printf ("# %d to %d: peer %.1f GB/s, by the host %.1f, both ways\n",
                i % n, i / n, pair[i].peer_gb_s, pair[i].staged_gb_s);
        good = good && pair[i].verdict == PROBE_GOOD;
        fast = fast && pair[i].peer_gb_s > pair[i].staged_gb_s;
    }
    tap_ok (good, "all pairs are good");
    tap_ok (fast, "and faster than by the host");
    free (pair);
}

/* The child leaves nothing on the GPUs, the second copier asks no child. */
static void copiers (int n, const char *program)
{
    char dir[] = "/tmp/rv-probe.XXXXXX";
    train_copier_options_t o = {
        .size = sizeof (o), .device = "cuda", .probe = program, .log = say};
    double first, second, begin;
    train_copier_t *c = NULL;
    train_error_t err = {0};
    bool trusts = true;

    if (!mkdtemp (dir)) {
        printf ("Bail out! no folder\n");
        exit (1);
    }
    setenv ("XDG_CACHE_HOME", dir, 1);
    begin = now_s ();
    if (train_copier_create (&o, &c, &err) != TRAIN_OK)
        printf ("# %s\n", err.text);
    first = now_s () - begin;
    for (int i = 0; c && i < n * n; i++)
        trusts = trusts && c->pair[i / n][i % n] == PAIR_NEW;
    tap_ok (c && trusts && lines == 0, "a copier trusts what its child found");
    train_copier_destroy (c);
    c = NULL;
    o.probe = "/nonexistent";
    begin = now_s ();
    tap_ok (train_copier_create (&o, &c, &err) == TRAIN_OK && lines == 0,
            "the next one reads it");
    second = now_s () - begin;
    printf ("# the first copier took %.2f s, the second %.2f s\n", first,
            second);
    train_copier_destroy (c);
}

int main (int argc, char **argv)
{
    train_error_t err = {0};
    int n = 0;

    if (backend_cuda.probe (&n, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    if (n < 2)
        tap_skip_all ("there is one GPU, and pairs need two");
    copiers (n, argc > 1 ? argv[1] : NULL);
    pairs (n);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
