/* SPDX-License-Identifier: Apache-2.0
 * fuzz_gresfile.c - gres.conf for a node, and the driver's files of its GPUs
 *
 * The first line is the node's name, the rest is the file. */
#include <stdarg.h>

#include "fuzz.h"
#include "spank/gresfile.h"

#define LINE_BYTES 128 /* the longest that write_and_read makes */

static bool same (const struct gres_devices *a, const struct gres_devices *b,
                  size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a->dev[i].card != b->dev[i].card
            || a->dev[i].cap[0] != b->dev[i].cap[0]
            || a->dev[i].cap[1] != b->dev[i].cap[1])
            return false;
    return true;
}

__attribute__ ((format (printf, 3, 4))) static void add (char *text, size_t *at,
                                                         const char *fmt, ...)
{
    va_list ap;

    va_start (ap, fmt);
    *at += (size_t)vsnprintf (text + *at, LINE_BYTES, fmt, ap);
    va_end (ap);
}

/* A line a device, of the files it was read from. */
static void write_and_read (const struct gres_devices *d)
{
    static char text[(DEVLIST_MAX + 1) * LINE_BYTES];
    static struct gres_devices again;
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < d->n; i++) {
        const struct gres_device *dev = &d->dev[i];

        add (text, &at, "Name=gpu MultipleFiles=/dev/null");
        if (dev->card >= 0)
            add (text, &at, ",/dev/nvidia%d", dev->card);
        for (int c = 0; c < 2; c++)
            if (dev->cap[c] >= 0)
                add (text, &at, ",/dev/nvidia-cap%d", dev->cap[c]);
        add (text, &at, "\n");
    }
    gresfile_read (text, "n1", &again);
    FUZZ_CHECK (again.n == d->n && !again.detected && same (&again, d, d->n));
}

/* What stands there up to the end of some line is the beginning of all. */
static void read_less (char *text, const char *node,
                       const struct gres_devices *all)
{
    static struct gres_devices head;
    size_t half = strlen (text) / 2;
    char *nl = strchr (text + half, '\n');

    if (!nl || all->n == 0)
        return;
    *nl = '\0';
    gresfile_read (text, node, &head);
    FUZZ_CHECK (head.n <= all->n && same (&head, all, head.n));
    FUZZ_CHECK (all->detected || !head.detected);
    *nl = '\n';
}

static void other_files (const char *text)
{
    struct mig_place p;
    char uuid[DEVLIST_NAME_MAX];
    int minor;

    gresfile_confined (text);
    for (int cap = 0; cap < 400; cap += 67)
        if (gresfile_minor (text, cap, &p))
            FUZZ_CHECK (p.card >= 0 && p.gi >= 0 && p.ci >= -1);
    if (gresfile_card (text, &minor, uuid))
        FUZZ_CHECK (minor >= 0 && strncmp (uuid, "GPU-", 4) == 0);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    static struct gres_devices all;
    char *node = fuzz_text (data, size), *text = strchr (node, '\n');

    if (text) {
        *text++ = '\0';
        gresfile_read (text, node, &all);
        FUZZ_CHECK (all.n <= DEVLIST_MAX);
        for (size_t i = 0; i < all.n; i++) {
            const struct gres_device *d = &all.dev[i];

            FUZZ_CHECK (d->card >= -1 && d->cap[0] >= -1 && d->cap[1] >= -1);
            FUZZ_CHECK (d->cap[1] < 0 || d->cap[0] >= 0);
        }
        write_and_read (&all);
        read_less (text, node, &all);
        other_files (text);
    }
    free (node);
    return 0;
}
