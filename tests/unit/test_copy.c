/* SPDX-License-Identifier: Apache-2.0
 * test_copy.c - what copies refuse; layouts, types, order, lifetimes; nothing
 * is allocated for a copy */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend_fault.h"
#include "copy_impl.h"
#include "kernels/half.h"

static int allocations;

void *__real_malloc (size_t n);
void *__real_calloc (size_t n, size_t size);
void *__real_realloc (void *p, size_t n);
void *__real_aligned_alloc (size_t alignment, size_t n);

void *__wrap_malloc (size_t n)
{
    __atomic_add_fetch (&allocations, 1, __ATOMIC_RELAXED);
    return __real_malloc (n);
}

void *__wrap_calloc (size_t n, size_t size)
{
    __atomic_add_fetch (&allocations, 1, __ATOMIC_RELAXED);
    return __real_calloc (n, size);
}

void *__wrap_realloc (void *p, size_t n)
{
    __atomic_add_fetch (&allocations, 1, __ATOMIC_RELAXED);
    return __real_realloc (p, n);
}

void *__wrap_aligned_alloc (size_t alignment, size_t n)
{
    __atomic_add_fetch (&allocations, 1, __ATOMIC_RELAXED);
    return __real_aligned_alloc (alignment, n);
}

#define ROWS 300
#define COLS 257

static train_copier_t *copier;

static int set_up (void **state)
{
    train_copier_options_t o = {.probe = "",
                                .size = sizeof (o),
                                .ring_bytes = 64 << 10,
                                .chunk_bytes = 16 << 10};

    (void)state;
    fault_set (FAULT_NONE);
    return copier_create_with (&backend_fault, &o, &copier, NULL);
}

static int tear_down (void **state)
{
    (void)state;
    train_copier_destroy (copier);
    return 0;
}

/* device -1: host */
static void view (train_tensor_t *t, void *data, train_dtype_t dtype,
                  int64_t rows, int64_t cols, int device)
{
    int64_t shape[] = {rows, cols};

    assert_int_equal (train_tensor_view (t, data, dtype, 2, shape, NULL),
                      TRAIN_OK);
    if (device >= 0) {
        t->t.device.device_type = kDLCUDA;
        t->t.device.device_id = device;
    }
}

static void *memory (int device, size_t bytes)
{
    void *p = NULL;

    if (device < 0)
        assert_int_equal (backend_host.alloc (0, bytes, &p, NULL), TRAIN_OK);
    else
        assert_int_equal (backend_fault.alloc (device, bytes, &p, NULL),
                          TRAIN_OK);
    return p;
}

static void drop (int device, void *p)
{
    if (device < 0)
        backend_host.free (p);
    else
        backend_fault.free (p);
}

static void refuse (DLTensor *dst, const DLTensor *src, train_status_t code,
                    const char *word)
{
    train_error_t err = {0};
    train_copy_t *none = NULL;

    assert_int_equal (
        train_copy (copier, dst, NULL, src, NULL, NULL, NULL, &err), code);
    if (!strstr (err.text, word))
        fail_msg ("'%s' is not in '%s'", word, err.text);
    assert_int_equal (
        train_copy_start (copier, dst, NULL, src, NULL, NULL, &none, NULL),
        code);
    assert_null (none);
}

static void test_bad_tensors (void **state)
{
    float x[8], y[8];
    train_tensor_t a, b;

    (void)state;
    view (&a, x, TRAIN_F32, 2, 4, -1);
    view (&b, y, TRAIN_F32, 2, 4, -1);
    refuse (NULL, &b.t, TRAIN_EINVAL, "destination");
    refuse (&a.t, NULL, TRAIN_EINVAL, "source");
    b.shape[0] = 1;
    refuse (&a.t, &b.t, TRAIN_EINVAL, "shapes differ");
    b.shape[0] = -2;
    refuse (&a.t, &b.t, TRAIN_EINVAL, "dimension 0 of the source");
    b.shape[0] = 2;
    b.t.dtype = train_dtype_dlpack (TRAIN_I32);
    refuse (&a.t, &b.t, TRAIN_EINVAL, "I32 cannot become F32");
    b.t.dtype.bits = 4;
    refuse (&a.t, &b.t, TRAIN_ENOTSUP, "bits 4");
    b.t.dtype = train_dtype_dlpack (TRAIN_F32);
    b.t.data = NULL;
    refuse (&a.t, &b.t, TRAIN_EINVAL, "no data");
    b.t.data = x + 1;
    refuse (&a.t, &b.t, TRAIN_EINVAL, "overlap");
    b.t.data = y;
    a.strides[0] = 0;
    refuse (&a.t, &b.t, TRAIN_EINVAL, "stride 0");
}

