/* SPDX-License-Identifier: Apache-2.0
 * rows.c - lines of JSON: files of them, and what their fields say */
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"

#include "plan/conf.h"
#include "plan/fsio.h"

#define MAX_BYTES ((size_t)8 << 30) /* of a file, which is held whole */
#define BLANKS    " \t\r\n"

train_status_t row_parse (const char *line, size_t size, json_t **ret_row,
                          train_error_t *err)
{
    json_error_t e;
    json_t *row = json_loadb (line, size, JSON_REJECT_DUPLICATES, &e);

    if (!row)
        return err_set (err, TRAIN_EFORMAT, "no JSON at character %d: %s",
                        e.column, e.text);
    if (!json_is_object (row)) {
        json_decref (row);
        return err_set (err, TRAIN_EFORMAT,
                        "is no JSON object; {\"prompt\": ..., \"answer\": ...} "
                        "would be one");
    }
    *ret_row = row;
    return TRAIN_OK;
}

train_status_t row_text (const json_t *row, const char *key, char **ret,
                         train_error_t *err)
{
    const json_t *value = json_object_get (row, key);

    *ret = NULL;
    if (json_is_string (value))
        *ret = strdup (json_string_value (value));
    else if (json_is_number (value) || json_is_boolean (value))
        /* as it was most likely written: 0.1 has 15 digits, not 17 */
        *ret = json_dumps (value, JSON_ENCODE_ANY | JSON_REAL_PRECISION (15));
    else
        return TRAIN_OK;
    return *ret ? TRAIN_OK : err_set (err, TRAIN_ENOMEM, "no memory for a row");
}

/* A line without the blanks around it. */
static train_status_t one (const char *line, size_t size, const char *file,
                           size_t number, rows_each_f each, void *arg,
                           train_error_t *err)
{
    train_status_t status;

    while (size > 0 && memchr (BLANKS, line[size - 1], sizeof (BLANKS) - 1))
        size--;
    while (size > 0 && memchr (BLANKS, *line, sizeof (BLANKS) - 1))
        line++, size--;
    if (size == 0)
        return TRAIN_OK;
    if (size > ROW_MAX_BYTES)
        return err_set (err, TRAIN_EFORMAT,
                        "%s:%zu: a line of %zu bytes; %zu is the most", file,
                        number, size, ROW_MAX_BYTES);
    if (memchr (line, '\0', size))
        return err_set (err, TRAIN_EFORMAT, "%s:%zu: a byte 0 in the line",
                        file, number);
    status = each (arg, line, size, file, number, err);
    return status == TRAIN_OK
               ? TRAIN_OK
               : err_prefix (err, status, "%s:%zu", file, number);
}

train_status_t rows_split (const char *text, size_t size, const char *file,
                           rows_each_f each, void *arg, train_error_t *err)
{
    size_t number = 0;

    if (size >= 3 && memcmp (text, "\xef\xbb\xbf", 3) == 0)
        text += 3, size -= 3; /* some editors' mark of UTF-8 */
    while (size > 0) {
        const char *end = memchr (text, '\n', size);
        size_t n = end ? (size_t)(end - text) : size;

        TRY (one (text, n, file, ++number, each, arg, err));
        n += end != NULL;
        text += n;
        size -= n;
    }
    return TRAIN_OK;
}

/* A FIFO without a writer must not hold us up. */
static train_status_t read_file (const char *name, bool matched,
                                 rows_each_f each, void *arg,
                                 train_error_t *err)
{
    int fd = open (name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    train_status_t status = TRAIN_OK;
    struct rv_error e = {0};
    struct stat st;
    char *text = NULL;
    size_t size;

    if (fd < 0)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", name, strerror (errno));
    if (fstat (fd, &st) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", name, strerror (errno));
    else if (S_ISREG (st.st_mode)
             && fsio_read_fd (fd, name, MAX_BYTES, &text, &size, &e) != RV_OK)
        status = err_from (err, &e);
    else if (!S_ISREG (st.st_mode) && !matched)
        status = err_set (err, TRAIN_EINVAL,
                          "%s is not a file; a pattern such as %s/*.jsonl "
                          "takes what lies in a folder",
                          name, name);
    close (fd);
    if (text)
        status = rows_split (text, size, name, each, arg, err);
    free (text);
    return status;
}

static int by_bytes (const void *a, const void *b)
{
    return strcmp (*(char *const *)a, *(char *const *)b);
}

static train_status_t read_pattern (const char *pattern, rows_each_f each,
                                    void *arg, train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    glob_t found;
    int rc;

    if (!strpbrk (pattern, "*?["))
        return read_file (pattern, false, each, arg, err);
    /* GLOB_NOSORT: glob's own order follows the locale. */
    rc = glob (pattern, GLOB_NOSORT, NULL, &found);
    if (rc == GLOB_NOMATCH)
        return err_set (err, TRAIN_ENOTFOUND, "no file matches '%s'", pattern);
    if (rc)
        return err_set (err, rc == GLOB_NOSPACE ? TRAIN_ENOMEM : TRAIN_EIO,
                        "cannot read the folder of '%s'", pattern);
    qsort (found.gl_pathv, found.gl_pathc, sizeof (char *), by_bytes);
    for (size_t i = 0; i < found.gl_pathc && status == TRAIN_OK; i++)
        status = read_file (found.gl_pathv[i], true, each, arg, err);
    globfree (&found);
    return status;
}

train_status_t rows_read (const char *files, rows_each_f each, void *arg,
                          train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    struct rv_error e = {0};
    char **name;
    size_t n;

    if (conf_split (files, &name, &n, &e) != RV_OK)
        return err_from (err, &e);
    for (size_t i = 0; i < n && status == TRAIN_OK; i++)
        status = read_pattern (name[i], each, arg, err);
    conf_split_free (name);
    return status;
}
