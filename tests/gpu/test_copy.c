/* SPDX-License-Identifier: Apache-2.0
 * test_copy.c - copies on GPUs: the host's sums, bytes, order, devices; with
 * two GPUs also between them. `test_copy kernels` runs the kernels alone, for
 * compute-sanitizer, `test_copy brief` less of what the host is slow at. The
 * last line is the sum. */
#include "config.h"

#include "tap.h"

#include <stdint.h>
#include <unistd.h>

#include "copy_impl.h"
#include "kernels/view_elem.h"

#if HAVE_CUDA
#include <cuda_runtime.h>

static const struct backend_ops *const gpu = &backend_cuda;
static int n_gpus;

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

static void say (void *arg, const char *text)
{
    int *lines = arg;

    printf ("# %s\n", text);
    ++*lines;
}

static int said;
static bool brief; /* large tensors only where both ends are compact */

static train_copier_t *copier (const char *transfer)
{
    train_copier_options_t o = {.size = sizeof (o),
                                .device = "cuda",
                                .transfer = transfer,
                                .probe = "",
                                .log = say,
                                .log_arg = &said};
    train_copier_t *c = NULL;
    train_error_t err = {0};

    need (train_copier_create (&o, &c, &err), &err);
    return c;
}

static void *memory (int device, size_t bytes)
{
    train_error_t err = {0};
    void *p = NULL;

    need ((device < 0 ? &backend_host : gpu)
              ->alloc (device < 0 ? 0 : device, bytes, &p, &err),
          &err);
    return p;
}

static void to (void *dst, const void *src, size_t bytes)
{
    train_error_t err = {0};

    need (gpu->copy (dst, src, bytes, NULL, &err), &err);
    need (gpu->sync (NULL, &err), &err);
}

static void random_bytes (unsigned char *p, size_t n)
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

        x ^= x >> 29;
        x *= 0xbf58476d1ce4e5b9u;
        memcpy (p + i, &x, 8);
    }
}

/* One view on both: sum, packed bytes, NaN. */
static bool same_as_host (struct kern_view v, size_t bytes,
                          const unsigned char *x, uint64_t every)
{
    size_t wire = v.n * (size_t)v.wire_size;
    unsigned char *want = calloc (1, wire + 8), *got = calloc (1, wire + 8);
    char *dx = memory (0, bytes), *dw = memory (0, wire + 8);
    uint64_t *sums = memory (0, 24), zero[3] = {0}, hs[3] = {0}, ds[3];
    size_t offset = (size_t)((unsigned char *)v.data - x);
    bool good;

    to (dx, x, bytes);
    to (sums, zero, sizeof (zero));
    kern_view_sum_host (hs, &v, 0, (wire + 7) / 8, every, NULL);
    kern_view_pack_host (want, &v, 0, v.n, NULL);
    if (v.to != KERN_RAW)
        kern_view_nonfinite_host (hs + 1, &v, v.to, NULL);
    v.data = dx + offset;
    kern_view_sum_cuda (sums, &v, 0, (wire + 7) / 8, every, NULL);
    kern_view_pack_cuda (dw, &v, 0, v.n, NULL);
    if (v.to != KERN_RAW)
        kern_view_nonfinite_cuda (sums + 1, &v, v.to, NULL);
    to (ds, sums, sizeof (ds));
    to (got, dw, wire);
    good = memcmp (hs, ds, sizeof (hs)) == 0 && memcmp (want, got, wire) == 0;
    gpu->free (dx);
    gpu->free (dw);
    gpu->free (sums);
    free (want);
    free (got);
    return good;
}

