/* SPDX-License-Identifier: Apache-2.0
 * replay.c - run every seed of a fuzz target once, without libFuzzer
 *
 * fuzz_NAME runs the files of tests/fuzz/seeds/NAME (below top_srcdir), or the
 * files that are its arguments, and prints TAP. A target that finds something
 * wrong aborts, and the test is an error. */
#include "config.h"

#include <dirent.h>

#include "fuzz.h"
#include "plan/fsio.h"

#define INPUT_MAX (16 * 1024 * 1024)

static int run_file (const char *path, int number)
{
    struct rv_error err;
    char *data;
    size_t len;

    if (fsio_read (path, INPUT_MAX, &data, &len, &err) != 0) {
        printf ("not ok %d - %s\n", number, err.text);
        return 1;
    }
    LLVMFuzzerTestOneInput ((const uint8_t *)data, len);
    free (data);
    printf ("ok %d - %s\n", number, path);
    fflush (stdout);
    return 0;
}

static int visible (const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int run_folder (const char *folder)
{
    struct dirent **names;
    int n = scandir (folder, &names, visible, alphasort), bad = 0;

    if (n < 1) {
        printf ("1..1\nnot ok 1 - no seeds in %s\n", folder);
        return 1;
    }
    printf ("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        char *path = fsio_join (folder, names[i]->d_name);

        bad += path ? run_file (path, i + 1) : 1;
        free (path);
        free (names[i]);
    }
    free (names);
    return bad;
}

int main (int argc, char *argv[])
{
    const char *top = getenv ("top_srcdir"), *name = strrchr (argv[0], '/');
    char *seeds, *folder;
    int bad = 0;

    if (argc > 1) {
        printf ("1..%d\n", argc - 1);
        for (int i = 1; i < argc; i++)
            bad += run_file (argv[i], i);
        return bad != 0;
    }
    name = name ? name + 1 : argv[0];
    if (strncmp (name, "fuzz_", 5) == 0)
        name += 5;
    seeds = fsio_join (top ? top : ".", "tests/fuzz/seeds");
    folder = seeds ? fsio_join (seeds, name) : NULL;
    bad = folder ? run_folder (folder) : 1;
    free (seeds);
    free (folder);
    return bad != 0;
}