static void test_bad_devices (void **state)
{
    float x[8], y[8];
    train_tensor_t a, b;
    train_error_t err = {0};
    train_copy_options_t o = {.size = 3};

    (void)state;
    view (&a, x, TRAIN_F32, 2, 4, -1);
    view (&b, y, TRAIN_F32, 2, 4, -1);
    b.t.device.device_type = kDLCUDA;
    b.t.device.device_id = FAULT_GPUS;
    refuse (&a.t, &b.t, TRAIN_EINVAL, "GPU 3; the copier has 3");
    b.t.device.device_id = 0;
    refuse (&a.t, &b.t, TRAIN_EINVAL, "says GPU 0, but lies on the host");
    b.t.device.device_type = kDLOpenCL;
    refuse (&a.t, &b.t, TRAIN_ENOTSUP, "DLPack type 4");
    b.t.device.device_type = kDLCPU;
    assert_int_equal (
        train_copy (copier, &a.t, (void *)1, &b.t, NULL, NULL, NULL, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "stream"));
    assert_int_equal (
        train_copy (copier, &a.t, NULL, &b.t, NULL, &o, NULL, NULL),
        TRAIN_EINVAL);
    o.size = sizeof (o);
    o.verify = (train_verify_t)9;
    assert_int_equal (
        train_copy (copier, &a.t, NULL, &b.t, NULL, &o, NULL, NULL),
        TRAIN_EINVAL);
    assert_int_equal (
        train_copy (NULL, &a.t, NULL, &b.t, NULL, NULL, NULL, NULL),
        TRAIN_EINVAL);
    assert_int_equal (train_copy_wait (NULL, 0, NULL, NULL), TRAIN_EINVAL);
}

static void test_bad_options (void **state)
{
    train_copier_options_t o = {.size = 1};
    train_copier_t *none = NULL;

    (void)state;
    assert_int_equal (train_copier_create (&o, &none, NULL), TRAIN_EINVAL);
    o.size = sizeof (o);
    o.device = "tpu";
    assert_int_equal (train_copier_create (&o, &none, NULL), TRAIN_EINVAL);
    o.device = "host";
    o.chunk_bytes = 1000;
    assert_int_equal (train_copier_create (&o, &none, NULL), TRAIN_EINVAL);
    o.chunk_bytes = 1 << 20;
    o.ring_bytes = 1 << 20;
    assert_int_equal (train_copier_create (&o, &none, NULL), TRAIN_EINVAL);
    o.ring_bytes = 0;
    o.trace = "/nonexistent/trace.json";
    assert_int_equal (train_copier_create (&o, &none, NULL), TRAIN_EIO);
    assert_null (none);
    train_copier_destroy (NULL);
}

/* How an end lies in memory: row-major, transposed, every other column. */
enum lay { COMPACT, TURNED, SPACED, BACKWARD, LAYS };

static void lay_out (train_tensor_t *t, enum lay lay, size_t size)
{
    if (lay == TURNED) {
        t->strides[0] = 1;
        t->strides[1] = ROWS;
    } else if (lay == SPACED) {
        t->strides[0] = COLS * 2;
        t->strides[1] = 2;
    } else if (lay == BACKWARD) {
        t->strides[0] = -COLS;
        t->t.data = (char *)t->t.data + (ROWS - 1) * COLS * size;
    }
}

static float *at (train_tensor_t *t, int64_t r, int64_t c)
{
    return (float *)t->t.data + r * t->strides[0] + c * t->strides[1];
}

static void check_layout (int from, enum lay a, int to, enum lay b,
                          train_verify_t verify)
{
    size_t bytes = (size_t)ROWS * COLS * 2 * sizeof (float);
    float *x = memory (from, bytes), *y = memory (to, bytes);
    train_copy_options_t o = {.size = sizeof (o), .verify = verify};
    train_tensor_t s, d;
    train_copy_report_t report;
    train_error_t err = {0};

    for (size_t i = 0; i < bytes / 4; i++) {
        x[i] = (float)i;
        y[i] = -1;
    }
    view (&s, x, TRAIN_F32, ROWS, COLS, from);
    view (&d, y, TRAIN_F32, ROWS, COLS, to);
    lay_out (&s, a, 4);
    lay_out (&d, b, 4);
    if (train_copy (copier, &d.t, NULL, &s.t, NULL, &o, &report, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_int_equal (report.bytes, ROWS * COLS * 4);
    assert_int_equal (report.verified, verify == TRAIN_VERIFY_FULL);
    for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t c = 0; c < COLS; c++)
            if (*at (&s, r, c) != *at (&d, r, c))
                fail_msg ("%d/%d to %d/%d: row %d column %d", from, a, to, b,
                          (int)r, (int)c);
    }
    if (b == SPACED) /* what lies between is not touched */
        assert_true (y[1] == -1 && y[3] == -1);
    drop (from, x);
    drop (to, y);
}

