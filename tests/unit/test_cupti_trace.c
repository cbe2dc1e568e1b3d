/* SPDX-License-Identifier: Apache-2.0
 * test_cupti_trace.c - how cupti_trace shares out time, on records made here */
#if __has_include(<cupti.h>)

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/bench/cupti_trace.c"

static int begin (void **state)
{
    (void)state;
    all.n = 0;
    all.n_calls = 0;
    return 0;
}

/* A span of microseconds, and the call that launched it, if any did. */
static void put (uint64_t from, uint64_t to, enum kind kind, uint64_t launched)
{
    static uint32_t id;

    add_span (from * 1000, to * 1000, ++id, kind == LINK ? "nccl" : "k", kind);
    if (launched) {
        CUpti_ActivityAPI call = {.correlationId = id, .end = launched * 1000};

        add_call (&call);
    }
}

static struct shares shared (void)
{
    struct shares s;

    qsort (all.span, all.n, sizeof (*all.span), by_begin);
    find_launches (0);
    s = share (0);
    assert_float_equal (s.kernel + s.link + s.launch + s.host, s.whole, 1);
    return s;
}

static void test_one_after_the_other (void **state)
{
    struct shares s;

    (void)state;
    put (100, 200, KERNEL, 50);
    put (200, 300, LINK, 60);
    s = shared ();
    assert_float_equal (s.kernel, 100000, 1);
    assert_float_equal (s.link, 100000, 1);
    assert_float_equal (s.host + s.launch, 0, 1);
}

/* A kernel hides what runs beside it, whichever began and ended first. */
static void test_beside (void **state)
{
    struct shares s;

    (void)state;
    put (100, 300, LINK, 50);
    put (150, 250, KERNEL, 60);
    put (280, 400, KERNEL, 70);
    put (350, 380, LINK, 80);
    s = shared ();
    assert_float_equal (s.kernel, 220000, 1);
    assert_float_equal (s.link, 80000, 1);
    assert_float_equal (s.whole, 300000, 1);
}

/* A gap is the host's until the next is launched, and the card's from there. */
static void test_gaps (void **state)
{
    struct shares s;

    (void)state;
    put (100, 200, KERNEL, 50);
    put (260, 300, KERNEL, 240); /* late: 40 of the host, 20 after it */
    put (310, 400, KERNEL, 120); /* long launched */
    put (450, 500, KERNEL, 0);   /* not known when: the card's */
    s = shared ();
    assert_float_equal (s.kernel, 280000, 1);
    assert_float_equal (s.host, 40000, 1);
    assert_float_equal (s.launch, 80000, 1);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup (test_one_after_the_other, begin),
        cmocka_unit_test_setup (test_beside, begin),
        cmocka_unit_test_setup (test_gaps, begin),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}

#else

#include <stdio.h>

int main (void)
{
    printf ("1..0 # SKIP no cupti.h here\n");
    return 0;
}

#endif
