/* SPDX-License-Identifier: Apache-2.0
 * pyxis_spank.c - a SPANK plugin with pyxis's options that writes down what a
 * task's container would be made of
 *
 *   plugstack: required pyxis.so DIR
 *
 * As NVIDIA/pyxis does it registers the options in slurm_spank_init of every
 * context, acts in task_init alone, and wants each of --container-mounts as
 * SRC:DST[:FLAGS] or PATH, with absolute paths. Each task of a step that has an
 * option leaves DIR/JOB.STEP.TASK, one "NAME=VALUE" a line. */
#define _GNU_SOURCE
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN (pyxis, 1)

enum { MOUNTS = 1, N_OPTIONS = 15 };

static const struct {
    const char *name;
    int has_arg;
} options[N_OPTIONS] = {
    {"container-image", 1},         {"container-mounts", 1},
    {"container-workdir", 1},       {"container-name", 1},
    {"container-save", 1},          {"container-mount-home", 0},
    {"no-container-mount-home", 0}, {"container-remap-root", 0},
    {"no-container-remap-root", 0}, {"container-entrypoint", 0},
    {"no-container-entrypoint", 0}, {"container-entrypoint-log", 0},
    {"container-writable", 0},      {"container-readonly", 0},
    {"container-env", 1},
};

static char *said[N_OPTIONS]; /* NULL: not given */

static int bad_mounts (const char *list)
{
    char *copy = strdup (list), *rest = copy, *item;
    int bad = !copy;

    while (!bad && (item = strsep (&rest, ","))) {
        const char *colon = strchr (item, ':');

        bad = item[0] != '/' || (colon && colon[1] != '/');
    }
    free (copy);
    return bad;
}

static int option_cb (int val, const char *arg, int remote)
{
    if (val == MOUNTS && bad_mounts (arg)) {
        slurm_error ("pyxis: --container-mounts: invalid format: %s", arg);
        return -1;
    }
    if (!remote)
        return 0;
    free (said[val]);
    said[val] = strdup (arg && options[val].has_arg ? arg : "");
    return said[val] ? 0 : -1;
}

int slurm_spank_init (spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < N_OPTIONS; i++) {
        char usage[] = "[pyxis] of a container", argument[] = "X",
             *name = strdup (options[i].name);
        struct spank_option o = {name,  options[i].has_arg ? argument : NULL,
                                 usage, options[i].has_arg,
                                 i,     option_cb};

        if (!name || spank_option_register (sp, &o) != ESPANK_SUCCESS)
            return -1;
        free (name);
    }
    return 0;
}

int slurm_spank_task_init (spank_t sp, int argc, char **argv)
{
    uint32_t job = 0, step = 0, task = 0;
    char path[512];
    FILE *f = NULL;

    if (argc != 1 || spank_get_item (sp, S_JOB_ID, &job) != ESPANK_SUCCESS
        || spank_get_item (sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS
        || spank_get_item (sp, S_TASK_GLOBAL_ID, &task) != ESPANK_SUCCESS)
        return -1;
    snprintf (path, sizeof (path), "%s/%u.%u.%u", argv[0], job, step, task);
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!said[i])
            continue;
        if (!f && !(f = fopen (path, "we")))
            return -1;
        fprintf (f, "%s=%s\n", options[i].name, said[i]);
    }
    return f && fclose (f) ? -1 : 0;
}