static void test_layouts (void **state)
{
    static const int devices[] = {-1, 0, 1};

    (void)state;
    for (int i = 0; i < 9 * LAYS * LAYS; i++) {
        int from = devices[i % 3], to = devices[i / 3 % 3];
        int a = i / 9 % LAYS, b = i / 9 / LAYS;

        check_layout (from, (enum lay)a, to, (enum lay)b, TRAIN_VERIFY_FULL);
        check_layout (from, (enum lay)a, to, (enum lay)b, TRAIN_VERIFY_OFF);
    }
}

/* Every pair of types, on every way: the bits of the cast itself. */
static void test_types (void **state)
{
    static const train_dtype_t types[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};
    enum { N = 20011 };

    (void)state;
    for (int i = 0; i < 81; i++) {
        train_dtype_t a = types[i % 3], b = types[i / 3 % 3];
        int from = i / 9 % 3 - 1, to = i / 27 - 1;
        size_t sa = train_dtype_size (a), sb = train_dtype_size (b);
        unsigned char *x = memory (from, N * sa), *y = memory (to, N * sb);
        train_copy_options_t o = {.size = sizeof (o),
                                  .verify = TRAIN_VERIFY_FULL,
                                  .count_nonfinite = true};
        train_copy_report_t r;
        train_tensor_t s, d;
        uint64_t nan = 0;

        for (size_t k = 0; k < N * sa; k++)
            x[k] = (unsigned char)(k * 0x9e3779b97f4a7c15u >> 37);
        view (&s, x, a, 1, N, from);
        view (&d, y, b, 1, N, to);
        assert_int_equal (
            train_copy (copier, &d.t, NULL, &s.t, NULL, &o, &r, NULL),
            TRAIN_OK);
        for (size_t k = 0; k < N; k++) {
            float v = a == TRAIN_F32    ? ((float *)x)[k]
                      : a == TRAIN_BF16 ? half_from_bf16 (((uint16_t *)x)[k])
                                        : half_from_f16 (((uint16_t *)x)[k]);
            uint32_t want = b == TRAIN_F32    ? half_bits (v)
                            : b == TRAIN_BF16 ? half_to_bf16 (v)
                                              : half_to_f16 (v);
            uint32_t got = 0;

            memcpy (&got, y + k * sb, sb);
            if (a == b)
                memcpy (&want, x + k * sa, sa);
            assert_int_equal (got, want);
            nan += v != v;
        }
        assert_int_equal (r.nan, nan);
        drop (from, x);
        drop (to, y);
    }
}

static void test_empty (void **state)
{
    train_tensor_t s, d;
    train_copy_report_t r;

    (void)state;
    view (&s, NULL, TRAIN_F32, 0, 5, -1);
    view (&d, NULL, TRAIN_F32, 0, 5, 1);
    assert_int_equal (
        train_copy (copier, &d.t, NULL, &s.t, NULL, NULL, &r, NULL), TRAIN_OK);
    assert_int_equal (r.bytes, 0);
}

/* Shapes and strides of the call are used, whatever becomes of them; the copy
 * is pending until its bytes are there; the order is that of the calls. */
static void test_later (void **state)
{
    enum { N = 30000 };
    int32_t *x = memory (0, N * 4), *y = memory (1, N * 4), z[N];
    train_tensor_t s, d, h;
    train_copy_t *first = NULL, *second = NULL;
    train_error_t err = {0};

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i;
    memset (z, 0, sizeof (z));
    view (&s, x, TRAIN_I32, 3, N / 3, 0);
    view (&d, y, TRAIN_I32, 3, N / 3, 1);
    view (&h, z, TRAIN_I32, 3, N / 3, -1);
    fault.delay_ms = 5;
    assert_int_equal (
        train_copy_start (copier, &d.t, NULL, &s.t, NULL, NULL, &first, NULL),
        TRAIN_OK);
    assert_int_equal (
        train_copy_start (copier, &h.t, NULL, &d.t, NULL, NULL, &second, NULL),
        TRAIN_OK);
    assert_int_equal (train_copy_wait (second, 0, NULL, &err), TRAIN_ETIMEDOUT);
    memset (&s, 0xff, sizeof (s));
    memset (&d, 0xff, sizeof (d));
    assert_int_equal (train_copy_wait (second, 60000, NULL, NULL), TRAIN_OK);
    assert_memory_equal (z, x, sizeof (z));
    assert_int_equal (train_copy_wait (first, 0, NULL, NULL), TRAIN_OK);
    fault.delay_ms = 0;
    drop (0, x);
    drop (1, y);
}

