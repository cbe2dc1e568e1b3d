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

static void append_to (const char *path, const char *text)
{
    FILE *file = fopen (path, "ae");

    assert_non_null (file);
    fputs (text, file);
    fclose (file);
}

static void append (const struct fixture *f, const char *text)
{
    append_to (f->file, text);
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

/* What was written over is read from its beginning; what a line had before is
 * not lost. */
static void truncated (void **state)
{
    struct fixture *f = *state;

    begin (f, true, NULL);
    append (f, "one\ntwo\nhalf a li");
    poll_once (f);
    expect (f, "one\ntwo\n");
    assert_int_equal (truncate (f->file, 0), 0);
    assert_false (poll_once (f));
    expect (f, "half a li\n");
    append (f, "again\n");
    poll_once (f);
    expect (f, "again\n");
    /* Shorter, and written again before anybody looked. */
    append (f, "many more words\n");
    poll_once (f);
    expect (f, "many more words\n");
    assert_int_equal (truncate (f->file, 0), 0);
    append (f, "new\n");
    poll_once (f);
    expect (f, "new\n");
    assert_false (poll_once (f));
    /* As long as before, or longer, when somebody looks. */
    assert_int_equal (truncate (f->file, 0), 0);
    append (f, "old\n");
    poll_once (f);
    expect (f, "old\n");
    assert_int_equal (truncate (f->file, 0), 0);
    append (f, "again and longer\n");
    poll_once (f);
    expect (f, "again and longer\n");
    assert_false (poll_once (f));
}

static void poll_long (struct fixture *f)
{
    for (int i = 0; i < 50; i++)
        poll_once (f);
}

/* As logrotate does: moved away, what its writer adds there until the new one
 * stands is not lost. */
static void rotated (void **state)
{
    struct fixture *f = *state;
    char old[80];

    snprintf (old, sizeof (old), "%s.1", f->file);
    begin (f, true, "1: ");
    append (f, "one\n");
    poll_once (f);
    assert_int_equal (rename (f->file, old), 0);
    poll_long (f);
    expect (f, "1: one\n");
    append (f, "three and more\n");
    append_to (old, "two\nunfinished");
    poll_long (f);
    expect (f, "1: two\n1: unfinished\n1: three and more\n");
    unlink (old);
    /* at the end it is not waited for */
    unlink (f->file);
    append (f, "4\n");
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    expect (f, "1: 4\n");
}

/* Zeros that a network file system shows for a moment are no other file. */
static void holes (void **state)
{
    struct fixture *f = *state;
    char zeros[8];
    int fd;

    begin (f, false, NULL);
    append (f, "one\n");
    poll_once (f);
    expect (f, "one\n");
    assert_int_equal (truncate (f->file, 8), 0);
    poll_once (f);
    assert_int_equal (read (f->out[0], zeros, sizeof (zeros)), 4);
    fd = open (f->file, O_WRONLY | O_CLOEXEC);
    assert_int_equal (pwrite (fd, "two\n", 4, 4), 4);
    close (fd);
    append (f, "three\n");
    poll_once (f);
    expect (f, "three\n");
}

/* Of a line that is drawn over the last state is shown, labels or not. */
static void bars (void **state)
{
    static const char *const labels[] = {NULL, "1: "};
    struct fixture *f = *state;

    for (size_t i = 0; i < 2; i++) {
        const char *label = labels[i] ? labels[i] : "";
        char want[64];

        unlink (f->file);
        begin (f, true, labels[i]);
        f->tail.clean = true;
        append (f, "begin\n\r 0%");
        poll_once (f);
        append (f, "\r 50%");
        poll_once (f);
        append (f, "\r100%\nend\r\n");
        poll_once (f);
        snprintf (want, sizeof (want), "%sbegin\n%s100%%\n%send\r\n", label,
                  label, label);
        expect (f, want);
        /* However long it goes on, no more than its state is kept. */
        for (int n = 0; n < 20000; n++)
            append (f, "\r a state of twenty bytes");
        poll_once (f);
        assert_true (f->tail.part_len < 100);
        assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
        snprintf (want, sizeof (want), "%s a state of twenty bytes\n", label);
        expect (f, want);
        logtail_fini (&f->tail);
    }
}

/* Now and then an unfinished one is a line of its own. */
static void bars_now_and_then (void **state)
{
    static const struct {
        const char *add;
        int64_t at;
        const char *shown;
    } v[] = {
        {"no bar", 1000, ""},
        {"", 90000, ""}, /* a line that is merely unfinished stays so */
        {"\n\r 1%", 90000, "no bar\n"},
        {"\r 2%", 99999, ""},
        {"", 100000, "1:  2%\n"},
        {"", 120000, ""}, /* it has not changed */
        {"\r 3%", 120000, "1:  3%\n"},
        {"\r 4%", 125000, ""},
        {"\r 5%\n", 126000, " 5%\n"},
        {"x", 200000, ""},
    };
    struct fixture *f = *state;
    char want[64];

    begin (f, true, "1: ");
    f->tail.clean = true;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        append (f, v[i].add);
        poll_once (f);
        assert_int_equal (logtail_show_bar (&f->tail, v[i].at, 10000, NULL),
                          RV_OK);
        snprintf (want, sizeof (want), "%s%s",
                  *v[i].shown && v[i].shown[0] != '1' ? "1: " : "", v[i].shown);
        expect (f, want);
    }
}

