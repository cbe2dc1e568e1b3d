/* SPDX-License-Identifier: Apache-2.0
 * test_safetensors_load.c - tensors of files to made-up GPUs and to the host by
 * a small ring, so that every boundary of steps, chunks and tensors is met */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kernels/half.h>
#include <train/frames.h>
#include <train/safetensors.h>

#include "backend_fault.h"
#include "copy_impl.h"
#include "st_file.h"

#define CHUNK ((size_t)256 << 10)
#define MAX   64

static char line[8][512];
static int lines;

static void keep (void *arg, const char *text)
{
    (void)arg;
    if (lines < 8)
        snprintf (line[lines], sizeof (*line), "%s", text);
    lines++;
}

/* All that a case needs: what the file has, and where it goes. */
struct world {
    train_copier_t *copier;
    train_safetensors_t *file;
    train_st_entry_t entry[MAX];
    char name[MAX][16];
    size_t n;
    train_tensor_t dst[MAX];
    DLTensor *to[MAX];
    const char *names[MAX];
    bool gpu;
};

static void *device_memory (const struct world *w, size_t bytes)
{
    void *at = NULL;

    assert_int_equal ((w->gpu ? &backend_fault : &backend_host)
                          ->alloc (w->gpu ? 1 : 0, bytes, &at, NULL),
                      TRAIN_OK);
    if (at)
        memset (at, 0x5a, bytes);
    return at;
}

static void add (struct world *w, train_st_type_t type, int64_t rows,
                 int64_t cols)
{
    size_t i = w->n++,
           bytes = (size_t)(rows * cols) * train_st_type_bits (type) / 8;
    unsigned char *data = malloc (bytes + 1);

    for (size_t k = 0; k < bytes; k++)
        data[k] =
            (unsigned char)((k + i * 977 + 1) * 0x9e3779b97f4a7c15u >> 37);
    snprintf (w->name[i], sizeof (w->name[i]), "t%02zu", i);
    w->entry[i] = (train_st_entry_t){.name = w->name[i],
                                     .type = type,
                                     .ndim = 2,
                                     .shape = {rows, cols},
                                     .data = data,
                                     .bytes = bytes};
}

