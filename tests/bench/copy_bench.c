/* SPDX-License-Identifier: Apache-2.0
 * copy_bench.c - copies between two GPUs beside what the links give in the
 * same run; a line of JSON each, then how the aims stand */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy_impl.h"

#if HAVE_CUDA
#include <cuda_runtime.h>

#define N      ((size_t)256 << 20)
#define SMALL  1000
#define ROUNDS 9

static void must (cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf (stderr, "copy_bench: %s: %s\n", what, cudaGetErrorString (rc));
    exit (1);
}

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    fprintf (stderr, "copy_bench: %s\n", err->text);
    exit (1);
}

static char *a, *b, *pin, *pin2; /* on GPU 0, on GPU 1, pinned */
static cudaStream_t s0, s1;
static train_copier_t *copier;
static train_verify_t verify;
static train_tensor_t src, dst, small_src[SMALL], small_dst[SMALL];

static void sync_both (void)
{
    must (cudaSetDevice (0), "device");
    must (cudaDeviceSynchronize (), "work");
    must (cudaSetDevice (1), "device");
    must (cudaDeviceSynchronize (), "work");
}

static int by_time (const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;

    return (d > 0) - (d < 0);
}

/* Median of the rounds, in seconds; the first is not counted. */
static double median (void (*work) (void))
{
    double t[ROUNDS];

    work ();
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin;

        sync_both ();
        begin = copy_now_us ();
        work ();
        sync_both ();
        t[i] = (double)(copy_now_us () - begin) * 1e-6;
    }
    qsort (t, ROUNDS, sizeof (*t), by_time);
    return t[ROUNDS / 2];
}

static double row (const char *name, void (*work) (void), size_t bytes)
{
    double s = median (work);

    printf ("{\"op\":\"%s\",\"ms\":%.4f,\"gb_per_s\":%.2f}\n", name, s * 1e3,
            (double)bytes / s / 1e9);
    fflush (stdout);
    return s;
}

static void d2h (void)
{
    must (cudaMemcpyAsync (pin, a, N, cudaMemcpyDeviceToHost, s0), "d2h");
}

static void h2d (void)
{
    must (cudaMemcpyAsync (b, pin, N, cudaMemcpyHostToDevice, s1), "h2d");
}

static void both_ways (void)
{
    must (cudaMemcpyAsync (pin, a, N, cudaMemcpyDeviceToHost, s0), "d2h");
    must (cudaMemcpyAsync (b, pin2, N, cudaMemcpyHostToDevice, s1), "h2d");
}

static void unpipelined (void)
{
    d2h ();
    must (cudaStreamSynchronize (s0), "d2h");
    h2d ();
}

static void raw_peer (void)
{
    must (cudaMemcpyPeerAsync (b, 1, a, 0, N, s0), "peer");
}

static void ours (void)
{
    train_copy_options_t o = {.size = sizeof (o), .verify = verify};
    train_copy_report_t r;
    train_error_t err = {0};

    need (train_copy (copier, &dst.t, NULL, &src.t, NULL, &o, &r, &err), &err);
    if (r.mismatch)
        printf ("{\"note\":\"bytes were wrong at first\"}\n");
}

static void plain_loop (void)
{
    for (int i = 0; i < SMALL; i++)
        must (cudaMemcpyPeerAsync (b + i * 8192, 1, a + i * 8192, 0, 4096, s0),
              "peer");
}

static void our_batch (void)
{
    static DLTensor *d[SMALL];
    static const DLTensor *s[SMALL];
    train_copy_options_t o = {.size = sizeof (o), .verify = verify};
    train_copy_t *copy = NULL;
    train_error_t err = {0};

    for (int i = 0; i < SMALL; i++) {
        d[i] = &small_dst[i].t;
        s[i] = &small_src[i].t;
    }
    need (train_copy_batch_start (copier, d, NULL, s, NULL, SMALL, &o, &copy,
                                  &err),
          &err);
    need (train_copy_wait (copy, -1, NULL, &err), &err);
}

