/* SPDX-License-Identifier: Apache-2.0
 * safetensors.c - map a safetensors file and look tensors up in it */
#include "safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"

struct train_safetensors {
    char *map;
    size_t map_bytes;
    json_t *root; /* owns names and metadata */
    train_st_entry_t *entries;
    size_t count;
    const train_st_entry_t **by_name; /* sorted, for find */
};

static int cmp_name (const void *a, const void *b)
{
    const train_st_entry_t *const *x = a, *const *y = b;

    return strcmp ((*x)->name, (*y)->name);
}

static int cmp_key (const void *key, const void *b)
{
    const train_st_entry_t *const *y = b;

    return strcmp (key, (*y)->name);
}

/* The mapping is private and read-only: a later rename over the path leaves
 * it as it is (huggingface/safetensors PR 764). */
static train_status_t map_file (train_safetensors_t *file, const char *path,
                                train_error_t *err)
{
    int fd = open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    train_status_t status = TRAIN_OK;
    struct stat st;
    void *map;

    if (fd < 0)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s", strerror (errno));
    if (fstat (fd, &st) < 0)
        status = err_set (err, TRAIN_EIO, "%s", strerror (errno));
    else if (!S_ISREG (st.st_mode))
        status = err_set (err, TRAIN_EIO, "not a regular file");
    else if (st.st_size < 8)
        status = err_set (err, TRAIN_EFORMAT,
                          "%lld bytes are too few for a safetensors file",
                          (long long)st.st_size);
    if (status != TRAIN_OK)
        goto out;
    map = mmap (NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        status =
            err_set (err, TRAIN_EIO, "cannot map it: %s", strerror (errno));
        goto out;
    }
    file->map = map;
    file->map_bytes = (size_t)st.st_size;
out:
    close (fd);
    return status;
}

static train_status_t read_header (train_safetensors_t *file,
                                   train_error_t *err)
{
    size_t rest = file->map_bytes - 8;
    uint64_t n;

    memcpy (&n, file->map, 8);
    n = le64toh (n);
    if (n == 0)
        return err_set (err, TRAIN_EFORMAT, "its header is empty");
    if (n > ST_MAX_HEADER)
        return err_set (err, TRAIN_EFORMAT,
                        "a header of %llu bytes is over the format's %d",
                        (unsigned long long)n, ST_MAX_HEADER);
    if (n > rest)
        return err_set (err, TRAIN_EFORMAT,
                        "a header of %llu bytes does not fit a file of %zu",
                        (unsigned long long)n, file->map_bytes);
    return st_parse (file->map + 8, (size_t)n, file->map + 8 + n,
                     rest - (size_t)n, &file->root, &file->entries,
                     &file->count, err);
}

static train_status_t make_index (train_safetensors_t *file, train_error_t *err)
{
    if (file->count == 0)
        return TRAIN_OK;
    file->by_name = malloc (file->count * sizeof (*file->by_name));
    if (!file->by_name)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tensors",
                        file->count);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->entries[i];
    qsort (file->by_name, file->count, sizeof (*file->by_name), cmp_name);
    return TRAIN_OK;
}

train_status_t train_safetensors_open (const char *path,
                                       train_safetensors_t **ret_file,
                                       train_error_t *err)
{
    train_safetensors_t *file;
    train_status_t status;

    if (!path || !ret_file)
        return err_set (err, TRAIN_EINVAL, "safetensors: no path or result");
    if (!(file = calloc (1, sizeof (*file))))
        return err_set (err, TRAIN_ENOMEM, "%s: no memory", path);
    status = map_file (file, path, err);
    if (status == TRAIN_OK)
        status = read_header (file, err);
    if (status == TRAIN_OK)
        status = make_index (file, err);
    if (status != TRAIN_OK) {
        train_safetensors_close (file);
        return err_prefix (err, status, "%s", path);
    }
    *ret_file = file;
    return TRAIN_OK;
}

void train_safetensors_close (train_safetensors_t *file)
{
    int saved = errno;

    if (!file)
        return;
    free (file->by_name);
    free (file->entries);
    json_decref (file->root);
    if (file->map)
        munmap (file->map, file->map_bytes);
    free (file);
    errno = saved;
}

size_t train_safetensors_count (const train_safetensors_t *file)
{
    return file->count;
}

const train_st_entry_t *train_safetensors_entry (
    const train_safetensors_t *file, size_t index)
{
    return index < file->count ? &file->entries[index] : NULL;
}

const train_st_entry_t *train_safetensors_find (const train_safetensors_t *file,
                                                const char *name)
{
    const train_st_entry_t **found;

    if (file->count == 0 || !name)
        return NULL;
    found = bsearch (name, file->by_name, file->count, sizeof (*file->by_name),
                     cmp_key);
    return found ? *found : NULL;
}

const char *train_safetensors_meta (const train_safetensors_t *file,
                                    const char *key)
{
    return json_string_value (
        json_object_get (json_object_get (file->root, ST_META_KEY), key));
}
