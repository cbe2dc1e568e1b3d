/* SPDX-License-Identifier: Apache-2.0
 * trace.c - a timeline of this process in the Chrome trace format
 *
 * Whatever ends the process, the file is a list: its end stands behind blanks,
 * in which entries are put, each within one page, since a write of several
 * pages may be cut off between two by SIGKILL. A file without blanks left is
 * replaced, by rename, by one with more. */
#include "config.h"

#include <train/trace.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "sock.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <nvtx3/nvToolsExt.h>
#pragma GCC diagnostic pop
#define HAVE_NVTX 1
#endif
#endif

#define END      "\n]\n"
#define PAGE     4096
#define ROOM     ((off_t)64 << 10) /* blanks at first, and at least */
#define MAX_ROWS 64
#define ROW_LEN  60
#define MAX_ARGS 16
#define ENTRY    PAGE

static struct {
    pthread_mutex_t lock;
    atomic_bool on;
    bool failed;
    int why; /* errno of the failure */
    int fd, rank;
    pid_t pid;
    char *path, *temp;
    off_t at, size; /* of the next entry; of the file */
    char row[MAX_ROWS][ROW_LEN + 1];
    int rows;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static int64_t now_us (void)
{
    static _Atomic int64_t base;
    int64_t b = atomic_load (&base), none = 0, mono;
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    mono = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    if (b == 0) {
        clock_gettime (CLOCK_REALTIME, &t);
        b = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 - mono;
        if (!atomic_compare_exchange_strong (&base, &none, b))
            b = none;
    }
    return mono + b;
}

/* Text of an entry, in a buffer of fixed size; what does not fit is noted. */
struct entry {
    char text[ENTRY];
    size_t n;
    bool full;
};

static void put (struct entry *e, const char *text, size_t n)
{
    if (n > sizeof (e->text) - e->n) {
        e->full = true;
        return;
    }
    memcpy (e->text + e->n, text, n);
    e->n += n;
}

static void puts_to (struct entry *e, const char *text)
{
    put (e, text, strlen (text));
}

static void put_number (struct entry *e, int64_t value)
{
    char text[32];

    snprintf (text, sizeof (text), "%lld", (long long)value);
    puts_to (e, text);
}

/* A JSON string; bytes that are no ASCII stay as they are if they are UTF-8,
 * else a '?' stands for each. */
static size_t utf8_len (const unsigned char *s)
{
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5   ? 4
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                                             : 0;

    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    /* overlong, surrogates and what is past the last code point */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)
        || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static void put_string (struct entry *e, const char *text)
{
    const unsigned char *s = (const unsigned char *)(text ? text : "");
    char hex[8];
    size_t n;

    puts_to (e, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') {
            put (e, "\\", 1);
            put (e, (const char *)s, 1);
        } else if (*s < 0x20 || *s == 0x7f) {
            snprintf (hex, sizeof (hex), "\\u%04x", *s);
            puts_to (e, hex);
        } else if (*s < 0x80) {
            put (e, (const char *)s, 1);
        } else if ((n = utf8_len (s)) > 0) {
            put (e, (const char *)s, n);
            s += n - 1;
        } else {
            put (e, "?", 1);
        }
    }
    puts_to (e, "\"");
}

static void fail (int why)
{
    trace.failed = true;
    trace.why = why;
    atomic_store (&trace.on, false);
}

