/* SPDX-License-Identifier: Apache-2.0
 * safetensors_set.c - read a model that lies in several safetensors files
 *
 * The index is a JSON object whose "weight_map" says for each tensor the file
 * beside it (huggingface/transformers, sharded checkpoints). */
#include "config.h"

#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"
#include "json_why.h"

#define INDEX_END ".safetensors.index.json"

static int cmp_text (const void *a, const void *b)
{
    return strcmp (*(const char *const *)a, *(const char *const *)b);
}

/* The size is asked first: a text that long is no index. */
static train_status_t read_text (const char *path, char **ret, size_t *ret_n,
                                 train_error_t *err)
{
    FILE *in = NULL;
    int fd = open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    train_status_t status = TRAIN_OK;
    struct stat st;
    char *text = NULL;

    if (fd < 0)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s", strerror (errno));
    if (fstat (fd, &st) < 0 || !S_ISREG (st.st_mode))
        status = err_set (err, TRAIN_EIO, "not a regular file");
    else if (st.st_size > ST_MAX_HEADER)
        status = err_set (err, TRAIN_EFORMAT, "an index of more than %d bytes",
                          ST_MAX_HEADER);
    else if (!(text = malloc ((size_t)st.st_size + 1))
             || !(in = fdopen (fd, "r")))
        status = err_set (err, TRAIN_ENOMEM, "no memory for the index");
    if (status == TRAIN_OK) {
        *ret_n = fread (text, 1, (size_t)st.st_size, in);
        if (ferror (in))
            status = err_set (err, TRAIN_EIO, "%s", strerror (errno));
    }
    if (in)
        fclose (in);
    else
        close (fd);
    if (status == TRAIN_OK)
        *ret = text;
    else
        free (text);
    return status;
}

/* ret_root is to be given back; the map lives in it. */
static train_status_t read_map (const char *path, json_t **ret_root,
                                json_t **ret_map, train_error_t *err)
{
    json_error_t why;
    json_t *root;
    char *text = NULL;
    size_t n = 0;
    train_status_t status = read_text (path, &text, &n, err);

    if (status != TRAIN_OK)
        return status;
    root = json_loadb (text, n, JSON_REJECT_DUPLICATES, &why);
    free (text);
    if (!root && json_no_memory (&why))
        return err_set (err, TRAIN_ENOMEM, "no memory for the index");
    if (!root)
        return err_set (err, TRAIN_EFORMAT, "byte %d: %s", why.position,
                        why.text);
    *ret_map = json_object_get (root, "weight_map");
    if (!json_is_object (*ret_map)) {
        json_decref (root);
        return err_set (err, TRAIN_EFORMAT,
                        "'weight_map' is missing or not an object");
    }
    *ret_root = root;
    return TRAIN_OK;
}

/* The files of the map, each once, in the order of their names. */
static train_status_t list_files (json_t *map, const char ***ret, size_t *ret_n,
                                  train_error_t *err)
{
    const char **list = calloc (json_object_size (map) + 1, sizeof (*list));
    const char *key, *text;
    size_t n = 0, kept = 0;
    json_t *value;

    if (!list)
        return err_set (err, TRAIN_ENOMEM, "no memory for the index");
    json_object_foreach (map, key, value)
    {
        text = json_string_value (value);
        if (!text || !*text || strchr (text, '/') || strcmp (text, ".") == 0
            || strcmp (text, "..") == 0) {
            free (list);
            return err_set (err, TRAIN_EFORMAT,
                            "tensor '%s': '%s' is not the name of a file "
                            "beside the index",
                            key, text ? text : "(no string)");
        }
        list[n++] = text;
    }
    qsort (list, n, sizeof (*list), cmp_text);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || strcmp (list[kept - 1], list[i]) != 0)
            list[kept++] = list[i];
    }
    *ret = list;
    *ret_n = kept;
    return TRAIN_OK;
}

static char *beside (const char *path, const char *name)
{
    const char *slash = strrchr (path, '/');
    char *out = NULL;

    if (asprintf (&out, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path,
                  name)
        < 0)
        return NULL;
    return out;
}

/* The entries of a file that the index gives to it, behind those that are
 * there; there is room for all of the map. */
