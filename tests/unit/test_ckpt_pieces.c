/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt_pieces.c - any ranks write, any others read; a torn one is not read
 */
#include "config.h"

#include "ckpt_world.h"

#include <signal.h>

#include "group_ranks.h"

/* Written by 1 to 5 ranks in three ways, read by 1 to 5 in three ways. */
static void test_every_world (void **state)
{
    static struct model m;

    (void)state;
    for (int world = 1; world <= MAX_WORLD; world++)
        for (int how = 0; how < N_HOW; how++) {
            train_ckpt_t *c;

            fill (&m, (unsigned)(world * N_HOW + how));
            save_well ("worlds", world * 10 + how, &m, world, (enum how)how);
            c = open_latest ("worlds");
            assert_int_equal (train_ckpt_verify (c, NULL), 0);
            for (int w = 1; w <= MAX_WORLD; w++)
                for (int h = 0; h < N_HOW; h++)
                    read_as (c, &m, w, (enum how)h);
            train_ckpt_close (c);
        }
}

static void test_manifest_says (void **state)
{
    static struct model m;
    train_ckpt_piece_t p;
    train_ckpt_t *c;
    char text[256], small[8];
    void *data = NULL;
    size_t n = 0;

    (void)state;
    fill (&m, 1);
    save_well ("says", 12, &m, 3, FLAT);
    c = open_latest ("says");
    assert_int_equal (train_ckpt_step (c), 12);
    assert_int_equal (train_ckpt_world (c), 3);
    assert_string_equal (train_ckpt_strategy (c), "full_shard");
    assert_string_equal (train_ckpt_state (c, "note"), "\"\xc3\xa9\n");
    assert_null (train_ckpt_state (c, "no"));
    assert_int_equal (train_ckpt_bytes (c, "products", &data, &n, NULL), 0);
    assert_int_equal (n, 4);
    assert_memory_equal (data, "\0\xff\x10z", 4);
    free (data);
    assert_int_equal (train_ckpt_bytes (c, "empty", &data, &n, NULL), 0);
    assert_int_equal (n, 0);
    free (data);
    assert_int_equal (train_ckpt_bytes (c, "no", &data, &n, NULL),
                      TRAIN_ENOTFOUND);
    assert_int_equal (train_ckpt_n_tensors (c), N_TENSORS);
    assert_int_equal (train_ckpt_tensor (c, 0, &p, &n, NULL), 0);
    assert_string_equal (p.name, "embed.weight");
    assert_int_equal (n, 3);
    assert_int_equal (p.count, 91);
    assert_int_equal (train_ckpt_tensor (c, N_TENSORS, &p, &n, NULL),
                      TRAIN_EINVAL);
    assert_false (
        train_ckpt_differs (c, 3, "full_shard", "NVIDIA H200", text, 256));
    assert_string_equal (text, "");
    assert_true (train_ckpt_differs (c, 2, NULL, NULL, text, sizeof (text)));
    assert_string_equal (
        text, "written with ranks 3 there and 2 here, strategy full_shard "
              "there and whole here, device NVIDIA H200 there and cpu here");
    assert_true (train_ckpt_differs (c, 2, NULL, NULL, small, sizeof (small)));
    assert_string_equal (small, "written");
    train_ckpt_close (c);
}

