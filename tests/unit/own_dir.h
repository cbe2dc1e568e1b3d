/* SPDX-License-Identifier: Apache-2.0
 * own_dir.h - a folder for one test or one group of them.
 *
 * make_dir and remove_dir are set-up and tear-down of cmocka; in between [dir]
 * is the folder, and write_file puts files there. */
#ifndef RV_TEST_OWN_DIR_H
#define RV_TEST_OWN_DIR_H

#include <setjmp.h>
#include <stdarg.h>
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

#endif