static void take (train_safetensors_t *set, json_t *map, const char *name,
                  const train_st_entry_t *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *in =
            json_string_value (json_object_get (map, entries[i].name));

        if (in && strcmp (in, name) == 0)
            set->entries[set->count++] = entries[i];
    }
}

/* Every tensor of the index was found where it says; with by_name made. */
static train_status_t check_all (const train_safetensors_t *set, json_t *map,
                                 train_error_t *err)
{
    const char *key;
    json_t *value;

    if (set->count == json_object_size (map))
        return TRAIN_OK;
    json_object_foreach (map, key, value)
    {
        if (!train_safetensors_find (set, key))
            return err_set (err, TRAIN_EFORMAT,
                            "tensor '%s' is not in %s, where the index has it",
                            key, json_string_value (value));
    }
    return TRAIN_OK;
}

static train_status_t open_parts (train_safetensors_t *set, const char *path,
                                  json_t *map, const char **names, size_t n,
                                  train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    set->parts = calloc (n + 1, sizeof (*set->parts));
    set->entries = calloc (json_object_size (map) + 1, sizeof (*set->entries));
    if (!set->parts || !set->entries)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        train_st_entry_t *entries = NULL;
        size_t count = 0;
        char *file = beside (path, names[i]);

        if (!file)
            return err_set (err, TRAIN_ENOMEM, "no memory for a name");
        set->n_parts = i + 1;
        status = st_open_part (file, &set->parts[i], &entries, &count, err);
        if (status == TRAIN_OK)
            take (set, map, names[i], entries, count);
        free (entries);
        free (file);
    }
    return status;
}

static train_status_t open_index (const char *path, train_safetensors_t **ret,
                                  train_error_t *err)
{
    train_safetensors_t *set = calloc (1, sizeof (*set));
    json_t *root = NULL, *map = NULL;
    const char **names = NULL;
    size_t n = 0;
    train_status_t status;

    if (!set)
        return err_set (err, TRAIN_ENOMEM, "%s: no memory", path);
    status = read_map (path, &root, &map, err);
    if (status == TRAIN_OK)
        status = list_files (map, &names, &n, err);
    if (status == TRAIN_OK)
        status = open_parts (set, path, map, names, n, err);
    if (status == TRAIN_OK)
        status = st_sort_names (set, err);
    if (status == TRAIN_OK)
        status = check_all (set, map, err);
    free (names);
    json_decref (root);
    if (status != TRAIN_OK) {
        train_safetensors_close (set);
        return err_prefix (err, status, "%s", path);
    }
    *ret = set;
    return TRAIN_OK;
}

static bool ends_in (const char *text, const char *end)
{
    size_t n = strlen (text), m = strlen (end);

    return n >= m && strcmp (text + n - m, end) == 0;
}

static train_status_t open_folder (const char *path, train_safetensors_t **ret,
                                   train_error_t *err)
{
    static const char *const names[] = {"model.safetensors", "model" INDEX_END};
    train_status_t status = TRAIN_ENOTFOUND;
    struct stat st;

    for (size_t i = 0; i < 2; i++) {
        char *file = NULL;

        if (asprintf (&file, "%s/%s", path, names[i]) < 0)
            return err_set (err, TRAIN_ENOMEM, "no memory for a name");
        if (stat (file, &st) == 0) {
            status = i == 0 ? train_safetensors_open (file, ret, err)
                            : open_index (file, ret, err);
            free (file);
            return status;
        }
        free (file);
    }
    return err_set (err, TRAIN_ENOTFOUND, "%s: neither %s nor %s is there",
                    path, names[0], names[1]);
}

train_status_t train_safetensors_open_set (const char *path,
                                           train_safetensors_t **ret_file,
                                           train_error_t *err)
{
    struct stat st;

    if (!path || !ret_file)
        return err_set (err, TRAIN_EINVAL, "safetensors: no path or result");
    if (stat (path, &st) == 0 && S_ISDIR (st.st_mode))
        return open_folder (path, ret_file, err);
    if (ends_in (path, INDEX_END))
        return open_index (path, ret_file, err);
    return train_safetensors_open (path, ret_file, err);
}
