/* SPDX-License-Identifier: Apache-2.0
 * fuzz_gres.c - gres text: what was read, written out, reads the same */
#include "fuzz.h"
#include "plan/gres.h"

static void write_and_read (const struct gres_entry *e)
{
    struct gres_list list;
    char text[3 * GRES_NAME_MAX];

    FUZZ_CHECK (e->name[0]);
    snprintf (text, sizeof (text), "gres:%s%s%s:%llu", e->name,
              e->type[0] ? ":" : "", e->type, (unsigned long long)e->count);
    FUZZ_CHECK (gres_parse (text, &list, NULL) == 0);
    FUZZ_CHECK (list.n == 1 && list.entry[0].count == e->count);
    FUZZ_CHECK (strcmp (list.entry[0].name, e->name) == 0);
    FUZZ_CHECK (strcmp (list.entry[0].type, e->type) == 0);
    gres_fini (&list);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct rv_error err = {0};
    struct gres_list list;
    char *text = fuzz_text (data, size);

    if (gres_parse (text, &list, &err) == 0) {
        for (size_t i = 0; i < list.n; i++) {
            const struct gres_entry *e = &list.entry[i];

            write_and_read (e);
            if (strcmp (e->name, "gpu") == 0 && e->type[0])
                FUZZ_CHECK (gres_count (&list, e->type) >= e->count);
        }
        gres_count (&list, NULL);
    } else {
        FUZZ_CHECK (err.code == RV_EINVAL && err.text[0]);
        FUZZ_CHECK (list.n == 0 && !list.entry);
    }
    gres_is_mig (text);
    gres_fini (&list);
    free (text);
    return 0;
}
