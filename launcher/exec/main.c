/* SPDX-License-Identifier: Apache-2.0
 * main.c - rv-exec: one task of a step, or the batch step of a request */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/child.h"
#include "exec/exec.h"
#include "exec/log.h"
#include "version.h"

static const char help_text[] =
    "Usage: rv-exec [-v] [--] CMD [ARG...]    one task, under srun or alone\n"
    "       rv-exec --task DIR                one task of a request of rv\n"
    "       rv-exec --batch DIR               the batch step of a request\n"
    "       rv-exec --connect PORT            stdin and stdout of rv forward\n"
    "       rv-exec --gpus                    how many this node has\n"
    "       rv-exec --help | --version\n"
    "\n"
    "Joins the job (PMIx, else Slurm's variables, else alone), exports RANK,\n"
    "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the like, runs CMD\n"
    "unchanged as a child, forwards signals and ends with its exit status.\n"
    "When CMD ends badly it says so once and ends the other ranks.\n"
    "\n"
    "  -v, --verbose   say how the job was joined (as RV_LOG=info)\n";

static int usage (const char *why, const char *word)
{
    log_line (LOG_ERROR,
              "cannot run rv-exec: %s%s%s%s; 'rv-exec --help' shows "
              "how",
              why, *word ? " '" : "", word, *word ? "'" : "");
    return EXEC_FAILED;
}

static int show (const char *text)
{
    if (fputs (text, stdout) >= 0 && fflush (stdout) == 0)
        return 0;
    log_line (LOG_ERROR, "cannot write to stdout: %s", strerror (errno));
    return EXEC_FAILED;
}

/* look - what the command tells of itself. */
static int look (struct exec_task *t)
{
    struct rv_error err = {0};
    int argc = 0;

    while (t->argv[argc])
        argc++;
    if (!command_scan (argc, t->argv, &t->cmd, &err))
        return 0;
    log_line (LOG_ERROR, "cannot run '%s': %s", t->argv[0], err.text);
    return EXEC_FAILED;
}

static int typed (char **argv)
{
    struct exec_task t = {.argv = argv};
    int status = look (&t);

    return status ? status : exec_task (&t);
}

static int of_request (const char *dir)
{
    struct exec_request q = {0};
    struct rv_error err = {0};
    struct exec_task t = {.dir = dir};
    char **argv = NULL;
    int status;

    if (exec_request_read (dir, &q, &err)
        || exec_secrets_read (dir, q.secrets, &t.secrets, &err)
        || exec_argv_read (dir, &argv, &err) || exec_request_enter (&q, &err)) {
        log_line (LOG_ERROR, "cannot read the request: %s", err.text);
        exec_request_fini (&q);
        envfile_fini (&t.secrets);
        return EXEC_FAILED;
    }
    t.argv = argv;
    t.gpus_per_node = q.gpus / q.nodes;
    t.checkpoint_signal = q.checkpoint.signal;
    if (!(status = look (&t)))
        status = exec_task (&t);
    free (argv[0]);
    free (argv);
    envfile_fini (&t.secrets);
    exec_request_fini (&q);
    return status;
}

int main (int argc, char **argv)
{
    int verbose = 0, i;

    log_init (0);
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        const char *word = argv[i];
        bool task = !strcmp (word, "--task");

        if (!strcmp (word, "--")) {
            i++;
            break;
        }
        if (!strcmp (word, "--help") || !strcmp (word, "-h"))
            return show (help_text);
        if (!strcmp (word, "--version"))
            return show (RV_VERSION_LINE ("rv-exec") "\n");
        if (!strcmp (word, "-v") || !strcmp (word, "--verbose")) {
            log_init (verbose = 1);
            continue;
        }
        if (!strcmp (word, "--gpus")) /* of rv doctor */
            return exec_gpus ();
        if (!strcmp (word, "--connect")) /* of rv forward */
            return i + 2 == argc ? exec_connect (argv[i + 1])
                                 : usage ("one port is needed after", word);
        if (!task && strcmp (word, "--batch"))
            return usage ("unknown option", word);
        if (i + 2 != argc)
            return usage ("one folder is needed after", word);
        if (child_init ())
            return EXEC_FAILED;
        return task ? of_request (argv[i + 1]) : exec_batch (argv[i + 1]);
    }
    if (i >= argc)
        return usage ("no command is given", "");
    if (child_init ())
        return EXEC_FAILED;
    return typed (argv + i);
}
