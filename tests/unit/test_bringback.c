/* SPDX-License-Identifier: Apache-2.0
 * test_bringback.c - results out of a snapshot, to where the job came from */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/bringback.h"
#include "exec/log.h"
#include "own_dir.h"
#include "plan/fsio.h"

struct fixture {
    char from[80], to[80], marker[80], record[80];
    struct bringback b;
    struct bringback_sum sum;
};

/* A later write has a later time than all before. */
static void tick (void)
{
    nanosleep (&(struct timespec){.tv_nsec = 15000000}, NULL);
}

static void put (const char *folder, const char *name, const char *text)
{
    put_file (folder, name, text, "we");
}

static void bring (struct fixture *f, char *const paths[])
{
    struct rv_error err = {0};

    f->b.paths = paths;
    if (bringback_run (&f->b, &f->sum, &err) != RV_OK)
        fail_msg ("%s", err.text);
}

#define BRING(f, ...) bring (f, (char *const[]){__VA_ARGS__, NULL})

/* A copy with code.py and old.csv, as the submitting folder has them. */
static int setup (void **state)
{
    struct fixture *f = calloc (1, sizeof (*f));

    if (make_dir (NULL))
        return -1;
    snprintf (f->from, sizeof (f->from), "%s/from", dir);
    snprintf (f->to, sizeof (f->to), "%s/to", dir);
    snprintf (f->marker, sizeof (f->marker), "%s/argv", dir);
    snprintf (f->record, sizeof (f->record), "%s/brought", dir);
    for (int i = 0; i < 2; i++) {
        put (i ? f->to : f->from, "code.py", "code");
        put (i ? f->to : f->from, "old.csv", "old");
    }
    tick ();
    put (dir, "argv", "x");
    tick ();
    f->b = (struct bringback){.from = f->from,
                              .to = f->to,
                              .marker = f->marker,
                              .record = f->record,
                              .job_id = 7};
    setenv ("RV_LOG", "error", 1);
    log_init (0);
    *state = f;
    return 0;
}

static int teardown (void **state)
{
    struct fixture *f = *state;

    fsio_remove_tree (dir, NULL);
    free (f);
    return 0;
}

static void nowhere (void **state)
{
    struct fixture *f = *state;
    struct rv_error err = {0};
    const char *good = f->b.to;

    f->b.paths = (char *const[]){(char *)"x", NULL};
    f->b.to = "/nowhere";
    assert_int_equal (bringback_run (&f->b, &f->sum, &err), RV_EIO);
    assert_non_null (strstr (err.text, "/nowhere"));
    f->b.to = good;
    f->b.from = "/nowhere";
    assert_int_equal (bringback_run (&f->b, &f->sum, &err), RV_EIO);
    f->b.from = f->from;
    f->b.marker = "/nowhere";
    assert_int_equal (bringback_run (&f->b, &f->sum, &err), RV_EIO);
}

