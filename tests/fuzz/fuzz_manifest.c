/* SPDX-License-Identifier: Apache-2.0
 * fuzz_manifest.c - checkpoint.json: what passes names each element once */
#include "config.h"

#include "fuzz.h"
#include "libtrain/ckpt_manifest.h"

/* Any wanted range is made of parts of it, in order. */
static void plan (const struct ckpt_tensor *t, int64_t first, int64_t count)
{
    struct ckpt_part *part = calloc (t->n + 1, sizeof (*part));
    int64_t at = 0;
    size_t n;

    FUZZ_CHECK (part);
    n = ckpt_ranges_plan (t->range, t->n, (struct ckpt_range){first, count},
                          part);
    FUZZ_CHECK (n <= t->n);
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_range *r = &t->range[part[i].piece];

        FUZZ_CHECK (part[i].to == at && part[i].count > 0);
        FUZZ_CHECK (r->first + part[i].from == first + at);
        FUZZ_CHECK (part[i].count <= r->count - part[i].from);
        at += part[i].count;
    }
    FUZZ_CHECK (at == count);
    free (part);
}

static void look (const struct ckpt_manifest *m)
{
    FUZZ_CHECK (m->step >= 0 && m->world >= 0 && m->strategy && m->device);
    for (size_t i = 0; i < m->n_files; i++)
        FUZZ_CHECK (m->file[i].bytes >= 0 && *m->file[i].name
                    && !strchr (m->file[i].name, '/'));
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct ckpt_tensor *t = &m->tensor[i];

        FUZZ_CHECK (ckpt_manifest_find (m, t->name) == t);
        FUZZ_CHECK (ckpt_numel (t->ndim, t->shape) == t->numel);
        for (size_t k = 0; k < t->n; k++)
            FUZZ_CHECK (t->stored[k].file < m->n_files && t->stored[k].as);
        plan (t, 0, t->numel);
        plan (t, t->numel / 3, t->numel - t->numel / 3);
        plan (t, t->numel, 0);
    }
}

/* A text without the right sum gets it, so that what lies behind is tried. */
static char *with_sum (const char *text, size_t size)
{
    json_t *root = json_loadb (text, size, JSON_REJECT_DUPLICATES, NULL);
    char *again = NULL;

    if (json_is_object (root)) {
        json_object_del (root, "xxh3");
        FUZZ_CHECK (ckpt_manifest_text (root, &again, NULL) == TRAIN_OK);
    }
    json_decref (root);
    return again;
}

static void parse (const char *text, size_t size)
{
    struct ckpt_manifest m = {0};
    train_error_t err = {0};

    if (ckpt_manifest_parse (text, size, &m, &err) == TRAIN_OK) {
        look (&m);
        ckpt_manifest_fini (&m);
    } else {
        FUZZ_CHECK (!m.root && err.text[0]);
    }
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    char *again = with_sum ((const char *)data, size);

    parse ((const char *)data, size);
    if (again)
        parse (again, strlen (again));
    free (again);
    return 0;
}
