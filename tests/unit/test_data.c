/* SPDX-License-Identifier: Apache-2.0
 * test_data.c - files met once, samples a function of their position alone */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <train/data.h>

#include "libtrain/permute.h"

static char dir[] = "/tmp/test_data.XXXXXX";

static int set_up (void **state)
{
    (void)state;
    return mkdtemp (dir) && chdir (dir) == 0 ? 0 : -1;
}

static int drop (const char *path, const struct stat *st, int kind,
                 struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove (path);
}

static int tear_down (void **state)
{
    (void)state;
    return chdir ("/") || nftw (dir, drop, 8, FTW_DEPTH | FTW_PHYS);
}

static void put (const char *name, const char *text)
{
    FILE *f = fopen (name, "we");

    assert_non_null (f);
    assert_true (fputs (text, f) >= 0);
    assert_int_equal (fclose (f), 0);
}

static train_data_options_t opts (const char *files, int seq)
{
    return (train_data_options_t){.size = sizeof (train_data_options_t),
                                  .files = files,
                                  .seq = seq,
                                  .shuffle = true,
                                  .seed = 7};
}

static void refuse (train_data_options_t o, train_status_t status,
                    const char *word)
{
    train_data_t *d = NULL;
    train_error_t err = {0};

    assert_int_equal (train_data_open (&o, &d, &err), status);
    assert_null (d);
    assert_int_equal (err.code, status);
    if (!strstr (err.text, word))
        fail_msg ("'%s' does not say '%s'", err.text, word);
    assert_int_equal (train_data_open (&o, &d, NULL), status);
}

static train_data_t *get (train_data_options_t o)
{
    train_data_t *d = NULL;
    train_error_t err = {0};

    if (train_data_open (&o, &d, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return d;
}

static void test_bad_arguments (void **state)
{
    train_data_options_t o = opts ("x", 4);

    (void)state;
    put ("some", "some text");
    put ("empty", "");
    assert_int_equal (mkdir ("folder", 0700), 0);
    assert_int_equal (train_data_open (NULL, NULL, NULL), TRAIN_EINVAL);
    o.size = 1;
    refuse (o, TRAIN_EINVAL, "size");
    refuse (opts (NULL, 4), TRAIN_EINVAL, "files");
    refuse (opts ("", 4), TRAIN_EINVAL, "empty name");
    refuse (opts ("some,,some", 4), TRAIN_EINVAL, "empty name");
    refuse (opts ("some", 0), TRAIN_EINVAL, "seq 0");
    refuse (opts ("some", -1), TRAIN_EINVAL, "seq -1");
    refuse (opts ("some", 9), TRAIN_EINVAL, "9 bytes of text in 1 file;");
    refuse (opts ("empty", 1), TRAIN_EINVAL, "0 bytes");
    refuse (opts ("missing", 4), TRAIN_ENOTFOUND, "missing");
    refuse (opts ("some,mis*", 4), TRAIN_ENOTFOUND, "'mis*'");
    refuse (opts ("folder", 4), TRAIN_EINVAL, "folder/*");
    refuse (opts ("fold*", 4), TRAIN_ENOTFOUND, "fold*");
    train_data_close (NULL);
}

static void test_files_are_met_once (void **state)
{
    train_data_t *d;
    int32_t tokens[12], targets[12];

    (void)state;
    put ("b-two", "two ");
    put ("a-one", "one ");
    put ("c-void", "");
    assert_int_equal (symlink ("b-two", "a-link"), 0);
    assert_int_equal (link ("b-two", "d-hard"), 0);
    put ("z", "last!");
    d = get (opts (" [a-d]-* , z,./b-two", 12));
    assert_int_equal (train_data_n_files (d), 4);
    assert_string_equal (train_data_file (d, 0), "a-link");
    assert_string_equal (train_data_file (d, 1), "a-one");
    assert_string_equal (train_data_file (d, 2), "c-void");
    assert_string_equal (train_data_file (d, 3), "z");
    assert_null (train_data_file (d, 4));
    assert_int_equal (train_data_bytes (d), 13);
    assert_int_equal (train_data_n_samples (d), 1);
    assert_int_equal (train_data_seq (d), 12);
    train_data_get (d, 5, tokens, targets);
    for (int i = 0; i < 12; i++) {
        assert_int_equal (tokens[i], "two one last!"[i]);
        assert_int_equal (targets[i], "two one last!"[i + 1]);
    }
    train_data_close (d);
}

/* Bytes above 127 are tokens above 127, and NUL is one. */
static void test_bytes (void **state)
{
    static const unsigned char raw[] = {0, 255, 128, 0, 10};
    int32_t tokens[4], targets[4];
    FILE *f = fopen ("raw", "we");
    train_data_t *d;

    (void)state;
    assert_int_equal (fwrite (raw, 1, sizeof (raw), f), sizeof (raw));
    assert_int_equal (fclose (f), 0);
    d = get (opts ("raw", 4));
    train_data_get (d, 0, tokens, targets);
    for (int i = 0; i < 4; i++) {
        assert_int_equal (tokens[i], raw[i]);
        assert_int_equal (targets[i], raw[i + 1]);
    }
    train_data_close (d);
}

/* Every size, seed and epoch: each index once. */
static void test_permute_is_a_bijection (void **state)
{
    unsigned char seen[300];

    (void)state;
    for (uint64_t n = 1; n <= sizeof (seen); n++) {
        memset (seen, 0, sizeof (seen));
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = permute (i, n, n * 977, n % 5);

            assert_true (to < n);
            assert_int_equal (seen[to]++, 0);
        }
    }
    assert_true (permute (5, (uint64_t)1 << 63, 1, 1) < (uint64_t)1 << 63);
}

/* Over many seeds an index falls in each eighth of the range alike often
 * (64 +- 5 sigma), and (seed, epoch) pairs do not collide as a sum would. */
static void test_permute_spreads (void **state)
{
    int bin[8] = {0}, same = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 512; seed++)
        bin[permute (3, 1000, seed, 0) / 125]++;
    for (int i = 0; i < 8; i++)
        assert_in_range (bin[i], 64 - 38, 64 + 38);
    for (uint64_t i = 0; i < 1000; i++)
        same += permute (i, 1000, 1, 0) == permute (i, 1000, 0, 1);
    assert_in_range (same, 0, 10);
}

