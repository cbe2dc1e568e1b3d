/* SPDX-License-Identifier: Apache-2.0
 * test_blob.c - values of a fence in one run of bytes, whole and in pieces */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "job/exchange.h"
#include "job/job_impl.h"

static void test_blob (void **state)
{
    static const char long_key[] = "0123456789012345678901234567890123456789"
                                   "0123456789012345678901234";
    unsigned char *blob = NULL, big[JOB_VALUE_MAX + 1] = {0};
    const unsigned char *value = NULL;
    size_t len = 0, n = 0;

    (void)state;
    assert_int_equal (blob_put (&blob, &len, NULL, "x", 1, NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (blob_put (&blob, &len, "", "x", 1, NULL), RV_JOB_EINVAL);
    assert_int_equal (blob_put (&blob, &len, "Upper", "x", 1, NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (blob_put (&blob, &len, "a b", "x", 1, NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (blob_put (&blob, &len, long_key, "x", 1, NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (blob_put (&blob, &len, "k", big, sizeof (big), NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (blob_put (&blob, &len, "k", NULL, 1, NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (len, 0);
    assert_int_equal (blob_find (NULL, 0, "k", &value, &n, NULL),
                      RV_JOB_ENOTFOUND);
    assert_int_equal (blob_put (&blob, &len, "a", "one", 3, NULL), 0);
    assert_int_equal (blob_put (&blob, &len, "ab", NULL, 0, NULL), 0);
    assert_int_equal (blob_put (&blob, &len, "b", big, JOB_VALUE_MAX, NULL), 0);
    assert_int_equal (blob_put (&blob, &len, "ab", "x", 1, NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (blob_find (blob, len, "a", &value, &n, NULL), 0);
    assert_int_equal (n, 3);
    assert_memory_equal (value, "one", 3);
    assert_int_equal (blob_find (blob, len, "ab", &value, &n, NULL), 0);
    assert_int_equal (n, 0);
    assert_int_equal (blob_find (blob, len, "b", &value, &n, NULL), 0);
    assert_int_equal (n, JOB_VALUE_MAX);
    /* Cut anywhere, a blob is found out and never read past its end. */
    for (size_t cut = 1; cut < len; cut++) {
        unsigned char *part = malloc (cut);
        rv_job_status_t status;

        memcpy (part, blob, cut);
        status = blob_find (part, cut, "zz", &value, &n, NULL);
        assert_true (status == RV_JOB_EFORMAT || status == RV_JOB_ENOTFOUND);
        if (cut == 5 || cut == 2)
            assert_int_equal (status, RV_JOB_EFORMAT);
        free (part);
    }
    free (blob);
}

/* Pieces of any size make the whole again, an empty one with its first. */
static void test_pieces (void **state)
{
    unsigned char text[4 + 10] = {0}, *from;

    (void)state;
    memcpy (text + 4, "0123456789", 10);
    for (size_t len = 0; len <= 10; len++) {
        exchange_put32 (text, (uint32_t)len);
        for (size_t size = len ? 5 : 4; size <= 4 + len; size++) {
            struct blob_in in = {.rank = 3};

            for (size_t at = 0; at < 4 + len; at += size) {
                size_t n = 4 + len - at < size ? 4 + len - at : size;

                from = malloc (n); /* nothing behind it may be read */
                memcpy (from, text + at, n);
                assert_int_equal (blob_add (&in, from, n, NULL), RV_JOB_OK);
                free (from);
            }
            assert_int_equal (in.at, len);
            assert_int_equal (in.len, len);
            assert_memory_equal (in.blob, text + 4, len);
            free (in.blob);
        }
    }
}

static void refuse (struct blob_in *in, const void *piece, size_t size)
{
    rv_job_error_t err = {0};

    assert_int_equal (blob_add (in, piece, size, &err), RV_JOB_EFORMAT);
    assert_string_equal (err.text, "the values of rank 3 are malformed");
    free (in->blob);
    *in = (struct blob_in){.rank = 3};
}

static void test_pieces_refused (void **state)
{
    struct blob_in in = {.rank = 3};
    unsigned char text[] = {2, 0, 0, 0, 'a', 'b', 'c'};

    (void)state;
    refuse (&in, NULL, 0);
    refuse (&in, text, 3);
    refuse (&in, text, 4); /* nothing of two bytes: it would never end */
    refuse (&in, text, 7);
    exchange_put32 (text, JOB_BLOB_MAX + 1);
    refuse (&in, text, 7);
    exchange_put32 (text, 3);
    assert_int_equal (blob_add (&in, text, 5, NULL), RV_JOB_OK);
    refuse (&in, text + 5, 0);
    assert_int_equal (blob_add (&in, text, 5, NULL), RV_JOB_OK);
    refuse (&in, NULL, 2);
    assert_int_equal (blob_add (&in, text, 6, NULL), RV_JOB_OK);
    refuse (&in, "xy", 2);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_blob),
        cmocka_unit_test (test_pieces),
        cmocka_unit_test (test_pieces_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
