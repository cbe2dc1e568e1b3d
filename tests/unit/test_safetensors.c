/* SPDX-License-Identifier: Apache-2.0
 * test_safetensors.c - every rule of the safetensors format, both ways */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "st_file.h"
#include "st_written.h"

static void put_file (const void *buf, size_t n)
{
    int fd = open (path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true (fd >= 0);
    assert_int_equal (write (fd, buf, n), (ssize_t)n);
    close (fd);
}

/* A file with this header, a true length before it, and data of zeros. */
static void put_header_n (const char *header, size_t n, size_t data_bytes)
{
    char *buf = calloc (1, 8 + n + data_bytes);
    uint64_t le = htole64 (n);

    memcpy (buf, &le, 8);
    memcpy (buf + 8, header, n);
    put_file (buf, 8 + n + data_bytes);
    free (buf);
}

static void expect (const char *what, train_status_t want, const char *text)
{
    train_safetensors_t *file = NULL;
    train_error_t err = {0};
    train_status_t status = train_safetensors_open (path, &file, &err);

    if (status != want || (text && !strstr (err.text, text)))
        fail_msg ("%s: %s (%s), want %s (%s)", what, train_status_name (status),
                  err.text, train_status_name (want), text);
    if (want == TRAIN_OK)
        train_safetensors_close (file);
    else
        assert_null (file);
}

#define T(name, dtype, shape, b, e)                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape                   \
    ",\"data_offsets\":[" b "," e "]}"
#define A4 T ("a", "F32", "[1]", "0", "4")

static const struct {
    const char *header;
    size_t data_bytes;
    train_status_t status;
    const char *text;
} rejects[] = {
    {"[]", 0, TRAIN_EFORMAT, "begin with '{'"},
    {" {}", 0, TRAIN_EFORMAT, "begin with '{'"},
    {"\xef\xbb\xbf{}", 0, TRAIN_EFORMAT, "begin with '{'"},
    {"{", 0, TRAIN_EFORMAT, "header, byte"},
    {"{} x", 0, TRAIN_EFORMAT, "header, byte"},
    {"{}{}", 0, TRAIN_EFORMAT, "header, byte"},
    {"{\"a\xff\":1}", 0, TRAIN_EFORMAT, "decode byte 0xff"},
    {"{\"a\xc0\x80\":1}", 0, TRAIN_EFORMAT, "decode byte 0xc0"},
    {"{\"a\\u0000b\":1}", 0, TRAIN_EFORMAT, "u0000"},
    {"{\"a\\ud800\":1}", 0, TRAIN_EFORMAT, "Unicode"},
    {"{\"a\":1}", 0, TRAIN_EFORMAT, "'a': is not an object"},
    {"{\"a\":{}}", 0, TRAIN_EFORMAT, "'dtype' is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, TRAIN_EFORMAT,
     "'data_offsets' is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, TRAIN_EFORMAT,
     "'shape' is missing"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TRAIN_EFORMAT,
     "'dtype' is missing"},
    {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     TRAIN_EFORMAT, "'dtype' is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4,
     TRAIN_EFORMAT, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", 4,
     TRAIN_EFORMAT, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":\"0\"}}", 4,
     TRAIN_EFORMAT, "two whole numbers"},
    {"{" T ("a", "F33", "[1]", "0", "4") "}", 4, TRAIN_EFORMAT, "'F33'"},
    {"{" T ("a", "f32", "[1]", "0", "4") "}", 4, TRAIN_EFORMAT, "'f32'"},
    {"{" T ("a", "F32", "1", "0", "4") "}", 4, TRAIN_EFORMAT, "not a list"},
    {"{" T ("a", "F32", "[-1]", "0", "4") "}", 4, TRAIN_EFORMAT, "'shape'"},
    {"{" T ("a", "F32", "[1.0]", "0", "4") "}", 4, TRAIN_EFORMAT, "'shape'"},
    {"{" T ("a", "F32", "[\"1\"]", "0", "4") "}", 4, TRAIN_EFORMAT, "'shape'"},
    {"{" T ("a", "F32", "[1]", "-4", "0") "}", 4, TRAIN_EFORMAT,
     "two whole numbers"},
    {"{" T ("a", "F32", "[1]", "0.0", "4") "}", 4, TRAIN_EFORMAT,
     "two whole numbers"},
    {"{" T ("a", "F32", "[1]", "0", "4e0") "}", 4, TRAIN_EFORMAT,
     "two whole numbers"},
    {"{" T ("a", "F32", "[1]", "0", "18446744073709551620") "}", 4,
     TRAIN_EFORMAT, "too big"},
    {"{" T ("a", "F32", "[1]", "4", "0") "}", 4, TRAIN_EFORMAT, "backwards"},
    {"{" T ("a", "F32", "[2]", "0", "4") "}", 4, TRAIN_EFORMAT,
     "span 4 bytes, shape and dtype need 8"},
    {"{" T ("a", "F32", "[4294967296,4294967296]", "0", "0") "}", 0,
     TRAIN_EFORMAT, "product of 'shape' overflows"},
    {"{" T ("a", "F64", "[1152921504606846976]", "0", "0") "}", 0,
     TRAIN_EFORMAT, "size in bits overflows"},
    {"{" T ("a", "F4", "[1]", "0", "0") "}", 0, TRAIN_EFORMAT,
     "whole number of bytes"},
    {"{" T ("a", "F32", "[1]", "4", "8") "}", 8, TRAIN_EFORMAT, "a hole"},
    {"{" A4 "," T ("b", "F32", "[1]", "8", "12") "}", 12, TRAIN_EFORMAT,
     "a hole"},
    {"{" A4 "," T ("b", "F32", "[1]", "2", "6") "}", 6, TRAIN_EFORMAT,
     "an overlap"},
    {"{" A4 "," T ("b", "F32", "[1]", "0", "4") "}", 4, TRAIN_EFORMAT,
     "an overlap"},
    {"{" A4 "}", 3, TRAIN_EFORMAT, "cut short"},
    {"{" A4 "}", 5, TRAIN_EFORMAT, "trailing bytes"},
    {"{}", 1, TRAIN_EFORMAT, "trailing bytes"},
    {"{" A4 "," A4 "}", 4, TRAIN_EFORMAT, "duplicate"},
    {"{" A4 "," T ("a", "F32", "[1]", "4", "8") "}", 8, TRAIN_EFORMAT,
     "duplicate"},
    {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, TRAIN_EFORMAT,
     "duplicate"},
    {"{\"__metadata__\":{\"k\":1}}", 0, TRAIN_EFORMAT, "only strings"},
    {"{\"__metadata__\":{\"k\":null}}", 0, TRAIN_EFORMAT, "only strings"},
    {"{\"__metadata__\":[]}", 0, TRAIN_EFORMAT, "not an object"},
    {"{" T ("__metadata__", "F32", "[1]", "0", "4") "}", 4, TRAIN_EFORMAT,
     "only strings"},
    {"{" T ("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, TRAIN_ENOTSUP,
     "more than 8"},
    /* not sound and not supported: the file is broken, that is said */
    {"{" T ("a", "BOOL", "[4]", "0", "4") "}", 5, TRAIN_EFORMAT, "trailing"},
};

static void test_rejects (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (rejects) / sizeof (*rejects); i++) {
        put_header_n (rejects[i].header, strlen (rejects[i].header),
                      rejects[i].data_bytes);
        expect (rejects[i].header, rejects[i].status, rejects[i].text);
    }
}

static void test_reject_raw_nul (void **state)
{
    static const char header[] = "{\"a\0b\":1}";

    (void)state;
    put_header_n (header, sizeof (header) - 1, 0);
    expect ("NUL in a name", TRAIN_EFORMAT, "header, byte");
}

static void test_reject_nesting (void **state)
{
    char header[10000];

    (void)state;
    memset (header, '[', sizeof (header));
    memcpy (header, "{\"a\":", 5);
    put_header_n (header, sizeof (header), 0);
    expect ("nesting", TRAIN_EFORMAT, "depth");
}

static void test_reject_lengths (void **state)
{
    static const struct {
        uint64_t n;
        const char *text;
    } lengths[] = {
        {0, "header is empty"},
        {9, "does not fit"},
        {UINT64_C (1) << 63, "over the format's"},
        {UINT64_MAX, "over the format's"},
        {100000001, "over the format's"},
        {100000000, "does not fit"},
    };
    char buf[16] = "........{}      ";

    (void)state;
    for (size_t i = 0; i < sizeof (lengths) / sizeof (*lengths); i++) {
        uint64_t le = htole64 (lengths[i].n);

        memcpy (buf, &le, 8);
        put_file (buf, sizeof (buf));
        expect (lengths[i].text, TRAIN_EFORMAT, lengths[i].text);
    }
    put_file (buf, 7);
    expect ("7 bytes", TRAIN_EFORMAT, "too few");
    put_file (buf, 0);
    expect ("0 bytes", TRAIN_EFORMAT, "too few");
}

static void test_open_errors (void **state)
{
    train_safetensors_t *file = NULL;
    train_error_t err;

    (void)state;
    assert_int_equal (train_safetensors_open (NULL, &file, &err), TRAIN_EINVAL);
    assert_int_equal (train_safetensors_open (path, NULL, &err), TRAIN_EINVAL);
    assert_int_equal (train_safetensors_open ("/nonexistent/x", &file, &err),
                      TRAIN_ENOTFOUND);
    assert_non_null (strstr (err.text, "/nonexistent/x: "));
    assert_int_equal (train_safetensors_open (dir, &file, &err), TRAIN_EIO);
    assert_int_equal (train_safetensors_open ("/dev/null", &file, NULL),
                      TRAIN_EIO);
    assert_null (file);
    train_safetensors_close (NULL);
}

/* What others may write and we must read. */
static void test_accepts (void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes;
    } good[] = {
        {"{}", 0},
        {"{}       ", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}\n", 0},
        {"{" T ("", "U8", "[3]", "0", "3") "}", 3},
        {"{" T ("s", "F32", "[]", "0", "4") "}", 4},
        {"{" T ("z", "F32", "[0,3]", "0", "0") "}", 0},
        {"{" A4 "," T ("z", "F64", "[0]", "4", "4") "," T ("b", "I64", "[1]",
                                                           "4", "12") "}",
         12},
        {"{\"a\":{\"data_offsets\":[0,2],\"more\":{\"x\":[1.5]},"
         "\"shape\":[1],\"dtype\":\"BF16\"}}",
         2},
        {"{" T ("b", "F16", "[1]", "2", "4") "," T ("\\u00e9\\\"", "U8", "[2]",
                                                    "0", "2") "}",
         4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (good) / sizeof (*good); i++) {
        put_header_n (good[i].header, strlen (good[i].header),
                      good[i].data_bytes);
        expect (good[i].header, TRAIN_OK, NULL);
    }
}

static void test_order_is_of_data (void **state)
{
    static const char header[] = "{" T ("b", "F16", "[1]", "2", "4") "," T (
        "\\u00e9", "U8", "[2]", "0", "2") "}";
    train_safetensors_t *file = NULL;

    (void)state;
    put_header_n (header, strlen (header), 4);
    assert_int_equal (train_safetensors_open (path, &file, NULL), TRAIN_OK);
    assert_int_equal (train_safetensors_count (file), 2);
    assert_string_equal (train_safetensors_entry (file, 0)->name, "\xc3\xa9");
    assert_string_equal (train_safetensors_entry (file, 1)->name, "b");
    assert_null (train_safetensors_entry (file, 2));
    assert_ptr_equal (train_safetensors_find (file, "b"),
                      train_safetensors_entry (file, 1));
    assert_null (train_safetensors_find (file, "c"));
    assert_null (train_safetensors_find (file, NULL));
    assert_null (train_safetensors_meta (file, "format"));
    train_safetensors_close (file);
}

static void test_round_trip (void **state)
{
    static const char *const order[] = {"empty", "scalar", "w\"\\\xc3\xa9",
                                        "u"};
    train_safetensors_t *file = NULL;
    const train_st_entry_t *e;
    train_error_t err;

    (void)state;
    assert_int_equal (train_safetensors_write (path, written, 4, meta, 2, &err),
                      TRAIN_OK);
    assert_int_equal (train_safetensors_open (path, &file, &err), TRAIN_OK);
    assert_int_equal (train_safetensors_count (file), 4);
    for (size_t i = 0; i < 4; i++) {
        e = train_safetensors_entry (file, i);
        assert_string_equal (e->name, order[i]);
        assert_int_equal ((uintptr_t)e->data % train_dtype_size (e->dtype), 0);
    }
    e = train_safetensors_find (file, written[2].name);
    assert_int_equal (e->dtype, TRAIN_F32);
    assert_int_equal (e->ndim, 2);
    assert_int_equal (e->shape[0], 2);
    assert_int_equal (e->shape[1], 3);
    assert_int_equal (e->bytes, sizeof (w_bits));
    assert_memory_equal (e->data, w_bits, sizeof (w_bits));
    e = train_safetensors_find (file, "scalar");
    assert_int_equal (e->ndim, 0);
    assert_memory_equal (e->data, d_data, sizeof (d_data));
    assert_int_equal (train_safetensors_find (file, "empty")->bytes, 0);
    assert_memory_equal (train_safetensors_find (file, "u")->data, u_data, 3);
    assert_string_equal (train_safetensors_meta (file, "step"), "12");
    assert_string_equal (train_safetensors_meta (file, "format"), "pt");
    assert_null (train_safetensors_meta (file, "other"));
    train_safetensors_close (file);
}

/* A set without tensors is a file too (huggingface/safetensors#466, #601). */
static void test_write_empty (void **state)
{
    train_safetensors_t *file = NULL;
    train_error_t err;

    (void)state;
    assert_int_equal (train_safetensors_write (path, NULL, 0, NULL, 0, &err),
                      TRAIN_OK);
    expect ("no tensors", TRAIN_OK, NULL);
    assert_int_equal (train_safetensors_write (path, NULL, 0, meta, 2, &err),
                      TRAIN_OK);
    assert_int_equal (train_safetensors_open (path, &file, &err), TRAIN_OK);
    assert_int_equal (train_safetensors_count (file), 0);
    assert_string_equal (train_safetensors_meta (file, "format"), "pt");
    train_safetensors_close (file);
}

static void refuse (const train_st_entry_t *e, size_t n,
                    const train_st_meta_t *m, size_t n_meta, const char *text)
{
    train_error_t err = {0};

    assert_int_equal (train_safetensors_write (path, e, n, m, n_meta, &err),
                      TRAIN_EINVAL);
    if (!strstr (err.text, text))
        fail_msg ("'%s', want '%s'", err.text, text);
}

static void test_write_refusals (void **state)
{
    train_st_entry_t two[2] = {written[0], written[0]}, e = written[0];
    train_st_meta_t same[2] = {{"k", "1"}, {"k", "2"}};
    train_st_meta_t broken = {"k", "\xff"}, null = {"k", NULL};

    (void)state;
    assert_int_equal (train_safetensors_write (path, written, 4, meta, 2, NULL),
                      TRAIN_OK);
    refuse (two, 2, NULL, 0, "'u' twice");
    refuse (NULL, 1, NULL, 0, "no path");
    refuse (&e, 1, NULL, 1, "no path");
    e.name = "__metadata__";
    refuse (&e, 1, NULL, 0, "cannot be named");
    e.name = NULL;
    refuse (&e, 1, NULL, 0, "cannot be named");
    e.name = "\xff";
    refuse (&e, 1, NULL, 0, "UTF-8");
    e = written[0];
    e.dtype = (train_dtype_t)99;
    refuse (&e, 1, NULL, 0, "unknown dtype");
    e = written[0];
    e.ndim = TRAIN_MAX_DIMS + 1;
    refuse (&e, 1, NULL, 0, "dimensions");
    e = written[0];
    e.shape[0] = -1;
    refuse (&e, 1, NULL, 0, "negative");
    e.shape[0] = INT64_MAX;
    refuse (&e, 1, NULL, 0, "too large");
    e = written[0];
    e.data = NULL;
    refuse (&e, 1, NULL, 0, "no data");
    refuse (written, 1, same, 2, "'k' twice");
    refuse (written, 1, &broken, 1, "UTF-8");
    refuse (written, 1, &null, 1, "UTF-8");
    expect ("the file before the refusals", TRAIN_OK, NULL);
}

static void test_write_too_long_header (void **state)
{
    size_t n = 100000001;
    char *value = malloc (n + 1);
    train_st_meta_t m = {"k", value};

    (void)state;
    memset (value, 'x', n);
    value[n] = '\0';
    refuse (NULL, 0, &m, 1, "over the format's");
    free (value);
}

/* Saving over a file that is mapped (huggingface/safetensors PR 764). */
static void test_write_over_own_source (void **state)
{
    train_safetensors_t *old = NULL, *new = NULL;
    train_st_entry_t e;

    (void)state;
    train_safetensors_write (path, written, 4, NULL, 0, NULL);
    assert_int_equal (train_safetensors_open (path, &old, NULL), TRAIN_OK);
    e = *train_safetensors_find (old, written[2].name);
    e.shape[0] = 1;
    assert_int_equal (train_safetensors_write (path, &e, 1, NULL, 0, NULL),
                      TRAIN_OK);
    assert_memory_equal (train_safetensors_find (old, written[2].name)->data,
                         w_bits, sizeof (w_bits));
    assert_int_equal (train_safetensors_open (path, &new, NULL), TRAIN_OK);
    assert_memory_equal (train_safetensors_entry (new, 0)->data, w_bits, 12);
    train_safetensors_close (old);
    train_safetensors_close (new);
}

/* A folder under the name: rename fails late, and cleans up after itself
 * (remove_dir would meet the temporary file). */
static void test_write_fails_late (void **state)
{
    char name[128];
    train_error_t err;

    (void)state;
    snprintf (name, sizeof (name), "%s/folder", dir);
    assert_int_equal (mkdir (name, 0700), 0);
    assert_int_equal (train_safetensors_write (name, written, 4, NULL, 0, &err),
                      TRAIN_EIO);
    assert_non_null (strstr (err.text, "rename"));
    assert_int_equal (rmdir (name), 0);
    snprintf (name, sizeof (name), "%s/none/x", dir);
    assert_int_equal (train_safetensors_write (name, written, 4, NULL, 0, &err),
                      TRAIN_EIO);
    assert_int_equal (train_safetensors_write (NULL, written, 4, NULL, 0, &err),
                      TRAIN_EINVAL);
}

/* As a program writes a step's number that forgets that values are strings. */
static void test_reject_number (void **state)
{
    static const char json[] = "{\"__metadata__\":{\"step\":12}}";

    (void)state;
    put_header_n (json, strlen (json), 0);
    expect ("a number", TRAIN_EFORMAT, "only strings");
}

static long allowed; /* allocations of jansson until one fails; -1: none does */

static void *sometimes (size_t n)
{
    return allowed >= 0 && allowed-- == 0 ? NULL : malloc (n);
}

/* Whichever allocation of the header fails: no file, or the whole one. */
static void test_write_no_memory (void **state)
{
    static const train_st_meta_t bad[] = {{"k", "\xff"}, {NULL, "v"}};
    char good[4096], now[4096];
    size_t n = 0;
    long last = 0;

    (void)state;
    json_set_alloc_funcs (sometimes, free);
    for (long i = -1; i < 0 || i == last; i++) {
        train_error_t err = {0};
        train_status_t status;
        FILE *f;

        allowed = i;
        status = train_safetensors_write (path, written, 4, meta, 2, &err);
        allowed = -1;
        if (status != TRAIN_OK) {
            assert_int_equal (status, TRAIN_ENOMEM);
            assert_non_null (strstr (err.text, "no memory"));
            assert_int_equal (access (path, F_OK), -1);
            last++;
            continue;
        }
        assert_non_null (f = fopen (path, "r"));
        if (i < 0)
            n = fread (good, 1, sizeof (good), f);
        else
            assert_int_equal (fread (now, 1, sizeof (now), f), n);
        fclose (f);
        assert_int_equal (unlink (path), 0);
        if (i >= 0)
            assert_memory_equal (now, good, n);
    }
    json_set_alloc_funcs (malloc, free);
    assert_true (last > 50); /* it has failed at so many places */
    for (int i = 0; i < 2; i++)
        assert_int_equal (
            train_safetensors_write (path, written, 4, &bad[i], 1, NULL),
            TRAIN_EINVAL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_open_errors),
        cmocka_unit_test (test_rejects),
        cmocka_unit_test (test_reject_raw_nul),
        cmocka_unit_test (test_reject_nesting),
        cmocka_unit_test (test_reject_lengths),
        cmocka_unit_test (test_accepts),
        cmocka_unit_test (test_order_is_of_data),
        cmocka_unit_test (test_round_trip),
        {.name = "huggingface/safetensors#466, huggingface/safetensors#601: a "
                 "set without tensors",
         .test_func = test_write_empty},
        {.name = "huggingface/safetensors#278: a number in __metadata__",
         .test_func = test_reject_number},
        cmocka_unit_test (test_write_refusals),
        cmocka_unit_test (test_write_too_long_header),
        {.name = "huggingface/safetensors#764: written over its own source",
         .test_func = test_write_over_own_source},
        cmocka_unit_test (test_write_fails_late),
        cmocka_unit_test (test_write_no_memory),
    };

    return cmocka_run_group_tests_name ("safetensors", tests, make_dir,
                                        remove_dir);
}
