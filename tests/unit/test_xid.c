/* SPDX-License-Identifier: Apache-2.0
 * test_xid.c - lines of the kernel's log: those that are no Xid first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spank/xid.h"

#define RECORD "4,1234,987654321,-;"
#define BUS    "NVRM: Xid (PCI:0000:3b:00): "

static const char *const not_xid[] = {
    "",
    "4",
    "4,",
    "4,1234,5,-",
    ";" BUS "79, GPU has fallen off the bus.",
    BUS "79, GPU has fallen off the bus.",
    "x,1,2,-;" BUS "79",
    "4,1,2;" BUS "79",
    "-4,1,2,-;" BUS "79",
    "4,99999999999999999999,2,-;" BUS "79",
    RECORD,
    RECORD "nvidia-nvlink: Nvlink Core is being initialized",
    RECORD "NVRM: GPU at PCI:0000:3b:00: GPU-11111111-2222-3333-4444-5555",
    RECORD "NVRM: Xid",
    RECORD "NVRM: Xid (PCI:0000:3b:00",
    RECORD "NVRM: Xid (PCI:0000:3b:00):",
    RECORD BUS,
    RECORD BUS ", 79",
    RECORD BUS "seventy",
    RECORD BUS "-79",
    RECORD BUS "100001, ",
    RECORD BUS "99999999999999999999, ",
    RECORD "NVRM: Xid (PCI:000:3b:00): 79",
    RECORD "NVRM: Xid (PCI:000000000:3b:00): 79",
    RECORD "NVRM: Xid (PCI:0000:3:00): 79",
    RECORD "NVRM: Xid (PCI:0000:3b:000): 79",
    RECORD "NVRM: Xid (PCI:0000:3g:00): 79",
    RECORD "NVRM: Xid (PCI:0000:3b:00 GPU-I:): 79",
    /* Programs may be called what they like, and these lines are theirs. */
    RECORD "NVRM: Xid (PCI:[99]: segfault at 0 ip 0 sp 0 error 4: 79,",
    RECORD " " BUS "79, GPU has fallen off the bus.",
    RECORD "python[7]: " BUS "79, GPU has fallen off the bus.",
    /* written by a program into /dev/kmsg: facility 1, and others */
    "12,1234,5,-;" BUS "79, GPU has fallen off the bus.",
    "11,1234,5,-;" BUS "79, GPU has fallen off the bus.",
    "28,1234,5,-;" BUS "79, GPU has fallen off the bus.",
};

static void others (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (not_xid) / sizeof (not_xid[0]); i++) {
        struct xid x = {.number = 7};

        if (xid_parse (not_xid[i], strlen (not_xid[i]), &x, NULL))
            fail_msg ("taken for an Xid: '%s'", not_xid[i]);
        assert_int_equal (x.number, 7);
    }
}

struct good {
    const char *line;
    uint64_t seq;
    unsigned number;
    const char *bus;
    enum xid_class class;
};

static const struct good good[] = {
    {RECORD BUS "79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
                "bus.",
     1234, 79, "0000:3b:00", XID_HARDWARE},
    {"3,7,1,-,caller=T123;" BUS "13, pid=44, name=a.out, Graphics SM Warp "
     "Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address",
     7, 13, "0000:3b:00", XID_APPLICATION},
    {"4,8,1,c;" BUS "31, pid=44, name=), NVRM: Xid (PCI:0000:00:00): 79, x", 8,
     31, "0000:3b:00", XID_APPLICATION},
    {"4,9,1,-;NVRM: Xid (0000:03:00): 43, Ch 00000010", 9, 43, "0000:03:00",
     XID_APPLICATION},
    {"4,10,1,-;NVRM: Xid (PCI:00010000:c1:00 GPU-I:05): 95, Uncontained", 10,
     95, "00010000:c1:00", XID_HARDWARE},
    {"0,18446744073709551,1,-;" BUS "48", 18446744073709551, 48, "0000:3b:00",
     XID_HARDWARE},
    {RECORD BUS "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
                "Reset Required)",
     1234, 154, "0000:3b:00", XID_HARDWARE},
    {RECORD BUS "154, GPU recovery action changed from 0x1 (GPU Reset "
                "Required) to 0x0 (None)",
     1234, 154, "0000:3b:00", XID_APPLICATION},
    /* the same words from another number change nothing */
    {RECORD BUS "79, name=x to 0x0 (None)", 1234, 79, "0000:3b:00",
     XID_HARDWARE},
    {RECORD BUS "63, Row Remapper: New row marked for remapping", 1234, 63,
     "0000:3b:00", XID_NOTE},
    {RECORD BUS "94, Contained: SM (0x1)", 1234, 94, "0000:3b:00", XID_NOTE},
    {RECORD BUS "999, of a later driver", 1234, 999, "0000:3b:00", XID_NOTE},
    {RECORD BUS "0", 1234, 0, "0000:3b:00", XID_NOTE},
};

