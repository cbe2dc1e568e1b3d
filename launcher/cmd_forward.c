/* SPDX-License-Identifier: Apache-2.0
 * cmd_forward.c - rv forward: a port of this machine leads to one of a job's
 *
 * Each connection is a step of its own in the job: srun has the socket as its
 * standard input and output, and 'rv-exec --connect PORT' is at the other end.
 * So nothing but Slurm must be reachable, and a server that listens on its own
 * node's loopback alone is found. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobstep.h"
#include "jsonout.h"
#include "plan/duration.h"
#include "proc.h"
#include "submit.h"
#include "where.h"

#define BACKLOG 64
#define LOOK_MS 5000 /* does the job still run? */

static const char usage[] =
    "usage: rv forward [LOCAL:]PORT [JOB] [--node NODE] [--json]\n"
    "Connections to LOCAL (default: PORT) on this machine's loopback go to "
    "PORT\n"
    "on a node of a job that runs, by default of your newest, until ^C or the\n"
    "end of the job. LOCAL 0 is any free port.\n"
    "      --node NODE  which of the job's nodes, or its index (default: its "
    "first)\n"
    "      --json       one JSON object when it listens, rv.forward/1\n";

static volatile sig_atomic_t ended;

static void on_end (int signal)
{
    ended = signal;
}

static void on_child (int signal)
{
    (void)signal; /* it ends the wait for a connection */
}

static int parse_port (const char *text, bool any, uint16_t *ret)
{
    long n = 0;

    if (any && !strcmp (text, "0")) {
        *ret = 0;
        return 0;
    }
    if (count_parse (text, 65535, &n, NULL) != RV_OK)
        return -1;
    *ret = (uint16_t)n;
    return 0;
}

/* "8080" or "9000:8080" */
static int parse_ports (char *text, uint16_t *ret_local, uint16_t *ret_port)
{
    char *colon = strchr (text, ':');

    if (!colon)
        return parse_port (text, false, ret_port) ? -1
                                                  : (*ret_local = *ret_port, 0);
    *colon = '\0';
    return parse_port (text, true, ret_local)
                   || parse_port (colon + 1, false, ret_port)
               ? -1
               : 0;
}

static int listen_on (uint16_t *port, struct rv_error *err)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons (*port)};
    socklen_t len = sizeof (in);
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;

    in.sin_addr.s_addr = htonl (INADDR_LOOPBACK);
    if (fd >= 0)
        setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof (one));
    if (fd < 0 || bind (fd, (struct sockaddr *)&in, sizeof (in))
        || listen (fd, BACKLOG)
        || getsockname (fd, (struct sockaddr *)&in, &len)) {
        error_set (err, RV_EIO, "port %u of this machine: %s", *port,
                   strerror (errno));
        if (fd >= 0)
            close (fd);
        return -1;
    }
    *port = ntohs (in.sin_port);
    return fd;
}

/* Does a connection that failed mean that the job is gone? */
static bool job_ended (const struct jobstep *step)
{
    struct slurm_ask ask;
    struct cluster_jobs jobs;
    bool done = false, gone;
    int rc = cluster_job_begin (&ask, step->job_id, NULL);

    while (rc == RV_OK && !done)
        rc = cluster_job_poll (&ask, 1000, &done, &jobs, NULL);
    if (rc != RV_OK)
        return rc == RV_ENOTFOUND;
    gone = jobs.n == 0 || !jobs.job[0].active;
    cluster_jobs_fini (&jobs);
    return gone;
}

/* Returns how many connections failed since the last call. */
static unsigned reap (void)
{
    unsigned failed = 0;
    int status;

    while (waitpid (-1, &status, WNOHANG) > 0)
        failed += status != 0;
    return failed;
}