/* Files, folders, patterns, links, modes, times; and nothing else. */
static void what_matches (void **state)
{
    struct fixture *f = *state;
    char path[200], target[40] = "";
    struct stat a, b;

    put (f->from, "out/a.csv", "a");
    put (f->from, "out/deep/er/b", "b");
    put (f->from, "out/.hidden", "h");
    put (f->from, "x1.log", "1");
    put (f->from, "x2.log", "2");
    put (f->from, "y.log", "y");
    put (f->from, "new\nline", "n");
    put (f->from, "other", "o");
    snprintf (path, sizeof (path), "%s/out/latest", f->from);
    assert_int_equal (symlink ("a.csv", path), 0);
    snprintf (path, sizeof (path), "%s/out/a.csv", f->from);
    assert_int_equal (chmod (path, 0755), 0);
    BRING (f, (char *)"out", (char *)"x?.log", (char *)"new*",
           (char *)"nothing");
    assert_int_equal (f->sum.files, 7);
    assert_int_equal (f->sum.failed + f->sum.beside, 0);
    expect_file (f->to, "out/a.csv", "a");
    expect_file (f->to, "out/deep/er/b", "b");
    expect_file (f->to, "out/.hidden", "h");
    expect_file (f->to, "x2.log", "2");
    expect_file (f->to, "new\nline", "n");
    expect_file (f->to, "y.log", NULL);
    expect_file (f->to, "other", NULL);
    assert_int_equal (stat (path, &a), 0);
    snprintf (path, sizeof (path), "%s/out/a.csv", f->to);
    assert_int_equal (stat (path, &b), 0);
    assert_int_equal (a.st_mode, b.st_mode);
    assert_int_equal (a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
    snprintf (path, sizeof (path), "%s/out/latest", f->to);
    assert_int_equal (readlink (path, target, sizeof (target) - 1), 5);
    assert_string_equal (target, "a.csv");
}

/* The whole folder: what the job did not touch stays, even edited since. */
static void whole (void **state)
{
    struct fixture *f = *state;

    put (f->to, "code.py", "edited");
    put (f->from, "old.csv", "new");
    put (f->from, "d/result", "r");
    BRING (f, (char *)".");
    assert_int_equal (f->sum.files, 2);
    assert_int_equal (f->sum.beside, 0);
    expect_file (f->to, "code.py", "edited");
    expect_file (f->to, "old.csv", "new");
    expect_file (f->to, "d/result", "r");
}

static void conflicts (void **state)
{
    struct fixture *f = *state;
    char path[200];

    put (f->from, "old.csv", "job");
    put (f->from, "made", "job");
    put (f->from, "same", "both");
    put (f->from, "dir", "job");
    put (f->to, "old.csv", "mine"); /* edited since */
    put (f->to, "made", "mine");    /* made since */
    put (f->to, "same", "both");
    put (f->to, "dir/mine", "mine");
    BRING (f, (char *)".");
    assert_int_equal (f->sum.files, 3);
    assert_int_equal (f->sum.beside, 3);
    expect_file (f->to, "old.csv", "mine");
    expect_file (f->to, "old.csv.rv-7", "job");
    expect_file (f->to, "made", "mine");
    expect_file (f->to, "made.rv-7", "job");
    expect_file (f->to, "same.rv-7", NULL);
    expect_file (f->to, "dir/mine", "mine");
    expect_file (f->to, "dir.rv-7", "job");
    snprintf (path, sizeof (path), "%s/.rv-7.tmp", f->to);
    assert_int_equal (access (path, F_OK), -1);
}

/* An older file that was moved there since has an old time of its own. */
static void moved_there (void **state)
{
    struct fixture *f = *state;
    char from[200], to[200];

    snprintf (from, sizeof (from), "%s/code.py", f->to);
    snprintf (to, sizeof (to), "%s/moved", f->to);
    assert_int_equal (rename (from, to), 0);
    put (f->from, "moved", "job");
    BRING (f, (char *)"moved");
    expect_file (f->to, "moved", "code");
    expect_file (f->to, "moved.rv-7", "job");
}

/* Each segment brings what is new, over what the one before brought; what the
 * user edits between them stays. */
static void segments (void **state)
{
    struct fixture *f = *state;

    put (f->from, "log", "1");
    put (f->from, "table", "1");
    put (f->from, "once", "1");
    BRING (f, (char *)"*");
    assert_int_equal (f->sum.files, 3);
    BRING (f, (char *)"*");
    assert_int_equal (f->sum.files, 0);
    tick ();
    put (f->from, "log", "1 2");
    BRING (f, (char *)"log");
    assert_int_equal (f->sum.files, 1);
    expect_file (f->to, "log", "1 2");
    tick ();
    put (f->from, "log", "1 2 3");
    put (f->from, "table", "1 2");
    put (f->from, "once", "2");
    put (f->to, "table", "mine");
    BRING (f, (char *)"*");
    assert_int_equal (f->sum.files, 3);
    assert_int_equal (f->sum.beside, 1);
    expect_file (f->to, "log", "1 2 3");
    expect_file (f->to, "once", "2");
    expect_file (f->to, "table", "mine");
    expect_file (f->to, "table.rv-7", "1 2");
}

/* Links on either side are no way out. */
static void no_escape (void **state)
{
    struct fixture *f = *state;
    char path[200], outside[200];

    snprintf (outside, sizeof (outside), "%s/outside", dir);
    put (outside, "secret", "secret");
    snprintf (path, sizeof (path), "%s/out", f->to);
    assert_int_equal (symlink (outside, path), 0);
    put (f->from, "out/x", "job");
    snprintf (path, sizeof (path), "%s/in", f->from);
    assert_int_equal (symlink (outside, path), 0);
    snprintf (path, sizeof (path), "%s/file", f->to);
    snprintf (outside, sizeof (outside), "%s/outside/secret", dir);
    assert_int_equal (symlink (outside, path), 0);
    put (f->from, "file", "job");
    BRING (f, (char *)"out/x", (char *)"in/secret", (char *)"file");
    assert_int_equal (f->sum.failed, 1);
    expect_file (outside, "x", NULL);
    expect_file (f->to, "in/secret", NULL);
    expect_file (dir, "outside/secret", "secret");
    expect_file (f->to, "file.rv-7", "job");
    expect_file (dir, "outside/x", NULL);
}

static void odd_files (void **state)
{
    struct fixture *f = *state;
    char path[200], temp[200];

    snprintf (path, sizeof (path), "%s/pipe", f->from);
    assert_int_equal (mkfifo (path, 0600), 0);
    put (f->to, ".rv-7.tmp", "left by a kill");
    put (f->from, "big", "");
    snprintf (path, sizeof (path), "%s/big", f->from);
    assert_int_equal (truncate (path, 3000001), 0);
    BRING (f, (char *)"pipe", (char *)"big");
    assert_int_equal (f->sum.files, 1);
    assert_int_equal (f->sum.bytes, 3000001);
    snprintf (temp, sizeof (temp), "%s/.rv-7.tmp", f->to);
    assert_int_equal (access (temp, F_OK), -1);
}

static void out_of_time (void **state)
{
    struct fixture *f = *state;

    put (f->from, "a", "a");
    f->b.end_ms = 1;
    BRING (f, (char *)"a");
    assert_true (f->sum.late);
    assert_int_equal (f->sum.files, 0);
    expect_file (f->to, "a", NULL);
}

/* A record that is no record is no harm: what was brought has the same bytes,
 * or is put beside. */
static void bad_record (void **state)
{
    static const char *const v[] = {
        "", "x", "1", "1 2", "1 2 ", "-1 -1 a", "99999999999999999999 1 a"};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        put (dir, "brought", v[i]);
        put (f->from, "a", "a");
        BRING (f, (char *)"a");
        expect_file (f->to, "a", "a");
        assert_int_equal (f->sum.beside, 0);
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown (f, setup, teardown)

int main (void)
{
    const struct CMUnitTest tests[] = {
        CASE (nowhere),    CASE (what_matches), CASE (whole),
        CASE (conflicts),  CASE (moved_there),  CASE (segments),
        CASE (no_escape),  CASE (odd_files),    CASE (out_of_time),
        CASE (bad_record),
    };

    cmocka_set_message_output (CM_OUTPUT_TAP);
    return cmocka_run_group_tests (tests, NULL, NULL);
}
