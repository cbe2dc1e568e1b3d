/* SPDX-License-Identifier: Apache-2.0
 * test_tokens.c - files of tokens: written, mapped, refused; as training data
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <train/data.h>
#include <train/tokens.h>

#include "data_impl.h"
#include "plan/fsio.h"

static char dir[] = "/tmp/test_tokens.XXXXXX";

static int set_up (void **state)
{
    (void)state;
    return mkdtemp (dir) && chdir (dir) == 0 ? 0 : -1;
}

static int tear_down (void **state)
{
    (void)state;
    return chdir ("/") || fsio_remove_tree (dir, NULL);
}

static void put (const char *path, int64_t vocab, int64_t end,
                 const int32_t *tokens, size_t n)
{
    train_token_writer_t *w = NULL;

    assert_int_equal (train_tokens_create (path, vocab, end, &w, NULL), 0);
    for (size_t i = 0; i < n; i += 7)
        assert_int_equal (
            train_tokens_put (w, tokens + i, n - i < 7 ? n - i : 7, NULL), 0);
    assert_int_equal (train_tokens_commit (w, NULL), 0);
}

static void round_trip (int64_t vocab, int width)
{
    enum { N = 40000 };
    int32_t *x = malloc (N * sizeof (*x)), *y = malloc (N * sizeof (*y));
    train_tokens_t *t = NULL;

    assert_true (x && y);
    for (int i = 0; i < N; i++)
        x[i] = (int32_t)((int64_t)i * 7919 % vocab);
    x[3] = (int32_t)(vocab - 1);
    put ("round", vocab, vocab - 1, x, N);
    assert_int_equal (train_tokens_open ("round", &t, NULL), 0);
    assert_int_equal (train_tokens_count (t), N);
    assert_int_equal (train_tokens_width (t), width);
    assert_int_equal (train_tokens_vocab (t), vocab);
    assert_int_equal (train_tokens_end (t), vocab - 1);
    assert_int_equal (train_tokens_verify (t, NULL), 0);
    train_tokens_read (t, 0, N, y);
    assert_memory_equal (x, y, N * sizeof (*x));
    train_tokens_read (t, N - 1, 2, y);
    assert_int_equal (y[0], x[N - 1]);
    assert_int_equal (y[1], -1);
    train_tokens_close (t);
    free (x);
    free (y);
}

static void test_round_trip (void **state)
{
    (void)state;
    round_trip (257, 2);
    round_trip (65536, 2);
    round_trip (65537, 4);
    round_trip ((int64_t)INT32_MAX + 1, 4);
}

/* The layout that the header states, byte by byte. */
static void test_layout (void **state)
{
    static const unsigned char want[] = {'R', 'V', 'T', 'O', 'K', 'E', 'N', 'S',
                                         1,   0,   0,   0,   2,   0,   0,   0,
                                         3,   0,   0,   0,   0,   0,   0,   0};
    const int32_t x[] = {1, 0x1234, 2};
    char *text;
    size_t n;

    (void)state;
    put ("layout", 50257, -1, x, 3);
    assert_int_equal (fsio_read ("layout", 1 << 20, &text, &n, NULL), 0);
    assert_int_equal (n, 64 + 6);
    assert_memory_equal (text, want, sizeof (want));
    assert_memory_equal (text + 32, "\x51\xc4\0\0\xff\xff\xff\xff", 8);
    assert_memory_equal (text + 64, "\x01\0\x34\x12\x02\0", 6);
    free (text);
}

