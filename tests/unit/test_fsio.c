/* SPDX-License-Identifier: Apache-2.0
 * test_fsio.c - whole-file reads, atomic replacement, folders */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/fsio.h"

/* Every test gets a fresh folder as its state and removes it afterwards. */
static int setup (void **state)
{
    char *dir = strdup ("/tmp/rv-test-fsio-XXXXXX");

    *state = mkdtemp (dir);
    return *state ? 0 : -1;
}

static int teardown (void **state)
{
    int rc = fsio_remove_tree (*state, NULL);

    free (*state);
    return rc;
}

static size_t entries (const char *path)
{
    DIR *dir = opendir (path);
    size_t n = 0;

    assert_non_null (dir);
    while (readdir (dir))
        n++;
    closedir (dir);
    return n - 2;
}

static void assert_content (const char *path, const char *want)
{
    char *buf;
    size_t len;

    assert_int_equal (fsio_read (path, 100000, &buf, &len, NULL), 0);
    assert_int_equal (len, strlen (want));
    assert_string_equal (buf, want);
    free (buf);
}

static void bad_arguments (void **state)
{
    struct rv_error err = {0};
    char *buf = (char *)"untouched";

    assert_int_equal (fsio_read (NULL, 1, &buf, NULL, &err), RV_EINVAL);
    assert_int_equal (fsio_read ("/", 1, NULL, NULL, &err), RV_EINVAL);
    assert_int_equal (fsio_write (NULL, "", 0, 0600, &err), RV_EINVAL);
    assert_int_equal (fsio_write ("x", NULL, 1, 0600, &err), RV_EINVAL);
    assert_int_equal (fsio_write ("/tmp/", "x", 1, 0600, &err), RV_EINVAL);
    assert_int_equal (fsio_mkdir_p (NULL, 0700, &err), RV_EINVAL);
    assert_int_equal (fsio_mkdir_p ("", 0700, &err), RV_EINVAL);
    assert_int_equal (fsio_remove_tree (NULL, &err), RV_EINVAL);
    assert_int_equal (fsio_remove_tree ("", &err), RV_EINVAL);
    assert_null (fsio_join (NULL, "a"));
    assert_null (fsio_join ("a", NULL));
    assert_string_equal (buf, "untouched");
    (void)state;
}

static void read_limits (void **state)
{
    struct rv_error err = {0};
    char *path = fsio_join (*state, "f");
    char *buf = NULL;
    size_t len;

    assert_int_equal (fsio_read (path, 10, &buf, &len, &err), RV_ENOTFOUND);
    assert_non_null (strstr (err.text, path));
    assert_int_equal (fsio_read (*state, 10, &buf, &len, &err), RV_EIO);

    assert_int_equal (fsio_write (path, "12345", 5, 0600, &err), 0);
    assert_int_equal (fsio_read (path, 4, &buf, &len, &err), RV_EFORMAT);
    assert_null (buf);
    assert_int_equal (fsio_read (path, 5, &buf, &len, &err), 0);
    assert_int_equal (len, 5);
    assert_string_equal (buf, "12345");
    free (buf);
    assert_int_equal (fsio_write (path, NULL, 0, 0600, &err), 0);
    assert_content (path, "");
    free (path);
}

static void read_large (void **state)
{
    char *path = fsio_join (*state, "f");
    size_t n = 70001, len;
    char *in = malloc (n), *out;

    for (size_t i = 0; i < n; i++)
        in[i] = (char)(i * 7);
    assert_int_equal (fsio_write (path, in, n, 0600, NULL), 0);
    assert_int_equal (fsio_read (path, n, &out, &len, NULL), 0);
    assert_int_equal (len, n);
    assert_memory_equal (in, out, n);
    assert_int_equal (out[n], 0);
    free (in);
    free (out);
    free (path);
}

static void write_replaces (void **state)
{
    char *path = fsio_join (*state, "f"), *link = fsio_join (*state, "l");
    struct stat st;

    assert_int_equal (fsio_write (path, "old", 3, 0644, NULL), 0);
    assert_int_equal (symlink ("f", link), 0);
    assert_int_equal (fsio_write (path, "new", 3, 0600, NULL), 0);
    assert_content (path, "new");
    assert_int_equal (stat (path, &st), 0);
    assert_int_equal (st.st_mode & 07777, 0600);

    assert_int_equal (fsio_write (link, "own", 3, 0600, NULL), 0);
    assert_content (path, "new");
    assert_int_equal (lstat (link, &st), 0);
    assert_true (S_ISREG (st.st_mode));
    assert_int_equal (entries (*state), 2);
    free (path);
    free (link);
}