/* A large sum, from places that are not aligned to 16 too. */
static void large (void)
{
    enum { N = 80 << 20 };
    unsigned char *x = memory (-1, N), *dx = memory (0, N);
    uint64_t *sum = memory (0, 8), host, zero = 0, got;
    bool good = true;

    random_bytes (x, N);
    to (dx, x, N);
    for (size_t at = 0; at < 32; at += 8) {
        struct kern_view v = {.data = x + at,
                              .compact = 1,
                              .in_size = 1,
                              .wire_size = 1,
                              .n = N - at - 3};

        host = 0;
        kern_view_sum_host (&host, &v, 0, (v.n + 7) / 8, 1, NULL);
        v.data = dx + at;
        to (sum, &zero, 8);
        kern_view_sum_cuda (sum, &v, 0, (v.n + 7) / 8, 1, NULL);
        to (&got, sum, 8);
        good = good && got == host;
    }
    tap_ok (good, "a sum of 80 MiB");
    gpu->free (dx);
    gpu->free (sum);
    backend_host.free (x);
}

static void kernels (void)
{
    enum { N = 1000003 };
    unsigned char *x = malloc (8 * N);
    bool sizes = true, turned = true, cast = true;

    random_bytes (x, 8 * N);
    for (size_t k = 0; k < 40; k++) {
        size_t n = k < 33 ? k : k == 33 ? 4099 : (size_t)N - k * 7;
        struct kern_view v = {.data = x + 16 + k % 3 * 8,
                              .compact = 1,
                              .in_size = 1,
                              .wire_size = 1,
                              .n = n};

        sizes = sizes && same_as_host (v, 8 * N, x, 1)
                && same_as_host (v, 8 * N, x, 16);
    }
    tap_ok (sizes, "sums of 0 to 1,000,003 bytes, whole and sampled");
    for (int size = 1; size <= 8; size *= 2) {
        struct kern_view v = {.data = x,
                              .ndim = 3,
                              .in_size = size,
                              .wire_size = size,
                              .n = 31 * 57 * 71,
                              .shape = {31, 57, 71},
                              .strides = {1, 31 * 71, 31}};

        turned = turned && same_as_host (v, 8 * N, x, 1);
    }
    tap_ok (turned, "turned views of every element size");
    for (int k = 0; k < 9; k++) {
        static const int width[] = {0, 4, 2, 2};
        int from = k % 3 + 1, into = k / 3 + 1;
        struct kern_view v = {.data = x,
                              .compact = 1,
                              .from = from,
                              .to = into,
                              .in_size = width[from],
                              .wire_size = width[into],
                              .n = N};

        cast = cast && same_as_host (v, 8 * N, x, 1);
    }
    tap_ok (cast, "casts of every pair of types, and their NaN and Inf");
    free (x);
}

static void view (train_tensor_t *t, void *data, train_dtype_t dtype,
                  int64_t rows, int64_t cols, int device)
{
    int64_t shape[] = {rows, cols};
    train_error_t err = {0};

    need (train_tensor_view (t, data, dtype, 2, shape, &err), &err);
    if (device >= 0) {
        t->t.device.device_type = kDLCUDA;
        t->t.device.device_id = device;
    }
}

/* [rows] x [cols] of 4 bytes, either end turned or not; read back and
 * compared with what the host does. */
static bool moves (train_copier_t *c, int from, bool turn_from, int into,
                   bool turn_into, int64_t rows, int64_t cols,
                   train_copy_path_t path)
{
    size_t bytes = (size_t)(rows * cols) * 4;
    unsigned char *x = memory (-1, bytes), *y = memory (-1, bytes);
    void *s = memory (from, bytes), *d = memory (into, bytes);
    train_copy_options_t o = {.size = sizeof (o), .verify = TRAIN_VERIFY_FULL};
    train_copy_report_t r;
    train_tensor_t ts, td;
    train_error_t err = {0};
    bool good = true;

    random_bytes (x, bytes);
    memset (y, 0xa5, bytes);
    to (s, x, bytes);
    to (d, y, bytes);
    view (&ts, s, TRAIN_I32, rows, cols, from);
    view (&td, d, TRAIN_I32, rows, cols, into);
    if (turn_from)
        ts.strides[0] = 1, ts.strides[1] = rows;
    if (turn_into)
        td.strides[0] = 1, td.strides[1] = rows;
    need (train_copy (c, &td.t, NULL, &ts.t, NULL, &o, &r, &err), &err);
    to (y, d, bytes);
    for (int64_t i = 0; i < rows * cols && good; i++) {
        int64_t row = i / cols, col = i % cols;
        int64_t a = turn_from ? col * rows + row : i;
        int64_t b = turn_into ? col * rows + row : i;

        good = memcmp (x + a * 4, y + b * 4, 4) == 0;
    }
    good = good && r.verified && !r.mismatch && r.path == path;
    (from < 0 ? &backend_host : gpu)->free (s);
    (into < 0 ? &backend_host : gpu)->free (d);
    backend_host.free (x);
    backend_host.free (y);
    return good;
}