/* All of it, or -1 with errno. */
static int write_at (int fd, const char *text, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t done = pwrite (fd, text, n, at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        text += done;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

/* The list so far, blanks, and its end. */
static int fill (int fd, off_t size)
{
    char block[PAGE];
    off_t at = 0;

    while (at < trace.at) {
        off_t left = trace.at - at;
        ssize_t n = pread (trace.fd, block,
                           left < PAGE ? (size_t)left : sizeof (block), at);

        if (n <= 0 || write_at (fd, block, (size_t)n, at) < 0)
            return -1;
        at += n;
    }
    memset (block, ' ', sizeof (block));
    while (at < size) {
        off_t left = size - at;
        size_t n = left < PAGE ? (size_t)left : sizeof (block);

        if (write_at (fd, block, n, at) < 0)
            return -1;
        at += (off_t)n;
    }
    if (trace.fd < 0 && write_at (fd, "[", 1, 0) < 0)
        return -1;
    return write_at (fd, END, strlen (END), size);
}

/* A file with room up to [size] takes the place of what is there. */
static int resize (off_t size)
{
    int fd = open (trace.temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0)
        return -1;
    if (fill (fd, size) < 0 || rename (trace.temp, trace.path) < 0) {
        int why = errno;

        close (fd);
        unlink (trace.temp);
        errno = why;
        return -1;
    }
    sock_close (&trace.fd);
    trace.fd = fd;
    trace.size = size;
    return 0;
}

/* With the lock held. */
static void write_entry (struct entry *e)
{
    off_t n = (off_t)e->n, in_page = trace.at % PAGE;

    if (e->full || !atomic_load (&trace.on))
        return; /* names of more than a page are left out */
    if (in_page + n > PAGE)
        trace.at += PAGE - in_page;
    if (trace.at + n > trace.size
        && resize (trace.at + n + ROOM + trace.at / 4) < 0) {
        fail (errno);
        return;
    }
    if (write_at (trace.fd, e->text, e->n, trace.at) < 0) {
        int why = errno;

        memset (e->text, ' ', e->n);
        write_at (trace.fd, e->text, e->n, trace.at);
        fail (why);
        return;
    }
    trace.at += n;
}

static void begin_entry (struct entry *e, bool first, const char *ph, int row)
{
    e->n = 0;
    e->full = false;
    puts_to (e, first ? "\n" : ",\n");
    puts_to (e, "{\"ph\":\"");
    puts_to (e, ph);
    puts_to (e, "\",\"pid\":");
    put_number (e, trace.rank);
    puts_to (e, ",\"tid\":");
    put_number (e, row);
}

static void name_entry (struct entry *e, bool first, const char *what, int row,
                        const char *name)
{
    begin_entry (e, first, "M", row);
    puts_to (e, ",\"name\":\"");
    puts_to (e, what);
    puts_to (e, "\",\"args\":{\"name\":");
    put_string (e, name);
    puts_to (e, "}}");
    write_entry (e);
}

/* 1, 2 and so on; the rows past the last are one. */
static int find_row (struct entry *e, const char *name)
{
    for (int i = 0; i < trace.rows; i++) {
        if (strcmp (trace.row[i], name) == 0)
            return i + 1;
    }
    if (trace.rows == MAX_ROWS)
        return MAX_ROWS + 1;
    snprintf (trace.row[trace.rows], sizeof (trace.row[0]), "%s", name);
    trace.rows++;
    name_entry (e, false, "thread_name", trace.rows, name);
    return trace.rows;
}

static bool number_of (const char *name, int *ret)
{
    const char *text = getenv (name);
    char *end;
    long value;

    if (!text || !*text)
        return false;
    errno = 0;
    value = strtol (text, &end, 10);
    if (errno || *end || value < 0 || value > 1 << 24)
        return false;
    *ret = (int)value;
    return true;
}

static void find_rank (int *rank, int *size)
{
    if (*size > 0)
        return;
    if (number_of ("RANK", rank) && number_of ("WORLD_SIZE", size))
        return;
    if (number_of ("SLURM_PROCID", rank) && number_of ("SLURM_NTASKS", size))
        return;
    *rank = 0;
    *size = 1;
}

static char *name_of (const char *path, int rank, int size)
{
    const char *dot = strrchr (path, '.'), *slash = strrchr (path, '/');
    size_t stem = strlen (path);
    char *name = NULL;

    if (size <= 1)
        return strdup (path);
    if (dot && (!slash || dot > slash))
        stem = (size_t)(dot - path);
    return asprintf (&name, "%.*s-%d%s", (int)stem, path, rank, path + stem) < 0
               ? NULL
               : name;
}

static void forget (void)
{
    sock_close (&trace.fd);
    free (trace.path);
    free (trace.temp);
    trace.path = trace.temp = NULL;
}

/* The folder that is the current one now: a later resize needs it. */
static char *whole_path (const char *path)
{
    char *cwd = path[0] == '/' ? NULL : getcwd (NULL, 0), *out = NULL;

    if (path[0] == '/')
        return strdup (path);
    if (cwd && asprintf (&out, "%s/%s", cwd, path) < 0)
        out = NULL;
    free (cwd);
    return out;
}

static train_status_t start (const char *path, int rank, train_error_t *err)
{
    char host[256] = "", label[320];
    struct entry e;

    trace.path = whole_path (path);
    if (!trace.path
        || asprintf (&trace.temp, "%s.%d.tmp", trace.path, (int)getpid ())
               < 0) {
        trace.temp = NULL;
        forget ();
        return err_set (err, TRAIN_ENOMEM, "trace %s: no memory", path);
    }
    trace.at = 0;
    if (resize (ROOM) < 0) {
        int why = errno;

        forget ();
        return err_set (err, TRAIN_EIO, "trace %s: %s", path, strerror (why));
    }
    trace.at = 1;
    trace.rank = rank;
    trace.pid = getpid ();
    trace.rows = 0;
    trace.failed = false;
    memset (trace.row, 0, sizeof (trace.row));
    gethostname (host, sizeof (host) - 1);
    snprintf (label, sizeof (label), "rank %d, pid %d on %s", rank,
              (int)trace.pid, host);
    atomic_store (&trace.on, true);
    name_entry (&e, true, "process_name", 0, label);
    return TRAIN_OK;
}

train_status_t train_trace_open (const char *path, int rank, int size,
                                 train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    char *name;

    if (!path)
        path = getenv ("RV_TRACE");
    if (!path || !*path)
        return TRAIN_OK;
    if (size < 0 || (size > 0 && (rank < 0 || rank >= size)))
        return err_set (err, TRAIN_EINVAL, "trace: rank %d of %d", rank, size);
    find_rank (&rank, &size);
    if (!(name = name_of (path, rank, size)))
        return err_set (err, TRAIN_ENOMEM, "trace: no memory for a name");
    pthread_mutex_lock (&trace.lock);
    if (trace.fd < 0)
        status = start (name, rank, err);
    pthread_mutex_unlock (&trace.lock);
    free (name);
    return status;
}

train_status_t train_trace_close (train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    pthread_mutex_lock (&trace.lock);
    /* without the blanks that are left; a fork leaves the file alone */
    if (trace.fd >= 0 && !trace.failed && trace.pid == getpid ()
        && resize (trace.at) < 0)
        fail (errno);
    atomic_store (&trace.on, false);
    if (trace.failed)
        status = err_set (err, TRAIN_EIO, "trace: an entry was not written: %s",
                          strerror (trace.why));
    trace.failed = false;
    forget ();
    pthread_mutex_unlock (&trace.lock);
    return status;
}

train_span_t train_trace_begin (const char *category, const char *name)
{
    train_span_t span = {.category = category, .name = name};

    if (atomic_load_explicit (&trace.on, memory_order_relaxed))
        span.begin_us = now_us ();
#ifdef HAVE_NVTX
    span.nvtx = nvtxRangeStartA (name ? name : "");
#endif
    return span;
}

static void write_span (const train_span_t *span, const char *row,
                        const train_trace_arg_t *args, size_t n, int64_t end)
{
    char own[ROW_LEN + 1];
    struct entry e;
    int tid;

    if (row)
        snprintf (own, sizeof (own), "%s", row);
    else
        snprintf (own, sizeof (own), "thread %d", (int)gettid ());
    tid = find_row (&e, own);
    begin_entry (&e, false, "X", tid);
    puts_to (&e, ",\"cat\":");
    put_string (&e, span->category);
    puts_to (&e, ",\"name\":");
    put_string (&e, span->name);
    puts_to (&e, ",\"ts\":");
    put_number (&e, span->begin_us);
    puts_to (&e, ",\"dur\":");
    put_number (&e, end - span->begin_us);
    puts_to (&e, ",\"args\":{");
    for (size_t i = 0; i < n && i < MAX_ARGS; i++) {
        if (i > 0)
            puts_to (&e, ",");
        put_string (&e, args[i].key);
        puts_to (&e, ":");
        put_number (&e, args[i].value);
    }
    puts_to (&e, "}}");
    write_entry (&e);
}

void train_trace_end (const train_span_t *span, const char *row,
                      const train_trace_arg_t *args, size_t n)
{
    int saved = errno;

#ifdef HAVE_NVTX
    if (span->nvtx != 0)
        nvtxRangeEnd (span->nvtx);
#endif
    /* asked before the lock, which a fork may have left held */
    if (span->begin_us != 0 && atomic_load (&trace.on)
        && trace.pid == getpid ()) {
        int64_t end = now_us ();

        pthread_mutex_lock (&trace.lock);
        if (atomic_load (&trace.on))
            write_span (span, row, args, n, end);
        pthread_mutex_unlock (&trace.lock);
    }
    errno = saved;
}
