/* SPDX-License-Identifier: Apache-2.0
 * test_reference_units.c - a reference that is brought a unit at a time has the
 * bits of one that is whole */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <train/reference.h>

/* Its parts are spoilt here. */
#include "libtrain/reference_units.c"

#include "group_ranks.h"

enum { V = 13, B = 3, T = 7, SEED = 9 };

static const int32_t prompt_len[B] = {2, 1, 0}, total_len[B] = {7, 4, 6};

static train_decoder_config_t config (train_dtype_t dtype, bool tie)
{
    return (train_decoder_config_t){
        .size = sizeof (train_decoder_config_t),
        .layers = 2,
        .dim = 12,
        .heads = 2,
        .kv_heads = 1,
        .ffn = 10,
        .vocab = V,
        .tie = tie,
        .rope_theta = 10000,
        .norm_eps = 1e-5,
        .dtype = dtype,
    };
}

static train_status_t ask (train_reference_t *r, float ret[B * T],
                           train_error_t *err)
{
    int32_t ids[B * T];

    for (int i = 0; i < B * T; i++)
        ids[i] = i * 5 % V;
    return train_reference_logps (r, ids, prompt_len, total_len, B, T, 0.7, ret,
                                  err);
}

static train_status_t whole (const train_decoder_config_t *c, float ret[B * T],
                             train_error_t *err)
{
    train_reference_t *r = NULL;
    train_decoder_t *m = NULL;
    train_status_t status = train_decoder_create (c, &m, err);

    if (status == TRAIN_OK)
        status = train_decoder_draw (m, SEED, err);
    if (status == TRAIN_OK)
        status = train_reference_open_decoder (m, &r, err);
    if (status == TRAIN_OK)
        status = ask (r, ret, err);
    train_reference_close (r);
    train_decoder_destroy (m);
    return status;
}

/* One bit of this rank's part is another, and as it was. */
static train_status_t spoil (struct units *r, train_error_t *err)
{
    char *part = r->part[1];

    TRY (op_check (r, err));
    part[0] ^= 1;
    if (op_check (r, err) != TRAIN_ECORRUPT)
        return err_set (err, TRAIN_ESTATE, "a spoilt part passes");
    part[0] ^= 1;
    return op_check (r, err);
}

static train_status_t spoil_one (const train_decoder_config_t *c,
                                 train_group_t *group, bool offload,
                                 train_error_t *err)
{
    struct units *r = calloc (1, sizeof (*r));
    train_status_t status;

    if (!r)
        return err_set (err, TRAIN_ENOMEM, "no memory");
    r->o = (train_reference_units_options_t){
        .group = group, .offload = offload, .seed = SEED};
    r->world = group ? (size_t)train_group_size (group) : 1;
    r->rank = group ? (size_t)train_group_rank (group) : 0;
    status = set_up (r, c, err);
    if (status == TRAIN_OK)
        status = spoil (r, err);
    op_close (r);
    return status;
}

/* Asked twice, and once by the first rank alone. */
static train_status_t parts (const train_decoder_config_t *c,
                             train_group_t *group, bool offload,
                             float ret[B * T], int64_t hash[2],
                             train_error_t *err)
{
    const train_reference_units_options_t o = {
        .size = sizeof (o), .group = group, .offload = offload, .seed = SEED};
    train_reference_t *r = NULL;
    train_status_t status = train_reference_open_units (c, &o, &r, err);
    int rank = group ? train_group_rank (group) : 0;

    if (status == TRAIN_OK)
        status = ask (r, ret, err);
    if (status == TRAIN_OK)
        status = rank == 0 ? ask (r, ret, err) : train_reference_join (r, err);
    if (status == TRAIN_OK)
        status = ask (r, ret, err);
    if (status == TRAIN_OK)
        status = train_reference_check (r, err);
    if (status == TRAIN_OK)
        reference_hash (r, hash);
    train_reference_close (r);
    return status == TRAIN_OK ? spoil_one (c, group, offload, err) : status;
}

static const train_dtype_t dtypes[] = {TRAIN_F64, TRAIN_F32, TRAIN_BF16};

static train_decoder_config_t case_of (int i)
{
    return config (dtypes[i / 4], i & 1);
}

static int64_t hash_of[12]; /* of a reference that is not in parts */

/* A rank's part: [note] says where bits differ. */
static void on_ranks (struct job *job, int rank, train_group_t *ranks)
{
    struct seen *seen = &job->shared->seen[rank];
    float want[B * T], got[B * T];
    int64_t hash[2] = {0};

    for (int i = 0; i < 12 && seen->status == TRAIN_OK; i++) {
        train_decoder_config_t c = case_of (i);

        memset (got, 0, sizeof (got));
        seen->status = whole (&c, want, &seen->err);
        if (seen->status == TRAIN_OK)
            seen->status = parts (&c, ranks, i & 2, got, hash, &seen->err);
        if (memcmp (want, got, sizeof (want)) != 0)
            snprintf (seen->note, sizeof (seen->note), "case %d differs", i);
        if (hash[0] == 0 || hash[1] != hash_of[i])
            snprintf (seen->note, sizeof (seen->note), "case %d: hash", i);
    }
}

