/* SPDX-License-Identifier: Apache-2.0
 * tail.c - the last lines of a child's stderr, without holding any back */
#include "config.h"

#include "exec/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/child.h"

const char *tail_trim (const char *text, size_t lines)
{
    const char *p = text + strlen (text);

    if (p > text && p[-1] == '\n')
        p--;
    while (p > text) {
        if (p[-1] == '\n' && --lines == 0)
            return p;
        p--;
    }
    return text;
}

int tail_open (struct tail *t, bool wanted, struct rv_error *err)
{
    struct stat st;
    int fd[2];

    *t = (struct tail){.read_fd = -1, .write_fd = -1};
    if (!wanted || fstat (STDERR_FILENO, &st) || isatty (STDERR_FILENO))
        return RV_OK;
    if (!(t->buf = calloc (1, TAIL_BYTES + 1)))
        return error_set (err, RV_ENOMEM, "out of memory");
    if (S_ISREG (st.st_mode)) {
        t->file = true;
        t->start = st.st_size;
        return RV_OK;
    }
    if (pipe2 (fd, O_CLOEXEC))
        return error_set (err, RV_EIO, "pipe: %s", strerror (errno));
    t->read_fd = fd[0];
    t->write_fd = fd[1];
    fcntl (t->read_fd, F_SETFL, O_NONBLOCK);
    return RV_OK;
}

void tail_started (struct tail *t)
{
    if (t->write_fd >= 0)
        close (t->write_fd);
    t->write_fd = -1;
}

static void keep (struct tail *t, const char *p, size_t n)
{
    size_t old = t->len;

    if (n >= TAIL_BYTES) {
        p += n - TAIL_BYTES;
        n = TAIL_BYTES;
    }
    if (old > TAIL_BYTES - n) {
        memmove (t->buf, t->buf + old - (TAIL_BYTES - n), TAIL_BYTES - n);
        old = TAIL_BYTES - n;
    }
    memcpy (t->buf + old, p, n);
    t->len = old + n;
}

static void pass_on (const char *p, size_t n)
{
    while (n) {
        ssize_t k = write (STDERR_FILENO, p, n);

        if (k < 0 && errno == EAGAIN)
            poll (&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1,
                  1000);
        else if (k < 0 && errno != EINTR)
            return; /* nobody listens any more; the tail is kept */
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        }
    }
}

void tail_forward (struct tail *t)
{
    char buf[16384];
    ssize_t n = read (t->read_fd, buf, sizeof (buf));

    if (n > 0) {
        pass_on (buf, (size_t)n);
        keep (t, buf, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close (t->read_fd);
        t->read_fd = -1;
    }
}

int64_t tail_now_ms (void)
{
    struct timespec now;

    clock_gettime (CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void tail_drain (struct tail *t, int ms)
{
    int64_t end = tail_now_ms () + ms;

    while (t->read_fd >= 0) {
        struct pollfd p = {.fd = t->read_fd, .events = POLLIN};
        int64_t left = end - tail_now_ms ();

        if (left <= 0 || poll (&p, 1, (int)left) <= 0)
            return;
        tail_forward (t);
    }
}

/* fd 2 may be write-only: the file is opened anew. */
static void read_file (struct tail *t)
{
    int fd = open ("/proc/self/fd/2", O_RDONLY | O_CLOEXEC);
    struct stat st;
    off_t from;
    ssize_t n;

    if (fd < 0 || fstat (fd, &st)) {
        if (fd >= 0)
            close (fd);
        return;
    }
    from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    if (from < t->start && t->start <= st.st_size)
        from = t->start; /* what stood there before is not this child's */
    n = pread (fd, t->buf, TAIL_BYTES, from);
    t->len = n > 0 ? (size_t)n : 0;
    close (fd);
}

char *tail_take (struct tail *t)
{
    if (!t->buf)
        return NULL;
    if (t->file)
        read_file (t);
    t->buf[t->len] = '\0';
    for (size_t i = 0; i < t->len; i++)
        if (!t->buf[i])
            t->buf[i] = '?';
    return strdup (tail_trim (t->buf, TAIL_LINES));
}

void tail_close (struct tail *t)
{
    if (t->read_fd >= 0)
        close (t->read_fd);
    if (t->write_fd >= 0)
        close (t->write_fd);
    free (t->buf);
    *t = (struct tail){.read_fd = -1, .write_fd = -1};
}
