/* SPDX-License-Identifier: Apache-2.0
 * model_eos.c - which ids end a text, by a model's own files */
#include "model_dir.h"

#include <jansson.h>
#include <stdio.h>

static size_t take (const json_t *id, int32_t *ret, size_t most)
{
    json_int_t value = json_is_integer (id) ? json_integer_value (id) : -1;

    if (most == 0 || value < 0 || value > INT32_MAX)
        return 0;
    *ret = (int32_t)value;
    return 1;
}

size_t model_eos (const char *dir, int32_t *ret, size_t most)
{
    static const char *const names[] = {"generation_config.json",
                                        "config.json"};
    json_t *eos = NULL, *root = NULL;
    size_t n;

    for (size_t i = 0; i < 2 && (!eos || json_is_null (eos)); i++) {
        char path[4096];
        int len = snprintf (path, sizeof (path), "%s/%s", dir, names[i]);

        json_decref (root);
        root =
            (size_t)len < sizeof (path) ? json_load_file (path, 0, NULL) : NULL;
        eos = json_object_get (root, "eos_token_id");
    }
    n = take (eos, ret, most);
    for (size_t i = 0; i < json_array_size (eos); i++)
        n += take (json_array_get (eos, i), ret + n, most - n);
    json_decref (root);
    return n;
}
