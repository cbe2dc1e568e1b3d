/* SPDX-License-Identifier: Apache-2.0
 * fuzz_frames.c - frames from a hostile peer: every byte of what is taken is
 * there, and whatever comes ends in an error or the end of the stream
 *
 * An input whose first byte is odd is the payload of one frame with a true
 * length and sum, which no mutation would find; else it is the stream. */
#include "config.h"

#include <endian.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include "fuzz.h"
#include "train/frames.h"

static volatile unsigned sink; /* keeps the reads */

static void read_all (const train_safetensors_t *file)
{
    unsigned sum = 0;

    for (size_t i = 0; i < train_safetensors_count (file); i++) {
        const train_st_entry_t *e = train_safetensors_entry (file, i);
        const uint8_t *p = e->data;

        FUZZ_CHECK (train_safetensors_find (file, e->name) == e);
        for (size_t k = 0; k < e->bytes; k++)
            sum += p[k];
    }
    sink = sum;
}

static void put (int fd, const void *data, size_t n)
{
    FUZZ_CHECK (n == 0 || write (fd, data, n) == (ssize_t)n);
}

static void put_input (int fd, const uint8_t *data, size_t size)
{
    uint64_t word;

    if (size == 0 || data[0] % 2 == 0) {
        put (fd, size ? data + 1 : data, size ? size - 1 : 0);
        return;
    }
    word = htole64 (size - 1);
    put (fd, &word, 8);
    put (fd, data + 1, size - 1);
    word = htole64 (XXH3_64bits (data + 1, size - 1));
    put (fd, &word, 8);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    train_frames_options_t opts = {
        .size = sizeof (opts), .peer = "fuzz", .max_bytes = 1 << 20};
    train_frames_t *frames = NULL;
    train_safetensors_t *file;
    train_status_t status;
    train_error_t err = {0};
    int pair[2];

    if (size > 65536)
        return 0;
    FUZZ_CHECK (socketpair (AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    put_input (pair[1], data, size);
    close (pair[1]);
    FUZZ_CHECK (train_frames_open (pair[0], &opts, &frames, &err) == TRAIN_OK);
    do {
        file = NULL;
        status = train_frames_recv (frames, &file, &err);
        if (file)
            read_all (file);
        FUZZ_CHECK (status == TRAIN_OK || !file);
        train_safetensors_close (file);
    } while (file);
    if (status != TRAIN_OK) {
        FUZZ_CHECK (strncmp (err.text, "fuzz: ", 6) == 0);
        FUZZ_CHECK (train_frames_recv (frames, &file, &err) == TRAIN_ESTATE);
    }
    train_frames_close (frames);
    return 0;
}
