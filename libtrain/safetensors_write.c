/* SPDX-License-Identifier: Apache-2.0
 * safetensors_write.c - write a safetensors file beside its target and rename
 *
 * Larger elements come first, so that with a header padded to 8 every tensor
 * is aligned for its type. */
#include "safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "err.h"

/* Linux transfers at most 2 GiB - 4 KiB in one write (write(2)). */
#define WRITE_CHUNK ((size_t)1 << 30)

struct plan {
    const train_st_entry_t **order; /* (n) */
    size_t *bytes;                  /* (n), in that order */
    size_t n;
    char *header; /* 8 bytes of length, JSON, padding */
    size_t header_bytes;
};

static int by_size_then_name (const void *a, const void *b)
{
    const train_st_entry_t *const *x = a, *const *y = b;
    size_t p = train_dtype_size ((*x)->dtype);
    size_t q = train_dtype_size ((*y)->dtype);

    if (p != q)
        return p > q ? -1 : 1;
    return strcmp ((*x)->name, (*y)->name);
}

static train_status_t entry_bytes (const train_st_entry_t *e, size_t *ret_bytes,
                                   train_error_t *err)
{
    size_t bytes = train_dtype_size (e->dtype);

    if (!e->name || strcmp (e->name, ST_META_KEY) == 0)
        return err_set (err, TRAIN_EINVAL,
                        "a tensor cannot be named '%s'; that name is the "
                        "format's",
                        e->name ? e->name : "(null)");
    if (bytes == 0 || e->ndim < 0 || e->ndim > TRAIN_MAX_DIMS)
        return err_set (err, TRAIN_EINVAL,
                        "tensor '%s': unknown dtype, or not 0..%d dimensions",
                        e->name, TRAIN_MAX_DIMS);
    for (int i = 0; i < e->ndim; i++) {
        if (e->shape[i] < 0
            || __builtin_mul_overflow (bytes, (size_t)e->shape[i], &bytes)
            || bytes > INT64_MAX / 8)
            return err_set (err, TRAIN_EINVAL,
                            "tensor '%s': size %lld of dimension %d is "
                            "negative or too large",
                            e->name, (long long)e->shape[i], i);
    }
    if (bytes > 0 && !e->data)
        return err_set (err, TRAIN_EINVAL, "tensor '%s': no data", e->name);
    *ret_bytes = bytes;
    return TRAIN_OK;
}

static train_status_t add_meta (json_t *root, const train_st_meta_t *meta,
                                size_t n, train_error_t *err)
{
    json_t *object = json_object ();

    if (json_object_set_new (root, ST_META_KEY, object) < 0)
        return err_set (err, TRAIN_ENOMEM, "no memory for the header");
    for (size_t i = 0; i < n; i++) {
        json_t *value = NULL;

        if (meta[i].key && json_object_get (object, meta[i].key))
            return err_set (err, TRAIN_EINVAL, "metadata key '%s' twice",
                            meta[i].key);
        if (meta[i].key && meta[i].value)
            value = json_string (meta[i].value);
        if (!value || json_object_set_new (object, meta[i].key, value) < 0)
            return err_set (err, TRAIN_EINVAL,
                            "metadata '%s': key and value must be UTF-8",
                            meta[i].key ? meta[i].key : "(null)");
    }
    return TRAIN_OK;
}

static json_t *entry_json (const train_st_entry_t *e, size_t begin, size_t end)
{
    json_t *shape = json_array ();

    for (int i = 0; i < e->ndim; i++)
        json_array_append_new (shape, json_integer (e->shape[i]));
    return json_pack ("{s:s, s:o, s:[I, I]}", "dtype",
                      train_dtype_name (e->dtype), "shape", shape,
                      "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static train_status_t add_entries (struct plan *plan, json_t *root,
                                   train_error_t *err)
{
    size_t at = 0;

    for (size_t i = 0; i < plan->n; i++) {
        const train_st_entry_t *e = plan->order[i];
        size_t end;

        if (json_object_get (root, e->name))
            return err_set (err, TRAIN_EINVAL, "tensor '%s' twice", e->name);
        if (__builtin_add_overflow (at, plan->bytes[i], &end)
            || end > INT64_MAX / 8)
            return err_set (err, TRAIN_EINVAL, "the tensors are too large");
        if (json_object_set_new (root, e->name, entry_json (e, at, end)) < 0)
            return err_set (err, TRAIN_EINVAL,
                            "tensor '%s': the name must be UTF-8", e->name);
        at = end;
    }
    return TRAIN_OK;
}

static train_status_t dump_header (struct plan *plan, const json_t *root,
                                   train_error_t *err)
{
    size_t n = json_dumpb (root, NULL, 0, JSON_COMPACT);
    size_t padded = (n + 7) / 8 * 8;
    uint64_t le = htole64 (padded);

    if (padded > ST_MAX_HEADER)
        return err_set (err, TRAIN_EINVAL,
                        "a header of %zu bytes is over the format's %d", padded,
                        ST_MAX_HEADER);
    if (n == 0 || !(plan->header = malloc (8 + padded)))
        return err_set (err, TRAIN_ENOMEM, "no memory for the header");
    memcpy (plan->header, &le, 8);
    memset (plan->header + 8, ' ', padded);
    json_dumpb (root, plan->header + 8, n, JSON_COMPACT);
    plan->header_bytes = 8 + padded;
    return TRAIN_OK;
}

static void plan_fini (struct plan *plan)
{
    free (plan->order);
    free (plan->bytes);
    free (plan->header);
}

static train_status_t plan_order (struct plan *plan,
                                  const train_st_entry_t *entries, size_t n,
                                  train_error_t *err)
{
    train_status_t status;

    plan->n = n;
    plan->order = calloc (n + 1, sizeof (*plan->order));
    plan->bytes = calloc (n + 1, sizeof (*plan->bytes));
    if (!plan->order || !plan->bytes)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        plan->order[i] = &entries[i];
        if ((status = entry_bytes (&entries[i], &plan->bytes[i], err))
            != TRAIN_OK)
            return status;
    }
    qsort (plan->order, n, sizeof (*plan->order), by_size_then_name);
    for (size_t i = 0; i < n; i++)
        entry_bytes (plan->order[i], &plan->bytes[i], NULL);
    return TRAIN_OK;
}

