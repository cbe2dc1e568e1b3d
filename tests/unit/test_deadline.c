/* SPDX-License-Identifier: Apache-2.0
 * test_deadline.c - calls under a deadline: who runs them, who cleans up */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "job/job_impl.h"

#define SOON_MS 20
#define LONG_MS 20000

struct task {
    pthread_t thread; /* written: who ran it */
    sem_t go;         /* where [waits] */
    bool waits;
    int result;
};

static atomic_int undone, undone_result;

static int work (void *arg)
{
    struct task *t = arg;

    t->thread = pthread_self ();
    while (t->waits && sem_wait (&t->go))
        ;
    return t->result;
}

static void undo (void *arg, int result)
{
    struct task *t = arg;

    sem_destroy (&t->go);
    free (t);
    undone_result = result;
    undone++;
}

static rv_job_status_t call (struct task *t, int64_t ms, int *ret)
{
    return deadline_call (work, undo, t, job_now_ms () + ms, ret);
}

static void one_thread_serves_calls_in_turn (void **state)
{
    struct task a = {.result = 7}, b = {.result = 8};
    int ret = 0;

    (void)state;
    assert_int_equal (call (&a, LONG_MS, &ret), RV_JOB_OK);
    assert_int_equal (ret, 7);
    assert_int_equal (call (&b, LONG_MS, &ret), RV_JOB_OK);
    assert_int_equal (ret, 8);
    assert_true (pthread_equal (a.thread, b.thread));
    assert_false (pthread_equal (a.thread, pthread_self ()));
    deadline_end ();
    deadline_end ();
    assert_int_equal (call (&a, LONG_MS, &ret), RV_JOB_OK);
}

/* The late call keeps its thread, is undone, and is in nobody's way. */
static void a_late_call_is_undone (void **state)
{
    struct task *late = calloc (1, sizeof (*late)), next = {.result = 3};
    int ret = 1, before = undone;

    (void)state;
    late->waits = true;
    late->result = 5;
    sem_init (&late->go, 0, 0);
    assert_int_equal (call (late, SOON_MS, &ret), RV_JOB_ETIMEDOUT);
    assert_int_equal (ret, 1);
    assert_int_equal (call (&next, LONG_MS, &ret), RV_JOB_OK);
    assert_int_equal (ret, 3);
    assert_int_equal (undone, before);
    sem_post (&late->go);
    for (int i = 0; undone == before && i < LONG_MS; i++)
        poll (NULL, 0, 1);
    assert_int_equal (undone, before + 1);
    assert_int_equal (undone_result, 5);
}

static void *other_caller (void *arg)
{
    int ret = 0;

    return call (arg, LONG_MS, &ret) == RV_JOB_OK && ret == 9 ? arg : NULL;
}

static void calls_may_overlap (void **state)
{
    struct task slow = {.waits = true, .result = 9}, quick = {.result = 2};
    pthread_t thread;
    void *good;
    int ret = 0;

    (void)state;
    sem_init (&slow.go, 0, 0);
    assert_int_equal (pthread_create (&thread, NULL, other_caller, &slow), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal (call (&quick, LONG_MS, &ret), RV_JOB_OK);
    assert_int_equal (ret, 2);
    sem_post (&slow.go);
    assert_int_equal (pthread_join (thread, &good), 0);
    assert_non_null (good);
    sem_destroy (&slow.go);
}

/* The idle thread is not there after a fork. */
static void a_child_has_its_own (void **state)
{
    struct task t = {.result = 4};
    int ret = 0, status = 0;
    pid_t pid;

    (void)state;
    assert_int_equal (call (&t, LONG_MS, &ret), RV_JOB_OK);
    pid = fork ();
    if (pid == 0)
        _exit (call (&t, LONG_MS, &ret) == RV_JOB_OK ? ret : 99);
    assert_int_equal (waitpid (pid, &status, 0), pid);
    assert_int_equal (WEXITSTATUS (status), 4);
    deadline_end ();
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (one_thread_serves_calls_in_turn),
        cmocka_unit_test (a_late_call_is_undone),
        cmocka_unit_test (calls_may_overlap),
        cmocka_unit_test (a_child_has_its_own),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