/* What a rank hands in wrongly, and what all together lack. */
static void test_refused (void **state)
{
    static struct model m;
    train_ckpt_options_t o = options ("refused", 1);
    train_ckpt_piece_t p = piece (&m, 0, 0, 1, FLAT), two[2] = {p, p};
    train_ckpt_saver_t *s = NULL;
    train_error_t err = {0};
    const struct {
        const char *text;
        train_ckpt_piece_t p;
    } bad[] = {
        {"no name", {.name = ""}},
        {"no type or shape", {.name = "x", .ndim = 9}},
        {"no type or shape", {.name = "x", .dtype = (train_dtype_t)77}},
        {"no type or shape", {.name = "x", .ndim = 1, .shape = {-1}}},
        {"not within its 4",
         {.name = "x", .ndim = 1, .shape = {4}, .first = 5}},
        {"not within its 4",
         {.name = "x", .ndim = 1, .shape = {4}, .first = 1, .count = 4}},
        {"no data", {.name = "x", .ndim = 1, .shape = {4}, .count = 4}},
        {"file '../x'", {.name = "x", .ndim = 1, .shape = {0}, .file = "../x"}},
    };

    (void)state;
    assert_int_equal (train_ckpt_saver_create (NULL, &s, NULL), 0);
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        assert_int_equal (train_ckpt_start (s, &bad[i].p, 1, &o, &err),
                          TRAIN_EINVAL);
        if (!strstr (err.text, bad[i].text))
            fail_msg ("%s", err.text);
    }
    o.beside = &(train_ckpt_bytes_t){"../../x", "x", 1};
    assert_int_equal (train_ckpt_start (s, &p, 1, &o, &err), TRAIN_EINVAL);
    o = options ("refused", 1);
    o.n_state = 2;
    o.state = (train_st_meta_t[]){{"a", "1"}, {"a", "2"}};
    assert_int_equal (train_ckpt_start (s, &p, 1, &o, &err), TRAIN_EINVAL);
    assert_int_equal (access ("refused", F_OK), -1); /* nothing was begun */
    o = options ("refused", 1);
    two[0].count = 40;
    two[1].first = 41;
    two[1].count = 50;
    assert_int_equal (train_ckpt_start (s, two, 2, &o, &err), 0);
    assert_int_equal (train_ckpt_wait (s, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "embed.weight"));
    assert_non_null (strstr (err.text, "element 40 of 91"));
    assert_int_equal (train_ckpt_wait (s, &err), 0); /* told once */
    two[1].first = 39;
    two[1].count = 52;
    assert_int_equal (train_ckpt_start (s, two, 2, &o, &err), 0);
    assert_int_equal (train_ckpt_wait (s, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "element 39 of 91"));
    two[1].dtype = TRAIN_F16;
    two[1].first = 40;
    two[1].count = 51;
    assert_int_equal (train_ckpt_start (s, two, 2, &o, &err), 0);
    assert_int_equal (train_ckpt_wait (s, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "one type and shape"));
    train_ckpt_saver_destroy (s);
}

/* The file has the values of the call, whatever becomes of the memory: it is
 * changed at once, over and over, while the thread writes. */
static void test_snapshot (void **state)
{
    static struct model m, want;
    train_ckpt_saver_t *s = NULL;
    train_ckpt_piece_t p[N_TENSORS + 1];
    const size_t big = 1 << 22;
    unsigned char *x = malloc (big), *y = malloc (big);

    (void)state;
    assert_non_null (x);
    assert_non_null (y);
    assert_int_equal (train_ckpt_saver_create (NULL, &s, NULL), 0);
    for (unsigned round = 0; round < 6; round++) {
        char name[8] = "big";
        train_ckpt_options_t o = options ("snapshot", round);
        train_ckpt_t *c;

        fill (&m, round);
        want = m;
        memset (x, (int)round, big);
        pieces (p, &m, 0, 1, FLAT);
        p[N_TENSORS] = (train_ckpt_piece_t){.name = name,
                                            .dtype = TRAIN_U8,
                                            .ndim = 1,
                                            .shape = {(int64_t)big},
                                            .count = (int64_t)big,
                                            .data = x};
        assert_int_equal (train_ckpt_start (s, p, N_TENSORS + 1, &o, NULL), 0);
        memset (name, 'x', sizeof (name) - 1);
        while (!train_ckpt_done (s)) {
            memset (&m, 0xdd, sizeof (m));
            memset (x, 0xdd, big);
        }
        assert_int_equal (train_ckpt_wait (s, NULL), 0);
        c = open_latest ("snapshot");
        assert_int_equal (train_ckpt_step (c), round);
        read_as (c, &want, 1, FLAT);
        p[N_TENSORS].name = "big";
        p[N_TENSORS].data = y;
        assert_int_equal (train_ckpt_read (c, &p[N_TENSORS], 1, NULL), 0);
        for (size_t i = 0; i < big; i++)
            if (y[i] != round)
                fail_msg ("byte %zu is %d", i, y[i]);
        train_ckpt_close (c);
    }
    train_ckpt_saver_destroy (s);
    free (x);
    free (y);
}

/* A save that failed is told by the next one, which begins nothing. */
static void test_failure_is_told (void **state)
{
    static struct model m;
    train_ckpt_saver_t *s = NULL;
    train_ckpt_piece_t p = piece (&m, 0, 0, 1, FLAT), half = p;
    train_ckpt_options_t o = options ("told", 1);
    train_error_t err = {0};

    (void)state;
    half.count = 5;
    assert_int_equal (train_ckpt_saver_create (NULL, &s, NULL), 0);
    assert_int_equal (train_ckpt_start (s, &half, 1, &o, NULL), 0);
    o.step = 2;
    assert_int_equal (train_ckpt_start (s, &p, 1, &o, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "element 5"));
    assert_true (train_ckpt_done (s));
    assert_int_equal (access ("told/step-00000002", F_OK), -1);
    assert_int_equal (train_ckpt_start (s, &p, 1, &o, &err), 0);
    train_ckpt_saver_destroy (s); /* waits */
    assert_int_equal (access ("told/step-00000002/checkpoint.json", F_OK), 0);
}

