/* SPDX-License-Identifier: Apache-2.0
 * test_script.c - #SBATCH lines as sbatch reads them */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "spank/script.h"

static char got[512];

static void note (void *arg, const char *name, const char *value)
{
    size_t n = strlen (got);

    (void)arg;
    snprintf (got + n, sizeof (got) - n, "%s%s%s ", name, value ? "=" : "",
              value ? value : "");
}

static const struct {
    const char *text, *seen;
} vectors[] = {
    {"", ""},
    {"\n\n", ""},
    {"#!/bin/sh\nhostname\n", ""},
    {"#!/bin/sh\nhostname\n#SBATCH --gres=gpu:1\n", ""},
    {"#!/bin/sh\n #SBATCH --gres=gpu:1\n", ""}, /* not at the line's start */
    {"#!/bin/sh\n##SBATCH --gres=gpu:1\n", ""},
    {"#!/bin/sh\n#SBATCH # --gres=gpu:1\n", ""},
    {"#!/bin/sh\n#SBATCH", ""},
    {"#!/bin/sh\n#SBATCH --gres=gpu:1", "gres=gpu:1 "}, /* no newline */
    {"#!/bin/sh\n#SBATCH --gres=gpu:1\nhostname\n", "gres=gpu:1 "},
    {"#!/bin/sh\n\n# x\n#SBATCH -G 2 -N1 # two\n", "gpus=2 nodes=1 "},
    {"#!/bin/sh\n#SBATCH\t--gpus\t2\n", "gpus=2 "},
    {"#!/bin/sh\r\n#SBATCH --gres=gpu:1\r\n", "gres=gpu:1 "},
    {"#!/bin/sh\n#SBATCH -J \"a b\" --gpus=2\n", "job-name=a b gpus=2 "},
    {"#!/bin/sh\n#SBATCH -J 'a \"b' --gpus=2\n", "job-name=a \"b gpus=2 "},
    {"#!/bin/sh\n#SBATCH -J a\\ b --gpus=2\n", "job-name=a b gpus=2 "},
    {"#!/bin/sh\n#SBATCH -J \"open --gpus=2\n", "job-name=open --gpus=2 "},
    {"#!/bin/sh\n#SBATCH -J a\n#SBATCH --gpus=2\n", "job-name=a gpus=2 "},
};

static void scans (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++) {
        size_t len = strlen (vectors[i].text);
        char *exact = malloc (len ? len : 1); /* ASan sees a read past it */

        assert_non_null (exact);
        memcpy (exact, vectors[i].text, len);
        got[0] = '\0';
        script_scan (exact, len, note, NULL);
        free (exact);
        if (strcmp (got, vectors[i].seen) != 0)
            fail_msg ("case %zu: got '%s', want '%s'", i, got, vectors[i].seen);
    }
}

static void long_line_is_passed_over (void **state)
{
    static char text[SCRIPT_LINE_MAX + 100];
    int n;

    (void)state;
    memset (text, 'x', sizeof (text));
    memcpy (text, "#SBATCH --gres=gpu:1 ", 21);
    n = snprintf (text + SCRIPT_LINE_MAX + 50, 40, "\n#SBATCH --gpus=3\n");
    got[0] = '\0';
    script_scan (text, SCRIPT_LINE_MAX + 50 + (size_t)n, note, NULL);
    assert_string_equal (got, "gpus=3 ");
}

static void peeks (void **state)
{
    char path[] = "/tmp/rv-test-script-XXXXXX", buf[8];
    int fd = mkstemp (path);

    (void)state;
    assert_true (fd >= 0);
    assert_int_equal (script_peek ("/nonexistent", buf, sizeof (buf)), 0);
    assert_int_equal (script_peek ("/tmp", buf, sizeof (buf)), 0);
    assert_int_equal (script_peek (path, buf, sizeof (buf)), 0);
    assert_int_equal (write (fd, "0123456789", 10), 10);
    assert_int_equal (script_peek (path, buf, sizeof (buf)), 8);
    assert_memory_equal (buf, "01234567", 8);
    close (fd);
    unlink (path);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (scans),
        cmocka_unit_test (long_line_is_passed_over),
        cmocka_unit_test (peeks),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