static void test_too_many (void **state)
{
    int32_t *x = memory (0, 4), y[COPY_JOBS + 1];
    train_copy_t *copy[COPY_JOBS + 1] = {NULL};
    train_error_t err = {0};
    train_tensor_t s, d;

    (void)state;
    *x = 7;
    view (&s, x, TRAIN_I32, 1, 1, 0);
    for (int i = 0; i <= COPY_JOBS; i++) {
        view (&d, y + i, TRAIN_I32, 1, 1, -1);
        assert_int_equal (train_copy_start (copier, &d.t, NULL, &s.t, NULL,
                                            NULL, copy + i, &err),
                          i < COPY_JOBS ? TRAIN_OK : TRAIN_ESTATE);
    }
    assert_non_null (strstr (err.text, "wait for one"));
    for (int i = 0; i < COPY_JOBS; i++) {
        assert_int_equal (train_copy_wait (copy[i], -1, NULL, NULL), TRAIN_OK);
        assert_int_equal (y[i], 7);
    }
    drop (0, x);
}

static void test_no_allocation (void **state)
{
    enum { N = 50000 };
    float *x = memory (0, N * 4);
    uint16_t *y = memory (1, N * 2);
    train_tensor_t s, d;

    (void)state;
    view (&s, x, TRAIN_F32, 1, N, 0);
    view (&d, y, TRAIN_BF16, 1, N, 1);
    memset (x, 0, N * 4);
    for (int i = 0; i < 3; i++) {
        int before = __atomic_load_n (&allocations, __ATOMIC_RELAXED);

        assert_int_equal (
            train_copy (copier, &d.t, NULL, &s.t, NULL, NULL, NULL, NULL),
            TRAIN_OK);
        if (i > 0) /* the first meets the GPUs */
            assert_int_equal (__atomic_load_n (&allocations, __ATOMIC_RELAXED),
                              before);
    }
    drop (0, x);
    drop (1, y);
}

/* The trace is a list but for its end, with one entry a copy. */
static json_t *read_list (const char *path, const char *end)
{
    char text[8192];
    FILE *in = fopen (path, "re");
    size_t n;

    assert_non_null (in);
    n = fread (text, 1, sizeof (text) - 3, in);
    fclose (in);
    snprintf (text + n, sizeof (text) - n, "%s", end);
    return json_loads (text, 0, NULL);
}

static void test_trace (void **state)
{
    char path[] = "/tmp/rv-test-trace-XXXXXX";
    int fd = mkstemp (path);
    train_copier_options_t o = {
        .probe = "", .size = sizeof (o), .device = "host", .trace = path};
    train_copier_t *c = NULL;
    int32_t x[4] = {1, 2, 3, 4}, y[4];
    train_tensor_t s, d;
    json_t *whole;

    (void)state;
    assert_true (fd >= 0);
    assert_int_equal (train_copier_create (&o, &c, NULL), TRAIN_OK);
    view (&s, x, TRAIN_I32, 2, 2, -1);
    view (&d, y, TRAIN_I32, 2, 2, -1);
    for (size_t i = 1; i <= 3; i++) {
        json_t *list, *first;

        assert_int_equal (
            train_copy (c, &d.t, NULL, &s.t, NULL, NULL, NULL, NULL), TRAIN_OK);
        list = read_list (path, "]");
        assert_non_null (list);
        assert_int_equal (json_array_size (list), i);
        first = json_array_get (list, 0);
        assert_string_equal (json_string_value (json_object_get (first, "ph")),
                             "X");
        assert_int_equal (json_integer_value (json_object_get (
                              json_object_get (first, "args"), "bytes")),
                          16);
        json_decref (list);
    }
    train_copier_destroy (c);
    whole = read_list (path, "");
    assert_int_equal (json_array_size (whole), 3);
    json_decref (whole);
    close (fd);
    unlink (path);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_tensors),
        cmocka_unit_test (test_bad_devices),
        cmocka_unit_test (test_bad_options),
        cmocka_unit_test (test_layouts),
        cmocka_unit_test (test_types),
        cmocka_unit_test (test_empty),
        cmocka_unit_test (test_later),
        cmocka_unit_test (test_too_many),
        cmocka_unit_test (test_no_allocation),
        cmocka_unit_test (test_trace),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
