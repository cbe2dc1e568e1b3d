/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt.c - a checkpoint is whole or not there, and says what is wrong */
#include "config.h"

#include "ckpt_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

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

/* Another file of the same names, even of the same sizes, is not the one. */
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
    refuse ("shape/step-00000003", &r, TRAIN_ECORRUPT, "model.safetensors");
    assert_int_equal (
        train_safetensors_write ("shape/step-00000003/model.safetensors", e,
                                 n - 1, &pt, 1, NULL),
        0);
    refuse ("shape/step-00000003", &r, TRAIN_ECORRUPT, "model.safetensors");
    assert_int_equal (unlink ("shape/step-00000003/model.safetensors"), 0);
    refuse ("shape/step-00000003", &r, TRAIN_ENOTFOUND, "model.safetensors");
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
    train_ckpt_state_t s = {.size = sizeof (s)};

    assert_int_equal (fsio_read (path, 1 << 24, &whole, &len, NULL), 0);
    for (size_t i = 0; i < len; i += 1 + i % 41) {
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
    damage ("torn/step-00000003/checkpoint.json", &r);
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
    train_ckpt_state_t s = {.size = sizeof (s)};
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
    assert_int_equal (train_ckpt_find_good ("latest", &path, &err, NULL),
                      TRAIN_OK);
    assert_string_equal (path, "latest/step-00000005");
    assert_non_null (strstr (err.text, "latest/latest says ''"));
    free (path);
    path = NULL;
    assert_int_equal (unlink ("latest/latest"), 0);
    assert_int_equal (train_ckpt_find ("latest", &path, NULL), TRAIN_OK);
    assert_string_equal (path, "latest/step-00000005");
    assert_int_equal (train_ckpt_remove ("latest", 5, &err), TRAIN_EINVAL);
    free (path);
    path = NULL;
    assert_int_equal (unlink ("latest/step-00000005/checkpoint.json"), 0);
    assert_int_equal (train_ckpt_find ("latest", &path, &err), TRAIN_ENOTFOUND);
    assert_string_equal (err.text, "latest holds no checkpoint");
    assert_int_equal (train_ckpt_find ("later", &path, &err), TRAIN_ENOTFOUND);
    assert_string_equal (err.text, "later is no folder of checkpoints");
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

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_arguments),
        cmocka_unit_test (test_round_trip),
        cmocka_unit_test (test_other_model),
        cmocka_unit_test (test_wrong_tensors),
        cmocka_unit_test (test_damage),
        cmocka_unit_test (test_mixed),
        cmocka_unit_test (test_keep),
        cmocka_unit_test (test_latest),
        cmocka_unit_test (test_prepare),
        cmocka_unit_test (test_no_room),
    };

    return cmocka_run_group_tests_name ("ckpt", tests, set_up, tear_down);
}
