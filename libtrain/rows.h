/* SPDX-License-Identifier: Apache-2.0
 * rows.h - lines of JSON: files of them, and what their fields say. Inside
 * libtrain only. */
#ifndef TRAIN_ROWS_H
#define TRAIN_ROWS_H

#include <stddef.h>

#include <jansson.h>

#include <train/status.h>

#define ROW_MAX_BYTES ((size_t)16 << 20) /* of a line */

/* row_parse - the object that [line] (size) is. json_decref it.
 * TRAIN_EFORMAT: it is none, has a key twice or a number past 64 bits. */
train_status_t row_parse (const char *line, size_t size, json_t **ret_row,
                          train_error_t *err);

/* row_text - field [key] as text, which the caller frees: of text itself, of a
 * number or true and false as JSON writes it. NULL in *ret: there is none, or it
 * is null, a list or an object. TRAIN_ENOMEM. */
train_status_t row_text (const json_t *row, const char *key, char **ret,
                         train_error_t *err);

/* rows_read - call [each] for every line of [files] that is not blank.
 *   files   paths and patterns between commas; a pattern's matches are sorted
 *   each    (line without blanks around it, its size, file and line number);
 *           a status that is not TRAIN_OK ends the reading, with "FILE:LINE: "
 *           put before its text
 * TRAIN_ENOTFOUND, TRAIN_EIO, TRAIN_EINVAL (no file, an empty name),
 * TRAIN_EFORMAT (a line past ROW_MAX_BYTES or with NUL), TRAIN_ENOMEM. */
typedef train_status_t (*rows_each_f) (void *arg, const char *line, size_t size,
                                       const char *file, size_t number,
                                       train_error_t *err);
train_status_t rows_read (const char *files, rows_each_f each, void *arg,
                          train_error_t *err);
/* rows_split - the same of one text in memory, [file] as its name. */
train_status_t rows_split (const char *text, size_t size, const char *file,
                           rows_each_f each, void *arg, train_error_t *err);

#endif
