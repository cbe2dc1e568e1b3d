/* SPDX-License-Identifier: Apache-2.0
 * slurm_ask.c - one question to Slurm, in a child with a deadline
 *
 * The child writes one byte once the controller answered a ping; until then
 * the deadline is short, afterwards long, because a large site's answer takes
 * its time. Then follows an answer that is a string, as it is: TEXT_BYTE, the
 * text, a NUL, since what thousands of jobs are in one text would take JSON longer
 * to write and to read than Slurm to say; or one JSON object: {"ok": ANSWER} or
 * {"errno", "text"}. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "slurm_ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"

#define REACH_MS     4000
#define ANSWER_MS    60000
#define AGAIN_MS     250
#define ANSWER_MAX   ((size_t)256 << 20)
#define CONTROLLERS  10
#define LOG_BYTES    4096 /* the first, which tell why */
#define REACHED_BYTE "+"
#define TEXT_BYTE    "\t"

/* In the child: is any controller there? */
static bool reachable (void)
{
    for (int i = 0; i < CONTROLLERS; i++)
        if (slurm_ping (i) == 0)
            return true;
    return false;
}

static int write_json (int fd, json_t *json_take)
{
    char *text = json_take ? json_dumps (json_take, JSON_COMPACT) : NULL;

    return text ? fsio_write_all (fd, text, strlen (text)) : -1;
}

static int write_answer (int fd, slurm_ask_f f, const void *arg)
{
    json_t *value;
    int saved;

    errno = 0;
    value = f (arg);
    saved = errno;
    if (json_is_string (value))
        return fsio_write_all (fd, TEXT_BYTE, 1)
                       || fsio_write_all (fd, json_string_value (value),
                                          json_string_length (value) + 1)
                   ? -1
                   : 0;
    if (value)
        return write_json (fd, json_pack ("{s:o}", "ok", value));
    return write_json (fd, json_pack ("{s:i, s:s}", "errno", saved, "text",
                                      slurm_strerror (saved)));
}

static void child (int fd, int log, slurm_ask_f f, const void *arg)
    __attribute__ ((noreturn));
static void child (int fd, int log, slurm_ask_f f, const void *arg)
{
    int null = open ("/dev/null", O_RDWR | O_CLOEXEC);

    prctl (PR_SET_PDEATHSIG, SIGKILL);
    signal (SIGINT, SIG_IGN);
    if (null < 0 || dup2 (null, 0) < 0 || dup2 (null, 1) < 0
        || dup2 (log < 0 ? null : log, 2) < 0)
        _exit (1);
    slurm_init (NULL);
    if (!reachable () || fsio_write_all (fd, REACHED_BYTE, 1))
        _exit (1);
    _exit (write_answer (fd, f, arg) ? 1 : 0);
}

static void close_log (struct slurm_ask *ask)
{
    if (ask->log >= 0)
        close (ask->log);
    ask->log = -1;
}

/* libslurm takes a folder for an empty file, and misses names in it. */
static int check_conf (struct rv_error *err)
{
    const char *conf = getenv ("SLURM_CONF");
    struct stat st;

    if (!conf || !*conf)
        return RV_OK;
    if (conf[0] == '/' && access (conf, R_OK))
        return error_set (err, RV_ENOTFOUND, "SLURM_CONF names %s: %s", conf,
                          strerror (errno));
    if (stat (conf, &st) == 0 && S_ISDIR (st.st_mode))
        return error_set (err, RV_ENOTFOUND,
                          "SLURM_CONF names the folder %s; it must name a "
                          "file, as %s%sslurm.conf",
                          conf, conf,
                          conf[strlen (conf) - 1] == '/' ? "" : "/");
    return RV_OK;
}

int slurm_ask_begin (struct slurm_ask *ask, slurm_ask_f f, const void *arg,
                     struct rv_error *err)
{
    int fd[2], status;

    memset (ask, 0, sizeof (*ask));
    ask->fd = ask->log = -1;
    if ((status = check_conf (err)))
        return status;
    if (pipe2 (fd, O_CLOEXEC))
        return error_set (err, RV_EIO, "pipe: %s", strerror (errno));
    ask->log = memfd_create ("rv-libslurm", MFD_CLOEXEC);
    ask->pid = fork ();
    if (ask->pid == 0)
        child (fd[1], ask->log, f, arg);
    close (fd[1]);
    if (ask->pid < 0) {
        ask->pid = 0;
        close (fd[0]);
        close_log (ask);
        return error_set (err, RV_EIO, "fork: %s", strerror (errno));
    }
    ask->fd = fd[0];
    ask->give_up_at = proc_now_ms () + REACH_MS;
    return RV_OK;
}