static void write_failure_leaves_nothing (void **state)
{
    struct rv_error err = {0};
    char *folder = fsio_join (*state, "d"), *in = fsio_join (folder, "x");
    char *lost = fsio_join (*state, "none/f");

    assert_int_equal (fsio_write (lost, "x", 1, 0600, &err), RV_ENOTFOUND);
    assert_int_equal (fsio_mkdir_p (folder, 0700, NULL), 0);
    assert_int_equal (fsio_write (in, "x", 1, 0600, NULL), 0);
    assert_int_equal (fsio_write (folder, "x", 1, 0600, &err), RV_EIO);
    assert_int_equal (entries (*state), 1);
    assert_content (in, "x");
    free (folder);
    free (in);
    free (lost);
}

static void mkdir_parents (void **state)
{
    struct rv_error err = {0};
    char *deep = fsio_join (*state, "a//b/c/"), *f = fsio_join (*state, "f");
    char *under = fsio_join (f, "g");
    struct stat st;

    assert_int_equal (fsio_mkdir_p (deep, 0700, &err), 0);
    assert_int_equal (fsio_mkdir_p (deep, 0700, &err), 0);
    assert_int_equal (stat (deep, &st), 0);
    assert_int_equal (st.st_mode & 07777, 0700);
    assert_int_equal (fsio_mkdir_p ("/", 0700, &err), 0);
    assert_int_equal (fsio_write (f, "", 0, 0600, NULL), 0);
    assert_int_equal (fsio_mkdir_p (f, 0700, &err), RV_EIO);
    assert_non_null (strstr (err.text, "Not a directory"));
    assert_int_equal (fsio_mkdir_p (under, 0700, &err), RV_EIO);
    free (deep);
    free (f);
    free (under);
}

static void join (void **state)
{
    static const char *const vectors[][3] = {
        {"a", "b", "a/b"},
        {"a/", "b", "a/b"},
        {"/", "b", "/b"},
        {"a/b", "c/d", "a/b/c/d"},
    };

    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++) {
        char *out = fsio_join (vectors[i][0], vectors[i][1]);

        assert_string_equal (out, vectors[i][2]);
        free (out);
    }
    (void)state;
}

static void remove_tree (void **state)
{
    struct rv_error err = {0};
    char *keep = fsio_join (*state, "keep"), *top = fsio_join (*state, "top");
    char *deep = fsio_join (top, "a/b"), *kept = fsio_join (keep, "file");
    char *link = fsio_join (top, "a/link"), *file = fsio_join (deep, "f");
    char *outer = fsio_join (*state, "outer");

    assert_int_equal (fsio_mkdir_p (deep, 0700, NULL), 0);
    assert_int_equal (fsio_mkdir_p (keep, 0700, NULL), 0);
    assert_int_equal (fsio_write (kept, "k", 1, 0600, NULL), 0);
    assert_int_equal (fsio_write (file, "f", 1, 0600, NULL), 0);
    assert_int_equal (symlink (keep, link), 0);
    assert_int_equal (symlink (keep, outer), 0);

    assert_int_equal (fsio_remove_tree (kept, &err), RV_EINVAL);
    assert_int_equal (fsio_remove_tree (outer, &err), RV_EINVAL);
    assert_int_equal (fsio_remove_tree (top, &err), 0);
    assert_int_equal (access (top, F_OK), -1);
    assert_content (kept, "k");
    assert_int_equal (fsio_remove_tree (top, &err), 0);
    free (keep);
    free (top);
    free (deep);
    free (kept);
    free (link);
    free (file);
    free (outer);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments),
        cmocka_unit_test_setup_teardown (read_limits, setup, teardown),
        cmocka_unit_test_setup_teardown (read_large, setup, teardown),
        cmocka_unit_test_setup_teardown (write_replaces, setup, teardown),
        cmocka_unit_test_setup_teardown (write_failure_leaves_nothing, setup,
                                         teardown),
        cmocka_unit_test_setup_teardown (mkdir_parents, setup, teardown),
        cmocka_unit_test (join),
        cmocka_unit_test_setup_teardown (remove_tree, setup, teardown),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
