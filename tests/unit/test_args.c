/* SPDX-License-Identifier: Apache-2.0
 * test_args.c - plugstack words: refused ones first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spank/args.h"

struct bad {
    const char *words[3];
    int code;
    const char *text; /* stands in the message */
};

static const struct bad bad[] = {
    {{"verbose"},
     RV_EINVAL,
     "unknown word 'verbose'; known words: conf=PATH, env="},
    {{""}, RV_EINVAL, "unknown word ''"},
    {{"env"}, RV_EINVAL, "unknown word 'env'"},
    {{"ENV=gpu"}, RV_EINVAL, "unknown word 'ENV=gpu'"},
    {{"environment=gpu"}, RV_EINVAL, "unknown word"},
    {{"en=gpu"}, RV_EINVAL, "unknown word"},
    {{"env="}, RV_EINVAL, "env='' is not a value"},
    {{"env=on"}, RV_EINVAL, "use off or gpu"},
    {{"env=gpu", "env=off"}, RV_EINVAL, "twice"},
    {{"env=gpu", "oops=1"}, RV_EINVAL, "unknown word 'oops=1'"},
    {{"conf=rv.conf"}, RV_EINVAL, "conf='rv.conf' is no absolute path"},
    {{"conf="}, RV_EINVAL, "conf='' is no absolute path"},
    {{"conf=/a", "conf=/a"}, RV_EINVAL, "conf= stands twice"},
    {{"nvml"}, RV_EINVAL, "unknown word 'nvml'"},
    {{"nvml="}, RV_EINVAL, "nvml='' is no absolute path"},
    {{"nvml=lib/libnvidia-ml.so.1"}, RV_EINVAL, "is no absolute path"},
    {{"nvml=/a", "nvml=/a"}, RV_EINVAL, "nvml= stands twice"},
    {{"health"}, RV_EINVAL, "unknown word 'health'"},
    {{"health="}, RV_EINVAL, "use off, report or drain"},
    {{"health=on"}, RV_EINVAL, "health='on' is not a value"},
    {{"health=drain", "health=report"}, RV_EINVAL, "health= stands twice"},
};

static int parse (const char *const *words, struct plugin_args *ret,
                  struct rv_error *err)
{
    char *argv[4] = {0};
    int argc = 0;

    while (argc < 3 && words[argc]) {
        argv[argc] = (char *)words[argc];
        argc++;
    }
    return args_parse (argc, argv, ret, err);
}

static void refused (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
        struct plugin_args args = {.env = (enum args_env)77};
        struct rv_error err = {0};

        assert_int_equal (parse (bad[i].words, &args, &err), bad[i].code);
        if (!strstr (err.text, bad[i].text))
            fail_msg ("case %zu: '%s' lacks '%s'", i, err.text, bad[i].text);
        assert_int_equal (args.env, 77);
        assert_int_equal (parse (bad[i].words, &args, NULL), bad[i].code);
    }
}

static void accepted (void **state)
{
    const char *const none[3] = {0};
    const char *const off[3] = {"env=off"};
    const char *const gpu[3] = {"health=off", "env=gpu"};
    const char *const report[3] = {"health=report"};
    const char *const drain[3] = {"nvml=/opt/a=b.so", "health=drain",
                                  "conf=/x/rv.conf"};
    struct plugin_args args;

    (void)state;
    assert_int_equal (parse (none, &args, NULL), RV_OK);
    assert_int_equal (args.env, ARGS_ENV_OFF);
    assert_int_equal (parse (off, &args, NULL), RV_OK);
    assert_int_equal (args.env, ARGS_ENV_OFF);
    assert_int_equal (parse (gpu, &args, NULL), RV_OK);
    assert_int_equal (args.env, ARGS_ENV_GPU);
    assert_int_equal (args.health, ARGS_HEALTH_OFF);
    assert_null (args.nvml);
    assert_null (args.conf);
    assert_int_equal (parse (report, &args, NULL), RV_OK);
    assert_int_equal (args.env, ARGS_ENV_OFF);
    assert_int_equal (args.health, ARGS_HEALTH_REPORT);
    assert_int_equal (parse (drain, &args, NULL), RV_OK);
    assert_int_equal (args.health, ARGS_HEALTH_DRAIN);
    assert_string_equal (args.nvml, "/opt/a=b.so");
    assert_string_equal (args.conf, "/x/rv.conf");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refused),
        cmocka_unit_test (accepted),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
