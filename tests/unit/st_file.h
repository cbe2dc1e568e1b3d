/* SPDX-License-Identifier: Apache-2.0
 * st_file.h - where the tests of safetensors have their file, and some tensors
 *
 * make_dir and remove_dir are set-up and tear-down of cmocka; [path] is a file
 * in the folder [dir] between them. */
#ifndef ST_FILE_H
#define ST_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <train/safetensors.h>

static char dir[64], path[96];

static inline int make_dir (void **state)
{
    (void)state;
    snprintf (dir, sizeof (dir), "/tmp/test_safetensors.XXXXXX");
    if (!mkdtemp (dir))
        return -1;
    snprintf (path, sizeof (path), "%s/file", dir);
    return 0;
}

static inline int remove_dir (void **state)
{
    (void)state;
    unlink (path);
    return rmdir (dir); /* fails if a temporary file was left */
}

#endif
