/* SPDX-License-Identifier: Apache-2.0
 * ckpt_manifest.c - make checkpoint.json of the ranks' pieces */
#include "config.h"

#include "ckpt_manifest.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "err.h"

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for a manifest");
}

static train_status_t add_state (json_t *to, const train_st_meta_t *item,
                                 size_t n, train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *key = item[i].key;

        if (!key || !item[i].value || json_object_get (to, key)
            || json_object_set_new (to, key, json_string (item[i].value)) < 0)
            return err_set (err, TRAIN_EINVAL,
                            "checkpoint: state '%s' is no UTF-8, without a "
                            "value, or there twice",
                            key ? key : "");
    }
    return TRAIN_OK;
}

static json_t *hex_of (const unsigned char *data, size_t n)
{
    static const char digit[] = "0123456789abcdef";
    char *text = malloc (2 * n + 1);
    json_t *json;

    if (!text)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digit[data[i] >> 4];
        text[2 * i + 1] = digit[data[i] & 15];
    }
    json = json_stringn (text, 2 * n);
    free (text);
    return json;
}

static train_status_t add_bytes (json_t *to, const train_ckpt_bytes_t *item,
                                 size_t n, train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *key = item[i].key;

        if (!key || (item[i].size && !item[i].data) || json_object_get (to, key)
            || json_object_set_new (to, key,
                                    hex_of (item[i].data, item[i].size))
                   < 0)
            return err_set (err, TRAIN_EINVAL,
                            "checkpoint: bytes '%s' are none, there twice, or "
                            "their key is no UTF-8",
                            key ? key : "");
    }
    return TRAIN_OK;
}

train_status_t ckpt_manifest_head (const train_ckpt_options_t *o, int world,
                                   json_t **ret_root, train_error_t *err)
{
    json_t *root = json_pack ("{s:{}, s:{}}", "files", "tensors");
    json_t *more = NULL;
    train_status_t status;

    if (!root)
        return no_memory (err);
    if (o) {
        more =
            json_pack ("{s:s, s:I, s:i, s:s, s:s, s:s, s:{}, s:{}}", "format",
                       CKPT_FORMAT, "step", (json_int_t)o->step, "world", world,
                       "strategy", o->strategy ? o->strategy : "whole",
                       "device", o->device ? o->device : "cpu", "library",
                       PACKAGE_VERSION, "state", "bytes");
        status = more && json_object_update (root, more) == 0
                     ? add_state (json_object_get (root, "state"), o->state,
                                  o->n_state, err)
                     : err_set (err, TRAIN_EINVAL,
                                "checkpoint: strategy or device is no UTF-8");
        json_decref (more);
        if (status == TRAIN_OK)
            status = add_bytes (json_object_get (root, "bytes"), o->bytes,
                                o->n_bytes, err);
        if (status != TRAIN_OK) {
            json_decref (root);
            return status;
        }
    }
    *ret_root = root;
    return TRAIN_OK;
}

train_status_t ckpt_manifest_add_file (json_t *root, const char *name,
                                       int64_t bytes, uint64_t sum,
                                       train_error_t *err)
{
    char text[17];
    json_t *file;

    snprintf (text, sizeof (text), "%016" PRIx64, sum);
    file = json_pack ("{s:I, s:s}", "bytes", (json_int_t)bytes, "xxh3", text);
    if (json_object_set_new (json_object_get (root, "files"), name, file) < 0)
        return no_memory (err);
    return TRAIN_OK;
}

/* The tensor's object, made at its first piece. */
static train_status_t tensor_of (json_t *root, const char *name,
                                 const char *dtype, json_t *shape,
                                 json_t **ret_pieces, train_error_t *err)
{
    json_t *all = json_object_get (root, "tensors");
    json_t *tensor = json_object_get (all, name);

    if (!tensor) {
        tensor = json_pack ("{s:s, s:O, s:[]}", "dtype", dtype, "shape", shape,
                            "pieces");
        if (json_object_set_new (all, name, tensor) < 0)
            return no_memory (err);
    } else if (!json_equal (json_object_get (tensor, "shape"), shape)
               || strcmp (json_string_value (json_object_get (tensor, "dtype")),
                          dtype)
                      != 0)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: two pieces of '%s' are not of one type "
                        "and shape",
                        name);
    *ret_pieces = json_object_get (tensor, "pieces");
    return TRAIN_OK;
}

