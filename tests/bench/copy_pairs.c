/* SPDX-License-Identifier: Apache-2.0
 * copy_pairs.c - verified copies of 256 MiB between all GPUs of this process:
 * each ordered pair alone, then every GPU to the next one at once, as peer
 * copies and staged, beside cudaMemcpyPeerAsync; a line of JSON each
 *
 * A copier does one copy at a time, so each pair has one of its own. Status 77
 * where there are not two GPUs. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/copy.h>

#if HAVE_CUDA
#include <cuda_runtime.h>

#include "copy_impl.h"

#define N      ((size_t)256 << 20)
#define MOST   64
#define ROUNDS 9

static struct {
    int n;
    char *from[MOST], *to[MOST]; /* of each GPU */
    cudaStream_t stream[MOST];
    train_copier_t *copier[MOST]; /* each for what leaves a GPU */
} g;

static void must (cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf (stderr, "copy_pairs: %s: %s\n", what, cudaGetErrorString (rc));
    exit (1);
}

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "copy_pairs: %s\n", err->text);
    exit (1);
}

static void set_up (int i)
{
    must (cudaSetDevice (i), "device");
    must (cudaMalloc ((void **)&g.from[i], N), "memory");
    must (cudaMalloc ((void **)&g.to[i], N), "memory");
    must (cudaMemset (g.from[i], 0x11 + i, N), "memory");
    must (cudaMemset (g.to[i], 0, N), "memory");
    must (cudaStreamCreateWithFlags (&g.stream[i], cudaStreamNonBlocking),
          "stream");
    must (cudaDeviceSynchronize (), "memory");
}

static void copiers (const char *transfer)
{
    const train_copier_options_t o = {.size = sizeof (o),
                                      .device = "cuda",
                                      .transfer = transfer,
                                      .probe = ""};
    train_error_t err = {0};

    for (int i = 0; i < g.n; i++) {
        train_copier_destroy (g.copier[i]);
        g.copier[i] = NULL;
        need (train_copier_create (&o, &g.copier[i], &err), &err);
    }
}

static train_copy_t *start (int src, int dst)
{
    const train_copy_options_t o = {.size = sizeof (o),
                                    .verify = TRAIN_VERIFY_FULL};
    const int64_t n = (int64_t)N;
    train_tensor_t from, to;
    train_copy_t *copy = NULL;
    train_error_t err = {0};

    train_tensor_view (&from, g.from[src], TRAIN_U8, 1, &n, NULL);
    train_tensor_view (&to, g.to[dst], TRAIN_U8, 1, &n, NULL);
    from.t.device = (DLDevice){kDLCUDA, src};
    to.t.device = (DLDevice){kDLCUDA, dst};
    need (train_copy_start (g.copier[src], &to.t, NULL, &from.t, NULL, &o,
                            &copy, &err),
          &err);
    return copy;
}

static void finish (train_copy_t *copy)
{
    train_copy_report_t r;
    train_error_t err = {0};

    need (train_copy_wait (copy, -1, &r, &err), &err);
    if (r.mismatch)
        printf (
            "{\"op\": \"note\", \"text\": \"bytes were wrong at first\"}\n");
}

static void raw_start (int src, int dst)
{
    must (cudaSetDevice (src), "device");
    must (cudaMemcpyPeerAsync (g.to[dst], dst, g.from[src], src, N,
                               g.stream[src]),
          "peer copy");
}

static void raw_finish (int src)
{
    must (cudaStreamSynchronize (g.stream[src]), "peer copy");
}

static int by_value (const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;

    return (d > 0) - (d < 0);
}

/* Milliseconds from [first] to [first + count - 1], each to the GPU [step]
 * behind it, all at once: the median. */
static double copies (int first, int count, int step, bool raw)
{
    train_copy_t *copy[MOST];
    double ms[ROUNDS];

    for (int round = -2; round < ROUNDS; round++) {
        int64_t begin = copy_now_us ();

        for (int i = first; i < first + count; i++) {
            if (raw)
                raw_start (i, (i + step) % g.n);
            else
                copy[i] = start (i, (i + step) % g.n);
        }
        for (int i = first; i < first + count; i++) {
            if (raw)
                raw_finish (i);
            else
                finish (copy[i]);
        }
        if (round >= 0)
            ms[round] = (double)(copy_now_us () - begin) * 1e-3;
    }
    qsort (ms, ROUNDS, sizeof (*ms), by_value);
    return ms[ROUNDS / 2];
}

static void pairs (void)
{
    for (int src = 0; src < g.n; src++) {
        for (int step = 1; step < g.n; step++) {
            double ms = copies (src, 1, step, false);
            double raw = copies (src, 1, step, true);

            printf ("{\"op\": \"copy_pair\", \"from\": %d, \"to\": %d, "
                    "\"ms\": %.3f, \"raw_ms\": %.3f, \"gb_s\": %.1f}\n",
                    src, (src + step) % g.n, ms, raw, (double)N / ms * 1e-6);
        }
    }
    fflush (stdout);
}

static void at_once (const char *way, bool raw)
{
    double one = copies (0, 1, 1, raw), all = copies (0, g.n, 1, raw);

    printf ("{\"op\": \"copies_at_once\", \"way\": \"%s\", \"world\": %d, "
            "\"one_ms\": %.3f, \"ms\": %.3f, \"gb_s\": %.1f}\n",
            way, g.n, one, all, (double)N * g.n / all * 1e-6);
    fflush (stdout);
}

int main (void)
{
    if (cudaGetDeviceCount (&g.n) != cudaSuccess || g.n < 2 || g.n > MOST) {
        printf ("copy_pairs: needs 2 GPUs to %d, found %d\n", MOST, g.n);
        return 77;
    }
    for (int i = 0; i < g.n; i++)
        set_up (i);
    copiers ("auto");
    pairs ();
    at_once ("peer", false);
    at_once ("raw peer", true);
    copiers ("staged");
    at_once ("staged", false);
    for (int i = 0; i < g.n; i++)
        train_copier_destroy (g.copier[i]);
    return 0;
}

#else

int main (void)
{
    printf ("copy_pairs: built without CUDA\n");
    return 77;
}

#endif
