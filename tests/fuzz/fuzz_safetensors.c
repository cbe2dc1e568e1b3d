/* SPDX-License-Identifier: Apache-2.0
 * fuzz_safetensors.c - safetensors files: every byte of every tensor is there */
#include "config.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "train/safetensors.h"

/* Reads all bytes that the file says it has. */
static unsigned touch (const train_st_entry_t *e)
{
    const uint8_t *p = e->data;
    unsigned sum = 0;

    for (size_t i = 0; i < e->bytes; i++)
        sum += p[i];
    return sum;
}

static volatile unsigned sink; /* keeps the reads */

static void read_all (train_safetensors_t *file)
{
    unsigned sum = 0;

    for (size_t i = 0; i < train_safetensors_count (file); i++) {
        const train_st_entry_t *e = train_safetensors_entry (file, i);

        FUZZ_CHECK (e && e->name && e->ndim >= 0 && e->ndim <= TRAIN_MAX_DIMS);
        FUZZ_CHECK (train_safetensors_find (file, e->name) == e);
        sum += touch (e);
    }
    sink = sum;
    train_safetensors_meta (file, "format");
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    train_safetensors_t *file = NULL;
    train_error_t err = {0};
    char path[64];
    int fd = memfd_create ("st", MFD_CLOEXEC);

    FUZZ_CHECK (fd >= 0 && write (fd, data, size) == (ssize_t)size);
    snprintf (path, sizeof (path), "/proc/self/fd/%d", fd);
    if (train_safetensors_open (path, &file, &err) == TRAIN_OK) {
        FUZZ_CHECK (file);
        read_all (file);
        train_safetensors_close (file);
    } else {
        FUZZ_CHECK (!file && err.text[0]);
    }
    close (fd);
    return 0;
}
