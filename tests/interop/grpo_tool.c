/* SPDX-License-Identifier: Apache-2.0
 * grpo_tool.c - cases that TRL's own code, or grpo_torch.py, was given, by libtrain
 *
 *   grpo_tool FILE   a line "ok - NAME" or "not ok - NAME: WHY" for each
 * Exit status: 0, 1 when one differs, 2 when the file cannot be read. */
#include <stdio.h>

#include "tests/unit/trl_cases.h"

static void said (void *arg, const char *name, const char *why)
{
    int *bad = arg;

    printf ("%s - %s%s%s\n", why ? "not ok" : "ok", name, why ? ": " : "",
            why ? why : "");
    *bad += why != NULL;
}

int main (int argc, char **argv)
{
    int bad = 0;

    if (argc != 2 || trl_cases (argv[1], said, &bad) < 1)
        return 2;
    return bad ? 1 : 0;
}