static void open_world (struct world *w, bool gpu, size_t slots)
{
    train_copier_options_t o = {.size = sizeof (o),
                                .probe = "",
                                .ring_bytes = CHUNK * slots,
                                .chunk_bytes = CHUNK,
                                .log = keep};
    train_error_t err = {0};

    lines = 0;
    w->gpu = gpu;
    if (copier_create_with (gpu ? &backend_fault : &backend_host, &o,
                            &w->copier, &err)
            != TRAIN_OK
        || train_safetensors_write (path, w->entry, w->n, NULL, 0, &err)
               != TRAIN_OK
        || train_safetensors_open (path, &w->file, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
}

/* A destination of U8, whatever the type. */
static void bytes_for (struct world *w, size_t i)
{
    int64_t n = (int64_t)w->entry[i].bytes;

    assert_int_equal (train_tensor_view (&w->dst[i],
                                         device_memory (w, w->entry[i].bytes),
                                         TRAIN_U8, 1, &n, NULL),
                      TRAIN_OK);
    if (w->gpu) {
        w->dst[i].t.device.device_type = kDLCUDA;
        w->dst[i].t.device.device_id = 1;
    }
    w->to[i] = &w->dst[i].t;
    w->names[i] = w->name[i];
}

static void close_world (struct world *w)
{
    for (size_t i = 0; i < w->n; i++) {
        (w->gpu ? &backend_fault : &backend_host)->free (w->dst[i].t.data);
        free ((void *)w->entry[i].data);
    }
    train_safetensors_close (w->file);
    train_copier_destroy (w->copier);
}

static train_status_t load (struct world *w, train_verify_t verify, int readers,
                            train_copy_report_t *r, train_error_t *err)
{
    train_st_load_options_t o = {
        .size = sizeof (o), .verify = verify, .readers = readers};

    return train_safetensors_load (w->copier, w->to, NULL, w->file, w->names,
                                   w->n, &o, r, err);
}

static void expect_ok (train_status_t status, const train_error_t *err)
{
    if (status != TRAIN_OK)
        fail_msg ("%s: %s", train_status_name (status), err->text);
}

static void expect_bytes (const struct world *w)
{
    for (size_t i = 0; i < w->n; i++) {
        if (w->entry[i].bytes > 0
            && memcmp (w->dst[i].t.data, w->entry[i].data, w->entry[i].bytes))
            fail_msg ("tensor %zu of %zu bytes differs", i, w->entry[i].bytes);
    }
}

/* Calls that are wrong by themselves. */
static void refuse_calls (struct world *w)
{
    train_st_load_options_t o = {.size = sizeof (o), .readers = 65};
    train_copy_t *copy = NULL;
    train_error_t err = {0};

    assert_int_equal (train_safetensors_load (NULL, w->to, NULL, w->file, NULL,
                                              2, NULL, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_safetensors_load (w->copier, w->to, NULL, NULL,
                                              NULL, 2, NULL, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_safetensors_load (w->copier, w->to, NULL, w->file,
                                              NULL, 1, NULL, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_safetensors_load (w->copier, w->to, NULL, w->file,
                                              NULL, 2, &o, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_safetensors_load_start (w->copier, w->to, NULL,
                                                    w->file, NULL, 2, NULL,
                                                    NULL, &err),
                      TRAIN_EINVAL);
    o = (train_st_load_options_t){.size = 3};
    assert_int_equal (train_safetensors_load_start (w->copier, w->to, NULL,
                                                    w->file, NULL, 2, &o, &copy,
                                                    &err),
                      TRAIN_EINVAL);
    assert_null (copy);
}

/* A name, a device or a tensor that is not there. */
static void refuse_places (struct world *w)
{
    train_copy_report_t r;
    train_error_t err = {0};

    assert_int_equal (load (w, (train_verify_t)9, 0, &r, &err), TRAIN_EINVAL);
    w->names[1] = "t07";
    assert_int_equal (load (w, TRAIN_VERIFY_FULL, 0, &r, &err),
                      TRAIN_ENOTFOUND);
    assert_non_null (strstr (err.text, "'t07'"));
    assert_non_null (strstr (err.text, path));
    w->names[1] = "t01";
    w->dst[1].t.device.device_id = 2;
    assert_int_equal (load (w, TRAIN_VERIFY_FULL, 0, &r, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "'t01'"));
    w->to[1] = NULL;
    assert_int_equal (load (w, TRAIN_VERIFY_FULL, 0, &r, &err), TRAIN_EINVAL);
}

/* Shapes and types that the file's F16 of (3,4) does not have. */
static void refuse_shapes (struct world *w)
{
    static const struct {
        int ndim;
        int64_t shape[2];
        uint8_t code, bits;
        const char *text;
    } bad[] = {
        {2, {3, 5}, kDLFloat, 32, "F16 of 2 dimensions and 24 bytes"},
        {1, {12}, kDLFloat, 16, "of that shape"},
        {2, {3, 4}, kDLInt, 16, "of that shape"},
        {2, {3, 4}, kDLFloat, 64, "of that shape"},
        {1, {23}, kDLUInt, 8, "of that shape"},
    };
    train_copy_report_t r;
    train_error_t err = {0};

    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        int64_t shape[2];
        DLTensor *t = w->to[0];

        memcpy (shape, bad[i].shape, sizeof (shape));
        t->ndim = bad[i].ndim;
        t->shape = shape;
        t->strides = NULL;
        t->dtype = (DLDataType){bad[i].code, bad[i].bits, 1};
        if (load (w, TRAIN_VERIFY_FULL, 0, &r, &err) != TRAIN_EINVAL
            || !strstr (err.text, bad[i].text) || !strstr (err.text, "'t00'"))
            fail_msg ("%zu: %s", i, err.text);
    }
}

static void bad_arguments (void **state)
{
    struct world w = {0};

    (void)state;
    fault_set (FAULT_NONE);
    add (&w, TRAIN_ST_F16, 3, 4);
    add (&w, TRAIN_ST_I32, 3, 4);
    open_world (&w, true, 2);
    bytes_for (&w, 0);
    bytes_for (&w, 1);
    refuse_calls (&w);
    refuse_places (&w);
    w.n = 1;
    refuse_shapes (&w);
    w.n = 2;
    close_world (&w);
}

/* Sizes around steps and chunks, of every type of the format, to a GPU by
 * rings of 2 to 5 rooms and to the host, by one reader and by several. */
static void every_boundary (void **state)
{
    static const int64_t sizes[] = {
        0,         1,
        2,         8,
        4095,      4096,
        4104,      CHUNK - 8,
        CHUNK - 2, CHUNK,
        CHUNK + 8, CHUNK + 2,
        2 * CHUNK, 5 * CHUNK + 24,
        0,
    };
    train_copy_report_t r;
    train_error_t err = {0};

    (void)state;
    fault_set (FAULT_NONE);
    for (int how = 0; how < 8; how++) {
        struct world w = {0};
        size_t total = 0;

        for (int t = TRAIN_ST_BOOL; t <= TRAIN_ST_U64; t++)
            add (&w, (train_st_type_t)t, 8, t % 5);
        for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++)
            add (&w, TRAIN_ST_U8, 1, sizes[i]);
        open_world (&w, how % 2, 2 + (size_t)how % 4);
        for (size_t i = 0; i < w.n; i++) {
            bytes_for (&w, i);
            total += w.entry[i].bytes;
        }
        expect_ok (load (&w, TRAIN_VERIFY_DEFAULT, how < 4 ? 1 : 5, &r, &err),
                   &err);
        expect_bytes (&w);
        assert_int_equal (r.bytes, total);
        assert_int_equal (r.verified, how % 2);
        assert_int_equal (r.path,
                          how % 2 ? TRAIN_PATH_STAGED : TRAIN_PATH_LOCAL);
        assert_true (r.chunks > 20 && !r.mismatch && !r.repeated);
        close_world (&w);
    }
}

/* In the types of DLPack, strided, and in the order of the file by itself. */
static void own_types (void **state)
{
    static const struct {
        train_st_type_t type;
        uint8_t code, bits;
    } types[] = {
        {TRAIN_ST_BOOL, kDLUInt, 8},    {TRAIN_ST_BOOL, 6, 8},
        {TRAIN_ST_U8, kDLUInt, 8},      {TRAIN_ST_I8, kDLInt, 8},
        {TRAIN_ST_F8_E4M3, kDLUInt, 8}, {TRAIN_ST_I16, kDLInt, 16},
        {TRAIN_ST_U16, kDLUInt, 16},    {TRAIN_ST_F16, kDLFloat, 16},
        {TRAIN_ST_BF16, kDLBfloat, 16}, {TRAIN_ST_I32, kDLInt, 32},
        {TRAIN_ST_U32, kDLUInt, 32},    {TRAIN_ST_F32, kDLFloat, 32},
        {TRAIN_ST_C64, kDLComplex, 64}, {TRAIN_ST_F64, kDLFloat, 64},
        {TRAIN_ST_I64, kDLInt, 64},     {TRAIN_ST_U64, kDLUInt, 64},
    };
    enum { N = sizeof (types) / sizeof (*types), ROWS = 300, COLS = 301 };
    train_copy_report_t r;
    train_error_t err = {0};

    (void)state;
    fault_set (FAULT_NONE);
    for (int gpu = 0; gpu < 2; gpu++) {
        struct world w = {0};

        for (size_t i = 0; i < N; i++)
            add (&w, types[i].type, ROWS, COLS);
        open_world (&w, gpu, 3);
        for (size_t i = 0; i < N; i++) {
            int64_t shape[] = {ROWS, COLS};
            size_t size = types[i].bits / 8;

            train_tensor_view (&w.dst[i],
                               device_memory (&w, size * ROWS * (COLS + 3)),
                               TRAIN_U8, 2, shape, NULL);
            if (gpu)
                w.dst[i].t.device = (DLDevice){kDLCUDA, 1};
            w.dst[i].t.dtype = (DLDataType){types[i].code, types[i].bits, 1};
            w.dst[i].strides[0] = i % 2 ? COLS + 3 : COLS;
            w.to[i] = &w.dst[i].t;
            w.names[i] = w.name[i];
        }
        expect_ok (load (&w, TRAIN_VERIFY_FULL, 3, &r, &err), &err);
        for (size_t i = 0; i < N; i++) {
            size_t size = types[i].bits / 8;
            size_t row = size * (size_t)w.dst[i].strides[0];
            const char *got = w.dst[i].t.data, *want = w.entry[i].data;

            for (size_t k = 0; k < ROWS; k++)
                assert_memory_equal (got + k * row, want + k * size * COLS,
                                     size * COLS);
            if (i % 2) /* what lies between the rows is not touched */
                assert_int_equal ((unsigned char)got[size * COLS], 0x5a);
        }
        close_world (&w);
    }
}

static float value_of (const void *at, size_t k, train_dtype_t type)
{
    uint16_t half;
    uint32_t bits;

    if (type == TRAIN_F32) {
        memcpy (&bits, (const char *)at + 4 * k, 4);
        return half_float (bits);
    }
    memcpy (&half, (const char *)at + 2 * k, 2);
    return type == TRAIN_BF16 ? half_from_bf16 (half) : half_from_f16 (half);
}

static uint32_t bits_of (const void *at, size_t k, train_dtype_t type)
{
    uint32_t bits = 0;
    size_t size = train_dtype_size (type);

    memcpy (&bits, (const char *)at + size * k, size);
    return bits;
}

/* All nine ways, compact and strided; the sizes are no multiple of a step. */
static void conversions (void **state)
{
    static const train_dtype_t float_type[] = {TRAIN_F32, TRAIN_BF16,
                                               TRAIN_F16};
    static const train_st_type_t st[] = {TRAIN_ST_F32, TRAIN_ST_BF16,
                                         TRAIN_ST_F16};
    enum { ROWS = 401, COLS = 1001 };
    train_copy_report_t r;
    train_error_t err = {0};

    (void)state;
    fault_set (FAULT_NONE);
    for (int gpu = 0; gpu < 2; gpu++) {
        struct world w = {0};

        for (size_t i = 0; i < 9; i++)
            add (&w, st[i / 3], ROWS, COLS);
        open_world (&w, gpu, 2);
        for (size_t i = 0; i < 9; i++) {
            int64_t shape[] = {ROWS, COLS};
            train_dtype_t to = float_type[i % 3];

            train_tensor_view (
                &w.dst[i],
                device_memory (&w, train_dtype_size (to) * ROWS * (COLS + 1)),
                to, 2, shape, NULL);
            if (gpu)
                w.dst[i].t.device = (DLDevice){kDLCUDA, 1};
            w.dst[i].strides[0] = COLS + (int64_t)i / 2 % 2;
            w.to[i] = &w.dst[i].t;
            w.names[i] = w.name[i];
        }
        expect_ok (load (&w, TRAIN_VERIFY_FULL, 2, &r, &err), &err);
        for (size_t i = 0; i < 9; i++) {
            train_dtype_t from = float_type[i / 3], to = float_type[i % 3];

            for (size_t k = 0; k < ROWS * COLS; k++) {
                size_t at = k / COLS * (size_t)w.dst[i].strides[0] + k % COLS;
                float x = value_of (w.entry[i].data, k, from);
                uint32_t got = bits_of (w.dst[i].t.data, at, to), want;

                want = from == to         ? bits_of (w.entry[i].data, k, from)
                       : to == TRAIN_F32  ? half_bits (x)
                       : to == TRAIN_BF16 ? half_to_bf16 (x)
                                          : half_to_f16 (x);
                if (got != want)
                    fail_msg ("case %zu, element %zu: %x, not %x", i, k, got,
                              want);
            }
        }
        close_world (&w);
    }
}

/* Wrong once: noticed, told with the tensor's name, sent again. Wrong always:
 * an error, and ones in that tensor. Not verified: it stays wrong. */
static void faults (void **state)
{
    static const enum fault all[] = {FAULT_ZEROS, FAULT_PARTLY, FAULT_STALE,
                                     FAULT_SWAP,  FAULT_LAST,   FAULT_BIT};
    train_copy_report_t r;
    train_error_t err = {0};

    (void)state;
    for (size_t f = 0; f < sizeof (all) / sizeof (*all); f++) {
        struct world w = {0};

        fault_set (FAULT_NONE);
        add (&w, TRAIN_ST_U8, 1, 3 * CHUNK + 40);
        add (&w, TRAIN_ST_U8, 1, CHUNK);
        open_world (&w, true, 2);
        bytes_for (&w, 0);
        bytes_for (&w, 1);
        fault_set (all[f]);
        fault.host_too = true;
        expect_ok (load (&w, TRAIN_VERIFY_OFF, 2, &r, &err), &err);
        assert_true (memcmp (w.dst[0].t.data, w.entry[0].data, w.entry[0].bytes)
                     != 0);
        assert_false (r.verified || r.mismatch);
        assert_int_equal (load (&w, TRAIN_VERIFY_FULL, 2, &r, &err),
                          TRAIN_ECORRUPT);
        if (!strstr (err.text, "'t00' arrived wrong twice on GPU 1"))
            fail_msg ("%s", err.text);
        assert_true (r.mismatch && r.repeated == 1 && !r.verified);
        assert_int_equal (lines, 1);
        assert_non_null (strstr (line[0], "load of tensor 't00' to GPU 1: "));
        for (size_t k = 0; k < w.entry[0].bytes; k++)
            assert_int_equal (((unsigned char *)w.dst[0].t.data)[k], 0xff);

        /* the first copy of tensor bytes alone */
        lines = 0;
        fault.host_too = false;
        fault.spoil_at = fault.copies + 1;
        expect_ok (load (&w, TRAIN_VERIFY_FULL, 2, &r, &err), &err);
        expect_bytes (&w);
        assert_true (r.mismatch && r.repeated == 1 && r.verified);
        assert_int_equal (lines, 1);
        close_world (&w);
    }
}

/* A file that is shortened after it was opened is an error that names it and
 * the tensor; whichever chunk that is in, and never a signal. */
static void shortened (void **state)
{
    train_copy_report_t r;
    train_error_t err = {0};

    (void)state;
    fault_set (FAULT_NONE);
    for (int how = 0; how < 4; how++) {
        struct world w = {0};
        const train_st_entry_t *last;
        struct stat st;

        for (int i = 0; i < 8; i++)
            add (&w, TRAIN_ST_F32, 300, 1000);
        open_world (&w, how % 2, 2);
        for (size_t i = 0; i < w.n; i++)
            bytes_for (&w, i);
        last = train_safetensors_entry (w.file, w.n - 1);
        assert_int_equal (stat (path, &st), 0);
        assert_int_equal (truncate (path, st.st_size - (off_t)last->bytes
                                              + (how < 2 ? 100 : -1000000)),
                          0);
        assert_int_equal (load (&w, TRAIN_VERIFY_FULL, 3, &r, &err), TRAIN_EIO);
        if (!strstr (err.text, path) || !strstr (err.text, "too soon")
            || !strstr (err.text, "tensor 't0"))
            fail_msg ("%s", err.text);
        if (how < 2)
            assert_non_null (strstr (err.text, last->name));
        close_world (&w);
    }
}

/* Without waiting, beside another copy of the same copier, and all entries
 * without names. */
static void started (void **state)
{
    struct world w = {0};
    train_copy_t *load = NULL, *second = NULL;
    train_copy_report_t r;
    train_error_t err = {0};

    (void)state;
    fault_set (FAULT_NONE);
    for (int i = 0; i < 4; i++)
        add (&w, TRAIN_ST_U8, 1, 700001);
    open_world (&w, true, 3);
    for (size_t i = 0; i < w.n; i++)
        bytes_for (&w, i);
    fault.delay_ms = 1;
    expect_ok (train_safetensors_load_start (w.copier, w.to, (void *)1, w.file,
                                             NULL, w.n, NULL, &load, &err),
               &err);
    expect_ok (train_safetensors_load_start (w.copier, w.to, NULL, w.file,
                                             w.names, 1, NULL, &second, &err),
               &err);
    expect_ok (train_copy_wait (second, -1, &r, &err), &err);
    assert_int_equal (r.bytes, 700001);
    expect_ok (train_copy_wait (load, -1, &r, &err), &err);
    assert_int_equal (r.bytes, 4 * 700001);
    expect_bytes (&w);
    close_world (&w);
}

static void nothing (void **state)
{
    struct world w = {0};
    train_copy_report_t r;
    train_error_t err = {0};

    (void)state;
    fault_set (FAULT_NONE);
    open_world (&w, true, 2);
    expect_ok (load (&w, TRAIN_VERIFY_FULL, 0, &r, &err), &err);
    assert_int_equal (r.bytes, 0);
    close_world (&w);
    add (&w, TRAIN_ST_F32, 0, 7);
    open_world (&w, true, 2);
    bytes_for (&w, 0);
    expect_ok (load (&w, TRAIN_VERIFY_FULL, 0, &r, &err), &err);
    assert_int_equal (r.chunks, 0);
    close_world (&w);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments), cmocka_unit_test (every_boundary),
        cmocka_unit_test (own_types),     cmocka_unit_test (conversions),
        cmocka_unit_test (faults),        cmocka_unit_test (shortened),
        cmocka_unit_test (started),       cmocka_unit_test (nothing),
    };

    return cmocka_run_group_tests (tests, make_dir, remove_dir);
}
