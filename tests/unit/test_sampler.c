/* SPDX-License-Identifier: Apache-2.0
 * test_sampler.c - shares of an epoch, against PyTorch's as written down */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include <train/sampler.h>

static train_sampler_t make (int64_t n, int ranks, int rank)
{
    return (train_sampler_t){
        .size = sizeof (train_sampler_t), .n = n, .ranks = ranks, .rank = rank};
}

/* A rank's whole epoch must be these; pads are those from place [n] on. */
static void want (train_sampler_t s, const char *text)
{
    int64_t length = -1, index;
    char got[128] = "";
    size_t used = 0;
    bool pad;

    assert_int_equal (train_sampler_length (&s, 0, &length, NULL), 0);
    for (int64_t k = 0; k < length; k++) {
        assert_int_equal (train_sampler_get (&s, 0, 0, k, &index, &pad, NULL),
                          0);
        used += (size_t)snprintf (got + used, sizeof (got) - used, "%s%d%s",
                                  k ? " " : "", (int)index, pad ? "p" : "");
    }
    assert_int_equal (train_sampler_get (&s, 0, 0, length, &index, &pad, NULL),
                      TRAIN_ENOTFOUND);
    assert_string_equal (got, text);
}

/* torch.utils.data.DistributedSampler (range (n), R, rank, shuffle=False) */
static void test_shares (void **state)
{
    static const char *const ten[] = {"0 4 8", "1 5 9", "2 6 0p", "3 7 1p"};
    static const char *const drop[] = {"0 4", "1 5", "2 6", "3 7"};
    static const char *const three[] = {"0",  "1",  "2",  "0p",
                                        "1p", "2p", "0p", "1p"};

    (void)state;
    for (int r = 0; r < 4; r++) {
        train_sampler_t s = make (10, 4, r);

        want (s, ten[r]);
        s.drop_last = true;
        want (s, drop[r]);
        s.n = 3;
        want (s, "");
    }
    for (int r = 0; r < 8; r++)
        want (make (3, 8, r), three[r]);
    want (make (0, 2, 1), "");
}

/* Every sample once, pads apart, whatever R; epochs and seeds differ, also
 * where their sums are the same. */
static void test_shuffled (void **state)
{
    enum { N = 37 };
    int64_t order[4][N], length;

    (void)state;
    for (int run = 0; run < 4; run++) {
        for (int ranks = 1; ranks <= 5; ranks++) {
            int times[N] = {0};

            for (int rank = 0; rank < ranks; rank++) {
                train_sampler_t s = make (N, ranks, rank);

                s.shuffle = true;
                s.seed = (uint64_t)(run & 1);
                assert_int_equal (train_sampler_length (&s, 0, &length, NULL),
                                  0);
                for (int64_t k = 0; k < length; k++) {
                    int64_t index;
                    bool pad;

                    assert_int_equal (train_sampler_get (&s, run >> 1, 0, k,
                                                         &index, &pad, NULL),
                                      0);
                    if (pad)
                        continue;
                    times[index]++;
                    if (ranks == 1)
                        order[run][k] = index;
                    else
                        assert_int_equal (order[run][rank + k * ranks], index);
                }
            }
            for (int i = 0; i < N; i++)
                assert_int_equal (times[i], 1);
        }
        for (int other = 0; other < run; other++)
            assert_memory_not_equal (order[run], order[other],
                                     sizeof (order[0]));
    }
}

/* From (epoch, consumed) on it is the order that never stopped, with any R. */
static void test_resume (void **state)
{
    enum { N = 41 };

    (void)state;
    for (int64_t consumed = 0; consumed <= N; consumed++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                train_sampler_t whole = make (N, 1, 0), s = whole;
                int64_t length, index, same;
                bool pad;

                whole.shuffle = s.shuffle = true;
                s.ranks = ranks;
                s.rank = rank;
                assert_int_equal (
                    train_sampler_length (&s, consumed, &length, NULL), 0);
                assert_int_equal (length, (N - consumed + ranks - 1) / ranks);
                for (int64_t k = 0; k < length; k++) {
                    int64_t place = consumed + rank + k * ranks;

                    assert_int_equal (train_sampler_get (&s, 3, consumed, k,
                                                         &index, &pad, NULL),
                                      0);
                    assert_int_equal (pad, place >= N);
                    assert_int_equal (train_sampler_get (&whole, 3, 0,
                                                         place % N, &same, NULL,
                                                         NULL),
                                      0);
                    assert_int_equal (index, same);
                }
            }
}

static void test_bad (void **state)
{
    train_sampler_t s = make (10, 4, 4);
    train_error_t err = {0};
    int64_t x;

    (void)state;
    assert_int_equal (train_sampler_length (&s, 0, &x, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "rank 4"));
    s.rank = -1;
    assert_int_equal (train_sampler_length (&s, 0, &x, &err), TRAIN_EINVAL);
    s = make (10, 0, 0);
    assert_int_equal (train_sampler_length (&s, 0, &x, &err), TRAIN_EINVAL);
    s = make (-1, 1, 0);
    assert_int_equal (train_sampler_length (&s, 0, &x, &err), TRAIN_EINVAL);
    s = make (10, 2, 0);
    assert_int_equal (train_sampler_length (&s, 11, &x, &err), TRAIN_EINVAL);
    assert_int_equal (train_sampler_get (&s, -1, 0, 0, &x, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_sampler_get (&s, 0, 0, 0, NULL, NULL, &err),
                      TRAIN_EINVAL);
    s.size = 0;
    assert_int_equal (train_sampler_get (&s, 0, 0, 0, &x, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_sampler_get (NULL, 0, 0, 0, &x, NULL, &err),
                      TRAIN_EINVAL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_shares),
        cmocka_unit_test (test_shuffled),
        cmocka_unit_test (test_resume),
        cmocka_unit_test (test_bad),
    };

    return cmocka_run_group_tests_name ("sampler", tests, NULL, NULL);
}
