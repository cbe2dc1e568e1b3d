/* SPDX-License-Identifier: Apache-2.0
 * test_copy_faults.c - every public report of wrong bytes, made on purpose: it
 * is noticed, told in one line, and repaired before the copy counts as done */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend_fault.h"
#include "copy_impl.h"

#define CHUNK ((size_t)64 << 10)
#define ODD   (CHUNK * 9 + 4 * 333) /* ten chunks, the last one odd */

static const char *const fault_name[FAULTS] = {
    "none",   "zeros", "partly zeros", "stale page", "swapped pages",
    "chunks", "pair",  "first copy",   "last",       "bit",
};

static char line[8][512];
static int lines;

static void keep (void *arg, const char *text)
{
    (void)arg;
    if (lines < 8)
        snprintf (line[lines], sizeof (*line), "%s", text);
    lines++;
}

struct two {
    train_copier_t *copier;
    train_tensor_t src, dst;
    unsigned char *from, *to;
    size_t bytes;
};

static void on_gpu (train_tensor_t *t, int device, void *data, size_t bytes)
{
    int64_t n = (int64_t)bytes;

    assert_int_equal (train_tensor_view (t, data, TRAIN_U8, 1, &n, NULL), 0);
    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = device;
}

static void set_up (struct two *t, size_t bytes, const char *transfer)
{
    train_copier_options_t o = {.size = sizeof (o),
                                .probe = "",
                                .transfer = transfer,
                                .ring_bytes = CHUNK * 4,
                                .chunk_bytes = CHUNK,
                                .log = keep};
    train_error_t err = {0};

    lines = 0;
    t->bytes = bytes;
    if (copier_create_with (&backend_fault, &o, &t->copier, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    backend_fault.alloc (0, bytes, (void **)&t->from, &err);
    backend_fault.alloc (1, bytes, (void **)&t->to, &err);
    for (size_t i = 0; i < bytes; i++)
        t->from[i] = (unsigned char)(i * 0x9e3779b97f4a7c15u >> 40 | 1);
    memset (t->to, 0xa5, bytes);
    on_gpu (&t->src, 0, t->from, bytes);
    on_gpu (&t->dst, 1, t->to, bytes);
}

static void tear_down (struct two *t)
{
    train_copier_destroy (t->copier);
    backend_fault.free (t->from);
    backend_fault.free (t->to);
}

static train_status_t go (struct two *t, train_verify_t verify,
                          train_copy_report_t *r, train_error_t *err)
{
    train_copy_options_t o = {.size = sizeof (o), .verify = verify};

    return train_copy (t->copier, &t->dst.t, NULL, &t->src.t, NULL, &o, r, err);
}

static size_t first_wrong (const struct two *t, const unsigned char *seen)
{
    size_t i = 0;

    while (i < t->bytes && seen[i] == t->from[i])
        i++;
    return i / 8 * 8;
}

/* Verified: right in the end, whatever the link did. Not verified: it really
 * was wrong, so the fault is there to be found. */
static void check_fault (enum fault what, size_t bytes)
{
    struct two t;
    train_copy_report_t r;
    unsigned char *seen = malloc (bytes);
    train_error_t err = {0};
    char word[64];

    fault_set (what);
    set_up (&t, bytes, "auto");
    assert_int_equal (go (&t, TRAIN_VERIFY_OFF, &r, &err), TRAIN_OK);
    assert_false (r.verified || r.mismatch);
    assert_int_equal (r.path, TRAIN_PATH_PEER);
    memcpy (seen, t.to, bytes);
    if (memcmp (seen, t.from, bytes) == 0)
        fail_msg ("%s of %zu bytes did nothing", fault_name[what], bytes);

    memset (t.to, 0xa5, bytes);
    fault.peers = 0;
    lines = 0;
    assert_int_equal (go (&t, TRAIN_VERIFY_FULL, &r, &err), TRAIN_OK);
    assert_memory_equal (t.to, t.from, bytes);
    assert_true (r.verified && r.mismatch && r.repeated == 1);
    assert_int_equal (r.path, TRAIN_PATH_STAGED);
    assert_int_equal (r.bad_offset, first_wrong (&t, seen));
    assert_int_equal (lines, 1);
    assert_non_null (strstr (line[0], "GPU 0 to GPU 1"));
    snprintf (word, sizeof (word), "offset %zu: expected %016llx, got %016llx",
              (size_t)r.bad_offset, (unsigned long long)r.expected,
              (unsigned long long)r.got);
    assert_non_null (strstr (line[0], word));
    assert_true (r.expected != r.got);

    /* The pair goes by the host from now on, the other way round does not. */
    fault.peers = 0;
    assert_int_equal (go (&t, TRAIN_VERIFY_DEFAULT, &r, &err), TRAIN_OK);
    assert_true (r.verified && !r.mismatch && fault.peers == 0);
    assert_int_equal (lines, 1);
    tear_down (&t);
    free (seen);
}

static void test_every_fault (void **state)
{
    static const size_t sizes[] = {64, 4096, CHUNK, ODD, CHUNK * 64};

    (void)state;
    for (int what = 1; what < FAULTS; what++) {
        for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++) {
            if (what == FAULT_CHUNKS && sizes[i] < ODD)
                continue; /* one chunk has no other to trade with */
            check_fault ((enum fault)what, sizes[i]);
        }
    }
}

static void test_none (void **state)
{
    struct two t;
    train_copy_report_t r;

    (void)state;
    fault_set (FAULT_NONE);
    set_up (&t, ODD, "auto");
    assert_int_equal (go (&t, TRAIN_VERIFY_DEFAULT, &r, NULL), TRAIN_OK);
    assert_true (r.verified && !r.mismatch && r.path == TRAIN_PATH_PEER);
    assert_memory_equal (t.to, t.from, ODD);
    assert_int_equal (lines, 0);
    tear_down (&t);
}

/* What sampling promises: whole copies and ends that are wrong. */
static void test_sample (void **state)
{
    static const enum fault found[] = {FAULT_ZEROS, FAULT_PARTLY, FAULT_PAIR,
                                       FAULT_FIRST, FAULT_LAST};

    (void)state;
    for (size_t i = 0; i < sizeof (found) / sizeof (*found); i++) {
        struct two t;
        train_copy_report_t r;

        fault_set (found[i]);
        set_up (&t, CHUNK * 64, "auto");
        assert_int_equal (go (&t, TRAIN_VERIFY_SAMPLE, &r, NULL), TRAIN_OK);
        assert_true (r.mismatch);
        assert_memory_equal (t.to, t.from, t.bytes);
        tear_down (&t);
    }
}

/* Wrong twice: an error, and no bytes that look like an answer. */
static void test_hopeless (void **state)
{
    struct two t;
    train_copy_report_t r = {0};
    train_error_t err = {0};

    (void)state;
    fault_set (FAULT_STALE);
    set_up (&t, ODD, "auto");
    fault.host_too = true;
    assert_int_equal (go (&t, TRAIN_VERIFY_FULL, &r, &err), TRAIN_ECORRUPT);
    assert_non_null (strstr (err.text, "GPU 0 to GPU 1"));
    assert_non_null (strstr (err.text, "twice"));
    assert_true (r.mismatch && !r.verified);
    for (size_t i = 0; i < ODD; i++)
        assert_int_equal (t.to[i], 0xff);
    tear_down (&t);
}

static void test_transfer (void **state)
{
    struct two t;
    train_copy_report_t r;
    train_error_t err = {0};
    train_copier_t *none = NULL;
    train_copier_options_t o = {
        .size = sizeof (o), .probe = "", .transfer = "fast"};

    (void)state;
    fault_set (FAULT_ZEROS);
    set_up (&t, ODD, "staged");
    assert_int_equal (go (&t, TRAIN_VERIFY_FULL, &r, NULL), TRAIN_OK);
    assert_true (r.verified && !r.mismatch && fault.peers == 0);
    tear_down (&t);
    fault_set (FAULT_NONE);
    fault.no_way = true;
    set_up (&t, ODD, "p2p");
    assert_int_equal (go (&t, TRAIN_VERIFY_FULL, &r, &err), TRAIN_ENOTSUP);
    assert_non_null (strstr (err.text, "no way"));
    tear_down (&t);
    assert_int_equal (copier_create_with (&backend_fault, &o, &none, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "'fast'"));
    setenv ("RV_TRANSFER", "slow", 1);
    o.transfer = NULL;
    assert_int_equal (copier_create_with (&backend_fault, &o, &none, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "RV_TRANSFER: 'slow'"));
    unsetenv ("RV_TRANSFER");
    assert_null (none);
}

/* Less pinned memory, then none: said, and the bytes are right. */
static void test_pinned (void **state)
{
    static const struct {
        size_t limit;
        const char *word;
    } row[] = {{(size_t)3 << 20, "instead of"},
               {(size_t)1700 << 10, "no pinned memory"}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        train_copier_options_t o = {.size = sizeof (o),
                                    .probe = "",
                                    .transfer = "staged",
                                    .chunk_bytes = 1 << 20,
                                    .log = keep};
        struct two t;
        train_copy_report_t r;

        fault_set (FAULT_NONE);
        set_up (&t, ODD, "staged");
        train_copier_destroy (t.copier);
        fault.pin_limit = row[i].limit;
        lines = 0;
        assert_int_equal (
            copier_create_with (&backend_fault, &o, &t.copier, NULL), TRAIN_OK);
        assert_int_equal (lines, 1);
        assert_non_null (strstr (line[0], row[i].word));
        assert_int_equal (go (&t, TRAIN_VERIFY_FULL, &r, NULL), TRAIN_OK);
        assert_memory_equal (t.to, t.from, ODD);
        tear_down (&t);
    }
}

/* A batch whose link trades bytes is found and repaired as well. */
static void test_batch (void **state)
{
    enum { N = 300 };
    static train_tensor_t dst[N], src[N];
    DLTensor *d[N];
    const DLTensor *s[N];
    struct two t;

    (void)state;
    for (int what = 0; what < FAULTS; what++) {
        train_copy_t *copy = NULL;
        train_copy_report_t r;
        train_error_t err = {0};
        size_t at = 0, wire;

        fault_set ((enum fault)what);
        set_up (&t, N * 1024, "auto");
        for (size_t i = 0; i < N; i++) {
            size_t n = i % 7 == 0 ? 0 : 900 + i % 100; /* odd and empty too */

            on_gpu (&src[i], 0, t.from + at, n);
            on_gpu (&dst[i], 1, t.to + at, n);
            d[i] = &dst[i].t;
            s[i] = &src[i].t;
            at += n;
        }
        assert_int_equal (train_copy_batch_start (t.copier, d, NULL, s, NULL, N,
                                                  NULL, &copy, &err),
                          TRAIN_OK);
        assert_int_equal (train_copy_wait (copy, -1, &r, &err), TRAIN_OK);
        assert_memory_equal (t.to, t.from, at);
        if (what != FAULT_LAST) /* in the filling after the last tensor */
            assert_int_equal (r.mismatch, what != FAULT_NONE);
        assert_true (r.verified);
        if (what == FAULT_NONE)
            assert_int_equal (fault.peers, r.chunks);
        /* Another begins at nothing again. */
        wire = r.bytes;
        assert_int_equal (train_copy_batch_start (t.copier, d, NULL, s, NULL, N,
                                                  NULL, &copy, &err),
                          TRAIN_OK);
        assert_int_equal (train_copy_wait (copy, -1, &r, &err), TRAIN_OK);
        assert_int_equal (r.bytes, wire);
        tear_down (&t);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_none),     cmocka_unit_test (test_every_fault),
        cmocka_unit_test (test_sample),   cmocka_unit_test (test_hopeless),
        cmocka_unit_test (test_transfer), cmocka_unit_test (test_pinned),
        cmocka_unit_test (test_batch),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