static void ways (const char *transfer)
{
    train_copier_t *c = copier (transfer);
    int device = n_gpus > 1 ? 1 : 0, before = -1, after = -1;
    bool staged = strcmp (transfer, "staged") == 0;

    cudaSetDevice (n_gpus - 1);
    cudaGetDevice (&before);
    for (int from = -1; from <= device; from++) {
        for (int into = -1; into <= device; into++) {
            train_copy_path_t path = from == into ? TRAIN_PATH_LOCAL
                                     : from < 0 || into < 0 || staged
                                         ? TRAIN_PATH_STAGED
                                         : TRAIN_PATH_PEER;
            bool good = true;
            char name[96];

            for (int t = 0; t < 4; t++)
                good = good && moves (c, from, t & 1, into, t & 2, 1, 1, path)
                       && moves (c, from, t & 1, into, t & 2, 1021, 517, path)
                       && ((brief && t > 0)
                           || moves (c, from, t & 1, into, t & 2, 4099, 8191,
                                     path));
            snprintf (name, sizeof (name), "%s: device %d to %d (-1: host)",
                      transfer, from, into);
            tap_ok (good, name);
        }
    }
    cudaGetDevice (&after);
    tap_ok (before == after, "the caller's device stays");
    train_copier_destroy (c);
}

/* What the streams had before is waited for, what they get later waits: a
 * copy between a fill and a fill of the source sees the first alone. */
static void order (void)
{
    enum { N = 64 << 20 };
    train_copier_t *c = copier ("auto");
    int other = n_gpus > 1 ? 1 : 0;
    unsigned char *s = memory (0, N), *d = memory (other, N);
    unsigned char *e = memory (other, N), *h = malloc (N);
    train_tensor_t ts, td;
    train_copy_t *copy = NULL;
    train_error_t err = {0};
    void *ss = NULL, *ds = NULL;
    bool good = true;

    need (gpu->stream_create (0, &ss, &err), &err);
    need (gpu->stream_create (other, &ds, &err), &err);
    view (&ts, s, TRAIN_U8, 1, N, 0);
    view (&td, d, TRAIN_U8, 1, N, other);
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < 20; i++) /* work that takes a while */
            gpu->fill (0, s, i, N, ss, &err);
        gpu->fill (0, s, 40 + k, N, ss, &err);
        need (train_copy_start (c, &td.t, ds, &ts.t, ss, NULL, &copy, &err),
              &err);
        gpu->fill (0, s, 99, N, ss, &err);
        cudaMemcpyAsync (e, d, N, cudaMemcpyDeviceToDevice, ds);
        need (train_copy_wait (copy, 60000, NULL, &err), &err);
        need (gpu->sync (ds, &err), &err);
        to (h, e, N);
        for (size_t i = 0; i < N && good; i += 4096)
            good = h[i] == 40 + k;
    }
    tap_ok (good, "streams: after what was before, before what comes after");
    gpu->stream_destroy (ss);
    gpu->stream_destroy (ds);
    gpu->free (s);
    gpu->free (d);
    gpu->free (e);
    free (h);
    train_copier_destroy (c);
}

