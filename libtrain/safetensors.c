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
#include "sock.h"

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

train_status_t st_pread (const struct st_part *part, void *to, size_t n,
                         uint64_t at, train_error_t *err)
{
    char *out = to;

    if (part->fd < 0 && n > 0) {
        memcpy (to, part->map + at, n);
        return TRAIN_OK;
    }
    while (n > 0) {
        ssize_t got = pread (part->fd, out, n, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set (err, TRAIN_EIO, "read: %s", strerror (errno));
        if (got == 0)
            return err_set (err, TRAIN_EIO,
                            "it ends at byte %llu, %zu too soon: it was "
                            "shortened after it was opened",
                            (unsigned long long)at, n);
        out += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return TRAIN_OK;
}

/* Maps lie in any order: the first file's is not always the lowest. */
const struct st_part *st_part_of (const train_safetensors_t *file,
                                  const train_st_entry_t *e)
{
    const struct st_part *part = file->parts;
    uintptr_t at = (uintptr_t)e->data;

    for (; part < file->parts + file->n_parts - 1; part++) {
        uintptr_t map = (uintptr_t)part->map;

        if (at >= map && at - map < part->map_bytes)
            break;
    }
    return part;
}

train_status_t st_read (const train_safetensors_t *file,
                        const train_st_entry_t *e, uint64_t from, void *to,
                        size_t n, train_error_t *err)
{
    const struct st_part *part = st_part_of (file, e);
    uint64_t at = (uint64_t)((const char *)e->data - part->map);

    return st_pread (part, to, n, at + from, err);
}

/* The mapping is private and read-only: a later rename over the path leaves
 * it as it is (huggingface/safetensors PR 764). */
static train_status_t map_file (struct st_part *part, train_error_t *err)
{
    struct stat st;
    void *map;

    part->fd = open (part->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (part->fd < 0)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s", strerror (errno));
    if (fstat (part->fd, &st) < 0)
        return err_set (err, TRAIN_EIO, "%s", strerror (errno));
    if (!S_ISREG (st.st_mode))
        return err_set (err, TRAIN_EIO, "not a regular file");
    if (st.st_size < 8)
        return err_set (err, TRAIN_EFORMAT,
                        "%lld bytes are too few for a safetensors file",
                        (long long)st.st_size);
    map = mmap (NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, part->fd, 0);
    if (map == MAP_FAILED)
        return err_set (err, TRAIN_EIO, "cannot map it: %s", strerror (errno));
    part->map = map;
    part->map_bytes = (size_t)st.st_size;
    return TRAIN_OK;
}

/* The header is read, not looked at in the map: the file may be shortened. */
train_status_t st_read_part (struct st_part *part,
                             train_st_entry_t **ret_entries, size_t *ret_count,
                             train_error_t *err)
{
    size_t rest = part->map_bytes - 8;
    train_status_t status;
    char *header;
    uint64_t n;

    TRY (st_pread (part, &n, 8, 0, err));
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
                        (unsigned long long)n, part->map_bytes);
    if (!(header = malloc ((size_t)n)))
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for a header of %llu "
                        "bytes",
                        (unsigned long long)n);
    status = st_pread (part, header, (size_t)n, 8, err);
    if (status == TRAIN_OK)
        status =
            st_parse (header, (size_t)n, part->map + 8 + n, rest - (size_t)n,
                      &part->root, ret_entries, ret_count, err);
    free (header);
    return status;
}

train_status_t st_open_part (const char *path, struct st_part *part,
                             train_st_entry_t **ret_entries, size_t *ret_count,
                             train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    part->fd = -1;
    if (!(part->path = strdup (path)))
        status = err_set (err, TRAIN_ENOMEM, "no memory for a name");
    if (status == TRAIN_OK)
        status = map_file (part, err);
    if (status == TRAIN_OK)
        status = st_read_part (part, ret_entries, ret_count, err);
    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s", path);
    return TRAIN_OK;
}

void st_close_part (struct st_part *part)
{
    json_decref (part->root);
    if (part->map)
        munmap (part->map, part->map_bytes);
    sock_close (&part->fd);
    free (part->path);
}

train_status_t st_sort_names (train_safetensors_t *file, train_error_t *err)
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
    train_status_t status = TRAIN_ENOMEM;

    if (!path || !ret_file)
        return err_set (err, TRAIN_EINVAL, "safetensors: no path or result");
    file = calloc (1, sizeof (*file));
    if (file)
        file->parts = calloc (1, sizeof (*file->parts));
    if (file && file->parts) {
        file->n_parts = 1;
        status =
            st_open_part (path, file->parts, &file->entries, &file->count, err);
        if (status == TRAIN_OK)
            status = st_sort_names (file, err);
    } else {
        err_set (err, TRAIN_ENOMEM, "%s: no memory", path);
    }
    if (status != TRAIN_OK)
        train_safetensors_close (file);
    else
        *ret_file = file;
    return status;
}

void train_safetensors_close (train_safetensors_t *file)
{
    int saved = errno;

    if (!file)
        return;
    free (file->by_name);
    free (file->entries);
    for (size_t i = 0; i < file->n_parts; i++)
        st_close_part (&file->parts[i]);
    free (file->parts);
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
    const char *value = NULL;

    for (size_t i = 0; i < file->n_parts && !value && key; i++)
        value = json_string_value (json_object_get (
            json_object_get (file->parts[i].root, ST_META_KEY), key));
    return value;
}
