/* SPDX-License-Identifier: Apache-2.0
 * test_reqindex.c - the index of requests says what the folders say, and
 * nothing where it is not sure */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
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

#include "own_dir.h"
#include "plan/fsio.h"
#include "reqindex.h"

#define MANY 100

static void put (const char *request, const char *name, const char *what)
{
    char path[200];

    snprintf (path, sizeof (path), "requests/%s/%s", request, name);
    write_text (path, what);
}

static const char *name_of (unsigned i)
{
    static char name[32];

    snprintf (name, sizeof (name), "20260101-000000-%08x", i);
    return name;
}

/* As old as [ago] seconds, or as it is. */
static void age (unsigned i, int ago)
{
    const struct timespec at[2] = {{.tv_sec = time (NULL) - ago},
                                   {.tv_sec = time (NULL) - ago}};
    char path[200];

    snprintf (path, sizeof (path), "%s/requests/%s/jobs", dir, name_of (i));
    assert_int_equal (utimensat (AT_FDCWD, path, at, 0), 0);
    path[strlen (path) - 5] = '\0';
    assert_int_equal (utimensat (AT_FDCWD, path, at, 0), 0);
}

/* One in ten is of two jobs, of which the second has claimed. */
static void make_request (unsigned i)
{
    char text[500], file[40];

    snprintf (text, sizeof (text), "%s/requests/%s/jobs", dir, name_of (i));
    assert_int_equal (fsio_mkdir_p (text, 0700, NULL), RV_OK);
    snprintf (text, sizeof (text),
              "{\"id\": \"%s\", \"name\": \"n%u\", \"log_dir\": \"/l\", "
              "\"gpu_type\": \"a100\", \"gpus\": %u, \"tasks\": 2, "
              "\"cluster\": \"c\xc3\xa9\", "
              "\"created_at\": \"2026-11-28T01:02:%02u+01:00\"}",
              name_of (i), i, i + 1, i % 60);
    put (name_of (i), "request.json", text);
    put (name_of (i), "request-2.json", "{\"gpus\": 7, \"tasks\": 7}");
    snprintf (file, sizeof (file), "jobs/%u.json", 1000 + 2 * i);
    put (name_of (i), file, "{}");
    if (i % 10 == 0) {
        snprintf (file, sizeof (file), "jobs/%u.json", 1001 + 2 * i);
        put (name_of (i), file, "{\"candidate\": 2}");
        snprintf (text, sizeof (text), "job %u restart 0 first %u\n",
                  1001 + 2 * i, 1001 + 2 * i);
        put (name_of (i), "claim", text);
    }
    if (i % 3 == 2)
        put (name_of (i), "secrets", "A=1\n");
    age (i, 3600);
}

static int make_requests (void **state)
{
    make_dir (state);
    for (unsigned i = 0; i < MANY; i++)
        make_request (i);
    return 0;
}

static struct requests load (void)
{
    struct requests list;

    assert_int_equal (requests_load (dir, 0, &list, NULL), RV_OK);
    return list;
}

static bool has_index (void)
{
    char path[200];

    snprintf (path, sizeof (path), "%s/requests/.index", dir);
    return access (path, F_OK) == 0;
}

static void drop_index (void)
{
    char path[200];

    snprintf (path, sizeof (path), "%s/requests/.index", dir);
    unlink (path);
}

static void same (const struct requests *a, const struct requests *b)
{
    assert_int_equal (a->n, b->n);
    assert_int_equal (a->n_lost, b->n_lost);
    for (size_t i = 0; i < a->n; i++) {
        const struct request *x = &a->req[i], *y = &b->req[i];

        assert_string_equal (x->id, y->id);
        assert_string_equal (x->dir, y->dir);
        assert_string_equal (x->name, y->name);
        assert_string_equal (x->log_dir, y->log_dir);
        assert_string_equal (x->gpu_type, y->gpu_type);
        assert_string_equal (x->cluster, y->cluster);
        assert_int_equal (x->created_at, y->created_at);
        assert_int_equal (x->gpus, y->gpus);
        assert_int_equal (x->tasks, y->tasks);
        assert_int_equal (x->job_id, y->job_id);
        assert_int_equal (x->log_id, y->log_id);
        assert_int_equal (x->candidate, y->candidate);
        assert_int_equal (x->claimed, y->claimed);
        assert_int_equal (x->secrets, y->secrets);
        assert_int_equal (x->n_roots, y->n_roots);
        assert_memory_equal (x->root, y->root, sizeof (x->root));
    }
}