static void objects (void **state)
{
    struct fixture *f = *state;

    begin (f, true, NULL);
    f->tail.clean = true;
    f->tail.as = (struct logtail_as){true, 17, 2, true};
    append (f, "a \"b\"\r\n\r1\r2\n\n\xff");
    poll_once (f);
    expect (f, "{\"schema\":\"rv.log/1\",\"job_id\":17,\"rank\":2,\"stream\":"
               "\"err\",\"text\":\"a \\\"b\\\"\"}\n"
               "{\"schema\":\"rv.log/1\",\"job_id\":17,\"rank\":2,\"stream\":"
               "\"err\",\"text\":\"2\"}\n"
               "{\"schema\":\"rv.log/1\",\"job_id\":17,\"rank\":2,\"stream\":"
               "\"err\",\"text\":\"\"}\n");
    f->tail.as = (struct logtail_as){true, 17, -1, false};
    assert_int_equal (logtail_finish (&f->tail, NULL), RV_OK);
    expect (f, "{\"schema\":\"rv.log/1\",\"job_id\":17,\"rank\":null,"
               "\"stream\":\"out\",\"text\":\"\xef\xbf\xbd\"}\n");
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

/* The end of a huge file is found from its end: reading all of this would take
 * minutes. */
static void skips_huge (void **state)
{
    struct fixture *f = *state;

    append (f, "");
    if (truncate (f->file, (off_t)1 << 38))
        assert_int_equal (truncate (f->file, (off_t)1 << 30), 0);
    append (f, "\nx\ny\nz\n");
    begin (f, true, NULL);
    alarm (30);
    assert_int_equal (logtail_skip (&f->tail, 2, NULL), RV_OK);
    poll_once (f);
    alarm (0);
    expect (f, "y\nz\n");
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
        cmocka_unit_test_setup_teardown (truncated, setup, teardown),
        cmocka_unit_test_setup_teardown (rotated, setup, teardown),
        cmocka_unit_test_setup_teardown (holes, setup, teardown),
        cmocka_unit_test_setup_teardown (bars, setup, teardown),
        cmocka_unit_test_setup_teardown (bars_now_and_then, setup, teardown),
        cmocka_unit_test_setup_teardown (objects, setup, teardown),
        cmocka_unit_test_setup_teardown (skips, setup, teardown),
        cmocka_unit_test_setup_teardown (skips_far, setup, teardown),
        cmocka_unit_test_setup_teardown (skips_huge, setup, teardown),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