static void batch (int from, int into, const char *transfer)
{
    enum { N = 1000, BYTES = 4100 };
    static train_tensor_t dst[N], src[N];
    DLTensor *d[N];
    const DLTensor *s[N];
    train_copier_t *c = copier (transfer);
    unsigned char *x = memory (-1, N * BYTES), *y = memory (-1, N * BYTES);
    unsigned char *a = memory (from, N * BYTES), *b = memory (into, N * BYTES);
    train_copy_options_t o = {.size = sizeof (o), .verify = TRAIN_VERIFY_FULL};
    train_copy_t *copy = NULL;
    train_copy_report_t r;
    train_error_t err = {0};
    char name[96];

    random_bytes (x, N * BYTES);
    to (a, x, N * BYTES);
    for (int i = 0; i < N; i++) { /* every second one is not aligned to 8 */
        view (&src[i], a + (size_t)i * BYTES, TRAIN_U8, 1, BYTES, from);
        view (&dst[i], b + (size_t)i * BYTES, TRAIN_U8, 1, BYTES, into);
        d[i] = &dst[i].t;
        s[i] = &src[i].t;
    }
    need (train_copy_batch_start (c, d, NULL, s, NULL, N, &o, &copy, &err),
          &err);
    need (train_copy_wait (copy, 60000, &r, &err), &err);
    to (y, b, N * BYTES);
    snprintf (name, sizeof (name), "1,000 tensors, %d to %d, %s", from, into,
              transfer);
    tap_ok (memcmp (x, y, N * BYTES) == 0 && r.verified && !r.mismatch, name);
    (from < 0 ? &backend_host : gpu)->free (a);
    (into < 0 ? &backend_host : gpu)->free (b);
    backend_host.free (x);
    backend_host.free (y);
    train_copier_destroy (c);
}

static void errors (void)
{
    train_copier_t *c = copier ("auto");
    char h[64];
    void *p = memory (0, 64);
    train_tensor_t s, d;
    train_error_t err = {0};

    view (&d, p, TRAIN_U8, 1, 64, 0);
    view (&s, h, TRAIN_U8, 1, 64, 0);
    tap_ok (train_copy (c, &d.t, NULL, &s.t, NULL, NULL, NULL, &err)
                    == TRAIN_EINVAL
                && strstr (err.text, "lies on the host"),
            "host memory that claims to be a GPU's is refused");
    gpu->free (p);
    train_copier_destroy (c);
}

static void pinned (train_tensor_t *t, void *data, size_t bytes)
{
    view (t, data, TRAIN_U8, 1, (int64_t)bytes, -1);
    t->t.device.device_type = kDLCUDAHost;
}

/* pytorch/pytorch#127612: the source is written while it is read. What arrives
 * is verified: the bytes before or after, and never both in turns of a sum. */
static void source_written (void)
{
    enum { N = 64 << 20 };
    train_copier_t *c = copier ("auto");
    unsigned char *d = memory (0, N), *h, *x = malloc (N);
    train_tensor_t ts, td;
    train_copy_t *copy = NULL;
    train_copy_report_t r;
    train_error_t err = {0};
    bool good = true;
    int met = 0, before = said;

    need (gpu->pin (0, N, (void **)&h, &err), &err);
    memset (h, 1, N);
    pinned (&ts, h, N);
    view (&td, d, TRAIN_U8, 1, N, 0);
    for (int k = 0; k < 10 && good; k++) {
        h[N - 1] = 1;
        need (train_copy_start (c, &td.t, NULL, &ts.t, NULL, NULL, &copy, &err),
              &err);
        (void)usleep ((unsigned)k * 150); /* of a copy of 1.2 ms */
        h[N - 1] = 2;
        need (train_copy_wait (copy, 60000, &r, &err), &err);
        met += r.mismatch;
        to (x, d, N);
        good = r.verified && (x[N - 1] == 1 || x[N - 1] == 2)
               && memcmp (x, h, N - 1) == 0;
    }
    printf ("# a written source was noticed in %d of 10 copies\n", met);
    said = before; /* those lines are asked for */
    tap_ok (good, "a source that is written: verified bytes of one moment");
    gpu->unpin (h, N);
    gpu->free (d);
    free (x);
    train_copier_destroy (c);
}

