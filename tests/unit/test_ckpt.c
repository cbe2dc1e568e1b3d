/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt.c - a checkpoint is whole or not there, and says what is wrong */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <train/ckpt.h>
#include <train/safetensors.h>

#include "plan/fsio.h"

static char dir[] = "/tmp/test_ckpt.XXXXXX";

static const train_decoder_config_t small = {
    .size = sizeof (train_decoder_config_t),
    .layers = 1,
    .dim = 8,
    .heads = 2,
    .kv_heads = 1,
    .ffn = 12,
    .vocab = 16,
    .tie = false,
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .dtype = TRAIN_F32,
};

static const train_adamw_options_t adamw_options = {
    .size = sizeof (train_adamw_options_t),
    .beta1 = 0.9,
    .beta2 = 0.95,
    .eps = 1e-8,
};

struct run {
    train_decoder_t *decoder;
    train_adamw_t *adamw;
};

/* Every element of weights, m and v gets a value of its own from [mark]. */
static void fill (struct run *r, double mark)
{
    DLTensor *t[3] = {train_decoder_weights (r->decoder),
                      train_adamw_m (r->adamw), train_adamw_v (r->adamw)};

    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < t[k]->shape[0]; i++) {
            double x = mark + k * 1000 + (double)i * 0.125;

            if (t[k]->dtype.bits == 64)
                ((double *)t[k]->data)[i] = x;
            else
                ((float *)t[k]->data)[i] = (float)x;
        }
}

static struct run make (const train_decoder_config_t *config, double mark)
{
    struct run r = {0};
    size_t n;
    train_param_t *p;

    assert_int_equal (train_decoder_create (config, &r.decoder, NULL), 0);
    n = train_decoder_n_params (r.decoder);
    assert_non_null (p = calloc (n, sizeof (*p)));
    for (size_t i = 0; i < n; i++)
        p[i] = *train_decoder_param (r.decoder, i);
    assert_int_equal (train_adamw_create (&adamw_options, config->dtype,
                                          train_decoder_numel (r.decoder), p, n,
                                          &r.adamw, NULL),
                      0);
    free (p);
    fill (&r, mark);
    return r;
}

static void drop (struct run *r)
{
    train_adamw_destroy (r->adamw);
    train_decoder_destroy (r->decoder);
}

static bool same_bits (DLTensor *a, DLTensor *b)
{
    return train_tensor_bytes (a) == train_tensor_bytes (b)
           && memcmp (a->data, b->data, train_tensor_bytes (a)) == 0;
}

static bool same (struct run *a, struct run *b)
{
    return same_bits (train_decoder_weights (a->decoder),
                      train_decoder_weights (b->decoder))
           && same_bits (train_adamw_m (a->adamw), train_adamw_m (b->adamw))
           && same_bits (train_adamw_v (a->adamw), train_adamw_v (b->adamw));
}

static train_ckpt_state_t state_at (int64_t step)
{
    return (train_ckpt_state_t){
        .size = sizeof (train_ckpt_state_t),
        .step = step,
        .updates = step - 1,
        .skipped = 1,
        .skip_run = 1,
        .tokens = step * 100,
        .position = step * 4,
        .seq = 25,
        .batch = 4,
        .shuffle = true,
        .seed = UINT64_MAX,
        .data_hash = 0x8000000000000001,
    };
}

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

