/* SPDX-License-Identifier: Apache-2.0
 * xid.c - what NVIDIA's driver says in the kernel's log */
#include "config.h"

#include "xid.h"

#include <string.h>

struct range {
    unsigned first, last;
    enum xid_class class;
    const char *text;
};

/* Hardware where the catalog begins with a reset, a reboot or a look at the
 * cables. NVLink's 74 and 144 to 150 depend on bits that each generation
 * counts anew: they are notes, and 154 follows where a reset is due. */
static const struct range table[] = {
    {8, 8, XID_APPLICATION, "GPU stopped processing"},
    {11, 11, XID_APPLICATION, "invalid push buffer"},
    {13, 13, XID_APPLICATION, "exception of a kernel"},
    {25, 25, XID_APPLICATION, "invalid push buffer"},
    {31, 31, XID_APPLICATION, "memory page fault of a program"},
    {32, 32, XID_APPLICATION, "invalid push buffer"},
    {37, 37, XID_APPLICATION, "invalid firmware method"},
    {39, 41, XID_APPLICATION, "copy engine error of a program"},
    {43, 43, XID_APPLICATION, "program stopped by a fault of its own"},
    {45, 45, XID_APPLICATION, "cleanup after a program that ended"},
    {46, 46, XID_HARDWARE, "GPU stopped processing and needs a reset"},
    {48, 48, XID_HARDWARE, "uncorrectable ECC error"},
    {54, 54, XID_HARDWARE, "auxiliary power is not connected"},
    {60, 60, XID_APPLICATION, "video processor exception"},
    {62, 62, XID_HARDWARE, "power management unit halted"},
    {63, 63, XID_NOTE, "row remapped or page retired at the next reset"},
    {64, 64, XID_HARDWARE, "row remapping or page retirement failed"},
    {68, 72, XID_APPLICATION, "engine error of a program"},
    {74, 74, XID_NOTE, "NVLink error"},
    {75, 77, XID_APPLICATION, "copy engine error of a program"},
    {79, 79, XID_HARDWARE, "GPU has fallen off the bus"},
    {80, 80, XID_APPLICATION, "corrupted push buffer"},
    {82, 86, XID_APPLICATION, "engine error of a program"},
    {88, 89, XID_APPLICATION, "engine error of a program"},
    {92, 92, XID_NOTE, "many correctable ECC errors"},
    {94, 94, XID_NOTE, "contained ECC error, one program ended"},
    {95, 95, XID_HARDWARE, "uncontained ECC error"},
    {96, 105, XID_APPLICATION, "engine error of a program"},
    {109, 109, XID_HARDWARE, "context switch timed out"},
    {110, 110, XID_HARDWARE, "security fault"},
    {119, 119, XID_HARDWARE, "GPU system processor does not answer"},
    {120, 120, XID_HARDWARE, "GPU system processor failed"},
    {126, 135, XID_APPLICATION, "copy engine error of a program"},
    {136, 136, XID_HARDWARE, "NVLink training failed"},
    {137, 137, XID_APPLICATION, "NVLink access fault of a program"},
    {139, 139, XID_APPLICATION, "engine error of a program"},
    {140, 140, XID_HARDWARE, "ECC error that could not be recovered"},
    {143, 143, XID_HARDWARE, "GPU does not start"},
    {144, 150, XID_NOTE, "NVLink error"},
    {154, 154, XID_HARDWARE, "driver asks for a reset or a reboot"},
    {155, 155, XID_HARDWARE, "NVLink software error"},
    {156, 156, XID_HARDWARE, "resource retired at the next reset"},
    {158, 158, XID_HARDWARE, "fatal timeout of the GPU"},
};

static const struct range *find (unsigned number)
{
    for (size_t i = 0; i < sizeof (table) / sizeof (table[0]); i++)
        if (number >= table[i].first && number <= table[i].last)
            return &table[i];
    return NULL;
}

enum xid_class xid_class (const struct xid *x)
{
    const struct range *r = find (x->number);

    if (x->number == 154 && x->none)
        return XID_APPLICATION;
    return r ? r->class : XID_NOTE;
}

const char *xid_text (unsigned number)
{
    const struct range *r = find (number);

    return r ? r->text : "not in the table of this release";
}

struct scan {
    const char *at, *end;
};

static bool take (struct scan *s, const char *text)
{
    size_t len = strlen (text);

    if ((size_t)(s->end - s->at) < len || memcmp (s->at, text, len) != 0)
        return false;
    s->at += len;
    return true;
}

/* take_number - at most 19 digits, which fit. */
static bool take_number (struct scan *s, uint64_t *ret)
{
    const char *start = s->at;
    uint64_t n = 0;

    while (s->at < s->end && s->at - start < 19 && *s->at >= '0'
           && *s->at <= '9')
        n = n * 10 + (uint64_t)(*s->at++ - '0');
    *ret = n;
    return s->at > start && (s->at == s->end || *s->at < '0' || *s->at > '9');
}

static bool is_hex (char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')
           || (c >= 'A' && c <= 'F');
}

/* take_hex - min to max digits and not one more. */
static bool take_hex (struct scan *s, int min, int max)
{
    int n = 0;

    while (s->at < s->end && n < max && is_hex (*s->at)) {
        s->at++;
        n++;
    }
    return n >= min && (s->at == s->end || !is_hex (*s->at));
}

/* take_prefix - "6,1234,56789,-;" or with more fields before the semicolon. */
static bool take_prefix (struct scan *s, uint64_t *ret_priority,
                         uint64_t *ret_seq)
{
    const char *semicolon;
    uint64_t time;

    if (!take_number (s, ret_priority) || !take (s, ",")
        || !take_number (s, ret_seq) || !take (s, ",")
        || !take_number (s, &time) || !take (s, ","))
        return false;
    semicolon = memchr (s->at, ';', (size_t)(s->end - s->at));
    if (!semicolon)
        return false;
    s->at = semicolon + 1;
    return true;
}

/* take_bus - "PCI:0000:3b:00" or, from old drivers, without "PCI:"; a MIG
 * instance stands behind it: "PCI:0000:3b:00 GPU-I:05". */
static bool take_bus (struct scan *s, char *buf, size_t size)
{
    const char *start;
    uint64_t instance;
    size_t len;

    take (s, "PCI:");
    start = s->at;
    if (!take_hex (s, 4, 8) || !take (s, ":") || !take_hex (s, 2, 2)
        || !take (s, ":") || !take_hex (s, 2, 2))
        return false;
    len = (size_t)(s->at - start);
    if (len >= size)
        return false;
    memcpy (buf, start, len);
    buf[len] = '\0';
    return !take (s, " GPU-I:") || take_number (s, &instance);
}

static bool contains (const struct scan *s, const char *text)
{
    return memmem (s->at, (size_t)(s->end - s->at), text, strlen (text));
}

bool xid_parse (const char *line, size_t len, struct xid *ret,
                uint64_t *ret_seq)
{
    struct scan s = {line, line + len};
    struct xid x = {0};
    uint64_t priority, number;

    if (!take_prefix (&s, &priority, &x.seq))
        return false;
    if (ret_seq)
        *ret_seq = x.seq;
    if (priority >> 3 != 0 || !take (&s, "NVRM: Xid (")
        || !take_bus (&s, x.bus, sizeof (x.bus)) || !take (&s, "): ")
        || !take_number (&s, &number) || number > 100000)
        return false;
    x.number = (unsigned)number;
    /* "GPU recovery action changed from 0x1 (Reset) to 0x0 (None)" */
    x.none = contains (&s, " to 0x0 (");
    *ret = x;
    return true;
}
