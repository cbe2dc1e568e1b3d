/* SPDX-License-Identifier: Apache-2.0
 * reward_child.h - a program that rewards completions, or misbehaves as they
 * say. */
#ifndef TESTS_UNIT_REWARD_CHILD_H
#define TESTS_UNIT_REWARD_CHILD_H

#include <dirent.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_fds (void)
{
    DIR *d = opendir ("/proc/self/fd");
    int n = -1; /* its own */

    for (const struct dirent *e; (e = readdir (d));)
        n += *e->d_name != '.';
    closedir (d);
    return n;
}

static void reply (json_int_t id, double reward)
{
    printf ("{\"id\": %lld, \"reward\": %.17g}\n", (long long)id, reward);
    fflush (stdout);
}

static void misbehave (const char *what, json_int_t id)
{
    if (strcmp (what, "exit") == 0)
        exit (3);
    if (strcmp (what, "kill") == 0)
        raise (SIGKILL);
    if (strcmp (what, "killed") == 0 && fork () == 0) {
        kill (getppid (), SIGKILL);
        _exit (0);
    }
    if (strcmp (what, "sleep") == 0 || strcmp (what, "killed") == 0)
        for (;;)
            pause ();
    if (strcmp (what, "garbage") == 0)
        puts ("Traceback (most recent call last):");
    else if (strcmp (what, "wrong id") == 0)
        reply (id + 1, 1);
    else if (strcmp (what, "no reward") == 0)
        printf ("{\"id\": %lld}\n", (long long)id);
    else if (strcmp (what, "text") == 0)
        printf ("{\"id\": %lld, \"reward\": \"1\"}\n", (long long)id);
    else if (strcmp (what, "infinite") == 0)
        printf ("{\"id\": %lld, \"reward\": 1e300}\n", (long long)id);
    else if (strcmp (what, "null") == 0)
        printf ("{\"id\": %lld, \"reward\": null}\n", (long long)id);
    else if (strcmp (what, "huge") == 0)
        for (int i = 0; i < 3 << 20; i++)
            putchar ('x');
    else if (strcmp (what, "two") == 0) {
        printf ("{\"id\": %lld, \"reward\": 2}\nand more\n", (long long)id);
    } else if (strcmp (what, "cut") == 0) {
        printf ("{\"id\": %lld, \"rew", (long long)id);
        fflush (stdout);
        exit (0);
    } else if (strcmp (what, "close") == 0) {
        close (1);
        pause ();
    } else if (strcmp (what, "held") == 0) { /* by a child: both pipes */
        while (fork () == 0)
            pause ();
        exit (3);
    } else if (strcmp (what, "moved") == 0) { /* a child goes on */
        if (fork () != 0)
            _exit (0);
        reply (id, 8);
    } else if (strcmp (what, "last") == 0) { /* a good reply, then gone */
        reply (id, 5);
        exit (0);
    } else
        reply (id, (double)strlen (what));
    fflush (stdout);
}

static int program (int argc, char **argv)
{
    static char line[1 << 22];

    if (strcmp (argv[1], "deaf") == 0)
        for (;;)
            pause ();
    if (strcmp (argv[1], "slow") == 0)
        (void)poll (NULL, 0, 200);
    while (fgets (line, sizeof (line), stdin)) {
        json_t *q = json_loads (line, 0, NULL);
        json_int_t id = json_integer_value (json_object_get (q, "id"));
        const char *what =
            json_string_value (json_object_get (q, "completion"));

        if (strcmp (what, "fds") == 0)
            reply (id, open_fds ());
        else if (strcmp (what, "pid") == 0)
            reply (id, getpid ());
        else if (strcmp (what, "argc") == 0)
            reply (id, argc * 100 + (argc > 2 && !strcmp (argv[2], "a b")));
        else if (strcmp (what, "field") == 0)
            reply (id, json_number_value (json_object_get (q, "level")) * 10
                           + !strcmp (json_string_value (
                                          json_object_get (q, "prompt")),
                                      "seen"));
        else
            misbehave (what, id);
        json_decref (q);
    }
    return 0;
}

#endif