static train_status_t plan_init (struct plan *plan,
                                 const train_st_entry_t *entries, size_t n,
                                 const train_st_meta_t *meta, size_t n_meta,
                                 train_error_t *err)
{
    json_t *root = NULL;
    train_status_t status = plan_order (plan, entries, n, err);

    if (status != TRAIN_OK)
        return status;
    if (!(root = json_object ()))
        return err_set (err, TRAIN_ENOMEM, "no memory for the header");
    if (n_meta > 0)
        status = add_meta (root, meta, n_meta, err);
    if (status == TRAIN_OK)
        status = add_entries (plan, root, err);
    if (status == TRAIN_OK)
        status = dump_header (plan, root, err);
    json_decref (root);
    return status;
}

/* A name that nobody else has, in the folder of the target, with the umask's
 * mode (mkostemp would give 0600). */
static int open_temp (const char *path, char *temp, size_t size)
{
    int fd = -1;

    for (int i = 0; fd < 0 && i < 100; i++) {
        struct timespec now;

        clock_gettime (CLOCK_REALTIME, &now);
        snprintf (temp, size, "%s.%ld-%ld.tmp", path, (long)getpid (),
                  now.tv_nsec);
        fd = open (temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

static int write_all (int fd, const char *buf, size_t n)
{
    while (n > 0) {
        ssize_t done = write (fd, buf, n < WRITE_CHUNK ? n : WRITE_CHUNK);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        buf += done;
        n -= (size_t)done;
    }
    return 0;
}

static int write_plan (int fd, const struct plan *plan)
{
    if (write_all (fd, plan->header, plan->header_bytes) < 0)
        return -1;
    for (size_t i = 0; i < plan->n; i++) {
        if (write_all (fd, plan->order[i]->data, plan->bytes[i]) < 0)
            return -1;
    }
    return fsync (fd);
}

/* Some file systems cannot sync a folder (EINVAL); the rename itself holds. */
static int sync_folder (const char *path)
{
    const char *slash = strrchr (path, '/');
    char *dir = slash ? strndup (path, (size_t)(slash - path) + 1) : NULL;
    int fd = open (dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;

    free (dir);
    if (fd < 0)
        return -1;
    if (fsync (fd) < 0 && errno != EINVAL)
        rc = -1;
    close (fd);
    return rc;
}

static train_status_t replace (const char *path, const struct plan *plan,
                               train_error_t *err)
{
    size_t size = strlen (path) + 64;
    char *temp = malloc (size);
    train_status_t status = TRAIN_OK;
    int fd;

    if (!temp)
        return err_set (err, TRAIN_ENOMEM, "no memory for a name");
    if ((fd = open_temp (path, temp, size)) < 0) {
        status = err_set (err, TRAIN_EIO, "cannot make a file beside it: %s",
                          strerror (errno));
        free (temp);
        return status;
    }
    if (write_plan (fd, plan) < 0)
        status = err_set (err, TRAIN_EIO, "write: %s", strerror (errno));
    if (close (fd) < 0 && status == TRAIN_OK)
        status = err_set (err, TRAIN_EIO, "close: %s", strerror (errno));
    if (status == TRAIN_OK && rename (temp, path) < 0)
        status = err_set (err, TRAIN_EIO, "rename: %s", strerror (errno));
    if (status != TRAIN_OK)
        unlink (temp);
    else if (sync_folder (path) < 0)
        status = err_set (err, TRAIN_EIO,
                          "written, but its folder cannot be synced: %s",
                          strerror (errno));
    free (temp);
    return status;
}

train_status_t train_safetensors_write (const char *path,
                                        const train_st_entry_t *entries,
                                        size_t n, const train_st_meta_t *meta,
                                        size_t n_meta, train_error_t *err)
{
    struct plan plan = {0};
    train_status_t status;

    if (!path || (n > 0 && !entries) || (n_meta > 0 && !meta))
        return err_set (err, TRAIN_EINVAL,
                        "safetensors: no path, tensors or metadata");
    status = plan_init (&plan, entries, n, meta, n_meta, err);
    if (status == TRAIN_OK)
        status = replace (path, &plan, err);
    plan_fini (&plan);
    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s", path);
    return TRAIN_OK;
}