/* What is read with the index is what is read without it. */
static void check (void)
{
    struct requests with = load (), without;

    drop_index ();
    without = load ();
    same (&with, &without);
    requests_fini (&with);
    requests_fini (&without);
}

/* Spoil a folder without a sign of it: what is then seen is the index' word. */
static void spoil (unsigned i)
{
    struct timespec at[2];
    char path[200];
    struct stat st;

    snprintf (path, sizeof (path), "%s/requests/%s", dir, name_of (i));
    assert_int_equal (stat (path, &st), 0);
    put (name_of (i), "request.json",
         "{\"id\": \"other\", \"name\": \"spoilt\"}");
    at[0] = st.st_atim;
    at[1] = st.st_mtim;
    assert_int_equal (utimensat (AT_FDCWD, path, at, 0), 0);
}

static void test_same (void **state)
{
    struct requests first = load (), second;

    (void)state;
    assert_int_equal (first.n, MANY);
    assert_int_equal (first.req[MANY - 1].gpus, 7); /* the second's plan */
    assert_true (first.req[MANY - 1].claimed);
    assert_true (has_index ());
    spoil (5);
    spoil (10);
    second = load ();
    same (&first, &second); /* so it is the index that answers */
    requests_fini (&first);
    requests_fini (&second);
}

static void test_changes (void **state)
{
    struct requests list = load ();
    char path[200];

    (void)state;
    requests_fini (&list);
    put (name_of (3), "status.json", "{}");
    put (name_of (4), "jobs/5000.json", "{\"continues\": 1008}");
    put (name_of (5), "jobs/5001.json", "{\"candidate\": 2}");
    snprintf (path, sizeof (path), "%s/requests/%s", dir, name_of (6));
    assert_int_equal (fsio_remove_tree (path, NULL), RV_OK);
    make_request (MANY + 5);
    list = load ();
    assert_int_equal (list.n, MANY);
    assert_int_equal (list.req[0].job_id, 1000 + 2 * (MANY + 5));
    /* 105, 99, 98 ... 7, 5, 4 */
    assert_int_equal (list.req[MANY - 5].job_id, 5000);
    assert_int_equal (list.req[MANY - 5].log_id, 1008);
    assert_int_equal (list.req[MANY - 6].n_roots, 2);
    requests_fini (&list);
    check ();
}

/* A time that is nearly now may be that of a change that is not read yet. */
static void test_fresh (void **state)
{
    struct requests list;

    (void)state;
    age (7, 0);
    list = load ();
    requests_fini (&list);
    assert_true (has_index ());
    spoil (7);
    spoil (8);
    list = load ();
    assert_string_equal (list.req[MANY - 1 - 7].name, "spoilt");
    assert_string_equal (list.req[MANY - 1 - 8].name, "n8");
    requests_fini (&list);
}

/* Who starts first of several is asked for each time. */
static void test_unclaimed (void **state)
{
    struct requests list;
    char path[200];

    (void)state;
    snprintf (path, sizeof (path), "%s/requests/%s/claim", dir, name_of (20));
    assert_int_equal (unlink (path), 0);
    age (20, 3600);
    list = load ();
    requests_fini (&list);
    spoil (20);
    list = load ();
    assert_string_equal (list.req[MANY - 1 - 20].name, "spoilt");
    requests_fini (&list);
}

/* What stands in the index of a request. */
static void note (unsigned i)
{
    char id[32], path[200];

    snprintf (id, sizeof (id), "%s", name_of (i));
    snprintf (path, sizeof (path), "%s/requests/%s", dir, id);
    request_index (&(const struct request){.id = id, .dir = path});
}

/* As rv run does it: at once, though the folder is of now. */
static void test_note (void **state)
{
    struct requests list;
    char path[200];
    struct stat st;

    (void)state;
    for (unsigned i = 1; i < 30; i++) {
        age (i, 0);
        note (i);
    }
    snprintf (path, sizeof (path), "%s/requests/.index", dir);
    assert_int_equal (stat (path, &st), 0);
    assert_int_equal (st.st_mode & 0777, 0600);
    note (10); /* of two jobs: the claim is asked for */
    spoil (5);
    spoil (10);
    put (name_of (6), "status.json", "{}"); /* its job began */
    put (name_of (6), "request.json", "{\"id\": \"x\", \"name\": \"y\"}");
    list = load ();
    assert_int_equal (list.n, MANY);
    assert_string_equal (list.req[MANY - 1 - 5].name, "n5");
    assert_string_equal (list.req[MANY - 1 - 6].name, "y");
    assert_string_equal (list.req[MANY - 1 - 10].name, ""); /* read */
    requests_fini (&list);
}