train_status_t ckpt_manifest_add_piece (json_t *root,
                                        const train_ckpt_piece_t *p,
                                        const char *file, const char *as,
                                        uint64_t sum, train_error_t *err)
{
    json_t *shape = json_array (), *pieces = NULL, *piece;
    char text[17];
    train_status_t status = TRAIN_OK;

    for (int i = 0; i < p->ndim; i++)
        if (json_array_append_new (shape, json_integer (p->shape[i])) < 0)
            status = no_memory (err);
    if (status == TRAIN_OK)
        status = tensor_of (root, p->name, train_dtype_name (p->dtype), shape,
                            &pieces, err);
    json_decref (shape);
    if (status != TRAIN_OK)
        return status;
    snprintf (text, sizeof (text), "%016" PRIx64, sum);
    piece = json_pack ("{s:s, s:s, s:I, s:I, s:s}", "file", file, "as", as,
                       "first", (json_int_t)p->first, "count",
                       (json_int_t)p->count, "xxh3", text);
    return json_array_append_new (pieces, piece) < 0 ? no_memory (err)
                                                     : TRAIN_OK;
}

train_status_t ckpt_manifest_merge (json_t *root, json_t *part,
                                    train_error_t *err)
{
    json_t *files = json_object_get (part, "files"), *tensor;
    json_t *tensors = json_object_get (part, "tensors");
    const char *name;

    if (!json_is_object (files) || !json_is_object (tensors))
        return err_set (err, TRAIN_EFORMAT, "no files and tensors are in it");
    if (json_object_update (json_object_get (root, "files"), files) < 0)
        return no_memory (err);
    json_object_foreach (tensors, name, tensor)
    {
        const char *dtype =
            json_string_value (json_object_get (tensor, "dtype"));
        json_t *shape = json_object_get (tensor, "shape"), *to = NULL;
        json_t *from = json_object_get (tensor, "pieces");

        if (!dtype || !json_is_array (shape) || !json_is_array (from))
            return err_set (err, TRAIN_EFORMAT, "tensor '%s' is none", name);
        TRY (tensor_of (root, name, dtype, shape, &to, err));
        if (json_array_extend (to, from) < 0)
            return no_memory (err);
    }
    return TRAIN_OK;
}

train_status_t ckpt_manifest_text (json_t *root, char **ret_text,
                                   train_error_t *err)
{
    char *text = json_dumps (root, JSON_COMPACT | JSON_SORT_KEYS), sum[17];

    if (!text)
        return no_memory (err);
    snprintf (sum, sizeof (sum), "%016" PRIx64,
              (uint64_t)XXH3_64bits (text, strlen (text)));
    free (text);
    if (json_object_set_new (root, "xxh3", json_string (sum)) < 0
        || !(*ret_text = json_dumps (root, JSON_INDENT (1) | JSON_SORT_KEYS)))
        return no_memory (err);
    return TRAIN_OK;
}

/* How much of a file of [bytes] no piece covers. */
static int64_t uncovered (int fd, const char *path, int64_t bytes)
{
    size_t len = strlen (path);
    uint64_t head;

    if (len < 12 || strcmp (path + len - 12, ".safetensors") != 0
        || pread (fd, &head, 8, 0) != 8 || le64toh (head) > (uint64_t)bytes - 8)
        return bytes;
    return (int64_t)le64toh (head) + 8;
}

static train_status_t sum_fd (int fd, const char *path, int64_t *ret_bytes,
                              uint64_t *ret_sum, train_error_t *err)
{
    XXH3_state_t *x = XXH3_createState ();
    char buf[16384];
    int64_t left, at = 0;
    ssize_t n = 1;
    struct stat st;

    if (!x || fstat (fd, &st) < 0) {
        XXH3_freeState (x);
        return err_set (err, TRAIN_EIO, "%s: %s", path, strerror (errno));
    }
    XXH3_64bits_reset (x);
    for (left = uncovered (fd, path, st.st_size); left > 0 && n > 0;
         left -= n, at += n) {
        size_t want =
            left < (int64_t)sizeof (buf) ? (size_t)left : sizeof (buf);

        n = pread (fd, buf, want, at);
        if (n > 0)
            XXH3_64bits_update (x, buf, (size_t)n);
    }
    *ret_sum = XXH3_64bits_digest (x);
    *ret_bytes = st.st_size;
    XXH3_freeState (x);
    return n > 0 ? TRAIN_OK
                 : err_set (err, TRAIN_EIO, "%s: %s", path,
                            n < 0 ? strerror (errno) : "it was shortened");
}

train_status_t ckpt_file_sum (const char *path, int64_t *ret_bytes,
                              uint64_t *ret_sum, train_error_t *err)
{
    int fd = open (path, O_RDONLY | O_CLOEXEC);
    train_status_t status;

    if (fd < 0)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", path, strerror (errno));
    status = sum_fd (fd, path, ret_bytes, ret_sum, err);
    close (fd);
    return status;
}
