/* SPDX-License-Identifier: Apache-2.0
 * fuzz_xid.c - records of the kernel's log, one and a whole look */
#include <inttypes.h>

#include "fuzz.h"
#include "spank/health.h"
#include "spank/xid.h"

#define SEQ_UNTOUCHED UINT64_C (0xfeedfacefeedface)

/* Only digits of a bus, and what is written out is read the same. */
static void write_and_read (const struct xid *x)
{
    struct xid again;
    char line[128];
    int len;

    FUZZ_CHECK (x->bus[strspn (x->bus, "0123456789abcdefABCDEF:")] == '\0');
    FUZZ_CHECK (strlen (x->bus) >= 10 && x->number <= 100000);
    len = snprintf (line, sizeof (line),
                    "0,%" PRIu64 ",0,-;NVRM: Xid (PCI:%s): %u%s", x->seq,
                    x->bus, x->number, x->none ? ", to 0x0 (" : "");
    FUZZ_CHECK (xid_parse (line, (size_t)len, &again, NULL));
    FUZZ_CHECK (again.seq == x->seq && again.number == x->number);
    FUZZ_CHECK (strcmp (again.bus, x->bus) == 0 && again.none == x->none);
}

/* A priority over 7 has a facility, and so was not the kernel's. */
static bool by_a_program (const char *line, size_t len)
{
    size_t i = 0, digits = 0;

    while (i < len && line[i] == '0')
        i++;
    while (i + digits < len && line[i + digits] >= '0'
           && line[i + digits] <= '9')
        digits++;
    return digits > 1 || (digits == 1 && line[i] > '7');
}

static void one_record (const char *line, size_t len)
{
    struct xid x = {.number = 7};
    uint64_t seq = SEQ_UNTOUCHED;

    if (!xid_parse (line, len, &x, &seq)) {
        FUZZ_CHECK (x.number == 7 && !x.bus[0]);
        return;
    }
    FUZZ_CHECK (!by_a_program (line, len));
    FUZZ_CHECK (!memchr (line, ';', 5) && seq == x.seq);
    FUZZ_CHECK (xid_class (&x) <= XID_HARDWARE && xid_text (x.number)[0]);
    write_and_read (&x);
}

static void one_line (void *arg, enum health_level level, const char *text)
{
    size_t *n = arg;

    (void)level;
    FUZZ_CHECK (text[0] && !strchr (text, '\n'));
    FUZZ_CHECK (strlen (text) < HEALTH_TEXT);
    ++*n;
}

/* A look keeps one of each bus and number, and nothing older than [after]. */
static void whole_look (const char *text, size_t len)
{
    static struct health_xids all, newer;
    size_t n = 0;

    all = newer = (struct health_xids){.n = 0};
    health_read_log (&all, text, len, false, 0);
    FUZZ_CHECK (all.n <= HEALTH_XIDS && (all.any || all.n == 0));
    for (size_t i = 0; i < all.n; i++)
        for (size_t j = 0; j < i; j++)
            FUZZ_CHECK (all.xid[i].number != all.xid[j].number
                        || strcmp (all.xid[i].bus, all.xid[j].bus) != 0);
    health_judge_xids (&all, one_line, &n);
    FUZZ_CHECK (n <= all.n);
    health_read_log (&newer, text, len, true, all.seq);
    for (size_t i = 0; i < newer.n; i++)
        FUZZ_CHECK (newer.xid[i].seq > all.seq);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    /* Of its own size: a sanitizer sees a read behind it. */
    char *text = malloc (size ? size : 1);
    const char *nl;

    FUZZ_CHECK (text);
    if (size > 0)
        memcpy (text, data, size);
    nl = memchr (text, '\n', size);
    if (size > 0)
        one_record (text, nl ? (size_t)(nl - text) : size);
    whole_look (text, size);
    free (text);
    return 0;
}
