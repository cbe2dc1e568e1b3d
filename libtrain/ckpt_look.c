/* SPDX-License-Identifier: Apache-2.0
 * ckpt_look.c - what the manifest of an open checkpoint says */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_manifest.h"
#include "err.h"

int64_t train_ckpt_step (const train_ckpt_t *c)
{
    return ckpt_manifest_of (c)->step;
}

int train_ckpt_world (const train_ckpt_t *c)
{
    return ckpt_manifest_of (c)->world;
}

const char *train_ckpt_strategy (const train_ckpt_t *c)
{
    return ckpt_manifest_of (c)->strategy;
}

const char *train_ckpt_device (const train_ckpt_t *c)
{
    return ckpt_manifest_of (c)->device;
}

const char *train_ckpt_library (const train_ckpt_t *c)
{
    return ckpt_manifest_of (c)->library;
}

size_t train_ckpt_n_files (const train_ckpt_t *c)
{
    return ckpt_manifest_of (c)->n_files;
}

const char *train_ckpt_file (const train_ckpt_t *c, size_t index,
                             int64_t *ret_bytes)
{
    const struct ckpt_manifest *m = ckpt_manifest_of (c);

    if (index >= m->n_files)
        return NULL;
    if (ret_bytes)
        *ret_bytes = m->file[index].bytes;
    return m->file[index].name;
}

const char *train_ckpt_state (const train_ckpt_t *c, const char *key)
{
    return json_string_value (
        json_object_get (ckpt_manifest_of (c)->state, key));
}

size_t train_ckpt_n_states (const train_ckpt_t *c)
{
    return json_object_size (ckpt_manifest_of (c)->state);
}

const char *train_ckpt_state_at (const train_ckpt_t *c, size_t index,
                                 const char **ret_value)
{
    json_t *value;
    const char *key;

    json_object_foreach (ckpt_manifest_of (c)->state, key,
                         value) if (index-- == 0)
    {
        if (ret_value)
            *ret_value = json_string_value (value);
        return key;
    }
    return NULL;
}

static int digit (char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

train_status_t train_ckpt_bytes (const train_ckpt_t *c, const char *key,
                                 void **ret_data, size_t *ret_size,
                                 train_error_t *err)
{
    const char *text =
        json_string_value (json_object_get (ckpt_manifest_of (c)->bytes, key));
    size_t n = text ? strlen (text) / 2 : 0;
    unsigned char *data;

    if (!text)
        return err_set (err, TRAIN_ENOTFOUND,
                        "the checkpoint has no bytes '%s'", key);
    if (strspn (text, "0123456789abcdef") != 2 * n || text[2 * n])
        return err_set (err, TRAIN_EFORMAT, "bytes '%s' are no digits", key);
    if (!(data = malloc (n + 1)))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu bytes", n);
    for (size_t i = 0; i < n; i++)
        data[i] =
            (unsigned char)(digit (text[2 * i]) << 4 | digit (text[2 * i + 1]));
    *ret_data = data;
    *ret_size = n;
    return TRAIN_OK;
}

size_t train_ckpt_n_tensors (const train_ckpt_t *c)
{
    return ckpt_manifest_of (c)->n_tensors;
}

train_status_t train_ckpt_tensor (const train_ckpt_t *c, size_t index,
                                  train_ckpt_piece_t *ret_piece,
                                  size_t *ret_n_pieces, train_error_t *err)
{
    const struct ckpt_manifest *m = ckpt_manifest_of (c);
    const struct ckpt_tensor *t = &m->tensor[index];

    if (index >= m->n_tensors || !ret_piece)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: no tensor %zu of %zu, or no ret_piece",
                        index, m->n_tensors);
    *ret_piece = (train_ckpt_piece_t){
        .name = t->name, .dtype = t->dtype, .ndim = t->ndim, .count = t->numel};
    memcpy (ret_piece->shape, t->shape, sizeof (t->shape));
    if (ret_n_pieces)
        *ret_n_pieces = t->n;
    return TRAIN_OK;
}

bool train_ckpt_differs (const train_ckpt_t *c, int world, const char *strategy,
                         const char *device, char *text, size_t size)
{
    const struct ckpt_manifest *m = ckpt_manifest_of (c);
    char there[16], here[16];
    const char *v[4][3] = {
        {"ranks", there, here},
        {"strategy", m->strategy, strategy ? strategy : "whole"},
        {"device", m->device, device ? device : "cpu"},
        {"libtrain", m->library, PACKAGE_VERSION},
    };
    size_t used = 0;

    snprintf (there, sizeof (there), "%d", m->world);
    snprintf (here, sizeof (here), "%d", world);
    if (size)
        text[0] = '\0';
    for (int i = 0; i < 4; i++) {
        if (strcmp (v[i][1], v[i][2]) == 0)
            continue;
        used += (size_t)snprintf (
            used < size ? text + used : NULL, used < size ? size - used : 0,
            "%s%s %s there and %s here", used ? ", " : "written with ", v[i][0],
            v[i][1], v[i][2]);
    }
    return used > 0;
}