static void test_ranks (void **state)
{
    static const char *const layout[] = {"a", "ab", "aabb"};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct job job = {.layout = layout[k], .body = on_ranks};

        run_job (&job);
        want_ok (&job);
        for (size_t i = 0; i < strlen (layout[k]); i++)
            if (*job.shared->seen[i].note)
                fail_msg ("%s on %s", job.shared->seen[i].note, layout[k]);
        free_job (&job);
    }
}

static void test_alone (void **state)
{
    float want[B * T], got[B * T];
    train_error_t err = {0};
    int64_t hash[2] = {0};

    (void)state;
    for (int i = 0; i < 12; i++) {
        train_decoder_config_t c = case_of (i);

        assert_int_equal (whole (&c, want, &err), TRAIN_OK);
        assert_true (want[2] < -0.1f && want[0] == 0);
        /* adapters are none of its */
        c.lora = (train_lora_t){.rank = 2, .alpha = 4, .targets = 1};
        if (parts (&c, NULL, i & 2, got, hash, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
        assert_memory_equal (got, want, sizeof (want));
        assert_true (hash[0] != 0 && hash[1] != 0);
        hash_of[i] = hash[1];
        if (i & 2) /* wherever it lies */
            assert_true (hash[1] == hash_of[i - 2]);
        else if (i > 0)
            assert_true (hash[1] != hash_of[i - 1]);
    }
}

/* A rank whose part is not there ends the others, too. */
static void without (struct job *job, int rank, train_group_t *ranks)
{
    const train_reference_units_options_t o = {
        .size = sizeof (o), .group = ranks, .dir = rank == 1 ? "none" : NULL};
    struct seen *seen = &job->shared->seen[rank];
    train_decoder_config_t c = config (TRAIN_F32, true);
    train_reference_t *r = NULL;

    seen->status = train_reference_open_units (&c, &o, &r, &seen->err);
}

static void test_without (void **state)
{
    struct job job = {.layout = "aab", .body = without};

    (void)state;
    run_job (&job);
    want (&job, "1", TRAIN_ENOTFOUND, "another rank failed: rank 1: ");
    assert_int_equal (job.shared->seen[1].status, TRAIN_ENOTFOUND);
    free_job (&job);
}

/* By the linker's --wrap: in a rank, which allocation from here on fails. */
void *__real_calloc (size_t n, size_t size);
void *__wrap_calloc (size_t n, size_t size);
void *__real_malloc (size_t size);
void *__wrap_malloc (size_t size);

static int fails_at; /* 0: none */
static bool has_failed;

static bool fails_now (void)
{
    if (fails_at == 0 || --fails_at > 0)
        return false;
    return has_failed = true;
}

void *__wrap_calloc (size_t n, size_t size)
{
    return fails_now () ? NULL : __real_calloc (n, size);
}

void *__wrap_malloc (size_t size)
{
    return fails_now () ? NULL : __real_malloc (size);
}

/* Each step of making a part, one after the other, fails on rank 1. */
static void each (struct job *job, int rank, train_group_t *ranks)
{
    struct seen *seen = &job->shared->seen[rank];
    train_decoder_config_t c = config (TRAIN_F32, true);
    bool done = false;

    for (int at = 1; !done; at++) {
        struct units *r = calloc (1, sizeof (*r));
        int mine, *all = NULL;
        size_t lens[3];

        *r = (struct units){.o = {.group = ranks, .seed = SEED},
                            .world = 3,
                            .rank = (size_t)rank};
        fails_at = rank == 1 ? at : 0;
        has_failed = false;
        seen->status = make (r, &c, &seen->err);
        fails_at = 0;
        mine = has_failed;
        seen->status =
            agree (ranks, r->own, seen->status, &r->hash, &seen->err);
        if (train_gather_object (ranks, &mine, sizeof (mine), -1, (void **)&all,
                                 lens, NULL)
            != TRAIN_OK)
            return note (job, rank, "a rank left", at, 0, 0);
        done = all[1] == 0;
        free (all);
        if ((seen->status == TRAIN_OK) != done
            || (!done && rank != 1
                && !strstr (seen->err.text, "another rank failed: rank 1: ")))
            note (job, rank, seen->err.text, at, seen->status, 0);
        op_close (r);
    }
}

static void test_each (void **state)
{
    struct job job = {.layout = "aab", .body = each};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

static void test_refused (void **state)
{
    const train_reference_units_options_t o = {.size = sizeof (o),
                                               .dir = "no/such/folder"};
    train_decoder_config_t c = config (TRAIN_F32, true);
    train_reference_t *r = NULL;
    train_error_t err = {0};

    (void)state;
    assert_int_equal (train_reference_open_units (&c, &o, &r, &err),
                      TRAIN_ENOTFOUND);
    assert_non_null (strstr (err.text, "no/such/folder"));
    c.heads = 0;
    assert_int_equal (train_reference_open_units (&c, NULL, &r, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_reference_open_units (NULL, NULL, &r, &err),
                      TRAIN_EINVAL);
    assert_null (r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_alone),   cmocka_unit_test (test_ranks),
        cmocka_unit_test (test_without), cmocka_unit_test (test_each),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
