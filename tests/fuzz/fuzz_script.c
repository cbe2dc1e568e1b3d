/* SPDX-License-Identifier: Apache-2.0
 * fuzz_script.c - the #SBATCH lines of a batch script */
#include "fuzz.h"
#include "spank/cli_table.h"
#include "spank/script.h"
#include "spank/wish.h"

struct count {
    size_t n, bytes;
};

/* Every name is one of the table's, whole; values stay inside their line. */
static void note (void *arg, const char *name, const char *value)
{
    struct count *count = arg;
    size_t i = 0;

    while (i < cli_table_n && cli_table[i].name != name)
        i++;
    FUZZ_CHECK (i < cli_table_n && (cli_table[i].clients & CLI_SBATCH));
    FUZZ_CHECK (!value || !strchr (value, '\n'));
    FUZZ_CHECK (!value || strlen (value) < SCRIPT_LINE_MAX);
    count->n++;
    count->bytes += value ? strlen (value) : 0;
}

static const char *no_variable (const char *name)
{
    (void)name;
    return NULL;
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct count all = {0}, head = {0};
    /* Of its own size: a sanitizer sees a read behind it. */
    char *text = malloc (size ? size : 1);
    const char *nl;
    struct wish w;

    FUZZ_CHECK (text);
    if (size > 0)
        memcpy (text, data, size);
    script_scan (text, size, note, &all);
    FUZZ_CHECK (all.bytes <= size && all.n <= size);
    /* A first part that ends with a line says no more than the whole. */
    nl = memchr (text, '\n', size);
    if (nl) {
        script_scan (text, (size_t)(nl - text) + 1, note, &head);
        FUZZ_CHECK (head.n <= all.n && head.bytes <= all.bytes);
    }
    wish_init (&w, CLI_SBATCH, no_variable);
    script_scan (text, size, wish_seen_script, &w);
    wish_take_script (&w);
    FUZZ_CHECK (w.gpu_asked == w.script_gpu_asked);
    FUZZ_CHECK (!w.gpu || strlen (w.gpu) < sizeof (w.script_gpu));
    free (text);
    return 0;
}
