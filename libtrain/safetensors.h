/* SPDX-License-Identifier: Apache-2.0
 * safetensors.h - what the reader and the writer of safetensors share. Inside
 * libtrain only; the public side is train/safetensors.h. */
#ifndef TRAIN_SAFETENSORS_INTERNAL_H
#define TRAIN_SAFETENSORS_INTERNAL_H

#include <jansson.h>
#include <sys/types.h>

#include <train/safetensors.h>

/* Of the format: longer headers are refused on both sides. */
#define ST_MAX_HEADER 100000000
#define ST_META_KEY   "__metadata__"

/* One file, open and mapped: what must not end a process when the file is
 * shortened meanwhile reads [fd]. */
struct st_part {
    int fd;     /* -1: [map] is memory of this process alone */
    char *path; /* NULL then */
    char *map;
    size_t map_bytes;
    json_t *root; /* owns names and metadata */
};

struct train_safetensors {
    struct st_part *parts;
    size_t n_parts;
    train_st_entry_t *entries;
    size_t count;
    const train_st_entry_t **by_name; /* sorted, for find */
};

/* st_type_of - type of a name of the format, TRAIN_ST_AUTO if there is none.
 * st_type_dtype - libtrain's, or TRAIN_ST_NO_DTYPE.
 * st_type_entry - the type that an entry is to be written as. */
train_st_type_t st_type_of (const char *name);
train_dtype_t st_type_dtype (train_st_type_t type);
train_st_type_t st_type_entry (const train_st_entry_t *e);

/* st_open_part - map a file and make its entries. [part] is to be closed with
 * st_close_part after a failure too. */
train_status_t st_open_part (const char *path, struct st_part *part,
                             train_st_entry_t **ret_entries, size_t *ret_count,
                             train_error_t *err);
void st_close_part (struct st_part *part);

/* st_read_part - the second half: what is in a file of 8 bytes at least. */
train_status_t st_read_part (struct st_part *part,
                             train_st_entry_t **ret_entries, size_t *ret_count,
                             train_error_t *err);

/* st_pread - [n] bytes at [at] of the file; TRAIN_EIO, also where it ends. */
train_status_t st_pread (const struct st_part *part, void *to, size_t n,
                         uint64_t at, train_error_t *err);

/* st_part_of - the file that has the bytes of [e], which are not none.
 * st_read - [n] bytes of [e], from its byte [from] on, by the file and not by
 * its map; TRAIN_EIO. */
const struct st_part *st_part_of (const train_safetensors_t *file,
                                  const train_st_entry_t *e);
train_status_t st_read (const train_safetensors_t *file,
                        const train_st_entry_t *e, uint64_t from, void *to,
                        size_t n, train_error_t *err);

/* st_sort_names - by_name of the entries that are there. */
train_status_t st_sort_names (train_safetensors_t *file, train_error_t *err);

/* How a file will be laid out. */
struct st_plan {
    const train_st_entry_t **order; /* (n) */
    size_t *bytes;                  /* (n), in that order */
    size_t n;
    char *header; /* 8 bytes of length, JSON, padding */
    size_t header_bytes;
};

train_status_t st_plan_init (struct st_plan *plan,
                             const train_st_entry_t *entries, size_t n,
                             const train_st_meta_t *meta, size_t n_meta,
                             train_error_t *err);
void st_plan_fini (struct st_plan *plan); /* after a failure too */

/* st_entry_bytes - size of an entry to be written; TRAIN_EINVAL. */
train_status_t st_entry_bytes (const train_st_entry_t *e, size_t *ret_bytes,
                               train_error_t *err);

/* st_open_temp - a new file beside [path]; temp (size) gets its name.
 * st_write_all - [n] bytes at [at]; -1 with errno.
 * st_sync_folder - of the file [path]; -1 with errno. */
int st_open_temp (const char *path, char *temp, size_t size);
int st_write_all (int fd, const char *buf, size_t n, off_t at);
int st_sync_folder (const char *path);

/* st_writer_fill - all of [entries], those that the writer was made with.
 * st_writer_seal - check that it is complete, fsync, close.
 * st_writer_publish - rename; the folder is not synced. */
train_status_t st_writer_fill (train_st_writer_t *writer,
                               const train_st_entry_t *entries, size_t n,
                               train_error_t *err);
train_status_t st_writer_seal (train_st_writer_t *writer, train_error_t *err);
train_status_t st_writer_publish (train_st_writer_t *writer,
                                  train_error_t *err);

/* st_parse - check a header completely and make its entries.
 *   header, n     the JSON text, padding included
 *   data          where the data begins; entries point into it
 *   data_bytes    bytes that follow the header in the file
 *   ret_root      the JSON tree; names and metadata live in it: json_decref
 *   ret_entries   malloc'ed, in the order of the data; NULL when there is none
 * TRAIN_EFORMAT, TRAIN_ENOTSUP (dimensions) or TRAIN_ENOMEM; nothing is
 * written then. */
train_status_t st_parse (const char *header, size_t n, const char *data,
                         size_t data_bytes, json_t **ret_root,
                         train_st_entry_t **ret_entries, size_t *ret_count,
                         train_error_t *err);

#endif
