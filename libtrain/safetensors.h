/* SPDX-License-Identifier: Apache-2.0
 * safetensors.h - what the reader and the writer of safetensors share. Inside
 * libtrain only; the public side is train/safetensors.h. */
#ifndef TRAIN_SAFETENSORS_INTERNAL_H
#define TRAIN_SAFETENSORS_INTERNAL_H

#include <jansson.h>

#include <train/safetensors.h>

/* Of the format: longer headers are refused on both sides. */
#define ST_MAX_HEADER 100000000
#define ST_META_KEY   "__metadata__"

/* st_parse - check a header completely and make its entries.
 *   header, n     the JSON text, padding included
 *   data          where the data begins; entries point into it
 *   data_bytes    bytes that follow the header in the file
 *   ret_root      the JSON tree; names and metadata live in it: json_decref
 *   ret_entries   malloc'ed, in the order of the data; NULL when there is none
 * TRAIN_EFORMAT, TRAIN_ENOTSUP or TRAIN_ENOMEM; nothing is written then. */
train_status_t st_parse (const char *header, size_t n, const char *data,
                         size_t data_bytes, json_t **ret_root,
                         train_st_entry_t **ret_entries, size_t *ret_count,
                         train_error_t *err);

#endif
