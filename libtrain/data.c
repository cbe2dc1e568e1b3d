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

#include <train/tokens.h>

#include "data_impl.h"
#include "err.h"
#include "opts.h"
#include "permute.h"
#include "tokens.h"

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
    *p = (struct file){strdup (name), st->st_dev, st->st_ino, d->n_bytes};
    if (!p->name)
        return err_set (err, TRAIN_ENOMEM, "no memory for a file name");
    d->n_files++;
    return TRAIN_OK;
}

/* One kind, and one vocabulary, in a stream; an empty file is of no kind. */
static train_status_t check_kind (const train_data_t *d, const char *name,
                                  bool tokens, train_error_t *err)
{
    if (d->n_bytes && tokens)
        return err_set (err, TRAIN_EINVAL,
                        "%s has tokens, and files before it text; one kind in "
                        "a list works",
                        name);
    if (d->n_parts && !tokens)
        return err_set (err, TRAIN_EINVAL,
                        "%s has text, and files before it tokens; rv-train "
                        "tokenize makes tokens of text",
                        name);
    return TRAIN_OK;
}

static train_status_t add_tokens (train_data_t *d, const char *name,
                                  train_error_t *err)
{
    struct part *p = realloc (d->part, (d->n_parts + 1) * sizeof (*p));
    train_tokens_t *t = NULL;

    if (!p)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of files");
    d->part = p;
    TRY (check_kind (d, name, true, err));
    TRY (train_tokens_open (name, &t, err));
    d->part[d->n_parts++] = (struct part){t, d->n_tokens, d->n_files - 1};
    d->n_tokens += train_tokens_count (t);
    t = d->part[0].tokens;
    if (train_tokens_vocab (t)
            != train_tokens_vocab (d->part[d->n_parts - 1].tokens)
        || train_tokens_end (t)
               != train_tokens_end (d->part[d->n_parts - 1].tokens))
        return err_set (err, TRAIN_EINVAL,
                        "%s has another vocabulary, or end of documents, than "
                        "the files before it",
                        name);
    return TRAIN_OK;
}

/* Does it begin as a file of tokens does? */
static bool is_tokens (int fd)
{
    char magic[TOKENS_MAGIC_BYTES];

    return pread (fd, magic, sizeof (magic), 0) == sizeof (magic)
           && memcmp (magic, TOKENS_MAGIC, sizeof (magic)) == 0;
}

static train_status_t add_text (train_data_t *d, int fd, const char *name,
                                off_t size, train_error_t *err)
{
    TRY (slurp (d, fd, name, size, err));
    return d->n_bytes ? check_kind (d, name, false, err) : TRAIN_OK;
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
        status = is_tokens (fd) ? add_tokens (d, name, err)
                                : add_text (d, fd, name, st.st_size, err);
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

/* Of files of tokens, what their headers say of them: reading them all would
 * take minutes. */
static uint64_t hash_parts (const train_data_t *d)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < d->n_parts; i++) {
        const train_tokens_t *t = d->part[i].tokens;
        uint64_t v[] = {train_tokens_sum (t), (uint64_t)train_tokens_count (t),
                        (uint64_t)train_tokens_width (t),
                        (uint64_t)train_tokens_vocab (t),
                        (uint64_t)train_tokens_end (t)};

        hash = XXH3_64bits_withSeed (v, sizeof (v), hash);
    }
    return hash;
}

static train_status_t read_ids (train_data_t *d, const train_data_options_t *o,
                                train_error_t *err)
{
    bool bytes = !o->tokenizer || strcmp (o->tokenizer, "bytes") == 0;

    if (bytes && o->end)
        return err_set (err, TRAIN_EINVAL,
                        "data: end '%s' goes with a tokenizer", o->end);
    if (bytes || (d->n_parts && o->text_alone))
        return TRAIN_OK;
    if (d->n_parts)
        return err_set (err, TRAIN_EINVAL,
                        "data: %s has tokens, which tokenizer %s cannot read; "
                        "leave the tokenizer out",
                        d->file[d->part[0].file].name, o->tokenizer);
    return data_tokenize (d, o->tokenizer, o->end, err);
}

static uint64_t hash_of (const train_data_t *d)
{
    return d->n_parts ? hash_parts (d)
           : d->id    ? data_hash_ids (d)
                      : XXH3_64bits (d->byte, d->n_bytes);
}

