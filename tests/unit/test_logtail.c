/* SPDX-License-Identifier: Apache-2.0
 * test_logtail.c - a file that grows, as it is shown */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "logtail.h"

struct fixture {
    char dir[32], file[64];
    int out[2]; /* a pipe: what was shown */
    struct logtail tail;
};

static int setup (void **state)
{
    struct fixture *f = calloc (1, sizeof (*f));

    snprintf (f->dir, sizeof (f->dir), "/tmp/test_logtail.XXXXXX");
    if (!mkdtemp (f->dir) || pipe2 (f->out, O_CLOEXEC | O_NONBLOCK))
        return -1;
    snprintf (f->file, sizeof (f->file), "%s/log", f->dir);
    *state = f;
    return 0;
}

static int teardown (void **state)
{
    struct fixture *f = *state;

    logtail_fini (&f->tail);
    unlink (f->file);
    rmdir (f->dir);
    close (f->out[0]);
    close (f->out[1]);
    free (f);
    return 0;
}

static void begin (struct fixture *f, bool lines, const char *label)
{
    assert_int_equal (logtail_init (&f->tail, strdup (f->file), f->out[1],
                                    lines, label, NULL),
                      RV_OK);
}

static void append (const struct fixture *f, const char *text)
{
    FILE *file = fopen (f->file, "ae");

    assert_non_null (file);
    fputs (text, file);
    fclose (file);
}

static void expect (struct fixture *f, const char *text)
{
    char buf[4096];
    ssize_t n = read (f->out[0], buf, sizeof (buf) - 1);

    buf[n > 0 ? n : 0] = '\0';
    assert_string_equal (buf, text);
}

static bool poll_once (struct fixture *f)
{
    bool any;

    assert_int_equal (logtail_poll (&f->tail, &any, NULL), RV_OK);
    return any;
}

static void bad_arguments (void **state)
{
    struct fixture *f = *state;
    struct rv_error err;
    bool any;

    assert_int_equal (logtail_init (&f->tail, NULL, 1, false, NULL, &err),
                      RV_ENOMEM);
    /* A folder is no log. */
    assert_int_equal (
        logtail_init (&f->tail, strdup (f->dir), 1, false, NULL, &err), RV_OK);
    assert_int_equal (logtail_poll (&f->tail, &any, &err), RV_EIO);
    assert_non_null (strstr (err.text, f->dir));
    logtail_fini (NULL);
}

static void raw (void **state)
{
    struct fixture *f = *state;

    begin (f, false, NULL);
    assert_false (poll_once (f)); /* not there yet */
    append (f, "a\npart");
    assert_true (poll_once (f));
    expect (f, "a\npart");
    assert_false (poll_once (f));
    append (f, "ial");
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    expect (f, "ial"); /* and no newline of ours */
}

static void whole_lines (void **state)
{
    struct fixture *f = *state;

    begin (f, true, NULL);
    append (f, "a\nb\npar");
    poll_once (f);
    expect (f, "a\nb\n");
    append (f, "t\n\nlast");
    poll_once (f);
    expect (f, "part\n\n");
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    expect (f, "last\n");
}

static void labels (void **state)
{
    struct fixture *f = *state;

    begin (f, true, "3: ");
    append (f, "a\nb");
    poll_once (f);
    append (f, "c\n\nd");
    poll_once (f);
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    expect (f, "3: a\n3: bc\n3: \n3: d\n");
}

static bool begins_with_k (const char *line, size_t len)
{
    assert_int_equal (line[len - 1], '\n');
    return line[0] == 'k';
}

static void kept (void **state)
{
    struct fixture *f = *state;

    assert_int_equal (logtail_release (&f->tail, true, NULL), RV_OK);
    begin (f, true, "1: ");
    f->tail.keep = begins_with_k;
    append (f, "a\nk1\nb\nk");
    poll_once (f);
    expect (f, "1: a\n1: b\n");
    append (f, "2\nc\nk3");
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    expect (f, "1: c\n");
    assert_int_equal (logtail_release (&f->tail, true, NULL), RV_OK);
    expect (f, "1: k1\n1: k2\n1: k3\n");
    append (f, "4\nk5\n");
    poll_once (f);
    assert_int_equal (logtail_release (&f->tail, false, NULL), RV_OK);
    assert_int_equal (logtail_release (&f->tail, true, NULL), RV_OK);
    expect (f, "1: 4\n");
}

/* A line longer than any buffer is shown whole and once. */
static void long_line (void **state)
{
    struct fixture *f = *state;
    size_t shown = 0;
    char *text = malloc (200001);
    char buf[65536];
    ssize_t n;

    begin (f, true, NULL);
    fcntl (f->out[1], F_SETPIPE_SZ, 1 << 20);
    memset (text, 'x', 200000);
    text[200000] = '\0';
    append (f, text);
    free (text);
    poll_once (f);
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    while ((n = read (f->out[0], buf, sizeof (buf))) > 0)
        shown += (size_t)n;
    assert_int_equal (shown, 200001);
}

/* The file is replaced while it is followed, as after a network hiccup: the
 * rest is read through a new descriptor at the same place. */
static void reopens (void **state)
{
    struct fixture *f = *state;

    begin (f, false, NULL);
    append (f, "one\n");
    poll_once (f);
    unlink (f->file);
    append (f, "one\ntwo\n");
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    expect (f, "one\ntwo\n");
}

static void skips (void **state)
{
    static const struct {
        const char *text;
        long lines;
        const char *shown;
    } v[] = {
        {"", 3, ""},
        {"a\nb\nc\n", 2, "b\nc\n"},
        {"a\nb\nc\n", 3, "a\nb\nc\n"},
        {"a\nb\nc\n", 9, "a\nb\nc\n"},
        {"a\nb\nc", 1, "c"},
        {"a\nb\nc", 2, "b\nc"},
        {"a\nb\nc\n", 0, ""},
        {"\n\n\n", 2, "\n\n"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        unlink (f->file);
        append (f, v[i].text);
        begin (f, false, NULL);
        assert_int_equal (logtail_skip (&f->tail, v[i].lines, NULL), RV_OK);
        poll_once (f);
        expect (f, v[i].shown);
        logtail_fini (&f->tail);
    }
}

/* Lines that lie across the blocks in which the end is searched. */
static void skips_far (void **state)
{
    struct fixture *f = *state;
    char line[16];

    for (int i = 0; i < 3000; i++) {
        snprintf (line, sizeof (line), "%d\n", i);
        append (f, line);
    }
    begin (f, false, NULL);
    assert_int_equal (logtail_skip (&f->tail, 2000, NULL), RV_OK);
    poll_once (f);
    assert_int_equal (read (f->out[0], line, 5), 5);
    assert_memory_equal (line, "1000\n", 5);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (bad_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown (raw, setup, teardown),
        cmocka_unit_test_setup_teardown (whole_lines, setup, teardown),
        cmocka_unit_test_setup_teardown (labels, setup, teardown),
        cmocka_unit_test_setup_teardown (kept, setup, teardown),
        cmocka_unit_test_setup_teardown (long_line, setup, teardown),
        cmocka_unit_test_setup_teardown (reopens, setup, teardown),
        cmocka_unit_test_setup_teardown (skips, setup, teardown),
        cmocka_unit_test_setup_teardown (skips_far, setup, teardown),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