static void save (const char *to, struct run *r, int64_t step, int keep)
{
    train_ckpt_state_t s = state_at (step);
    train_error_t err = {0};

    if (train_ckpt_save (to, &s, r->decoder, r->adamw, keep, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
}

static char *find (const char *where)
{
    char *path = NULL;
    train_error_t err = {0};

    if (train_ckpt_find (where, &path, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return path;
}

/* Loading must fail so and leave the run as it is. */
static void refuse (const char *path, struct run *r, train_status_t status,
                    const char *word)
{
    train_ckpt_state_t s = {.step = -7};
    struct run before = make (train_decoder_config (r->decoder), 5);
    train_error_t err = {0};
    train_status_t got;

    fill (r, 5);
    got = train_ckpt_load (path, r->decoder, r->adamw, &s, &err);
    if (got != status || !strstr (err.text, word))
        fail_msg ("%s: %s, and not %s with '%s'", train_status_name (got),
                  err.text, train_status_name (status), word);
    assert_true (same (r, &before));
    assert_int_equal (s.step, -7);
    drop (&before);
}

static void test_bad_arguments (void **state)
{
    struct run r = make (&small, 1);
    train_ckpt_state_t s = state_at (1), bad = s;
    char *path = NULL;

    (void)state;
#define SAVE(d, st, dec, opt, keep)                                            \
    train_ckpt_save (d, st, dec, opt, keep, NULL)
    assert_int_equal (SAVE (NULL, &s, r.decoder, r.adamw, 1), TRAIN_EINVAL);
    assert_int_equal (SAVE ("", &s, r.decoder, r.adamw, 1), TRAIN_EINVAL);
    assert_int_equal (SAVE ("x", NULL, r.decoder, r.adamw, 1), TRAIN_EINVAL);
    assert_int_equal (SAVE ("x", &s, NULL, r.adamw, 1), TRAIN_EINVAL);
    assert_int_equal (SAVE ("x", &s, r.decoder, NULL, 1), TRAIN_EINVAL);
    assert_int_equal (SAVE ("x", &s, r.decoder, r.adamw, 0), TRAIN_EINVAL);
    bad.size = 7;
    assert_int_equal (SAVE ("x", &bad, r.decoder, r.adamw, 1), TRAIN_EINVAL);
    bad = s;
    bad.step = -1;
    assert_int_equal (SAVE ("x", &bad, r.decoder, r.adamw, 1), TRAIN_EINVAL);
#undef SAVE
    assert_int_equal (access ("x", F_OK), -1);
    assert_int_equal (train_ckpt_find (NULL, &path, NULL), TRAIN_EINVAL);
    assert_int_equal (train_ckpt_find ("", &path, NULL), TRAIN_EINVAL);
    assert_int_equal (train_ckpt_find ("x", NULL, NULL), TRAIN_EINVAL);
    assert_int_equal (train_ckpt_find ("x", &path, NULL), TRAIN_ENOTFOUND);
    assert_null (path);
    assert_int_equal (train_ckpt_load (NULL, r.decoder, r.adamw, &s, NULL),
                      TRAIN_EINVAL);
    refuse ("x", &r, TRAIN_ENOTFOUND, "x/");
    drop (&r);
}

static void round_trip (const char *to, const train_decoder_config_t *config)
{
    struct run a = make (config, 1), b = make (config, 2);
    train_ckpt_state_t s = {0}, want = state_at (7);
    char *path;
    struct stat st;

    save (to, &a, 7, 1);
    path = find (to);
    assert_non_null (strstr (path, "/step-00000007"));
    assert_int_equal (train_ckpt_load (path, b.decoder, b.adamw, &s, NULL), 0);
    assert_true (same (&a, &b));
    assert_int_equal (train_adamw_updates (b.adamw), 6);
    /* every field, padding apart */
    assert_int_equal (s.size, want.size);
    assert_int_equal (s.step, want.step);
    assert_int_equal (s.updates, want.updates);
    assert_int_equal (s.skipped, want.skipped);
    assert_int_equal (s.skip_run, want.skip_run);
    assert_int_equal (s.tokens, want.tokens);
    assert_int_equal (s.position, want.position);
    assert_int_equal (s.seq, want.seq);
    assert_int_equal (s.batch, want.batch);
    assert_int_equal (s.shuffle, want.shuffle);
    assert_true (s.seed == want.seed);
    assert_true (s.data_hash == want.data_hash);
    free (path);
    path = find (to); /* a checkpoint itself is one, too */
    assert_int_equal (chdir (path), 0);
    assert_int_equal (stat ("config.json", &st), 0);
    free (path);
    path = find (".");
    assert_string_equal (path, ".");
    free (path);
    assert_int_equal (chdir (dir), 0);
    drop (&a);
    drop (&b);
}

static void test_round_trip (void **state)
{
    train_decoder_config_t c = small;

    (void)state;
    round_trip ("rt/f32", &c);
    c.dtype = TRAIN_F64;
    c.tie = true;
    round_trip ("rt/f64", &c);
}

static void test_other_model (void **state)
{
    train_decoder_config_t c = small;
    struct run a = make (&small, 1), b;

    (void)state;
    save ("other", &a, 3, 1);
    c.layers = 2;
    c.ffn = 16;
    b = make (&c, 2);
    refuse ("other/step-00000003", &b, TRAIN_EINVAL,
            "layers is 1 there and 2 here, ffn is 12 there and 16 here");
    drop (&b);
    c = small;
    c.dtype = TRAIN_F64;
    b = make (&c, 2);
    refuse ("other/step-00000003", &b, TRAIN_EINVAL,
            "dtype is F32 there and F64 here");
    drop (&b);
    c = small;
    c.rope_theta = 500000;
    b = make (&c, 2);
    refuse ("other/step-00000003", &b, TRAIN_EINVAL, "rope_theta");
    drop (&b);
    drop (&a);
}

/* What a checkpoint has no words for is not lost in silence. */
static void test_not_served (void **state)
{
    train_decoder_config_t c[3] = {small, small, small};
    train_ckpt_state_t s = state_at (1);

    (void)state;
    c[0].qkv_bias = c[1].qk_norm = true;
    c[2].rope = (train_rope_t){.kind = TRAIN_ROPE_LINEAR, .factor = 2};
    for (int i = 0; i < 3; i++) {
        struct run r = make (&c[i], 1);

        assert_int_equal (train_ckpt_save ("x", &s, r.decoder, r.adamw, 1, 0),
                          TRAIN_ENOTSUP);
        refuse ("x", &r, TRAIN_ENOTSUP, "not served yet");
        drop (&r);
    }
}

/* A tensor of another shape behind metadata that fit: only a forger makes it,
 * so it is made by hand. */
static void test_wrong_tensors (void **state)
{
    struct run r = make (&small, 1);
    train_safetensors_t *f = NULL;
    static const train_st_meta_t pt = {"format", "pt"};
    train_st_entry_t *e;
    size_t n;

    (void)state;
    save ("shape", &r, 3, 1);
    assert_int_equal (train_safetensors_open (
                          "shape/step-00000003/model.safetensors", &f, NULL),
                      0);
    n = train_safetensors_count (f);
    assert_non_null (e = calloc (n, sizeof (*e)));
    for (size_t i = 0; i < n; i++)
        e[i] = *train_safetensors_entry (f, i);
    for (size_t i = 0; i < n; i++)
        if (e[i].ndim == 2) {
            e[i].ndim = 1;
            e[i].shape[0] *= e[i].shape[1];
            break;
        }
    assert_int_equal (
        train_safetensors_write ("shape/step-00000003/model.safetensors", e, n,
                                 &pt, 1, NULL),
        0);
    refuse ("shape/step-00000003", &r, TRAIN_EFORMAT, "dtype or shape");
    assert_int_equal (
        train_safetensors_write ("shape/step-00000003/model.safetensors", e,
                                 n - 1, &pt, 1, NULL),
        0);
    refuse ("shape/step-00000003", &r, TRAIN_ECORRUPT, "metadata");
    free (e);
    train_safetensors_close (f);
    drop (&r);
}

static void put_bytes (const char *path, const char *buf, size_t len)
{
    int fd = open (path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_true (fd >= 0);
    assert_int_equal (write (fd, buf, len), len);
    close (fd);
}

/* No flipped bit and no cut end of either file passes. */
static void damage (const char *path, struct run *r)
{
    char *whole, was;
    size_t len;
    train_ckpt_state_t s;

    assert_int_equal (fsio_read (path, 1 << 24, &whole, &len, NULL), 0);
    for (size_t i = 0; i < len; i += 1 + i % 13) {
        was = whole[i];
        whole[i] ^= (char)(1 << i % 7);
        put_bytes (path, whole, len);
        if (train_ckpt_load ("torn/step-00000003", r->decoder, r->adamw, &s,
                             NULL)
            == TRAIN_OK)
            fail_msg ("%s: bit flipped in byte %zu of %zu (was %d) passes",
                      path, i, len, was);
        whole[i] = was;
    }
    for (size_t cut = 0; cut < len; cut += 1 + len / 37) {
        put_bytes (path, whole, cut);
        assert_int_not_equal (train_ckpt_load ("torn/step-00000003", r->decoder,
                                               r->adamw, &s, NULL),
                              TRAIN_OK);
    }
    put_bytes (path, whole, len);
    assert_int_equal (
        train_ckpt_load ("torn/step-00000003", r->decoder, r->adamw, &s, NULL),
        TRAIN_OK);
    free (whole);
}

static void test_damage (void **state)
{
    struct run r = make (&small, 1);

    (void)state;
    save ("torn", &r, 3, 1);
    damage ("torn/step-00000003/optim.safetensors", &r);
    damage ("torn/step-00000003/model.safetensors", &r);
    drop (&r);
}

/* Weights of one step never pass with the moments of another. */
static void test_mixed (void **state)
{
    struct run a = make (&small, 1), b = make (&small, 2);

    (void)state;
    save ("mix", &a, 1, 2);
    save ("mix", &b, 2, 2);
    assert_int_equal (rename ("mix/step-00000001/model.safetensors",
                              "mix/step-00000002/model.safetensors"),
                      0);
    refuse ("mix/step-00000002", &a, TRAIN_ECORRUPT, "checksum");
    drop (&a);
    drop (&b);
}

static bool there (const char *path)
{
    return access (path, F_OK) == 0;
}

static void test_keep (void **state)
{
    struct run a = make (&small, 1), b = make (&small, 2);
    train_ckpt_state_t s;
    char *path;

    (void)state;
    for (int64_t step = 1; step <= 4; step++)
        save ("keep", &a, step, 2);
    assert_false (there ("keep/step-00000001"));
    assert_false (there ("keep/step-00000002"));
    assert_true (there ("keep/step-00000003"));
    assert_int_equal (mkdir ("keep/step-1", 0700), 0); /* not ours */
    assert_int_equal (mkdir ("keep/.tmp-step-00000009", 0700), 0);
    save ("keep", &b, 4, 2); /* the same step once more: replaced */
    path = find ("keep");
    assert_int_equal (train_ckpt_load (path, a.decoder, a.adamw, &s, NULL), 0);
    assert_true (same (&a, &b));
    free (path);
    save ("keep", &a, 2, 1); /* a run that went back: its own one stays */
    path = find ("keep");
    assert_non_null (strstr (path, "step-00000002"));
    free (path);
    assert_false (there ("keep/step-00000003"));
    assert_false (there ("keep/step-00000004"));
    assert_true (there ("keep/step-1"));
    assert_false (there ("keep/.tmp-step-00000009"));
    drop (&a);
    drop (&b);
}

static void put (const char *path, const char *text)
{
    assert_int_equal (fsio_write (path, text, strlen (text), 0600, NULL), 0);
}

static void test_latest (void **state)
{
    struct run r = make (&small, 1);
    char *path = NULL;
    train_error_t err = {0};

    (void)state;
    save ("latest", &r, 5, 1);
    put ("latest/latest", "step-00000009\n");
    assert_int_equal (train_ckpt_find ("latest", &path, &err), TRAIN_EFORMAT);
    assert_non_null (strstr (err.text, "not there"));
    put ("latest/latest", "../../etc\n");
    assert_int_equal (train_ckpt_find ("latest", &path, &err), TRAIN_EFORMAT);
    assert_non_null (strstr (err.text, "step-N"));
    put ("latest/latest", "");
    assert_int_equal (train_ckpt_find ("latest", &path, NULL), TRAIN_EFORMAT);
    assert_int_equal (unlink ("latest/latest"), 0);
    assert_int_equal (train_ckpt_find ("latest", &path, NULL), TRAIN_ENOTFOUND);
    assert_null (path);
    drop (&r);
}

/* A full disk, played by a limit on file sizes: what was there stays. */
static void test_prepare (void **state)
{
    train_error_t err = {0};
    FILE *f;

    (void)state;
    assert_int_equal (train_ckpt_prepare (NULL, &err), TRAIN_EINVAL);
    assert_int_equal (train_ckpt_prepare ("", &err), TRAIN_EINVAL);
    assert_int_equal (train_ckpt_prepare ("pre/pared", &err), TRAIN_OK);
    assert_true (there ("pre/pared"));
    assert_int_equal (rmdir ("pre/pared"), 0); /* and nothing is in it */
    assert_non_null (f = fopen ("pre/file", "w"));
    fclose (f);
    assert_int_equal (train_ckpt_prepare ("pre/file", &err), TRAIN_EIO);
    assert_non_null (strstr (err.text, "pre/file"));
    assert_int_equal (train_ckpt_prepare ("pre/file/x", &err), TRAIN_EIO);
}

static void test_no_room (void **state)
{
    struct run a = make (&small, 1), b = make (&small, 2);
    struct rlimit old, low;
    train_ckpt_state_t s = state_at (2);
    char *path;

    (void)state;
    save ("room", &a, 1, 1);
    assert_int_equal (getrlimit (RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 3000;
    signal (SIGXFSZ, SIG_IGN);
    assert_int_equal (setrlimit (RLIMIT_FSIZE, &low), 0);
    assert_int_equal (train_ckpt_save ("room", &s, b.decoder, b.adamw, 1, NULL),
                      TRAIN_EIO);
    assert_int_equal (setrlimit (RLIMIT_FSIZE, &old), 0);
    assert_false (there ("room/.tmp-step-00000002"));
    path = find ("room");
    assert_int_equal (train_ckpt_load (path, b.decoder, b.adamw, &s, NULL), 0);
    assert_int_equal (s.step, 1);
    assert_true (same (&a, &b));
    free (path);
    drop (&a);
    drop (&b);
}

/* A child saves step after step, weights marked by the step, and is killed at
 * some moment: what `latest` names is whole and of one step. */
static void kill_one (int round)
{
    const struct timespec pause = {0, 2000000 + round * 1700000L % 29000000};
    struct run got = make (&small, 0), want = make (&small, 0);
    train_ckpt_state_t s;
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
    for (int round = 0; round < 24; round++)
        kill_one (round);
    save ("kill", &r, 1000000, 1);
    assert_false (there ("kill/.tmp-step-00000002"));
    drop (&r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_arguments),
        cmocka_unit_test (test_round_trip),
        cmocka_unit_test (test_other_model),
        cmocka_unit_test (test_not_served),
        cmocka_unit_test (test_wrong_tensors),
        cmocka_unit_test (test_damage),
        cmocka_unit_test (test_mixed),
        cmocka_unit_test (test_keep),
        cmocka_unit_test (test_latest),
        cmocka_unit_test (test_prepare),
        cmocka_unit_test (test_no_room),
        cmocka_unit_test (test_killed_writer),
    };

    return cmocka_run_group_tests_name ("ckpt", tests, set_up, tear_down);
}
