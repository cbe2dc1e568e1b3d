/* SPDX-License-Identifier: Apache-2.0
 * data.c - find text files, read them once, hand out samples
 *
 * Files are told apart by device and inode, which sees hard links and bind
 * mounts as well as symbolic links. */
#include <train/data.h>

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "err.h"
#include "opts.h"
#include "permute.h"

struct file {
    char *name;
    dev_t dev;
    ino_t ino;
};

struct train_data {
    struct file *file; /* (n_files) */
    size_t n_files;
    unsigned char *byte; /* (n_bytes) */
    size_t n_bytes, cap;
    int64_t n_samples;
    int seq;
    bool shuffle;
    uint64_t seed, hash;
};

static train_status_t grow (train_data_t *d, size_t need, train_error_t *err)
{
    size_t cap = d->cap ? d->cap : 4096;
    unsigned char *p;

    if (need <= d->cap)
        return TRAIN_OK;
    while (cap < need)
        cap *= 2;
    if (!(p = realloc (d->byte, cap)))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu bytes of text",
                        cap);
    d->byte = p;
    d->cap = cap;
    return TRAIN_OK;
}

/* Append what [fd] holds; its size is only a hint, as it may grow. */
static train_status_t slurp (train_data_t *d, int fd, const char *name,
                             off_t size, train_error_t *err)
{
    for (;;) {
        size_t want = size > 0 ? (size_t)size + 1 : 65536;
        train_status_t status = grow (d, d->n_bytes + want, err);
        ssize_t n;

        if (status != TRAIN_OK)
            return status;
        n = read (fd, d->byte + d->n_bytes, d->cap - d->n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set (err, TRAIN_EIO, "%s: %s", name, strerror (errno));
        if (n == 0)
            return TRAIN_OK;
        d->n_bytes += (size_t)n;
        size = size > n ? size - n : 0;
    }
}

static bool known (const train_data_t *d, const struct stat *st)
{
    for (size_t i = 0; i < d->n_files; i++)
        if (d->file[i].dev == st->st_dev && d->file[i].ino == st->st_ino)
            return true;
    return false;
}

static train_status_t remember (train_data_t *d, const char *name,
                                const struct stat *st, train_error_t *err)
{
    struct file *p = realloc (d->file, (d->n_files + 1) * sizeof (*d->file));

    if (!p)
        return err_set (err, TRAIN_ENOMEM, "no memory for a file name");
    d->file = p;
    p += d->n_files;
    *p = (struct file){strdup (name), st->st_dev, st->st_ino};
    if (!p->name)
        return err_set (err, TRAIN_ENOMEM, "no memory for a file name");
    d->n_files++;
    return TRAIN_OK;
}

/* Read [name] unless it was read before.
 *   matched   it came from a pattern: what is no file is passed over */
static train_status_t add (train_data_t *d, const char *name, bool matched,
                           train_error_t *err)
{
    train_status_t status;
    struct stat st;
    /* A FIFO without a writer must not hold us up. */
    int fd = open (name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", name, strerror (errno));
    if (fstat (fd, &st) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", name, strerror (errno));
    else if (!S_ISREG (st.st_mode))
        status = matched ? TRAIN_OK
                         : err_set (err, TRAIN_EINVAL,
                                    "%s is not a file; a pattern such as "
                                    "%s/* takes what lies in a folder",
                                    name, name);
    else if (known (d, &st))
        status = TRAIN_OK;
    else if ((status = remember (d, name, &st, err)) == TRAIN_OK)
        status = slurp (d, fd, name, st.st_size, err);
    close (fd);
    return status;
}

static int by_bytes (const void *a, const void *b)
{
    return strcmp (*(char *const *)a, *(char *const *)b);
}

static train_status_t add_pattern (train_data_t *d, const char *pattern,
                                   train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    glob_t found;
    int rc;

    if (!strpbrk (pattern, "*?["))
        return add (d, pattern, false, err);
    /* GLOB_NOSORT: glob's own order follows the locale. */
    rc = glob (pattern, GLOB_NOSORT, NULL, &found);
    if (rc == GLOB_NOMATCH)
        return err_set (err, TRAIN_ENOTFOUND, "no file matches '%s'", pattern);
    if (rc == GLOB_NOSPACE)
        return err_set (err, TRAIN_ENOMEM, "no memory for '%s'", pattern);
    if (rc)
        return err_set (err, TRAIN_EIO, "cannot read the folder of '%s'",
                        pattern);
    qsort (found.gl_pathv, found.gl_pathc, sizeof (char *), by_bytes);
    for (size_t i = 0; i < found.gl_pathc && status == TRAIN_OK; i++)
        status = add (d, found.gl_pathv[i], true, err);
    globfree (&found);
    return status;
}

/* Each word between commas, without the blanks around it. */
static train_status_t add_all (train_data_t *d, char *list, train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    char *next = list;

    while (next && status == TRAIN_OK) {
        char *word = strsep (&next, ",");
        size_t len;

        word += strspn (word, " \t");
        len = strlen (word);
        while (len > 0 && strchr (" \t", word[len - 1]))
            word[--len] = '\0';
        if (len == 0)
            return err_set (err, TRAIN_EINVAL,
                            "data: an empty name in the list of files");
        status = add_pattern (d, word, err);
    }
    return status;
}

static train_status_t fill (train_data_t *d, const char *files,
                            train_error_t *err)
{
    char *list = strdup (files);
    train_status_t status =
        list ? add_all (d, list, err)
             : err_set (err, TRAIN_ENOMEM, "no memory for the list of files");

    free (list);
    if (status != TRAIN_OK)
        return status;
    if (d->n_files == 0)
        return err_set (err, TRAIN_ENOTFOUND, "nothing in '%s' is a file",
                        files);
    if (d->n_bytes < (size_t)d->seq + 1)
        return err_set (err, TRAIN_EINVAL,
                        "%zu byte%s of text in %zu file%s; one sample of seq "
                        "%d needs %d",
                        d->n_bytes, d->n_bytes == 1 ? "" : "s", d->n_files,
                        d->n_files == 1 ? "" : "s", d->seq, d->seq + 1);
    d->n_samples = (int64_t)((d->n_bytes - 1) / (size_t)d->seq);
    d->hash = XXH3_64bits (d->byte, d->n_bytes);
    return TRAIN_OK;
}

train_status_t train_data_open (const train_data_options_t *opts,
                                train_data_t **ret_data, train_error_t *err)
{
    train_data_options_t o;
    train_status_t status;
    train_data_t *d;

    if (!opts || !ret_data)
        return err_set (err, TRAIN_EINVAL,
                        "data: options or ret_data are missing");
    if ((status = opts_read (&o, sizeof (o), opts, "data", err)) != TRAIN_OK)
        return status;
    if (!o.files)
        return err_set (err, TRAIN_EINVAL, "data: files is not set");
    if (o.seq < 1 || o.seq > 1 << 24)
        return err_set (err, TRAIN_EINVAL,
                        "data: seq %d is not within 1 and %d", o.seq, 1 << 24);
    if (!(d = calloc (1, sizeof (*d))))
        return err_set (err, TRAIN_ENOMEM, "no memory for data");
    d->seq = o.seq;
    d->shuffle = o.shuffle;
    d->seed = o.seed;
    if ((status = fill (d, o.files, err)) != TRAIN_OK)
        train_data_close (d);
    else
        *ret_data = d;
    return status;
}

void train_data_close (train_data_t *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_files; i++)
        free (d->file[i].name);
    free (d->file);
    free (d->byte);
    free (d);
}

size_t train_data_n_files (const train_data_t *d)
{
    return d->n_files;
}

const char *train_data_file (const train_data_t *d, size_t index)
{
    return index < d->n_files ? d->file[index].name : NULL;
}

int64_t train_data_bytes (const train_data_t *d)
{
    return (int64_t)d->n_bytes;
}

int64_t train_data_n_samples (const train_data_t *d)
{
    return d->n_samples;
}

int train_data_seq (const train_data_t *d)
{
    return d->seq;
}

bool train_data_shuffle (const train_data_t *d)
{
    return d->shuffle;
}

uint64_t train_data_seed (const train_data_t *d)
{
    return d->seed;
}

uint64_t train_data_hash (const train_data_t *d)
{
    return d->hash;
}

int64_t train_data_index (const train_data_t *d, int64_t position)
{
    int64_t epoch = position / d->n_samples;
    int64_t index = position % d->n_samples;

    if (!d->shuffle)
        return index;
    return (int64_t)permute ((uint64_t)index, (uint64_t)d->n_samples, d->seed,
                             (uint64_t)epoch);
}

void train_data_get (const train_data_t *d, int64_t position, int32_t *tokens,
                     int32_t *targets)
{
    const unsigned char *p =
        d->byte + (size_t)train_data_index (d, position) * (size_t)d->seq;

    for (int i = 0; i < d->seq; i++) {
        tokens[i] = p[i];
        targets[i] = p[i + 1];
    }
}