static void test_refused (void **state)
{
    const int32_t x[] = {1, 2, 3, 4}, bad[] = {1, 300}, less[] = {-1};
    train_token_writer_t *w = NULL;
    train_tokens_t *t = NULL;
    train_error_t err = {0};
    char *text, was;
    size_t n;

    (void)state;
    put ("good", 257, 256, x, 4);
    assert_int_equal (fsio_read ("good", 1 << 20, &text, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        int rc;

        was = text[i];
        text[i] ^= 0x10;
        assert_int_equal (fsio_write ("bad", text, n, 0600, NULL), 0);
        text[i] = was;
        rc = train_tokens_open ("bad", &t, &err);
        if (rc == TRAIN_OK) { /* vocabulary, end, sum and tokens */
            assert_true ((i >= 24 && i < 40) || i >= 64);
            rc = train_tokens_verify (t, &err);
            assert_true (rc != TRAIN_OK || (i >= 32 && i < 40));
            train_tokens_close (t);
        } else {
            assert_int_equal (rc, TRAIN_EFORMAT);
            assert_non_null (strstr (err.text, "bad"));
        }
    }
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal (fsio_write ("bad", text, cut, 0600, NULL), 0);
        assert_int_equal (train_tokens_open ("bad", &t, &err), TRAIN_EFORMAT);
    }
    free (text);
    assert_int_equal (train_tokens_open ("none", &t, &err), TRAIN_ENOTFOUND);
    assert_int_equal (train_tokens_create ("x", 0, -1, &w, &err), TRAIN_EINVAL);
    assert_int_equal (train_tokens_create ("x", 5, 5, &w, &err), TRAIN_EINVAL);
    assert_int_equal (train_tokens_create ("no/x", 5, 4, &w, &err), TRAIN_EIO);
    assert_int_equal (train_tokens_create ("x", 257, 256, &w, &err), 0);
    assert_int_equal (train_tokens_put (w, bad, 2, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "token 300"));
    assert_int_equal (train_tokens_put (w, less, 1, &err), TRAIN_EINVAL);
    train_tokens_abandon (w);
    assert_int_equal (access ("x", F_OK), -1);
}

/* Two files are one stream; a sample may begin in one and end in the other;
 * targets follow, and documents are told apart. */
static void test_as_data (void **state)
{
    const int32_t a[] = {10, 11, 99, 12, 13}, b[] = {14, 99, 15, 16, 17, 18};
    const int32_t all[] = {10, 11, 99, 12, 13, 14, 99, 15, 16, 17, 18};
    const int32_t doc[] = {0, 0, 0, 1, 1, 0, 0, 1, 1, 1};
    train_data_options_t o = {
        .size = sizeof (o), .files = "a.bin, b.bin", .seq = 5};
    train_data_t *d = NULL;
    int32_t x[5], y[5], z[5];
    uint64_t hash;
    train_error_t err = {0};

    (void)state;
    put ("a.bin", 100, 99, a, 5);
    put ("b.bin", 100, 99, b, 6);
    assert_int_equal (train_data_open (&o, &d, &err), 0);
    assert_int_equal (train_data_n_samples (d), 2);
    assert_int_equal (train_data_bytes (d), 22);
    assert_int_equal (train_data_vocab (d), 100);
    for (int p = 0; p < 2; p++) {
        train_data_get (d, p, x, y);
        assert_memory_equal (x, all + 5 * p, sizeof (x));
        assert_memory_equal (y, all + 5 * p + 1, sizeof (y));
        train_data_documents (d, p, z);
        assert_memory_equal (z, doc + 5 * p, sizeof (z));
    }
    hash = train_data_hash (d);
    train_data_close (d);
    o.files = "b.bin, a.bin";
    assert_int_equal (train_data_open (&o, &d, &err), 0);
    assert_true (train_data_hash (d) != hash);
    train_data_close (d);
    put ("c.bin", 101, 99, a, 5);
    o.files = "a.bin, c.bin";
    assert_int_equal (train_data_open (&o, &d, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "c.bin"));
    assert_int_equal (fsio_write ("text", "some text", 9, 0600, NULL), 0);
    o.files = "a.bin, text";
    assert_int_equal (train_data_open (&o, &d, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "text"));
    o.files = "text, a.bin";
    assert_int_equal (train_data_open (&o, &d, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "a.bin"));
}

/* An empty file, as others leave beside those that they have written, is of no
 * kind, wherever it stands; a damaged token is one of its own file. */
