/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt_options.c - decoders with every option, callers of every size, and
 * writers that are killed */
#include "config.h"

#include "ckpt_run.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <train/hf.h>

/* Every option comes back, is compared, and config.json says the same. */
static void every_option (const char *to, train_decoder_config_t c,
                          const char *word)
{
    train_hf_model_t m = {.size = sizeof (m)};
    train_decoder_config_t plain = small;
    struct run r = make (&small, 1);
    char *path;

    c.dtype = plain.dtype;
    round_trip (to, &c);
    path = find (to);
    refuse (path, &r, TRAIN_EINVAL, word);
    if (c.qkv_bias && c.qk_norm) {
        assert_int_equal (train_hf_describe (path, &m, NULL), TRAIN_ENOTFOUND);
    } else {
        assert_int_equal (train_hf_describe (path, &m, NULL), 0);
        assert_true (m.decoder.qkv_bias == c.qkv_bias);
        assert_true (m.decoder.qk_norm == c.qk_norm);
        assert_int_equal (m.decoder.head_dim, c.head_dim ? c.head_dim : 4);
        assert_int_equal (m.decoder.rope.kind, c.rope.kind);
        assert_true (m.decoder.rope.factor == c.rope.factor);
        assert_true (m.decoder.rope.original == c.rope.original);
        assert_true (m.decoder.rope.low == c.rope.low);
        assert_true (m.decoder.rope.high == c.rope.high);
        assert_true (m.decoder.rope.attention == c.rope.attention);
        assert_true (m.decoder.rope.whole == c.rope.whole);
        assert_true (m.decoder.rope_theta == c.rope_theta);
    }
    free (path);
    drop (&r);
}

static void test_options (void **state)
{
    train_decoder_config_t c = small;

    (void)state;
    c.head_dim = 6;
    every_option ("opt/head", c, "head_dim is 6 there and 4 here");
    c = small;
    c.qkv_bias = true;
    every_option ("opt/bias", c, "qkv_bias is on there and off here");
    c.qk_norm = true;
    every_option ("opt/both", c, "qk_norm is on there and off here");
    c.qkv_bias = false;
    every_option ("opt/norm", c, "qk_norm is on there and off here");
    c = small;
    c.rope = (train_rope_t){.kind = TRAIN_ROPE_LINEAR, .factor = 2.1};
    every_option ("opt/linear", c, "rope_kind is linear there and default");
    c.rope = (train_rope_t){TRAIN_ROPE_DYNAMIC, 3, 64, 0, 0, 0, false};
    every_option ("opt/dynamic", c, "rope_original is 64 there and 0 here");
    c.rope = (train_rope_t){TRAIN_ROPE_LLAMA3, 8, 32, 1, 4, 0, false};
    every_option ("opt/llama3", c, "rope_kind is llama3 there");
    c.rope = (train_rope_t){TRAIN_ROPE_YARN, 4, 16, 1.5, 30, 1.25, true};
    every_option ("opt/yarn", c, "rope_whole is on there and off here");
}

/* A caller of an older or a newer header gets what it has room for. */
static void test_state_sizes (void **state)
{
    struct {
        train_ckpt_state_t s;
        unsigned char more[32];
    } big;
    train_ckpt_state_t s = {.size = 0};
    struct run r = make (&small, 1);
    const size_t old = offsetof (train_ckpt_state_t, loss);

    (void)state;
    save ("sizes", &r, 3, 1);
    assert_int_equal (
        train_ckpt_load ("sizes/step-00000003", r.decoder, r.adamw, &s, NULL),
        TRAIN_EINVAL);
    memset (&s, 0x5a, sizeof (s));
    s.size = old;
    assert_int_equal (
        train_ckpt_load ("sizes/step-00000003", r.decoder, r.adamw, &s, NULL),
        0);
    assert_int_equal (s.step, 3);
    assert_true (s.size == old && s.data_hash == 0x8000000000000001);
    for (size_t i = old; i < sizeof (s); i++)
        assert_int_equal (((unsigned char *)&s)[i], 0x5a);
    memset (&big, 0x5a, sizeof (big));
    big.s.size = sizeof (big);
    assert_int_equal (train_ckpt_load ("sizes/step-00000003", r.decoder,
                                       r.adamw, &big.s, NULL),
                      0);
    assert_true (big.s.size == sizeof (big) && big.s.step == 3);
    for (size_t i = 0; i < sizeof (big.more); i++)
        assert_int_equal (big.more[i], 0);
    drop (&r);
}

/* A child saves step after step, weights marked by the step, and is killed at
 * some moment: what `latest` names is whole and of one step. */
static void kill_one (int round)
{
    const struct timespec pause = {0, 2000000 + round * 1700000L % 29000000};
    struct run got = make (&small, 0), want = make (&small, 0);
    train_ckpt_state_t s = {.size = sizeof (s)};
    char *path = find ("kill");
    int64_t first;
    pid_t pid;

    assert_int_equal (train_ckpt_load (path, got.decoder, got.adamw, &s, NULL),
                      0);
    free (path);
    first = s.step;
    pid = fork ();
    assert_true (pid >= 0);
    if (pid == 0)
        for (int64_t step = first + 1;; step++) {
            train_ckpt_state_t now = state_at (step);

            fill (&want, (double)step);
            if (train_ckpt_save ("kill", &now, want.decoder, want.adamw, 2,
                                 NULL)
                != TRAIN_OK)
                _exit (1);
        }
    nanosleep (&pause, NULL);
    assert_int_equal (kill (pid, SIGKILL), 0);
    assert_int_equal (waitpid (pid, &round, 0), pid);
    assert_true (WIFSIGNALED (round));
    path = find ("kill");
    assert_int_equal (train_ckpt_load (path, got.decoder, got.adamw, &s, NULL),
                      0);
    assert_true (s.step >= first);
    fill (&want, (double)s.step);
    assert_true (same (&got, &want));
    free (path);
    drop (&got);
    drop (&want);
}

static void test_killed_writer (void **state)
{
    struct run r = make (&small, 1);

    (void)state;
    save ("kill", &r, 1, 2);
    for (int round = 0; round < 10; round++)
        kill_one (round);
    save ("kill", &r, 1000000, 1);
    assert_int_equal (access ("kill/.tmp-step-00000002", F_OK), -1);
    drop (&r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_options),
        cmocka_unit_test (test_state_sizes),
        cmocka_unit_test (test_killed_writer),
    };

    return cmocka_run_group_tests_name ("ckpt_options", tests, set_up,
                                        tear_down);
}