void slurm_ask_cancel (struct slurm_ask *ask)
{
    if (!ask || ask->pid == 0)
        return;
    kill (ask->pid, SIGKILL);
    while (waitpid (ask->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close (ask->fd);
    close_log (ask);
    free (ask->buf);
    memset (ask, 0, sizeof (*ask));
    ask->fd = ask->log = -1;
}

/* Take what the pipe has. Returns 1 at its end, 0 before, -1 out of memory or
 * beyond all bounds. */
static int take (struct slurm_ask *ask)
{
    ssize_t n;

    if (ask->size - ask->len < 65536) {
        size_t size = ask->size ? ask->size * 2 : 131072;
        char *buf = size > ANSWER_MAX ? NULL : realloc (ask->buf, size);

        if (!buf)
            return -1;
        ask->buf = buf;
        ask->size = size;
    }
    n = read (ask->fd, ask->buf + ask->len, ask->size - ask->len - 1);
    if (n < 0)
        return errno == EINTR ? 0 : -1;
    if (n > 0 && !ask->reached) {
        ask->reached = true;
        ask->give_up_at = proc_now_ms () + ANSWER_MS;
    }
    ask->len += (size_t)n;
    return n == 0;
}

/* No answer: by what libslurm said, if it gave a reason. */
static int why_none (const struct slurm_ask *ask, const char *otherwise,
                     struct rv_error *err)
{
    char text[LOG_BYTES + 1];
    ssize_t n = ask->log < 0 ? -1 : pread (ask->log, text, LOG_BYTES, 0);
    char *fatal, *why;

    text[n > 0 ? n : 0] = '\0';
    fatal = strstr (text, "fatal: ");
    why = fatal ? strstr (text, "error: ") : NULL;
    why = why && why < fatal ? why : fatal;
    /* SLURM_PROTOCOL_VERSION_ERROR, which no call of libslurm returns here. */
    if (strstr (text, "Incompatible versions"))
        return error_set (err, RV_EMISMATCH,
                          "slurmctld is of another release of Slurm, and this "
                          "rv was built for %s; use one that was built for "
                          "this cluster's",
                          RV_SLURM_VERSION);
    if (!fatal)
        return error_set (err, RV_ETIMEDOUT, "%s", otherwise);
    why[strcspn (why, "\n")] = '\0';
    return error_set (err, RV_EFORMAT, "libslurm %s: %s", RV_SLURM_VERSION,
                      why);
}

static int decode (struct slurm_ask *ask, json_t **ret, struct rv_error *err)
{
    json_t *whole = NULL, *ok;
    int number;

    if (ask->len > 2 && ask->buf[1] == TEXT_BYTE[0]) {
        /* Without its NUL it is torn. */
        if (ask->buf[ask->len - 1] == '\0'
            && (*ret = json_stringn_nocheck (ask->buf + 2, ask->len - 3)))
            return RV_OK;
        return error_set (err, RV_EIO, "libslurm's answer is not whole");
    }
    if (ask->len > 1)
        whole = json_loadb (ask->buf + 1, ask->len - 1, 0, NULL);
    if (!whole && ask->reached)
        return error_set (err, RV_EIO, "libslurm gave no answer");
    if (!whole)
        return why_none (ask, "no Slurm controller answers here", err);
    ok = json_object_get (whole, "ok");
    if (ok) {
        *ret = json_incref (ok);
        json_decref (whole);
        return RV_OK;
    }
    number = (int)json_integer_value (json_object_get (whole, "errno"));
    number = number == ESLURM_INVALID_JOB_ID ? RV_ENOTFOUND
             : number == ESLURM_ALREADY_DONE ? RV_ESTATE
                                             : RV_EIO;
    error_set (err, number, "%s",
               json_string_value (json_object_get (whole, "text")));
    json_decref (whole);
    return number;
}

int slurm_ask_poll (struct slurm_ask *ask, int timeout_ms, bool *ret_done,
                    json_t **ret, struct rv_error *err)
{
    static const char silent[] = "the Slurm controller does not answer";
    int64_t until = proc_now_ms () + timeout_ms;
    int status, ended = 0;

    *ret_done = false;
    while (!ended) {
        struct pollfd p = {.fd = ask->fd, .events = POLLIN};
        int64_t now = proc_now_ms (), left;

        if (now >= ask->give_up_at) {
            status = ask->reached ? error_set (err, RV_ETIMEDOUT, "%s", silent)
                                  : why_none (ask, silent, err);
            slurm_ask_cancel (ask);
            *ret_done = true;
            return status;
        }
        left = (until < ask->give_up_at ? until : ask->give_up_at) - now;
        if (poll (&p, 1, left > 0 ? (int)left : 0) > 0)
            ended = take (ask);
        else if (proc_now_ms () >= until)
            return RV_OK;
    }
    *ret_done = true;
    status = ended < 0 ? error_set (err, RV_EIO, "libslurm's answer: %s",
                                    strerror (errno))
                       : decode (ask, ret, err);
    slurm_ask_cancel (ask);
    return status;
}

static int ask_once (slurm_ask_f f, const void *arg, json_t **ret,
                     struct rv_error *err)
{
    struct slurm_ask ask;
    bool done = false;
    int status = slurm_ask_begin (&ask, f, arg, err);

    while (status == RV_OK && !done)
        status = slurm_ask_poll (&ask, 1000, &done, ret, err);
    return status;
}

static int patience_ms;

void slurm_ask_patience (int ms)
{
    patience_ms = ms;
}

int slurm_ask_wait (slurm_ask_f f, const void *arg, json_t **ret,
                    struct rv_error *err)
{
    int64_t end = proc_now_ms () + patience_ms;
    bool told = false;
    int status;

    while ((status = ask_once (f, arg, ret, err)) == RV_ETIMEDOUT
           && proc_now_ms () < end) {
        if (!told)
            fprintf (stderr,
                     "rv: slurmctld does not answer; asking again for %d s\n",
                     patience_ms / 1000);
        told = true;
        poll (NULL, 0, AGAIN_MS);
    }
    return status;
}
