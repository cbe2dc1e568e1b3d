/* SPDX-License-Identifier: Apache-2.0
 * tokens.c - map files of tokens */
#include <train/tokens.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "err.h"
#include "tokens.h"

struct train_tokens {
    char *name;
    const unsigned char *map;
    size_t map_bytes;
    int64_t count, vocab, end;
    int width;
    uint64_t sum;
};

static uint32_t u32 (const unsigned char *p)
{
    uint32_t x;

    memcpy (&x, p, sizeof (x));
    return le32toh (x);
}

static uint64_t u64 (const unsigned char *p)
{
    uint64_t x;

    memcpy (&x, p, sizeof (x));
    return le64toh (x);
}

/* The header against itself and the size of the file. */
static train_status_t check (train_tokens_t *t, train_error_t *err)
{
    static const unsigned char zero[24];
    const unsigned char *p = t->map;
    uint64_t count;

    if (t->map_bytes < TRAIN_TOKENS_HEADER
        || memcmp (p, TOKENS_MAGIC, TOKENS_MAGIC_BYTES) != 0)
        return err_set (err, TRAIN_EFORMAT, "%s is no file of tokens", t->name);
    if (u32 (p + 8) != 1 || (u32 (p + 12) != 2 && u32 (p + 12) != 4)
        || memcmp (p + 40, zero, sizeof (zero)) != 0)
        return err_set (err, TRAIN_EFORMAT,
                        "%s: version %u, %u bytes a token: this libtrain reads "
                        "version 1, 2 or 4 bytes",
                        t->name, u32 (p + 8), u32 (p + 12));
    t->width = (int)u32 (p + 12);
    count = u64 (p + 16);
    if (count != (t->map_bytes - TRAIN_TOKENS_HEADER) / (size_t)t->width
        || (t->map_bytes - TRAIN_TOKENS_HEADER) % (size_t)t->width)
        return err_set (err, TRAIN_EFORMAT,
                        "%s: %" PRIu64 " tokens of %d bytes, and %zu bytes",
                        t->name, count, t->width, t->map_bytes);
    t->count = (int64_t)count;
    t->sum = u64 (p + 24);
    t->vocab = u32 (p + 32);
    t->end = u32 (p + 36) == UINT32_MAX ? -1 : (int64_t)u32 (p + 36);
    if (t->vocab < 1 || t->vocab > (int64_t)INT32_MAX + 1 || t->end >= t->vocab
        || (t->width == 2 && t->vocab > 65536))
        return err_set (err, TRAIN_EFORMAT,
                        "%s: a vocabulary of %" PRId64 ", ended by %" PRId64
                        ", in %d bytes",
                        t->name, t->vocab, t->end, t->width);
    return TRAIN_OK;
}

static train_status_t map_file (train_tokens_t *t, train_error_t *err)
{
    /* a FIFO without a writer must not hold us up */
    int fd = open (t->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    void *p = MAP_FAILED;

    if (fd < 0 || fstat (fd, &st) < 0) {
        int why = errno;

        if (fd >= 0)
            close (fd);
        return err_set (err, why == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", t->name, strerror (why));
    }
    if (!S_ISREG (st.st_mode)) {
        close (fd);
        return err_set (err, TRAIN_EIO, "%s: not a regular file", t->name);
    }
    t->map_bytes = (size_t)st.st_size;
    if (st.st_size > 0)
        p = mmap (NULL, t->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close (fd);
    if (st.st_size > 0 && p == MAP_FAILED)
        return err_set (err, TRAIN_EIO, "%s: %s", t->name, strerror (errno));
    t->map = p == MAP_FAILED ? NULL : p;
    return check (t, err);
}

train_status_t train_tokens_open (const char *path, train_tokens_t **ret_tokens,
                                  train_error_t *err)
{
    train_status_t status;
    train_tokens_t *t;

    if (!path || !ret_tokens)
        return err_set (err, TRAIN_EINVAL, "tokens: no path or result");
    if (!(t = calloc (1, sizeof (*t))) || !(t->name = strdup (path))) {
        free (t);
        return err_set (err, TRAIN_ENOMEM, "no memory for tokens");
    }
    if ((status = map_file (t, err)) != TRAIN_OK)
        train_tokens_close (t);
    else
        *ret_tokens = t;
    return status;
}

void train_tokens_close (train_tokens_t *t)
{
    if (!t)
        return;
    if (t->map)
        munmap ((void *)t->map, t->map_bytes);
    free (t->name);
    free (t);
}

int64_t train_tokens_count (const train_tokens_t *t)
{
    return t->count;
}

int train_tokens_width (const train_tokens_t *t)
{
    return t->width;
}

int64_t train_tokens_vocab (const train_tokens_t *t)
{
    return t->vocab;
}

int64_t train_tokens_end (const train_tokens_t *t)
{
    return t->end;
}

uint64_t train_tokens_sum (const train_tokens_t *t)
{
    return t->sum;
}

void train_tokens_read (const train_tokens_t *t, int64_t first, int64_t n,
                        int32_t *out)
{
    const unsigned char *p = t->map + TRAIN_TOKENS_HEADER;

    for (int64_t i = 0; i < n; i++) {
        int64_t k = first + i;
        int64_t x = -1;

        if (k >= 0 && k < t->count && t->width == 2)
            x = p[2 * k] | p[2 * k + 1] << 8;
        else if (k >= 0 && k < t->count)
            x = u32 (p + 4 * k);
        out[i] = x > INT32_MAX ? -1 : (int32_t)x;
    }
}

train_status_t train_tokens_verify (const train_tokens_t *t, train_error_t *err)
{
    if (XXH3_64bits (t->map + TRAIN_TOKENS_HEADER,
                     t->map_bytes - TRAIN_TOKENS_HEADER)
        != t->sum)
        return err_set (err, TRAIN_ECORRUPT, "%s does not match its checksum",
                        t->name);
    for (int64_t i = 0; i < t->count; i++) {
        int32_t x;

        train_tokens_read (t, i, 1, &x);
        if (x < 0 || x >= t->vocab)
            return err_set (err, TRAIN_EFORMAT,
                            "%s: token %" PRId64
                            " is not below the vocabulary of %" PRId64,
                            t->name, i, t->vocab);
    }
    return TRAIN_OK;
}