static void test_empty_beside (void **state)
{
    const int32_t a[] = {10, 11, 12}, b[] = {13, 14, 15};
    train_data_options_t o = {.size = sizeof (o), .seq = 2};
    train_data_t *d = NULL;
    train_error_t err = {0};
    int32_t x[2], y[2];
    int fd;

    (void)state;
    put ("a.bin", 100, 99, a, 3);
    put ("b.bin", 100, 99, b, 3);
    assert_true ((fd = open ("b.bin", O_WRONLY)) >= 0);
    assert_int_equal (pwrite (fd, "\xff\xff", 2, 66), 2); /* its second */
    close (fd);
    assert_int_equal (fsio_write ("_SUCCESS", "", 0, 0600, NULL), 0);
    for (int i = 0; i < 2; i++) {
        o.files = i ? "a.bin, b.bin, _SUCCESS" : "_SUCCESS, a.bin, b.bin";
        if (train_data_open (&o, &d, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
        assert_int_equal (train_data_n_samples (d), 2);
        train_data_get (d, 1, x, y);
        assert_int_equal (data_check (d, 1, x, y, &err), TRAIN_ECORRUPT);
        assert_non_null (strstr (err.text, "b.bin: token 1 is 65535"));
        train_data_close (d);
    }
}

/* What is no file holds nobody up. */
static void test_no_file (void **state)
{
    train_tokens_t *t = NULL;
    train_error_t err = {0};

    (void)state;
    assert_int_equal (mkfifo ("fifo", 0600), 0);
    alarm (10);
    assert_int_equal (train_tokens_open ("fifo", &t, &err), TRAIN_EIO);
    assert_non_null (strstr (err.text, "fifo"));
    assert_int_equal (train_tokens_open (".", &t, &err), TRAIN_EIO);
    alarm (0);
}

/* With documents an end's target does not count; without they are one. */
static void test_documents (void **state)
{
    const int32_t a[] = {10, 99, 99, 12, 13}, b[] = {14, 99, 15, 16, 17, 18};
    const int32_t targets[] = {99, -1, -1, 13, 14, 99, -1, 16, 17, 18};
    const int32_t starts[] = {0, 0, 2, 3, 3, 0, 0, 2, 2, 2};
    const int32_t none[5] = {0};
    train_data_options_t o = {
        .size = sizeof (o), .files = "a.bin, b.bin", .seq = 5};
    train_data_t *d = NULL;
    int32_t x[5], y[5], z[5];
    uint64_t hash[2];
    train_error_t err = {0};

    (void)state;
    put ("a.bin", 100, 99, a, 5);
    put ("b.bin", 100, 99, b, 6);
    for (int on = 0; on < 2; on++) {
        o.documents = on;
        assert_int_equal (train_data_open (&o, &d, &err), 0);
        assert_int_equal (train_data_end (d), 99);
        for (int p = 0; p < 2; p++) {
            train_data_get (d, p, x, y);
            train_data_starts (d, x, z);
            assert_memory_equal (z, on ? starts + 5 * p : none, sizeof (z));
            if (on)
                assert_memory_equal (y, targets + 5 * p, sizeof (y));
        }
        assert_int_equal (train_data_counted (d, 0, 2), on ? 7 : 10);
        hash[on] = train_data_hash (d);
        train_data_close (d);
    }
    assert_true (hash[0] != hash[1]);
    put ("a.bin", 100, -1, a, 5);
    o.files = "a.bin";
    o.seq = 2;
    assert_int_equal (train_data_open (&o, &d, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "a.bin has no end of documents"));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_round_trip),   cmocka_unit_test (test_layout),
        cmocka_unit_test (test_refused),      cmocka_unit_test (test_as_data),
        cmocka_unit_test (test_documents),    cmocka_unit_test (test_no_file),
        cmocka_unit_test (test_empty_beside),
    };

    return cmocka_run_group_tests_name ("tokens", tests, set_up, tear_down);
}