static train_status_t fill (train_data_t *d, const train_data_options_t *o,
                            train_error_t *err)
{
    char *list = strdup (o->files);
    train_status_t status =
        list ? add_all (d, list, err)
             : err_set (err, TRAIN_ENOMEM, "no memory for the list of files");

    free (list);
    if (status != TRAIN_OK)
        return status;
    if (d->n_files == 0)
        return err_set (err, TRAIN_ENOTFOUND, "nothing in '%s' is a file",
                        o->files);
    TRY (read_ids (d, o, err));
    if (!d->n_parts && !d->id)
        d->n_tokens = (int64_t)d->n_bytes;
    if (d->n_tokens < d->seq + 1)
        return err_set (
            err, TRAIN_EINVAL,
            "%lld %s%s%s in %zu file%s; one sample of seq "
            "%d needs %d",
            (long long)d->n_tokens, d->n_parts || d->id ? "token" : "byte",
            d->n_tokens == 1 ? "" : "s", d->n_parts ? "" : " of text",
            d->n_files, d->n_files == 1 ? "" : "s", d->seq, d->seq + 1);
    d->n_samples = (d->n_tokens - 1) / d->seq;
    d->hash = hash_of (d);
    return TRAIN_OK;
}

/* The hash tells apart whose epochs differ. */
static train_status_t hold_out (train_data_t *d, int64_t held,
                                train_error_t *err)
{
    if (held < 0 || held >= d->n_samples)
        return err_set (err, TRAIN_EINVAL,
                        "data: of %lld samples %lld cannot be held out, for "
                        "none or fewer are left to train on",
                        (long long)d->n_samples, (long long)held);
    d->n_samples -= held;
    d->held = held;
    if (held > 0)
        d->hash = XXH3_64bits_withSeed (&held, sizeof (held), d->hash);
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
    if ((status = fill (d, &o, err)) == TRAIN_OK)
        status = hold_out (d, o.held, err);
    if (status == TRAIN_OK && o.documents)
        status = data_by_documents (d, err);
    if (status != TRAIN_OK)
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
    for (size_t i = 0; i < d->n_parts; i++)
        train_tokens_close (d->part[i].tokens);
    data_rows_free (d->rows);
    free (d->part);
    free (d->file);
    free (d->byte);
    free (d->id);
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
    int64_t bytes = d->rows ? d->rows->bytes : (int64_t)d->n_bytes;

    for (size_t i = 0; i < d->n_parts; i++)
        bytes += train_tokens_count (d->part[i].tokens)
                 * train_tokens_width (d->part[i].tokens);
    return bytes;
}

int64_t train_data_vocab (const train_data_t *d)
{
    if (d->rows)
        return d->rows->vocab;
    return d->n_parts ? train_tokens_vocab (d->part[0].tokens)
           : d->id    ? d->vocab
                      : 256;
}

int64_t train_data_n_samples (const train_data_t *d)
{
    return d->n_samples;
}

int64_t train_data_held (const train_data_t *d)
{
    return d->held;
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

    if (position < 0)
        return d->n_samples - 1 - position;
    if (!d->shuffle)
        return index;
    return (int64_t)permute ((uint64_t)index, (uint64_t)d->n_samples, d->seed,
                             (uint64_t)epoch);
}

/* The part that has the token [at] of the stream: a binary search. */
static size_t part_of (const train_data_t *d, int64_t at)
{
    size_t low = 0, high = d->n_parts;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (d->part[mid].first <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Over as many files as it takes. */
void data_copy (const train_data_t *d, int64_t at, int64_t n, int32_t *out)
{
    if (d->id) {
        memcpy (out, d->id + at, (size_t)n * sizeof (*out));
        return;
    }
    if (!d->n_parts) {
        for (int64_t i = 0; i < n; i++)
            out[i] = d->byte[at + i];
        return;
    }
    for (size_t i = part_of (d, at); n > 0 && i < d->n_parts; i++) {
        const struct part *p = &d->part[i];
        int64_t left = p->first + train_tokens_count (p->tokens) - at;
        int64_t take = left < n ? left : n;

        train_tokens_read (p->tokens, at - p->first, take, out);
        out += take;
        at += take;
        n -= take;
    }
}

static train_status_t no_token (const train_data_t *d, int64_t at, int32_t x,
                                train_error_t *err)
{
    size_t part = part_of (d, at);

    return err_set (err, TRAIN_ECORRUPT,
                    "%s: token %lld is %d, and its vocabulary %lld; the file "
                    "is damaged, rv-train tokenize makes it anew",
                    d->file[d->part[part].file].name,
                    (long long)(at - d->part[part].first), (int)x,
                    (long long)train_data_vocab (d));
}

train_status_t data_check (const train_data_t *d, int64_t position,
                           const int32_t *tokens, const int32_t *targets,
                           train_error_t *err)
{
    int64_t vocab = train_data_vocab (d);

    for (int i = 0; d->n_parts && i <= d->seq; i++) {
        /* with documents a target may be none; it is another sample's token */
        int32_t x = i < d->seq ? tokens[i] : d->documents ? 0 : targets[i - 1];

        if (x < 0 || x >= vocab)
            return no_token (d, train_data_index (d, position) * d->seq + i, x,
                             err);
    }
    return TRAIN_OK;
}

train_status_t train_data_verify (const train_data_t *d, train_error_t *err)
{
    for (size_t i = 0; i < d->n_parts; i++)
        TRY (train_tokens_verify (d->part[i].tokens, err));
    return TRAIN_OK;
}