/* pytorch/pytorch#130785: what copies use is freed before they end: here the
 * copier with its ring and streams, right after the start of ten copies. */
static void freed_early (void)
{
    enum { N = 40 << 20, COPIES = 10 };
    train_copier_t *c = copier ("auto");
    unsigned char *h = memory (-1, N), *x = malloc (N), *d[COPIES];
    train_copy_t *copy = NULL;
    train_tensor_t ts, td;
    train_error_t err = {0};
    bool good = true;

    random_bytes (h, N);
    view (&ts, h, TRAIN_U8, 1, N, -1);
    for (int i = 0; i < COPIES; i++) {
        d[i] = memory (n_gpus > 1 ? i % 2 : 0, N);
        view (&td, d[i], TRAIN_U8, 1, N, n_gpus > 1 ? i % 2 : 0);
        need (train_copy_start (c, &td.t, NULL, &ts.t, NULL, NULL, &copy, &err),
              &err);
    }
    train_copier_destroy (c);
    for (int i = 0; i < COPIES; i++) {
        to (x, d[i], N);
        good = good && memcmp (x, h, N) == 0;
        gpu->free (d[i]);
    }
    tap_ok (good, "a copier that is destroyed ends its copies first");
    backend_host.free (h);
    free (x);
}

/* pytorch/pytorch#86264: host memory is read before the copy to it is done.
 * The wait alone says so, however busy the GPU was before. */
static void read_early (void)
{
    enum { N = 64 << 20 };
    train_copier_t *c = copier ("auto");
    unsigned char *s = memory (0, N), *h;
    train_tensor_t ts, td;
    train_copy_t *copy = NULL;
    train_error_t err = {0};
    void *stream = NULL;
    bool good = true, pending = false;

    need (gpu->pin (0, N, (void **)&h, &err), &err);
    need (gpu->stream_create (0, &stream, &err), &err);
    view (&ts, s, TRAIN_U8, 1, N, 0);
    for (int k = 0; k < 6; k++) {
        pinned (&td, h, N);
        if (k % 2)
            view (&td, h, TRAIN_U8, 1, N, -1);
        memset (h, 0xa5, N);
        for (int i = 0; i < 100; i++)
            gpu->fill (0, s, 7, N, stream, &err);
        gpu->fill (0, s, 40 + k, N, stream, &err);
        need (
            train_copy_start (c, &td.t, NULL, &ts.t, stream, NULL, &copy, &err),
            &err);
        pending =
            pending || train_copy_wait (copy, 0, NULL, NULL) == TRAIN_ETIMEDOUT;
        need (train_copy_wait (copy, 60000, NULL, &err), &err);
        for (size_t i = 0; i < N && good; i++)
            good = h[i] == 40 + k;
    }
    tap_ok (good && pending, "host memory is whole after the wait");
    gpu->stream_destroy (stream);
    gpu->unpin (h, N);
    gpu->free (s);
    train_copier_destroy (c);
}

int main (int argc, char **argv)
{
    train_error_t err = {0};

    if (gpu->probe (&n_gpus, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    kernels ();
    large ();
    if (argc > 1 && strcmp (argv[1], "kernels") == 0)
        return tap_end ();
    brief = argc > 1 && strcmp (argv[1], "brief") == 0;
    ways ("auto");
    if (n_gpus > 1)
        ways ("staged");
    order ();
    batch (-1, 0, "auto");
    batch (0, -1, "auto");
    batch (0, 0, "auto");
    if (n_gpus > 1) {
        batch (0, 1, "auto");
        batch (1, 0, "staged");
    }
    errors ();
    source_written ();
    freed_early ();
    read_early ();
    tap_ok (said == 0, "no copy was wrong");
    printf ("# %d GPUs: %d of %d good\n", n_gpus, tap_count - tap_failed,
            tap_count);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