/* Of one request the line whose times are the folder's counts, and a file of
 * old lines is written anew. */
static void test_many_lines (void **state)
{
    struct requests list = load ();
    char path[200];
    struct stat old, st;

    (void)state;
    requests_fini (&list);
    snprintf (path, sizeof (path), "%s/requests/.index", dir);
    for (int i = 0; i < 3; i++) {
        age (7, 600 - i);
        note (7);
    }
    spoil (7);
    list = load ();
    assert_string_equal (list.req[MANY - 1 - 7].name, "n7");
    requests_fini (&list);
    for (unsigned i = 0; i < 2 * MANY; i++)
        note (9);
    assert_int_equal (stat (path, &old), 0);
    list = load ();
    requests_fini (&list);
    assert_int_equal (stat (path, &st), 0);
    assert_true (st.st_size < old.st_size * 2 / 3);
}

/* A link in the place of the index is not followed. */
static void test_link (void **state)
{
    char path[200], other[200];

    (void)state;
    snprintf (path, sizeof (path), "%s/requests/.index", dir);
    snprintf (other, sizeof (other), "%s/other", dir);
    assert_int_equal (symlink (other, path), 0);
    note (7);
    assert_int_equal (access (other, F_OK), -1);
}

/* A line that is not whole is none, and the others count. */
static void test_torn (void **state)
{
    struct requests first = load (), list;
    char path[200], *text;
    size_t len;

    (void)state;
    snprintf (path, sizeof (path), "%s/requests/.index", dir);
    assert_int_equal (fsio_read (path, 1 << 20, &text, &len, NULL), RV_OK);
    for (size_t cut = 0; cut < len; cut += cut < 400 ? 1 : 397) {
        write_file ("requests/.index", text, cut, 0600);
        list = load ();
        same (&first, &list);
        requests_fini (&list);
    }
    strchr (text, 'n')[1]++; /* "n99": the sum does not fit, the others do */
    write_file ("requests/.index", text, len, 0600);
    spoil (98);
    list = load ();
    assert_string_equal (list.req[0].name, "n99");
    assert_string_equal (list.req[1].name, "n98");
    requests_fini (&list);
    text[3] = 'X'; /* another version */
    write_file ("requests/.index", text, len, 0600);
    spoil (9);
    list = load ();
    assert_string_equal (list.req[MANY - 1 - 9].name, "spoilt");
    requests_fini (&list);
    requests_fini (&first);
    free (text);
}

/* Few are read as fast; and a folder that takes no index is no error. */
static void test_none (void **state)
{
    struct requests list;
    char path[200];

    (void)state;
    snprintf (path, sizeof (path), "%s/requests/.index", dir);
    assert_int_equal (mkdir (path, 0700), 0);
    list = load ();
    assert_int_equal (list.n, MANY);
    requests_fini (&list);
    assert_int_equal (rmdir (path), 0);
    for (unsigned i = 20; i < MANY; i++) {
        snprintf (path, sizeof (path), "%s/requests/%s", dir, name_of (i));
        assert_int_equal (fsio_remove_tree (path, NULL), RV_OK);
    }
    list = load ();
    assert_int_equal (list.n, 20);
    requests_fini (&list);
    assert_false (has_index ());
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (test_same, make_requests, remove_dir),
        cmocka_unit_test_setup_teardown (test_changes, make_requests,
                                         remove_dir),
        cmocka_unit_test_setup_teardown (test_fresh, make_requests, remove_dir),
        cmocka_unit_test_setup_teardown (test_unclaimed, make_requests,
                                         remove_dir),
        cmocka_unit_test_setup_teardown (test_torn, make_requests, remove_dir),
        cmocka_unit_test_setup_teardown (test_none, make_requests, remove_dir),
        cmocka_unit_test_setup_teardown (test_note, make_requests, remove_dir),
        cmocka_unit_test_setup_teardown (test_many_lines, make_requests,
                                         remove_dir),
        cmocka_unit_test_setup_teardown (test_link, make_requests, remove_dir),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
