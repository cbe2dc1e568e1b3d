/* SPDX-License-Identifier: Apache-2.0
 * test_copy_reports.c - public reports of memory that was written, freed or
 * read while a copy was under way, on GPUs that copy late */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend_fault.h"
#include "copy_impl.h"

#define CHUNK ((size_t)64 << 10)
#define N     (CHUNK * 21 + 8)

static char line[512];
static int lines;

static void keep (void *arg, const char *text)
{
    (void)arg;
    lines++;
    snprintf (line, sizeof (line), "%s", text);
}

struct two {
    train_copier_t *copier;
    train_tensor_t host, gpu;
    unsigned char *h, *g;
};

static void view (train_tensor_t *t, void *data, int device)
{
    int64_t n = (int64_t)N;

    assert_int_equal (train_tensor_view (t, data, TRAIN_U8, 1, &n, NULL), 0);
    if (device >= 0) {
        t->t.device.device_type = kDLCUDA;
        t->t.device.device_id = device;
    }
}

static void set_up (struct two *t)
{
    train_copier_options_t o = {.size = sizeof (o),
                                .probe = "",
                                .ring_bytes = CHUNK * 4,
                                .chunk_bytes = CHUNK,
                                .log = keep};

    fault_set (FAULT_NONE);
    lines = 0;
    assert_int_equal (copier_create_with (&backend_fault, &o, &t->copier, NULL),
                      TRAIN_OK);
    assert_int_equal (backend_host.alloc (0, N, (void **)&t->h, NULL), 0);
    assert_int_equal (backend_fault.alloc (0, N, (void **)&t->g, NULL), 0);
    for (size_t i = 0; i < N; i++)
        t->h[i] = (unsigned char)(i * 0x9e3779b97f4a7c15u >> 40);
    view (&t->host, t->h, -1);
    view (&t->gpu, t->g, 0);
}

static void tear_down (struct two *t)
{
    train_copier_destroy (t->copier);
    backend_host.free (t->h);
    backend_fault.free (t->g);
}

/* A copy begins to stand still; then it goes on. */
static void hold (void)
{
    __atomic_store_n (&fault.held, false, __ATOMIC_RELEASE);
    __atomic_store_n (&fault.hold, true, __ATOMIC_RELEASE);
}

static void until_held (void)
{
    const struct timespec ms = {0, 1000000};

    for (int i = 0; !__atomic_load_n (&fault.held, __ATOMIC_ACQUIRE); i++) {
        assert_true (i < 60000);
        nanosleep (&ms, NULL);
    }
}

static void go_on (void)
{
    __atomic_store_n (&fault.hold, false, __ATOMIC_RELEASE);
}

/* pytorch/pytorch#127612: pinned memory is written while a copy reads it, and
 * its last element arrives changed. The sums notice; what stands in the end is
 * one state of the source, and the log asks about it. */
static void test_source_written (void **state)
{
    train_copy_report_t r;
    train_copy_t *copy = NULL;
    struct two t;

    (void)state;
    set_up (&t);
    t.host.t.device.device_type = kDLCUDAHost;
    hold ();
    assert_int_equal (train_copy_start (t.copier, &t.gpu.t, NULL, &t.host.t,
                                        NULL, NULL, &copy, NULL),
                      TRAIN_OK);
    until_held ();
    t.h[0] ^= 0xff; /* its sum was taken, its bytes have not gone */
    go_on ();
    assert_int_equal (train_copy_wait (copy, 60000, &r, NULL), TRAIN_OK);
    assert_true (r.mismatch && r.verified && r.repeated == 1);
    assert_memory_equal (t.g, t.h, N);
    assert_int_equal (lines, 1);
    assert_non_null (strstr (line, "was the source written meanwhile"));
    tear_down (&t);
}

