/* SPDX-License-Identifier: Apache-2.0
 * host_seg.c - memory that the ranks of a node share, and what lives in it
 *
 * Life: every rank holds a POSIX record lock on one byte of the file. The
 * kernel drops it when the process ends, however it ends, and a child of fork
 * does not inherit it (fcntl(2)), so "nobody holds the lock" means "ended":
 * without helper threads, signals or process ids that wrap.
 *
 * Sleep: one futex word, "event", for all (futex(2)). Who changes a counter
 * adds to it; who finds nothing to do sleeps while it has not changed. */
#include "config.h"

#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "sock.h"

#define SHM_DIR       "/dev/shm"
#define SLOT_MAX      (256u << 10)
#define SLOT_MIN      (16u << 10)
#define SEGMENT_AIM   (24u << 20)
#define LATE_WRITE_MS 1000

static size_t round_up (size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Where everything lies; also how long the file is. */
static void lay_out (struct seg *seg, uintptr_t base)
{
    size_t at = round_up (sizeof (struct seg_head), 64);
    size_t calls = (size_t)seg->size * sizeof (struct seg_call);
    size_t hops = (size_t)seg->hops;
    size_t rings = (size_t)seg->local_size + hops + 1;
    size_t slot = SEGMENT_AIM / (rings * HOST_DEPTH) / 4096 * 4096;

    seg->slot_bytes = slot > SLOT_MAX   ? SLOT_MAX
                      : slot < SLOT_MIN ? SLOT_MIN
                                        : slot;
    seg->head = (struct seg_head *)base;
    seg->ranks = (struct seg_rank *)(base + at);
    at += (size_t)seg->local_size * sizeof (struct seg_rank);
    seg->calls[0] = (struct seg_call *)(base + at);
    seg->calls[1] = (struct seg_call *)(base + at + calls);
    at += 2 * calls;
    seg->acc_ready = (_Atomic uint64_t *)(base + at);
    at += hops * sizeof (uint64_t);
    seg->part_done = (_Atomic uint64_t *)(base + at);
    at = round_up (at + hops * (size_t)seg->local_size * sizeof (uint64_t),
                   4096);
    seg->in = (char *)(base + at);
    at += (size_t)seg->local_size * HOST_DEPTH * seg->slot_bytes;
    seg->acc = (char *)(base + at);
    at += hops * HOST_DEPTH * seg->slot_bytes;
    seg->res = (char *)(base + at);
    seg->bytes = at + HOST_DEPTH * seg->slot_bytes;
}

static void seg_init (struct seg *seg, int size, int local_size, int hops,
                      int local_rank)
{
    *seg = (struct seg){
        .size = size,
        .local_size = local_size,
        .hops = hops,
        .local_rank = local_rank,
        .fd = -1,
        .bell = -1,
    };
    lay_out (seg, 0); /* for its size */
    seg->head = NULL;
}

static void file_name (const char *name, const char *tail, char *path,
                       size_t size)
{
    snprintf (path, size, SHM_DIR "/%s%s", name, tail);
}

static train_status_t map_and_lock (struct seg *seg, train_error_t *err)
{
    struct flock lock = {.l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = seg->local_rank,
                         .l_len = 1};
    void *base =
        mmap (NULL, seg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, seg->fd, 0);

    if (base == MAP_FAILED)
        return err_set (err, TRAIN_EIO,
                        "cannot map %zu bytes of " SHM_DIR ": %s", seg->bytes,
                        strerror (errno));
    lay_out (seg, (uintptr_t)base);
    if (fcntl (seg->fd, F_SETLK, &lock) < 0)
        return err_set (err, TRAIN_EIO, "cannot lock a file in " SHM_DIR ": %s",
                        strerror (errno));
    return TRAIN_OK;
}

static void join_in (struct seg *seg)
{
    struct seg_rank *me = &seg->ranks[seg->local_rank];

    atomic_store (&me->pid, (int32_t)getpid ());
    atomic_store (&me->state, HOST_JOINED);
}

/* Reserve now: a full file system would be a SIGBUS later. In pieces, so that
 * signals of a profiler, however often they come, let each of them end. */
static train_status_t reserve (const struct seg *seg, train_error_t *err)
{
    const size_t piece = (size_t)1 << 20;
    int rc = 0;

    for (size_t at = 0; at < seg->bytes && rc == 0; at += piece) {
        size_t n = seg->bytes - at < piece ? seg->bytes - at : piece;

        do
            rc = posix_fallocate (seg->fd, (off_t)at, (off_t)n);
        while (rc == EINTR);
    }
    if (rc == 0)
        return TRAIN_OK;
    return err_set (err, TRAIN_EIO,
                    "cannot have %zu bytes of " SHM_DIR
                    ": %s; a larger " SHM_DIR " (docker: --shm-size) would do",
                    seg->bytes, strerror (rc));
}

static train_status_t make_files (struct seg *seg, bool bell,
                                  train_error_t *err)
{
    char path[96];
    uint64_t random;

    if (getrandom (&random, sizeof (random), 0) != sizeof (random))
        return err_set (err, TRAIN_EIO, "getrandom: %s", strerror (errno));
    snprintf (seg->name, sizeof (seg->name), "rv-train-%ld-%016llx",
              (long)getpid (), (unsigned long long)random);
    file_name (seg->name, "", path, sizeof (path));
    seg->fd = open (path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (seg->fd < 0)
        return err_set (err, TRAIN_EIO, "cannot create %s: %s", path,
                        strerror (errno));
    TRY (reserve (seg, err));
    if (!bell)
        return TRAIN_OK;
    file_name (seg->name, ".bell", path, sizeof (path));
    /* both ends: the leader never sees an end of file */
    if (mkfifo (path, 0600) < 0
        || (seg->bell = open (path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        return err_set (err, TRAIN_EIO, "cannot create %s: %s", path,
                        strerror (errno));
    return TRAIN_OK;
}

train_status_t seg_create (struct seg *seg, int size, int local_size, int hops,
                           bool bell, uint64_t nonce, train_error_t *err)
{
    train_status_t status;

    seg_init (seg, size, local_size, hops, 0);
    status = make_files (seg, bell, err);
    if (status == TRAIN_OK)
        status = map_and_lock (seg, err);
    if (status != TRAIN_OK)
        return status;
    seg->head->bytes = seg->bytes;
    seg->head->nonce = nonce;
    join_in (seg);
    return TRAIN_OK;
}

train_status_t seg_open (struct seg *seg, int size, int local_size, int hops,
                         int local_rank, bool bell, const char *name,
                         uint64_t nonce, train_error_t *err)
{
    char path[96];
    struct stat st;
    train_status_t status;

    seg_init (seg, size, local_size, hops, local_rank);
    snprintf (seg->name, sizeof (seg->name), "%s", name);
    file_name (name, "", path, sizeof (path));
    seg->fd = open (path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (seg->fd < 0)
        return err_set (err, TRAIN_EIO,
                        "cannot open %s, which the first rank of this node "
                        "made: %s; the ranks of a node must share " SHM_DIR,
                        path, strerror (errno));
    if (fstat (seg->fd, &st) < 0 || st.st_uid != geteuid ()
        || !S_ISREG (st.st_mode) || (size_t)st.st_size != seg->bytes)
        return err_set (err, TRAIN_EMISMATCH, "%s is not this group's", path);
    if ((status = map_and_lock (seg, err)) != TRAIN_OK)
        return status;
    if (seg->head->nonce != nonce || seg->head->bytes != seg->bytes)
        return err_set (err, TRAIN_EMISMATCH, "%s is not this group's", path);
    file_name (name, ".bell", path, sizeof (path));
    /* with a reading end of its own, writing raises no SIGPIPE after the
     * leader's end */
    if (bell && (seg->bell = open (path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        return err_set (err, TRAIN_EIO, "cannot open %s: %s", path,
                        strerror (errno));
    join_in (seg);
    return TRAIN_OK;
}

void seg_unlink (struct seg *seg)
{
    char path[96];

    if (seg->name[0] == '\0')
        return;
    file_name (seg->name, "", path, sizeof (path));
    unlink (path);
    file_name (seg->name, ".bell", path, sizeof (path));
    unlink (path);
    seg->name[0] = '\0';
}

void seg_close (struct seg *seg)
{
    seg_unlink (seg);
    if (seg->head) {
        atomic_store (&seg->ranks[seg->local_rank].state, HOST_LEFT);
        seg_signal (seg);
        munmap (seg->head, seg->bytes);
        seg->head = NULL;
    }
    sock_close (&seg->bell);
    sock_close (&seg->fd);
}

void seg_signal (struct seg *seg)
{
    struct seg_head *head = seg->head;

    atomic_fetch_add (&head->event, 1);
    if (atomic_load (&head->waiters) > 0)
        syscall (SYS_futex, &head->event, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    /* a full FIFO is a bell that rings already */
    if (seg->bell >= 0 && atomic_load (&head->leader_polls)
        && write (seg->bell, "", 1) < 0)
        return;
}

/* About 50 us, of the pauses below. */
#define SPIN_ROUNDS 1000

static void spin_pause (void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause ();
#else
    atomic_signal_fence (memory_order_seq_cst);
#endif
}

bool seg_spin (const struct seg *seg, uint32_t event)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit (&seg->head->event, memory_order_relaxed)
            != event)
            return true;
        spin_pause ();
    }
    return false;
}

void seg_wait (struct seg *seg, uint32_t event)
{
    const struct timespec slice = {0, HOST_SLICE_MS * 1000000L};
    struct seg_head *head = seg->head;

    atomic_fetch_add (&head->waiters, 1);
    syscall (SYS_futex, &head->event, FUTEX_WAIT, event, &slice, NULL, 0);
    atomic_fetch_sub (&head->waiters, 1);
}

static bool is_locked (int fd, int byte)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl (fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

bool seg_is_gone (const struct seg *seg, int local_rank, uint64_t seq)
{
    const struct seg_rank *rank = &seg->ranks[local_rank];

    if (local_rank == seg->local_rank || atomic_load (&rank->done_seq) >= seq)
        return false;
    if (atomic_load (&rank->state) == HOST_JOINED
        && is_locked (seg->fd, local_rank))
        return false;
    /* it may have ended the call since, and then itself */
    return atomic_load (&rank->done_seq) < seq;
}

void seg_fail (struct seg *seg, uint64_t seq, train_status_t code,
               const char *text)
{
    struct seg_head *head = seg->head;
    uint32_t none = FAILURE_NONE;

    if (!atomic_compare_exchange_strong (&head->failure, &none,
                                         FAILURE_CLAIMED))
        return;
    head->failed_seq = seq;
    head->code = (int32_t)code;
    snprintf (head->text, sizeof (head->text), "%s", text);
    atomic_store (&head->failure, FAILURE_TOLD);
    seg_signal (seg);
}

train_status_t seg_failure (struct seg *seg, uint64_t seq, train_error_t *err)
{
    struct seg_head *head = seg->head;
    int64_t until_ms = 0;
    uint32_t state;

    while ((state = atomic_load (&head->failure)) == FAILURE_CLAIMED) {
        if (until_ms == 0)
            until_ms = clock_ms () + LATE_WRITE_MS;
        if (clock_ms () > until_ms)
            return err_set (err, TRAIN_EPEER,
                            "a rank of this node ended while "
                            "it reported a failure");
        sched_yield ();
    }
    if (state == FAILURE_NONE || head->failed_seq > seq)
        return TRAIN_OK;
    return err_set (err, (train_status_t)head->code, "%s", head->text);
}
