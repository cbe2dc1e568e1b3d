/* SPDX-License-Identifier: Apache-2.0
 * test_cmd.c - the table of commands, and how a failure is told */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"

static void find (void **state)
{
    assert_null (cmd_find (""));
    assert_null (cmd_find ("sandboxx"));
    assert_non_null (cmd_find ("sandbox"));
    assert_string_equal (cmd_find ("sandbox")->name, "sandbox");
    (void)state;
}

static void nearest (void **state)
{
    static const struct {
        const char *typed, *meant;
    } vector[] = {
        {"sanbox", "sandbox"},
        {"sandboxx", "sandbox"},
        {"snadbox", "sandbox"},
        {"sandbox", "sandbox"},
        {"xyz", NULL},
        {"", NULL},
        {"a", NULL},
        {"-", NULL},
    };
    char deep[200];

    for (size_t i = 0; i < sizeof (vector) / sizeof (vector[0]); i++) {
        const struct cmd *near = cmd_nearest (vector[i].typed);

        if (vector[i].meant)
            assert_string_equal (near ? near->name : "none", vector[i].meant);
        else
            assert_null (near);
    }
    memset (deep, 's', sizeof (deep) - 1);
    deep[sizeof (deep) - 1] = '\0';
    assert_null (cmd_nearest (deep));
    (void)state;
}

static void names_are_cut (void **state)
{
    char all[256], few[8];

    cmd_names (all, sizeof (all));
    assert_non_null (strstr (all, "sandbox"));
    cmd_names (few, sizeof (few));
    assert_memory_equal (few, all, 7);
    assert_int_equal (few[7], '\0');
    (void)state;
}

/* What [fd] receives while cmd_fail runs; malloc'ed. */
static char *caught (int fd, bool json, const char *hint, const char *text)
{
    struct cmd_ctx ctx = {.json = json};
    char name[] = "/tmp/rv-test-cmd-XXXXXX", *buf = calloc (1, 4096);
    int file = mkostemp (name, O_CLOEXEC), saved;

    fflush (NULL);
    saved = dup (fd);
    dup2 (file, fd);
    assert_int_equal (cmd_fail (&ctx, 5, hint, "%s", text), 5);
    fflush (NULL);
    dup2 (saved, fd);
    close (saved);
    assert_true (pread (file, buf, 4095, 0) >= 0);
    close (file);
    unlink (name);
    return buf;
}

static void one_line (void **state)
{
    char *text = caught (2, false, "do that", "cannot\nsay");

    assert_string_equal (text, "rv: cannot?say; do that\n");
    free (text);
    text = caught (2, false, NULL, "no");
    assert_string_equal (text, "rv: no\n");
    free (text);
    (void)state;
}

static void one_object (void **state)
{
    char *text = caught (1, true, NULL, "quote \" here");
    json_t *all = json_loads (text, 0, NULL);

    assert_non_null (all);
    assert_string_equal (json_string_value (json_object_get (all, "schema")),
                         "rv.error/1");
    assert_int_equal (json_integer_value (json_object_get (all, "status")), 5);
    assert_string_equal (json_string_value (json_object_get (all, "message")),
                         "quote \" here");
    assert_true (json_is_null (json_object_get (all, "hint")));
    json_decref (all);
    free (text);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (find),          cmocka_unit_test (nearest),
        cmocka_unit_test (names_are_cut), cmocka_unit_test (one_line),
        cmocka_unit_test (one_object),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