static void parsed (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (good) / sizeof (good[0]); i++) {
        size_t len = strlen (good[i].line);
        /* No byte past the end is looked at: valgrind and ASan see it. */
        char *exact = malloc (len);
        struct xid x;
        uint64_t seq = 0;

        assert_non_null (exact);
        memcpy (exact, good[i].line, len);
        if (!xid_parse (exact, len, &x, &seq))
            fail_msg ("no Xid: '%s'", good[i].line);
        assert_int_equal (x.number, good[i].number);
        assert_true (x.seq == good[i].seq && seq == good[i].seq);
        assert_string_equal (x.bus, good[i].bus);
        if (xid_class (&x) != good[i].class)
            fail_msg ("class %d: '%s'", (int)xid_class (&x), good[i].line);
        free (exact);
    }
}

/* Every beginning of every line, and every line with one byte changed. */
static void mangled (void **state)
{
    struct xid x;

    (void)state;
    for (size_t i = 0; i < sizeof (good) / sizeof (good[0]); i++) {
        size_t len = strlen (good[i].line);

        for (size_t n = 0; n <= len; n++) {
            char *part = malloc (n + 1);

            assert_non_null (part);
            memcpy (part, good[i].line, n);
            xid_parse (part, n, &x, NULL);
            for (size_t k = 0; k < n; k++) {
                part[k] = (char)(part[k] ^ 0x5a);
                xid_parse (part, n, &x, NULL);
                part[k] = (char)(part[k] ^ 0x5a);
            }
            free (part);
        }
    }
}

static void sequence (void **state)
{
    static const char line[] = "6,42,7,-;usb 1-1: new device";
    uint64_t seq = 0;
    struct xid x;

    (void)state;
    assert_false (xid_parse (line, strlen (line), &x, &seq));
    assert_int_equal (seq, 42);
    seq = 5;
    assert_false (xid_parse (" KEY=value", 10, &x, &seq));
    assert_int_equal (seq, 5);
}

/* What the catalog answers with a reset, a reboot or a hand, and nothing else:
 * a wrong entry drains a node or leaves a broken GPU in use. */
static void classes (void **state)
{
    static const unsigned hardware[] = {46,  48,  54,  62,  64,  79,
                                        95,  109, 110, 119, 120, 136,
                                        140, 143, 154, 155, 156, 158};
    static const unsigned application[] = {8,  11, 13, 25, 31, 32,
                                           43, 45, 69, 80, 137};
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < 300; i++) {
        struct xid x = {.number = i};
        size_t k = 0;

        while (k < sizeof (hardware) / sizeof (hardware[0]) && hardware[k] != i)
            k++;
        if ((xid_class (&x) == XID_HARDWARE)
            != (k < sizeof (hardware) / sizeof (hardware[0])))
            fail_msg ("Xid %u is of class %d", i, (int)xid_class (&x));
        assert_true (strlen (xid_text (i)) > 0);
        n += xid_class (&x) == XID_HARDWARE;
    }
    assert_int_equal (n, sizeof (hardware) / sizeof (hardware[0]));
    for (size_t i = 0; i < sizeof (application) / sizeof (application[0]);
         i++) {
        struct xid x = {.number = application[i]};

        assert_int_equal (xid_class (&x), XID_APPLICATION);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (others),  cmocka_unit_test (parsed),
        cmocka_unit_test (mangled), cmocka_unit_test (sequence),
        cmocka_unit_test (classes),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
