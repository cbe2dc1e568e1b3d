/* SPDX-License-Identifier: Apache-2.0
 * test_share_gpu.c - tensors of GPUs between processes, on made-up GPUs: bases
 * and offsets, references, what is refused and staged, who dies */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>

#include "share_pair.h"

/* Two tensors of one block, mapped once; then a third, and the end. */
static int takes_three (train_peer_t *p, int ready)
{
    train_taken_t *a = NULL, *b = NULL;

    (void)ready;
    if (train_share_take (p, &a, NULL) != TRAIN_OK || !is (a, N, 1, 1))
        return 1;
    if (train_share_take (p, &b, NULL) != TRAIN_OK || !is (b, 10, 2, 1))
        return 2;
    if (fake_share.mapped != 1)
        return 3;
    train_taken_release (a);
    if (fake_share.mapped != 1 || !is (b, 10, 2, 1))
        return 4;
    train_taken_release (b);
    if (fake_share.mapped != 0 || fake_share.opened != 0)
        return 5;
    if (train_share_take (p, &a, NULL) != TRAIN_OK || !is (a, N, 3, 1))
        return 6;
    train_taken_release (a);
    train_peer_close (p);
    return fake_share.mapped + fake_share.opened + fake_share.blocks;
}

static void share_three (train_share_t *s)
{
    train_error_t err = {0};
    train_tensor_t t, u;
    struct two two;

    begin (&two, takes_three, 0);
    view (&t, s, 0, N, 1);
    view (&u, s, N + 1, 10, 2);
    if (train_share_give (s, two.peer, &t.t, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_int_equal (train_share_give (s, two.peer, &u.t, &err), TRAIN_OK);
    assert_int_equal (train_share_refs (s), 2);
    assert_int_equal (train_share_destroy (s, &err), TRAIN_ESTATE);
    assert_int_equal (train_share_wait (s, two.peer, &err), TRAIN_OK);
    view (&t, s, 0, N, 3);
    assert_int_equal (train_share_give (s, two.peer, &t.t, &err), TRAIN_OK);
    assert_int_equal (train_share_wait (s, two.peer, &err), TRAIN_OK);
    assert_int_equal (train_share_refs (s), 0);
    assert_int_equal (lines, 0);
    end (&two, 0);
}

static void test_kinds (void **state)
{
    static const train_share_kind_t kinds[] = {
        TRAIN_SHARE_AUTO, TRAIN_SHARE_CUDA_IPC, TRAIN_SHARE_CUDA_FD};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct left before;
        train_share_t *s = NULL;

        fake_share = (struct fake_share_state){.kinds = BOTH};
        before = look ();
        assert_int_equal (
            train_share_create_gpu (kinds[i], 1, N + 11, &s, NULL), TRAIN_OK);
        assert_int_equal (train_share_kind (s),
                          i == 1 ? TRAIN_SHARE_CUDA_IPC : TRAIN_SHARE_CUDA_FD);
        share_three (s);
        assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
        same_as (before);
    }
}

/* Memory of the caller: the handle is of what it lies in. */
static void test_wrap (void **state)
{
    struct left before;
    train_share_t *s = NULL;
    train_error_t err = {0};
    char host[64], *x;

    (void)state;
    fake_share = (struct fake_share_state){.kinds = BOTH};
    before = look ();
    x = fake_share_carve (1, 12345, N + 11);
    assert_int_equal (train_share_wrap (TRAIN_SHARE_AUTO, host, 64, &s, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_share_wrap (TRAIN_SHARE_CUDA_FD, x, N, &s, &err),
                      TRAIN_EINVAL);
    assert_int_equal (
        train_share_wrap (TRAIN_SHARE_AUTO, x, 64 << 20, &s, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "one allocation"));
    assert_int_equal (train_share_wrap (TRAIN_SHARE_AUTO, x, N + 11, &s, &err),
                      TRAIN_OK);
    assert_int_equal (train_share_kind (s), TRAIN_SHARE_CUDA_IPC);
    share_three (s);
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
    assert_int_equal (fake_share.blocks, 1); /* still the caller's */
    fake_share_gpu.free (x - 12345);
    same_as (before);
}

static void test_arguments (void **state)
{
    train_share_t *s = NULL;
    train_error_t err = {0};
    train_tensor_t t;
    int pair[2];
    train_peer_t *p;

    (void)state;
    fake_share = (struct fake_share_state){.kinds = BOTH};
    assert_int_equal (train_share_create_gpu (TRAIN_SHARE_AUTO, 2, 8, &s, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_share_create_gpu (TRAIN_SHARE_AUTO, 0, 0, &s, &err),
                      TRAIN_EINVAL);
    assert_int_equal (
        train_share_create_gpu ((train_share_kind_t)4, 0, 8, &s, &err),
        TRAIN_EINVAL);
    fake_share.kinds = 0;
    assert_int_equal (
        train_share_create_gpu (TRAIN_SHARE_CUDA_IPC, 0, 8, &s, &err),
        TRAIN_ENOTSUP);
    assert_non_null (strstr (err.text, "a slice shares no memory"));
    fake_share.kinds = BOTH;
    assert_int_equal (socketpair (AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    p = peer_on (pair[0], 0);
    assert_int_equal (
        train_share_create_gpu (TRAIN_SHARE_AUTO, 1, 4096, &s, &err), TRAIN_OK);
    view (&t, s, 0, 8, 0);
    t.t.device.device_id = 0;
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_EINVAL);
    t.t.device.device_type = kDLCPU;
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_EINVAL);
    assert_int_equal (train_share_refs (s), 0);
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
    train_peer_close (p);
    close (pair[1]);
}

/* What [stream] was given before is in the sum, and seen. */
static int takes_one (train_peer_t *p, int ready)
{
    train_taken_t *a = NULL;
    const unsigned char *x;

    (void)ready;
    if (train_share_take (p, &a, NULL) != TRAIN_OK)
        return 1;
    x = train_taken_tensor (a)->data;
    for (size_t i = 0; i < N; i++) {
        if (x[i] != 7)
            return 2;
    }
    /* Its reader has not run yet when it is released. */
    {
        void *reader = fake_share_later ((void *)(uintptr_t)x, 9, N);

        if (train_taken_release_on (a, reader, NULL) != TRAIN_OK)
            return 3;
        free (reader);
    }
    return 0;
}

static void test_streams (void **state)
{
    struct left before;
    train_share_t *s = NULL;
    train_tensor_t t;
    struct two two;
    void *stream;

    (void)state;
    fake_share = (struct fake_share_state){.kinds = BOTH};
    before = look ();
    assert_int_equal (train_share_create_gpu (TRAIN_SHARE_AUTO, 1, N, &s, NULL),
                      TRAIN_OK);
    view (&t, s, 0, N, 1);
    begin (&two, takes_one, 0);
    stream = fake_share_later (train_share_data (s), 7, N);
    assert_int_equal (train_share_give_on (s, two.peer, &t.t, stream, NULL),
                      TRAIN_OK);
    assert_int_equal (train_share_wait (s, two.peer, NULL), TRAIN_OK);
    /* What the reader did was done before. */
    assert_int_equal (((unsigned char *)train_share_data (s))[N - 1], 9);
    free (stream);
    end (&two, 0);
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
    same_as (before);
}

/* A GPU has another number there, or is not there. */
static int takes_shifted (train_peer_t *p, int ready)
{
    train_taken_t *a = NULL;

    (void)ready;
    fake_share.first = 1; /* GPU 1 is the first one here */
    if (train_share_take (p, &a, NULL) != TRAIN_OK || !is (a, N, 1, 0))
        return 1;
    train_taken_release (a);
    fake_share.first = 5; /* none of them is here: by the peer's own */
    if (train_share_take (p, &a, NULL) != TRAIN_OK || !is (a, N, 1, 1))
        return 2;
    train_taken_release (a);
    return fake_share.mapped;
}

static void test_numbers (void **state)
{
    train_share_t *s = NULL;
    train_tensor_t t;
    struct two two;

    (void)state;
    fake_share = (struct fake_share_state){.kinds = BOTH};
    assert_int_equal (train_share_create_gpu (TRAIN_SHARE_AUTO, 1, N, &s, NULL),
                      TRAIN_OK);
    begin (&two, takes_shifted, 1);
    for (int i = 0; i < 2; i++) {
        view (&t, s, 0, N, 1);
        assert_int_equal (train_share_give (s, two.peer, &t.t, NULL), TRAIN_OK);
        assert_int_equal (train_share_wait (s, two.peer, NULL), TRAIN_OK);
    }
    end (&two, 0);
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
}

/* How the taker cannot map, then takes what is staged. */
static int take_two_on (train_peer_t *p, int device)
{
    train_taken_t *a = NULL;

    for (unsigned salt = 1; salt <= 2; salt++) {
        if (train_share_take (p, &a, NULL) != TRAIN_OK)
            return 1;
        if (!is (a, N, salt, device))
            return 2;
        train_taken_release (a);
    }
    train_peer_close (p);
    return fake_share.mapped + fake_share.opened + fake_share.blocks;
}

static int takes_closed (train_peer_t *p, int ready)
{
    (void)ready;
    fake_share.closed = true;
    return take_two_on (p, 0);
}

static int takes_spoiled (train_peer_t *p, int ready)
{
    (void)ready;
    fake_share.spoil = true;
    return take_two_on (p, 0);
}

static int takes_on_host (train_peer_t *p, int ready)
{
    (void)ready;
    return take_two_on (p, -1);
}

static void test_staged (void **state)
{
    static const struct {
        int (*job) (train_peer_t *, int);
        int device;
        unsigned kinds;
        const char *word;
    } row[] = {
        {takes_closed, 0, BOTH, "invalid device context"},
        {takes_closed, 0, 1u << TRAIN_SHARE_CUDA_IPC, "invalid device context"},
        {takes_spoiled, 0, BOTH, "mapped bytes have sum"},
        {takes_spoiled, 0, 1u << TRAIN_SHARE_CUDA_IPC, "mapped bytes have sum"},
        {takes_on_host, -1, BOTH, "it has no GPU"},
        {takes_closed, 0, 0, "a slice shares no memory"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (row) / sizeof (*row); i++) {
        struct left before;
        train_share_t *s = NULL;
        train_tensor_t t;
        struct two two;

        fake_share = (struct fake_share_state){.kinds = row[i].kinds};
        before = look ();
        assert_int_equal (
            train_share_create_gpu (TRAIN_SHARE_AUTO, 1, N + 9, &s, NULL),
            TRAIN_OK);
        begin (&two, row[i].job, row[i].device);
        for (unsigned salt = 1; salt <= 2; salt++) {
            view (&t, s, 9, N, salt);
            assert_int_equal (train_share_give (s, two.peer, &t.t, NULL),
                              TRAIN_OK);
            assert_int_equal (train_share_wait (s, two.peer, NULL), TRAIN_OK);
        }
        assert_int_equal (lines, 1);
        assert_non_null (strstr (line, "the other: tensors of GPU 1 are staged "
                                       "through host memory"));
        if (!strstr (line, row[i].word))
            fail_msg ("row %zu: %s", i, line);
        end (&two, 0);
        assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
        same_as (before);
    }
}

/* A kind that was asked for is not replaced by another. */
static int takes_none (train_peer_t *p, int ready)
{
    train_taken_t *a = NULL;
    train_error_t err = {0};

    (void)ready;
    fake_share.closed = true;
    if (train_share_take (p, &a, &err) != TRAIN_ENOTSUP || a)
        return 1;
    return strstr (err.text, "invalid device context") ? 0 : 2;
}

static void test_strict (void **state)
{
    train_share_t *s = NULL;
    train_tensor_t t;
    struct two two;

    (void)state;
    fake_share = (struct fake_share_state){.kinds = BOTH};
    assert_int_equal (
        train_share_create_gpu (TRAIN_SHARE_CUDA_IPC, 1, N, &s, NULL),
        TRAIN_OK);
    view (&t, s, 0, N, 1);
    begin (&two, takes_none, 0);
    assert_int_equal (train_share_give (s, two.peer, &t.t, NULL), TRAIN_OK);
    assert_int_equal (train_share_wait (s, two.peer, NULL), TRAIN_OK);
    assert_int_equal (lines, 0);
    end (&two, 0);
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
}

/* CUDA opens no IPC handle in the process that made it. */
static void test_same_process (void **state)
{
    train_taken_t *taken = NULL;
    train_share_t *s = NULL;
    train_error_t err = {0};
    train_tensor_t t;
    train_peer_t *a, *b;
    int pair[2];

    (void)state;
    fake_share = (struct fake_share_state){.kinds = BOTH};
    assert_int_equal (socketpair (AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    a = peer_on (pair[0], 0);
    b = peer_on (pair[1], 0);
    assert_int_equal (
        train_share_create_gpu (TRAIN_SHARE_CUDA_IPC, 1, N, &s, NULL),
        TRAIN_OK);
    view (&t, s, 0, N, 1);
    assert_int_equal (train_share_give (s, a, &t.t, NULL), TRAIN_OK);
    assert_int_equal (train_share_take (b, &taken, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "of this process itself"));
    assert_int_equal (train_share_wait (s, a, NULL), TRAIN_OK);
    /* Closed while the other lives: it may have it mapped, so it stays. */
    assert_int_equal (train_share_give (s, a, &t.t, NULL), TRAIN_OK);
    train_peer_close (a);
    assert_int_equal (train_share_refs (s), 1);
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_ESTATE);
    s->refs = 0;
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
    train_peer_close (b);
}

static int holds (train_peer_t *p, int ready)
{
    train_taken_t *a = NULL;

    if (train_share_take (p, &a, NULL) == TRAIN_OK
        && write (ready, "x", 1) == 1)
        pause ();
    return 1;
}

static void test_taker_killed (void **state)
{
    (void)state;
    for (int kind = TRAIN_SHARE_MEMFD; kind <= TRAIN_SHARE_CUDA_FD; kind++) {
        struct left before;
        train_share_t *s = NULL;
        train_error_t err = {0};
        train_tensor_t t;
        struct two two;

        fake_share = (struct fake_share_state){.kinds = BOTH};
        before = look ();
        assert_int_equal (
            train_share_create_gpu ((train_share_kind_t)kind, 1, N, &s, NULL),
            TRAIN_OK);
        view (&t, s, 0, N, 1);
        begin (&two, holds, 0);
        assert_int_equal (train_share_give (s, two.peer, &t.t, NULL), TRAIN_OK);
        wait_ready (&two);
        assert_int_equal (train_share_refs (s), 1);
        kill (two.child, SIGKILL);
        assert_int_equal (train_share_wait (s, two.peer, &err), TRAIN_EPEER);
        assert_string_equal (err.text, "the other: the process ended");
        assert_int_equal (train_share_refs (s), 0);
        end (&two, -1);
        assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
        same_as (before);
    }
}

static train_share_kind_t give_kind;

static int gives (train_peer_t *p, int ready)
{
    train_share_t *s = NULL;
    train_tensor_t t;

    if (train_share_create_gpu (give_kind, 1, N, &s, NULL) == TRAIN_OK
        && train_share_give (s, p, &view (&t, s, 0, N, 5)->t, NULL) == TRAIN_OK
        && write (ready, "x", 1) == 1)
        pause ();
    return 1;
}

/* The giver is killed: the memory is mapped here, and goes with the release. */
static void test_giver_killed (void **state)
{
    (void)state;
    for (int kind = TRAIN_SHARE_MEMFD; kind <= TRAIN_SHARE_CUDA_FD; kind++) {
        train_taken_t *taken = NULL, *next = NULL;
        train_error_t err = {0};
        struct left before;
        struct two two;

        fake_share = (struct fake_share_state){.kinds = BOTH};
        before = look ();
        give_kind = (train_share_kind_t)kind;
        begin (&two, gives, 0);
        wait_ready (&two);
        if (train_share_take (two.peer, &taken, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
        kill (two.child, SIGKILL);
        assert_int_equal (train_share_take (two.peer, &next, &err),
                          TRAIN_EPEER);
        assert_true (is (taken, N, 5, kind == TRAIN_SHARE_MEMFD ? 0 : 1));
        train_taken_release (taken);
        end (&two, -1);
        same_as (before);
    }
}

/* Given, and dead before it is taken: an IPC handle dies with its maker, and
 * nobody is there to stage. */
static void test_dead_handle (void **state)
{
    train_taken_t *taken = NULL;
    train_error_t err = {0};
    struct left before;
    struct two two;

    (void)state;
    fake_share = (struct fake_share_state){.kinds = BOTH};
    before = look ();
    give_kind = TRAIN_SHARE_CUDA_IPC;
    begin (&two, gives, 0);
    wait_ready (&two);
    kill (two.child, SIGKILL);
    assert_int_equal (waitpid (two.child, NULL, 0), two.child);
    assert_int_equal (train_share_take (two.peer, &taken, &err), TRAIN_EPEER);
    assert_null (taken);
    train_peer_close (two.peer);
    close (two.ready[0]);
    same_as (before);
}

static int set_up (void **state)
{
    (void)state;
    share_replace (&fake_share_gpu);
    return 0;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments),
        cmocka_unit_test (test_kinds),
        cmocka_unit_test (test_wrap),
        cmocka_unit_test (test_streams),
        cmocka_unit_test (test_numbers),
        cmocka_unit_test (test_staged),
        cmocka_unit_test (test_strict),
        cmocka_unit_test (test_same_process),
        cmocka_unit_test (test_taker_killed),
        cmocka_unit_test (test_giver_killed),
        cmocka_unit_test (test_dead_handle),
    };

    return cmocka_run_group_tests_name ("share_gpu", tests, set_up, NULL);
}
