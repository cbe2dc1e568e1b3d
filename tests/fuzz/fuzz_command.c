/* SPDX-License-Identifier: Apache-2.0
 * fuzz_command.c - a user's command, one word a line, and the plugin's words */
#include "fuzz.h"
#include "plan/command.h"
#include "spank/args.h"

#define WORDS_MAX 64

/* A name that was made fits where names are checked. */
static void scan (int argc, char *argv[])
{
    struct rv_error err = {0};
    struct plugin_args args;
    struct command command;
    int rc;

    if (argc > 0) {
        rc = command_scan (argc, argv, &command, &err);
        FUZZ_CHECK (rc == 0 || (rc == RV_EINVAL && err.text[0]));
        if (rc == 0)
            FUZZ_CHECK (command_name_check (command.name, &err) == 0);
    }
    rc = args_parse (argc, argv, &args, &err);
    FUZZ_CHECK (rc == 0 || err.text[0]);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    char *text = fuzz_text (data, size), *argv[WORDS_MAX + 1];
    char *rest = text, *word;
    struct rv_error err;
    int argc = 0;

    command_name_check (text, &err);
    while (argc < WORDS_MAX && (word = strsep (&rest, "\n")))
        argv[argc++] = word;
    argv[argc] = NULL;
    scan (argc, argv);
    free (text);
    return 0;
}
