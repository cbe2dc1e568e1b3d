/* SPDX-License-Identifier: Apache-2.0
 * probe_cmd.c - rv-train probe: peer copies between the GPUs of this machine */
#include "config.h"

#include "probe_cmd.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "probe.h"

#define ID_BYTES 96

/* All that the report is made of. */
struct found {
    int n;
    char (*id)[ID_BYTES];
    const char **ids;
    struct probe_pair *pair; /* (n * n) */
};

static void print_table (const struct found *f)
{
    static const char *const verdict[] = {"unknown", "good", "no way", "wrong",
                                          "slow"};
    char text[320];

    for (int i = 0; i < f->n; i++)
        printf ("GPU %d  %s\n", i, f->ids[i]);
    if (f->n > 1)
        printf ("%-4s %-4s %-8s %12s %18s\n", "FROM", "TO", "PEER", "GB/s",
                "BY THE HOST GB/s");
    for (int i = 0; i < f->n * f->n; i++) {
        const struct probe_pair *p = &f->pair[i];
        int dst = i / f->n, src = i % f->n;

        if (dst == src)
            continue;
        printf ("%-4d %-4d %-8s %12.1f %18.1f\n", src, dst, verdict[p->verdict],
                p->peer_gb_s, p->staged_gb_s);
        probe_text (p, dst, src, text, sizeof (text));
        if (text[0])
            fprintf (stderr, "rv-train: %s\n", text);
    }
}

static void print_json (const struct found *f)
{
    json_t *json = probe_to_json (f->pair, f->n, f->ids);

    if (json)
        json_dumpf (json, stdout, JSON_INDENT (2));
    putchar ('\n');
    json_decref (json);
}

static train_status_t find (struct found *f, train_error_t *err)
{
    const struct backend_ops *ops = NULL;
    train_status_t status = backend_find ("cuda", &ops, err);

    if (status == TRAIN_OK)
        status = ops->probe (&f->n, err);
    if (status != TRAIN_OK)
        return status;
    f->id = calloc ((size_t)f->n, sizeof (*f->id));
    f->ids = calloc ((size_t)f->n, sizeof (*f->ids));
    f->pair = calloc ((size_t)f->n * (size_t)f->n, sizeof (*f->pair));
    if (!f->id || !f->ids || !f->pair) {
        snprintf (err->text, sizeof (err->text), "no memory");
        return err->code = TRAIN_ENOMEM;
    }
    for (int i = 0; i < f->n && status == TRAIN_OK; i++) {
        f->ids[i] = f->id[i];
        status = ops->ident (i, f->id[i], ID_BYTES, err);
    }
    if (status == TRAIN_OK)
        status = probe_pairs (ops, f->n, &probe_default, f->pair, err);
    return status;
}

train_status_t probe_cmd (bool as_json, bool *ret_good, train_error_t *err)
{
    struct found f = {0};
    train_status_t status = find (&f, err);

    *ret_good = true;
    for (int i = 0; status == TRAIN_OK && i < f.n * f.n; i++)
        *ret_good = *ret_good && f.pair[i].verdict != PROBE_WRONG;
    if (status == TRAIN_OK && as_json)
        print_json (&f);
    else if (status == TRAIN_OK)
        print_table (&f);
    free (f.pair);
    free (f.ids);
    free (f.id);
    return status;
}
