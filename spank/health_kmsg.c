/* SPDX-License-Identifier: Apache-2.0
 * health_kmsg.c - the Xids in the kernel's log since the last look
 *
 * A read(2) of /dev/kmsg gives one record, EPIPE where records were overwritten
 * meanwhile, and EAGAIN behind the newest. */
#include "config.h"

#include "health_kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_MAX  16384 /* the kernel's own limit is 8192 */
#define RECORDS_MAX 200000
#define BOOT_ID     "/proc/sys/kernel/random/boot_id"

int health_kmsg_read (const char *path, bool skip, uint64_t after,
                      struct health_xids *ret, struct rv_error *err)
{
    int fd = open (path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct health_xids xids = {0};
    char buf[RECORD_MAX];

    if (fd < 0)
        return error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    for (int i = 0; i < RECORDS_MAX; i++) {
        ssize_t n = read (fd, buf, sizeof (buf));

        if (n > 0)
            health_read_log (&xids, buf, (size_t)n, skip, after);
        else if (n == 0 || (errno != EPIPE && errno != EINTR))
            break;
    }
    close (fd);
    *ret = xids;
    return RV_OK;
}

/* boot_id - of this boot, without its newline. */
static bool boot_id (char *buf, size_t size)
{
    int fd = open (BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read (fd, buf, size - 1);

    if (fd >= 0)
        close (fd);
    if (n <= 0)
        return false;
    buf[n] = '\0';
    buf[strcspn (buf, "\n")] = '\0';
    return buf[0] != '\0';
}

static bool is_mine (int fd, mode_t kind)
{
    struct stat st;

    return fstat (fd, &st) == 0 && (st.st_mode & S_IFMT) == kind
           && st.st_uid == geteuid () && (st.st_mode & 022) == 0;
}

/* open_seen - the file of [node] in [dir]; -1 and errno where it is not there
 * or not to be trusted. */
static int open_seen (const char *dir, const char *node, int flags)
{
    char name[300];
    int d, fd = -1;

    if (!node[0] || strchr (node, '/')
        || snprintf (name, sizeof (name), "health-%s", node)
               >= (int)sizeof (name)) {
        errno = EINVAL;
        return -1;
    }
    d = open (dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d < 0)
        return -1;
    errno = EPERM;
    if (is_mine (d, S_IFDIR))
        fd =
            openat (d, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    close (d);
    if (fd >= 0 && !is_mine (fd, S_IFREG)) {
        close (fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

bool health_seen_load (const char *dir, const char *node, uint64_t *ret_seq)
{
    int fd = open_seen (dir, node, O_RDONLY);
    char boot[64], text[128];
    ssize_t n = fd < 0 ? -1 : read (fd, text, sizeof (text) - 1);
    size_t len;
    char *end;
    uint64_t seq;

    if (fd >= 0)
        close (fd);
    if (n <= 0 || !boot_id (boot, sizeof (boot)))
        return false;
    text[n] = '\0';
    len = strlen (boot);
    if (strncmp (text, boot, len) != 0 || text[len] != ' '
        || text[len + 1] < '0' || text[len + 1] > '9')
        return false;
    seq = strtoull (text + len + 1, &end, 10);
    if (*end != '\n')
        return false;
    *ret_seq = seq;
    return true;
}

int health_seen_save (const char *dir, const char *node, uint64_t seq,
                      struct rv_error *err)
{
    char boot[64], text[128];
    int fd, len;
    bool ok;

    if (!boot_id (boot, sizeof (boot)))
        return error_set (err, RV_EIO, "%s: cannot be read", BOOT_ID);
    if (mkdir (dir, 0700) && errno != EEXIST)
        return error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    fd = open_seen (dir, node, O_WRONLY | O_CREAT);
    if (fd < 0)
        return error_set (err, errno == EINVAL ? RV_EINVAL : RV_EIO,
                          "%s/health-%s: %s", dir, node, strerror (errno));
    len = snprintf (text, sizeof (text), "%s %" PRIu64 "\n", boot, seq);
    /* One write of the same length or more: a reader sees the old or the new. */
    ok = pwrite (fd, text, (size_t)len, 0) == len && ftruncate (fd, len) == 0;
    close (fd);
    if (!ok)
        return error_set (err, RV_EIO, "%s/health-%s: cannot be written", dir,
                          node);
    return RV_OK;
}