static void test_epochs (void **state)
{
    char text[202];
    train_data_t *d;
    train_data_options_t o = opts ("many", 2);
    int64_t n, moved = 0;

    (void)state;
    memset (text, 'x', 201);
    text[201] = '\0';
    put ("many", text);
    d = get (o);
    n = train_data_n_samples (d);
    assert_int_equal (n, 100);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        unsigned char seen[100] = {0};

        for (int64_t i = 0; i < n; i++) {
            int64_t at = train_data_index (d, epoch * n + i);

            assert_int_equal (seen[at]++, 0);
            moved += at != train_data_index (d, (epoch + 1) * n + i);
        }
    }
    assert_true (moved > 280);
    train_data_close (d);
    o.shuffle = false;
    d = get (o);
    for (int64_t i = 0; i < 2 * n; i++)
        assert_int_equal (train_data_index (d, i), i % n);
    train_data_close (d);
}

/* The order is part of what a checkpoint promises: these values never change. */
/* The last samples, which no epoch has; the others as if there were no more. */
static void test_held_out (void **state)
{
    train_data_options_t o = opts ("text", 4);
    train_data_t *all, *part;
    int32_t a[4], b[4], targets[4];

    (void)state;
    put ("text", "0123456789abcdefghijklmnopqrstuvwxyz");
    all = get (o);
    o.held = 3;
    part = get (o);
    assert_int_equal (train_data_n_samples (all), 8);
    assert_int_equal (train_data_n_samples (part), 5);
    assert_int_equal (train_data_held (part), 3);
    assert_int_equal (train_data_held (all), 0);
    assert_int_not_equal (train_data_hash (all), train_data_hash (part));
    for (int64_t p = 0; p < 20; p++)
        assert_in_range (train_data_index (part, p), 0, 4);
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal (train_data_index (part, -1 - i), 5 + i);
        train_data_get (part, -1 - i, a, targets);
        for (int j = 0; j < 4; j++) {
            b[j] = "0123456789abcdefghijklmnopqrstuvwxyz"[(5 + i) * 4 + j];
            assert_int_equal (targets[j], b[j] == '9' ? 'a' : b[j] + 1);
        }
        assert_memory_equal (a, b, sizeof (a));
    }
    train_data_close (all);
    train_data_close (part);
    o.held = 8;
    refuse (o, TRAIN_EINVAL, "of 8 samples 8 cannot be held out");
    o.held = -1;
    refuse (o, TRAIN_EINVAL, "held out");
}

static void test_golden (void **state)
{
    static const int64_t want[8] = {382, 82, 113, 593, 87, 660, 336, 877};
    int64_t got[8];

    (void)state;
    for (int i = 0; i < 8; i++)
        got[i] = (int64_t)permute ((uint64_t)i, 1000, 42, 3);
    for (int i = 0; i < 8; i++)
        assert_int_equal (got[i], want[i]);
}

static void test_hash (void **state)
{
    train_data_t *d, *e;

    (void)state;
    put ("h1", "same bytes");
    put ("h2", "same bytez");
    d = get (opts ("h1", 3));
    e = get (opts ("h2", 3));
    assert_true (train_data_hash (d) != train_data_hash (e));
    train_data_close (e);
    put ("h2", "same ");
    put ("h3", "bytes");
    e = get (opts ("h2,h3", 3));
    assert_true (train_data_hash (d) == train_data_hash (e));
    train_data_close (e);
    train_data_close (d);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_arguments),
        cmocka_unit_test (test_files_are_met_once),
        cmocka_unit_test (test_bytes),
        cmocka_unit_test (test_permute_is_a_bijection),
        cmocka_unit_test (test_permute_spreads),
        cmocka_unit_test (test_epochs),
        cmocka_unit_test (test_held_out),
        cmocka_unit_test (test_golden),
        cmocka_unit_test (test_hash),
    };

    return cmocka_run_group_tests_name ("data", tests, set_up, tear_down);
}
