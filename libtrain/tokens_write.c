/* SPDX-License-Identifier: Apache-2.0
 * tokens_write.c - write files of tokens beside their target, and rename */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "err.h"
#include "safetensors.h"
#include "tokens.h"

#define PART 16384 /* tokens of one write */

struct train_token_writer {
    char *path, *temp;
    int fd, width;
    int64_t vocab, end;
    uint64_t count;
    XXH3_state_t *sum;
    bool failed;
};

void train_tokens_abandon (train_token_writer_t *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close (w->fd);
    if (w->temp && w->temp[0])
        unlink (w->temp);
    XXH3_freeState (w->sum);
    free (w->path);
    free (w->temp);
    free (w);
}

static train_status_t begin (train_token_writer_t *w, const char *path,
                             train_error_t *err)
{
    size_t size = strlen (path) + 64;

    w->path = strdup (path);
    w->temp = calloc (1, size);
    w->sum = XXH3_createState ();
    if (!w->path || !w->temp || !w->sum)
        return err_set (err, TRAIN_ENOMEM, "no memory for tokens");
    XXH3_64bits_reset (w->sum);
    if ((w->fd = st_open_temp (path, w->temp, size)) < 0) {
        w->temp[0] = '\0';
        return err_set (err, TRAIN_EIO, "%s: cannot make a file beside it: %s",
                        path, strerror (errno));
    }
    return TRAIN_OK;
}

train_status_t train_tokens_create (const char *path, int64_t vocab,
                                    int64_t end,
                                    train_token_writer_t **ret_writer,
                                    train_error_t *err)
{
    train_token_writer_t *w;
    train_status_t status;

    if (!path || !*path || !ret_writer)
        return err_set (err, TRAIN_EINVAL, "tokens: no path or result");
    if (vocab < 1 || vocab > (int64_t)INT32_MAX + 1 || end < -1 || end >= vocab)
        return err_set (err, TRAIN_EINVAL,
                        "tokens: a vocabulary of %" PRId64
                        ", ended by %" PRId64,
                        vocab, end);
    if (!(w = calloc (1, sizeof (*w))))
        return err_set (err, TRAIN_ENOMEM, "no memory for tokens");
    w->fd = -1;
    w->vocab = vocab;
    w->end = end;
    w->width = vocab <= 65536 ? 2 : 4;
    if ((status = begin (w, path, err)) != TRAIN_OK)
        train_tokens_abandon (w);
    else
        *ret_writer = w;
    return status;
}

static train_status_t put_part (train_token_writer_t *w, const int32_t *tokens,
                                size_t n, train_error_t *err)
{
    unsigned char buf[PART * 4];
    size_t bytes = n * (size_t)w->width;
    off_t at = TRAIN_TOKENS_HEADER + (off_t)(w->count * (uint64_t)w->width);

    for (size_t i = 0; i < n; i++) {
        uint16_t half = htole16 ((uint16_t)tokens[i]);
        uint32_t full = htole32 ((uint32_t)tokens[i]);

        memcpy (buf + i * (size_t)w->width,
                w->width == 2 ? (void *)&half : (void *)&full,
                (size_t)w->width);
    }
    if (st_write_all (w->fd, (char *)buf, bytes, at) < 0) {
        w->failed = true;
        return err_set (err, TRAIN_EIO, "%s: write: %s", w->path,
                        strerror (errno));
    }
    XXH3_64bits_update (w->sum, buf, bytes);
    w->count += n;
    return TRAIN_OK;
}

train_status_t train_tokens_put (train_token_writer_t *w, const int32_t *tokens,
                                 size_t n, train_error_t *err)
{
    if (!w || (n && !tokens))
        return err_set (err, TRAIN_EINVAL, "tokens: no writer or no tokens");
    if (w->failed)
        return err_set (err, TRAIN_ESTATE, "%s: an earlier write failed",
                        w->path);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= w->vocab)
            return err_set (err, TRAIN_EINVAL,
                            "%s: token %d is not within the vocabulary of "
                            "%" PRId64,
                            w->path, tokens[i], w->vocab);
    for (size_t i = 0; i < n; i += PART)
        TRY (put_part (w, tokens + i, n - i < PART ? n - i : PART, err));
    return TRAIN_OK;
}

static void put32 (unsigned char *p, uint32_t x)
{
    x = htole32 (x);
    memcpy (p, &x, sizeof (x));
}

static void put64 (unsigned char *p, uint64_t x)
{
    x = htole64 (x);
    memcpy (p, &x, sizeof (x));
}

static int finish (train_token_writer_t *w)
{
    unsigned char head[TRAIN_TOKENS_HEADER] = {0};
    int fd = w->fd;

    memcpy (head, TOKENS_MAGIC, TOKENS_MAGIC_BYTES);
    put32 (head + 8, 1);
    put32 (head + 12, (uint32_t)w->width);
    put64 (head + 16, w->count);
    put64 (head + 24, XXH3_64bits_digest (w->sum));
    put32 (head + 32, (uint32_t)w->vocab);
    put32 (head + 36, w->end < 0 ? UINT32_MAX : (uint32_t)w->end);
    if (st_write_all (fd, (char *)head, sizeof (head), 0) < 0 || fsync (fd) < 0)
        return -1;
    w->fd = -1;
    if (close (fd) < 0 || rename (w->temp, w->path) < 0)
        return -1;
    w->temp[0] = '\0';
    return st_sync_folder (w->path);
}

train_status_t train_tokens_commit (train_token_writer_t *w, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (!w)
        return err_set (err, TRAIN_EINVAL, "tokens: no writer");
    if (w->failed)
        status =
            err_set (err, TRAIN_ESTATE, "%s: an earlier write failed", w->path);
    else if (finish (w) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", w->path, strerror (errno));
    train_tokens_abandon (w);
    return status;
}
