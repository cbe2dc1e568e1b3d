/* SPDX-License-Identifier: Apache-2.0
 * own_dir.h - a folder for one test or one group of them.
 *
 * make_dir and remove_dir are set-up and tear-down of cmocka; in between [dir]
 * is the folder, and write_file puts files there; put_file and expect_file do
 * so in any other. */
#ifndef RV_TEST_OWN_DIR_H
#define RV_TEST_OWN_DIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "plan/fsio.h"

static char dir[24];

static inline int make_dir (void **state)
{
    (void)state;
    snprintf (dir, sizeof (dir), "/tmp/rv-test.XXXXXX");
    return mkdtemp (dir) ? 0 : -1;
}

static inline int remove_dir (void **state)
{
    (void)state;
    return fsio_remove_tree (dir, NULL);
}

static inline void write_file (const char *name, const char *text, size_t len,
                               mode_t mode)
{
    char *path = fsio_join (dir, name);

    assert_int_equal (fsio_write (path, text, len, mode, NULL), 0);
    free (path);
}

/* The same with a string. */
static inline void write_text (const char *name, const char *text)
{
    write_file (name, text, strlen (text), 0600);
}

/* A file at [name] below [folder], with the folders between.
 *   mode   of fopen */
static inline void put_file (const char *folder, const char *name,
                             const char *text, const char *mode)
{
    char *path = fsio_join (folder, name), *slash;
    FILE *f;

    assert_non_null (path);
    slash = strrchr (path, '/');
    *slash = '\0';
    assert_int_equal (fsio_mkdir_p (path, 0755, NULL), 0);
    *slash = '/';
    assert_non_null (f = fopen (path, mode));
    fputs (text, f);
    assert_int_equal (fclose (f), 0);
    free (path);
}

/* What it holds; NULL: it is not there. */
static inline void expect_file (const char *folder, const char *name,
                                const char *text)
{
    char *path = fsio_join (folder, name), *buf = NULL;
    bool there = fsio_read (path, 1 << 20, &buf, NULL, NULL) == 0;

    if (!there && text)
        fail_msg ("%s is not there", path);
    if (there && (!text || strcmp (buf, text)))
        fail_msg ("%s is '%s'", path, buf);
    free (buf);
    free (path);
}

#endif