static void serve (const struct jobstep *step, int fd, char *const words[])
{
    char **env = submit_environ ();
    struct rv_error err = {0};
    bool over = env == NULL;

    while (!ended && !over) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll (&p, 1, LOOK_MS), c;
        unsigned failed = reap ();
        pid_t pid;

        if (failed || ready == 0)
            over = job_ended (step);
        if (failed && !over)
            fprintf (stderr, "rv: a connection ended badly\n");
        if (over || ready <= 0)
            continue;
        c = accept4 (fd, NULL, NULL, SOCK_CLOEXEC);
        if (c >= 0 && proc_spawn (words, env, NULL, c, c, -1, &pid, &err))
            fprintf (stderr, "rv: cannot connect: %s\n", err.text);
        if (c >= 0)
            close (c);
    }
    if (over)
        fprintf (stderr, "rv: job %u (%s) has ended\n", step->job_id,
                 step->name);
    submit_argv_free (env);
}

static int say (const struct cmd_ctx *ctx, const struct jobstep *step,
                uint16_t local, uint16_t port)
{
    if (!ctx->json) {
        fprintf (stderr,
                 "rv: localhost:%u leads to port %u of %s, job %u (%s); ^C "
                 "ends\n",
                 local, port, step->node, step->job_id, step->name);
        return CMD_OK;
    }
    if (jsonout_print (json_pack (
            "{s:s, s:I, s:o, s:s, s:I, s:I}", "schema", "rv.forward/1",
            "job_id", (json_int_t)step->job_id, "name",
            jsonout_text (step->name), "node", step->node, "port",
            (json_int_t)port, "local_port", (json_int_t)local)))
        return CMD_FAILED;
    return fflush (stdout) ? CMD_FAILED : CMD_OK;
}

static int forward (const struct cmd_ctx *ctx, const struct jobstep *step,
                    uint16_t local, uint16_t port)
{
    struct sigaction act = {.sa_handler = on_end}; /* no SA_RESTART */
    struct sigaction child = {.sa_handler = on_child};
    char number[16], *exec = NULL, **words;
    struct rv_error err = {0};
    const char *hint = NULL;
    int fd = -1, status = where_program ("rv-exec", &exec, &err);

    if (status == RV_OK && (fd = listen_on (&local, &err)) < 0)
        hint = "LOCAL:PORT takes another, 0:PORT any that is free";
    if (fd < 0) {
        free (exec);
        return cmd_fail (ctx, CMD_FAILED, hint, "cannot forward: %s", err.text);
    }
    snprintf (number, sizeof (number), "%u", port);
    words = jobstep_argv (step, false, false,
                          (char *[]){exec, (char *)"--connect", number, NULL});
    sigaction (SIGINT, &act, NULL);
    sigaction (SIGTERM, &act, NULL);
    sigaction (SIGHUP, &act, NULL);
    sigaction (SIGCHLD, &child, NULL);
    status = words ? say (ctx, step, local, port) : CMD_FAILED;
    if (status == CMD_OK)
        serve (step, fd, words);
    close (fd);
    submit_argv_free (words);
    free (exec);
    /* What is still open ends with the user's own end, not with ours. */
    return status == CMD_OK && ended ? 128 + ended : status;
}

static int take_node (struct cmd_ctx *ctx, int c, const char *value, void *arg)
{
    (void)ctx;
    (void)c;
    *(const char **)arg = value;
    return CMD_OK;
}

static int cmd_forward_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    static const struct option options[] = {
        {"node", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    const char *node = NULL;
    struct jobstep step;
    uint16_t local, port;
    bool done;
    int status = cmd_options (ctx, argc, argv, "", options, "forward",
                              take_node, &node, &done);

    if (done)
        return status;
    if (argc - optind < 1 || argc - optind > 2)
        return cmd_usage_error (ctx, "cannot forward: a port is needed, and at "
                                     "most one job");
    if (parse_ports (argv[optind], &local, &port))
        return cmd_usage_error (ctx, "cannot forward: a port is a number from "
                                     "1 to 65535");
    status = jobstep_find (ctx, "forward to", argv[optind + 1], node, &step);
    if (status != CMD_OK)
        return status;
    status = forward (ctx, &step, local, port);
    jobstep_fini (&step);
    return status;
}

const struct cmd cmd_forward = {
    .name = "forward",
    .summary = "a local port that leads to one of a running job",
    .usage = usage,
    .json = true,
    .run = cmd_forward_run,
};