/* By a group: three processes, one checkpoint; then a rank whose piece is
 * wrong, which every rank hears of before a file is made. */
static void group_body (struct job *job, int rank, train_group_t *group)
{
    static struct model m;
    train_ckpt_saver_t *s = NULL;
    train_ckpt_options_t o = options ("group", 7);
    train_ckpt_piece_t p[N_TENSORS];
    train_error_t err = {0};

    fill (&m, 9);
    pieces (p, &m, rank, job->size, FLAT);
    train_ckpt_saver_create (group, &s, NULL);
    if (train_ckpt_start (s, p, N_TENSORS, &o, &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, 0);
    memset (&m, 0, sizeof (m));
    if (train_ckpt_wait (s, &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, 0);
    if (access ("group/step-00000007/checkpoint.json", F_OK) < 0)
        note (job, rank, "wait came back too early", 0, 0, 0);
    if (rank == 1)
        p[0].first = -1;
    o.step = 8;
    if (train_ckpt_start (s, p, N_TENSORS, &o, &err) != TRAIN_EINVAL)
        note (job, rank, "a wrong piece passes", 0, 0, 0);
    if (!strstr (err.text, "embed")
        || (rank != 1 && !strstr (err.text, "another rank failed: rank 1: ")))
        note (job, rank, err.text, 0, 0, 0);
    p[0].first = 0; /* rank 1 has rank 0's elements, too: told by all */
    p[0].count = rank == 1 ? 1 : p[0].count;
    if (train_ckpt_start (s, p, N_TENSORS, &o, &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, 0);
    if (train_ckpt_wait (s, &err) != TRAIN_EINVAL)
        note (job, rank, "an element of two ranks passes", 0, 0, 0);
    train_ckpt_saver_destroy (s);
}

static void test_group (void **state)
{
    static struct model want;
    struct job job = {
        .layout = "aab", .body = group_body, .timeout_ms = PATIENCE_MS};
    train_ckpt_t *c;

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
    c = open_latest ("group");
    assert_int_equal (train_ckpt_step (c), 7);
    assert_int_equal (train_ckpt_world (c), 3);
    fill (&want, 9);
    read_as (c, &want, 2, FLAT);
    train_ckpt_close (c);
    assert_int_equal (access ("group/step-00000008", F_OK), -1);
}

/* A rank that dies over its part is found out by the group, long before rank 0
 * would give up waiting for the part. */
static void dead_body (struct job *job, int rank, train_group_t *group)
{
    static struct model m;
    train_ckpt_saver_t *s = NULL;
    train_ckpt_options_t o = options ("dead", 7);
    train_ckpt_piece_t p[N_TENSORS];
    train_error_t err = {0};
    int64_t begin = now_ms ();
    train_status_t status;

    fill (&m, 9);
    pieces (p, &m, rank, job->size, FLAT);
    train_ckpt_saver_create (group, &s, NULL);
    if (train_ckpt_start (s, p, N_TENSORS, &o, &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, 0);
    if (rank == 1)
        raise (SIGKILL);
    status = train_ckpt_wait (s, &err);
    if (status != TRAIN_EPEER || !strstr (err.text, "rank 1"))
        note (job, rank, err.text, 0, 0, 0);
    if (now_ms () - begin > 30000)
        note (job, rank, "it took too long", 0, 0, 0);
    train_ckpt_saver_destroy (s);
}

static void test_dead_writer (void **state)
{
    struct job job = {
        .layout = "aaa", .body = dead_body, .timeout_ms = PATIENCE_MS};

    (void)state;
    run_job (&job);
    for (int r = 0; r < 3; r++)
        if (r != 1 && *job.shared->seen[r].note)
            fail_msg ("rank %d: %s", r, job.shared->seen[r].note);
    free_job (&job);
    assert_int_equal (access ("dead/step-00000007", F_OK), -1);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_every_world),
        cmocka_unit_test (test_manifest_says),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_snapshot),
        cmocka_unit_test (test_failure_is_told),
        cmocka_unit_test (test_group),
        cmocka_unit_test (test_dead_writer),
    };

    return cmocka_run_group_tests_name ("ckpt_pieces", tests, set_up,
                                        tear_down);
}