static void view (train_tensor_t *t, char *data, size_t bytes, int device)
{
    int64_t n = (int64_t)bytes;

    train_tensor_view (t, data, TRAIN_U8, 1, &n, NULL);
    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = device;
}

static void new_copier (const char *transfer)
{
    train_copier_options_t o = {
        .size = sizeof (o), .device = "cuda", .transfer = transfer};
    train_error_t err = {0};

    train_copier_destroy (copier);
    copier = NULL;
    need (train_copier_create (&o, &copier, &err), &err);
}

static void set_up (void)
{
    must (cudaSetDevice (0), "device");
    must (cudaMalloc ((void **)&a, N), "memory");
    must (cudaStreamCreateWithFlags (&s0, cudaStreamNonBlocking), "stream");
    must (cudaMallocHost ((void **)&pin, N), "pinned memory");
    must (cudaMallocHost ((void **)&pin2, N), "pinned memory");
    for (size_t i = 0; i < N; i += 4) {
        unsigned x = (unsigned)i * 2654435761u;

        memcpy (pin + i, &x, 4);
    }
    must (cudaMemcpy (a, pin, N, cudaMemcpyHostToDevice), "copy");
    must (cudaSetDevice (1), "device");
    must (cudaMalloc ((void **)&b, N), "memory");
    must (cudaStreamCreateWithFlags (&s1, cudaStreamNonBlocking), "stream");
    view (&src, a, N, 0);
    view (&dst, b, N, 1);
    for (int i = 0; i < SMALL; i++) {
        view (&small_src[i], a + i * 8192, 4096, 0);
        view (&small_dst[i], b + i * 8192, 4096, 1);
    }
}

static void aim (const char *what, double ratio, double least)
{
    printf ("%s %s: %.3f, at least %.2f\n", ratio >= least ? "met " : "MISSED",
            what, ratio, least);
}

int main (void)
{
    double ceiling, plain, staged, raw, peer, loop, batch;
    struct cudaDeviceProp p;
    int n = 0;

    if (cudaGetDeviceCount (&n) != cudaSuccess || n < 2) {
        printf ("copy_bench: needs 2 GPUs, found %d\n", n);
        return 77;
    }
    must (cudaGetDeviceProperties (&p, 0), "properties");
    printf ("{\"card\":\"%s\",\"copy_engines\":%d}\n", p.name,
            p.asyncEngineCount);
    set_up ();
    row ("d2h_pinned", d2h, N);
    row ("h2d_pinned", h2d, N);
    ceiling = row ("d2h_and_h2d_at_once", both_ways, N);
    plain = row ("staged_pinned_unpipelined", unpipelined, N);
    new_copier ("staged");
    verify = TRAIN_VERIFY_OFF;
    row ("ours_staged_off", ours, N);
    verify = TRAIN_VERIFY_FULL;
    staged = row ("ours_staged_full", ours, N);
    row ("ours_batch_staged_full", our_batch, SMALL * 4096);
    new_copier ("auto");
    verify = TRAIN_VERIFY_OFF;
    row ("ours_peer_off", ours, N); /* opens the pair */
    raw = row ("raw_peer", raw_peer, N);
    verify = TRAIN_VERIFY_FULL;
    peer = row ("ours_peer_full", ours, N);
    loop = row ("peer_loop_1000_x_4KiB", plain_loop, SMALL * 4096);
    batch = row ("ours_batch_peer_full", our_batch, SMALL * 4096);
    aim ("staged beside the both-ways ceiling", ceiling / staged, 0.9);
    aim ("staged beside the unpipelined copy", plain / staged, 1.6);
    aim ("peer beside raw peer", raw / peer, 0.9);
    printf ("batch beside a C loop of peer copies: %.1f times (the aim, 30 "
            "times, is PyTorch's loop)\n",
            loop / batch);
    train_copier_destroy (copier);
    return 0;
}

#else

int main (void)
{
    printf ("copy_bench: built without CUDA\n");
    return 77;
}

#endif