/* Memory that is not pinned goes by the ring: once there it is safe. */
static void test_ring_holds (void **state)
{
    train_copy_report_t r;
    train_copy_t *copy = NULL;
    struct two t;
    unsigned char was;

    (void)state;
    set_up (&t);
    hold ();
    assert_int_equal (train_copy_start (t.copier, &t.gpu.t, NULL, &t.host.t,
                                        NULL, NULL, &copy, NULL),
                      TRAIN_OK);
    until_held ();
    was = t.h[0];
    t.h[0] ^= 0xff;
    go_on ();
    assert_int_equal (train_copy_wait (copy, 60000, &r, NULL), TRAIN_OK);
    assert_true (r.verified && !r.mismatch);
    assert_int_equal (t.g[0], was);
    assert_memory_equal (t.g + 1, t.h + 1, N - 1);
    tear_down (&t);
}

/* pytorch/pytorch#130785: pinned memory goes back to its pool before the copy
 * that reads it ends. A chunk of the ring is filled again only once what it
 * held has gone, however late that is. */
static void test_chunk_reused (void **state)
{
    static const train_verify_t ways[] = {TRAIN_VERIFY_OFF, TRAIN_VERIFY_FULL};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        train_copy_options_t o = {.size = sizeof (o), .verify = ways[i]};
        train_copy_report_t r;
        struct two t;

        set_up (&t);
        fault.lazy = true;
        assert_int_equal (train_copy (t.copier, &t.gpu.t, NULL, &t.host.t, NULL,
                                      &o, &r, NULL),
                          TRAIN_OK);
        assert_true (r.chunks > 4); /* more than the ring has */
        assert_false (r.mismatch);
        assert_memory_equal (t.g, t.h, N);
        tear_down (&t);
    }
}

static void *destroy (void *copier)
{
    train_copier_destroy (copier);
    return NULL;
}

/* The same report: the pool itself goes away under a copy. */
static void test_pool_freed (void **state)
{
    train_copy_t *copy = NULL;
    pthread_t thread;
    struct two t;

    (void)state;
    set_up (&t);
    hold ();
    assert_int_equal (train_copy_start (t.copier, &t.gpu.t, NULL, &t.host.t,
                                        NULL, NULL, &copy, NULL),
                      TRAIN_OK);
    until_held ();
    assert_int_equal (pthread_create (&thread, NULL, destroy, t.copier), 0);
    nanosleep (&(struct timespec){0, 20000000}, NULL);
    assert_int_equal (fault.unpinned, 0);
    go_on ();
    pthread_join (thread, NULL);
    assert_true (fault.unpinned > 0);
    assert_memory_equal (t.g, t.h, N);
    t.copier = NULL;
    tear_down (&t);
}

/* pytorch/pytorch#86264: host memory is read before the bytes from the GPU are
 * there. Nothing but train_copy_wait says that they are, and then they are. */
static void test_read_early (void **state)
{
    static const int types[] = {kDLCPU, kDLCUDAHost};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        train_copy_options_t o = {.size = sizeof (o),
                                  .verify = i < 2 ? TRAIN_VERIFY_OFF
                                                  : TRAIN_VERIFY_FULL};
        train_copy_t *copy = NULL;
        train_error_t err = {0};
        struct two t;

        set_up (&t);
        memcpy (t.g, t.h, N);
        memset (t.h, 0xa5, N);
        t.host.t.device.device_type = (DLDeviceType)types[i % 2];
        fault.lazy = true;
        hold ();
        assert_int_equal (train_copy_start (t.copier, &t.host.t, NULL, &t.gpu.t,
                                            NULL, &o, &copy, NULL),
                          TRAIN_OK);
        until_held ();
        assert_int_equal (train_copy_wait (copy, 0, NULL, &err),
                          TRAIN_ETIMEDOUT);
        assert_int_equal (t.h[N - 1], 0xa5);
        go_on ();
        assert_int_equal (train_copy_wait (copy, 60000, NULL, NULL), TRAIN_OK);
        assert_memory_equal (t.h, t.g, N);
        tear_down (&t);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_source_written),
        cmocka_unit_test (test_ring_holds),
        cmocka_unit_test (test_chunk_reused),
        cmocka_unit_test (test_pool_freed),
        cmocka_unit_test (test_read_early),
    };

    return cmocka_run_group_tests_name ("copy_reports", tests, NULL, NULL);
}
