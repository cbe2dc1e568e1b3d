/* SPDX-License-Identifier: Apache-2.0
 * copy_bench.c - copies between two GPUs beside what the links give in the
 * same run; a line of JSON each, then how the aims stand. `copy_bench beside`:
 * peer copies beside work on the receiver */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy_impl.h"

#if HAVE_CUDA
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "beside.h"

#define N      ((size_t)256 << 20)
#define SMALL  1000
#define ROUNDS 9
#define POWER  ((size_t)1 << 27) /* floats, as in the anchor */
#define MATRIX 8192

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
static double median (void (*fn) (void))
{
    double t[ROUNDS];

    fn ();
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin;

        sync_both ();
        begin = copy_now_us ();
        fn ();
        sync_both ();
        t[i] = (double)(copy_now_us () - begin) * 1e-6;
    }
    qsort (t, ROUNDS, sizeof (*t), by_time);
    return t[ROUNDS / 2];
}

static double row (const char *name, void (*fn) (void), size_t bytes)
{
    double s = median (fn);

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
    train_copier_options_t o = {.size = sizeof (o),
                                .device = "cuda",
                                .transfer = transfer,
                                .probe = ""};
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

/* Work on GPU 1, on a stream of its own: the anchor's kernels, or a matrix
 * product of cuBLAS, if that is there. */
static cudaStream_t s2;
static float *power_x, *power_a, *power_b;
static char *matrix[3];
static void *blas;
static int (*gemm) (void *, int, int, int, int, int, const void *, const void *,
                    int, int, const void *, int, int, const void *, void *, int,
                    int, int, int);

static void power (void)
{
    must (cudaSetDevice (1), "device");
    beside_power (power_a, power_b, power_x, POWER, s2);
}

static void product (void)
{
    enum { BF16 = 14, F32 = 68, ANY = -1 }; /* cuBLAS's numbers */
    const float one = 1, zero = 0;

    must (cudaSetDevice (1), "device");
    if (gemm (blas, 0, 0, MATRIX, MATRIX, MATRIX, &one, matrix[0], BF16, MATRIX,
              matrix[1], BF16, MATRIX, &zero, matrix[2], BF16, MATRIX, F32, ANY)
        != 0)
        must (cudaErrorUnknown, "matrix product");
}

static bool find_product (void)
{
    void *lib = dlopen ("libcublas.so.13", RTLD_NOW);
    int (*create) (void **), (*set_stream) (void *, cudaStream_t);
    void *at[3];

    if (!lib)
        lib = dlopen ("libcublas.so.12", RTLD_NOW);
    if (!lib)
        return false;
    at[0] = dlsym (lib, "cublasCreate_v2");
    at[1] = dlsym (lib, "cublasSetStream_v2");
    at[2] = dlsym (lib, "cublasGemmEx");
    memcpy (&create, &at[0], sizeof (create));
    memcpy (&set_stream, &at[1], sizeof (set_stream));
    memcpy (&gemm, &at[2], sizeof (gemm));
    if (!at[0] || !at[1] || !at[2] || create (&blas) || set_stream (blas, s2))
        return false;
    for (int i = 0; i < 3; i++) {
        must (cudaMalloc ((void **)&matrix[i], (size_t)MATRIX * MATRIX * 2),
              "memory");
        must (cudaMemset (matrix[i], 0x3c, (size_t)MATRIX * MATRIX * 2),
              "memory");
    }
    return true;
}

static void (*work) (void);

static void ours_and_work (void)
{
    train_copy_options_t o = {.size = sizeof (o), .verify = verify};
    train_copy_t *copy = NULL;
    train_error_t err = {0};

    need (
        train_copy_start (copier, &dst.t, NULL, &src.t, NULL, &o, &copy, &err),
        &err);
    work ();
    need (train_copy_wait (copy, -1, NULL, &err), &err);
}

static void set_up_work (void)
{
    must (cudaSetDevice (1), "device");
    must (cudaStreamCreateWithFlags (&s2, cudaStreamNonBlocking), "stream");
    must (cudaMalloc ((void **)&power_x, POWER * 4), "memory");
    must (cudaMalloc ((void **)&power_a, POWER * 4), "memory");
    must (cudaMalloc ((void **)&power_b, POWER * 4), "memory");
    must (cudaMemset (power_x, 0, POWER * 4), "memory");
}

static double once (void (*fn) (void))
{
    int64_t begin;

    sync_both ();
    begin = copy_now_us ();
    fn ();
    sync_both ();
    return (double)(copy_now_us () - begin) * 1e-6;
}

/* How much longer both take than the longer one. In turns, since a card's
 * clock goes up and down with its work. */
static double longer_by (void (*fn) (void), train_verify_t v, double *ret_alone,
                         double *ret_copy, double *ret_both)
{
    enum { TURNS = 25 };
    double alone[TURNS], copy[TURNS], both[TURNS], longer;

    verify = v;
    work = fn;
    for (int i = -3; i < TURNS; i++) {
        int at = i < 0 ? 0 : i;

        alone[at] = once (fn);
        copy[at] = once (ours);
        both[at] = once (ours_and_work);
    }
    qsort (alone, TURNS, sizeof (*alone), by_time);
    qsort (copy, TURNS, sizeof (*copy), by_time);
    qsort (both, TURNS, sizeof (*both), by_time);
    *ret_alone = alone[TURNS / 2];
    *ret_copy = copy[TURNS / 2];
    *ret_both = both[TURNS / 2];
    longer = *ret_alone > *ret_copy ? *ret_alone : *ret_copy;
    return *ret_both / longer - 1;
}

static void beside_one (const char *name, void (*fn) (void), train_verify_t v,
                        double most)
{
    const char *how = v == TRAIN_VERIFY_OFF ? "unverified" : "verified";
    double alone, copy, both, by = longer_by (fn, v, &alone, &copy, &both);

    printf ("{\"beside\":\"%s\",\"copy\":\"%s\",\"work_ms\":%.4f,"
            "\"copy_ms\":%.4f,\"both_ms\":%.4f}\n",
            name, how, alone * 1e3, copy * 1e3, both * 1e3);
    printf ("%s %s, %s: both take %.1f %% longer than the longer one, at most "
            "%.0f %%\n",
            by <= most ? "met " : "MISSED", name, how, 100 * by, 100 * most);
    fflush (stdout);
}

static void beside (bool with_product)
{
    if (with_product) {
        beside_one ("matrix product", product, TRAIN_VERIFY_OFF, 0.05);
        beside_one ("matrix product", product, TRAIN_VERIFY_FULL, 0.05);
    }
    beside_one ("x^4, memory-bound", power, TRAIN_VERIFY_OFF, 0.10);
    beside_one ("x^4, memory-bound", power, TRAIN_VERIFY_FULL, 0.15);
}

static int beside_all (void)
{
    bool found;

    set_up_work ();
    found = find_product ();
    if (!found)
        printf ("no libcublas.so.13 or .12: no matrix product\n");
    new_copier ("auto");
    beside (found);
    train_copier_destroy (copier);
    return found ? 0 : 1;
}

int main (int argc, char **argv)
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
    if (argc > 1 && strcmp (argv[1], "beside") == 0)
        return beside_all ();
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
