/* SPDX-License-Identifier: Apache-2.0
 * test_health.c - findings from GPUs and from the kernel's log, and the file
 * that keeps the last look */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "spank/health.h"
#include "spank/health_kmsg.h"
#include "spank/health_nvml.h"

#define BUS "00000000:3B:00.0"

/* All findings as one text: "bad A|note B|". */
static char findings[4096];

static void found (void *arg, enum health_level level, const char *text)
{
    size_t used = strlen (findings);

    (void)arg;
    snprintf (findings + used, sizeof (findings) - used, "%s %s|",
              level == HEALTH_BAD ? "bad" : "note", text);
}

struct gpu_case {
    struct health_gpu gpu;
    const char *findings;
};

static const struct gpu_case gpus[] = {
    {{.bus = BUS}, ""},
    {{.bus = BUS, .mine = true}, ""},
    {{.bus = BUS, .lost = true}, "bad GPU " BUS " has fallen off the bus|"},
    {{.bus = BUS, .needs_reset = true}, "bad GPU " BUS " needs a reset|"},
    {{.bus = BUS, .uncorrected = 2},
     "bad GPU " BUS ": 2 uncorrectable ECC errors since its reset|"},
    {{.bus = BUS, .remap_failed = true},
     "bad GPU " BUS ": row remapping failed|"},
    {{.bus = BUS, .remap_pending = true}, ""},
    {{.bus = BUS, .remap_pending = true, .mine = true},
     "note GPU " BUS
     ": a row is remapped or a page retired at its next reset|"},
    {{.bus = BUS, .n_left = 3, .left_pid = 77, .left_uid = 1000},
     "bad GPU " BUS ": 3 left-over processes, such as 77 of uid 1000|"},
    {{.bus = "0", .lost = true, .remap_failed = true},
     "bad GPU 0 has fallen off the bus|bad GPU 0: row remapping failed|"},
};

static void judge_gpus (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (gpus) / sizeof (gpus[0]); i++) {
        findings[0] = '\0';
        health_judge_gpu (&gpus[i].gpu, found, NULL);
        assert_string_equal (findings, gpus[i].findings);
    }
}

#define XID(seq, bus, rest)                                                    \
    "4," seq ",1,-;NVRM: Xid (PCI:0000:" bus ":00): " rest "\n"
#define OFF "79, GPU has fallen off the bus."

struct log_case {
    const char *text;
    int after; /* -1 = the first look */
    int seq;   /* -1 = no record */
    const char *findings;
};

static const struct log_case logs[] = {
    {"", -1, -1, ""},
    {"no record\n", -1, -1, ""},
    {"6,0,1,-;Linux version\n", -1, 0, ""},
    {"6,5,1,-;Linux version", -1, 5, ""},
    {XID ("7", "3b", "13, a program's own"), -1, 7, ""},
    {XID ("7", "3b", OFF) " SUBSYSTEM=pci\n6,8,2,-;more\n", -1, 8,
     "bad GPU 0000:3b:00: Xid 79, GPU has fallen off the bus|"},
    /* once, however often it is said */
    {XID ("7", "3b", OFF) XID ("8", "3b", OFF) XID ("9", "3c", OFF), -1, 9,
     "bad GPU 0000:3b:00: Xid 79, GPU has fallen off the bus|"
     "bad GPU 0000:3c:00: Xid 79, GPU has fallen off the bus|"},
    {XID ("7", "3b", "63, Row Remapper"), -1, 7,
     "note GPU 0000:3b:00: Xid 63, row remapped or page retired at the next "
     "reset|"},
    /* seen by the last look */
    {XID ("7", "3b", OFF) "6,8,2,-;more\n", 7, 8, ""},
    {XID ("7", "3b", OFF) "6,8,2,-;more\n", 6, 8,
     "bad GPU 0000:3b:00: Xid 79, GPU has fallen off the bus|"},
    {XID ("0", "3b", OFF), 0, 0, ""},
    {XID ("0", "3b", OFF), -1, 0,
     "bad GPU 0000:3b:00: Xid 79, GPU has fallen off the bus|"},
    /* repaired since, on that bus alone */
    {XID ("7", "3b", "95, Uncontained") XID ("8", "3c", "95, Uncontained") XID (
         "9", "3b",
         "154, GPU recovery action changed from 0x1 (GPU Reset Required) to "
         "0x0 (None)"),
     -1, 9, "bad GPU 0000:3c:00: Xid 95, uncontained ECC error|"},
    {XID ("7", "3b", "95, Uncontained")
         XID ("8", "3b",
              "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
              "Reset Required)"),
     -1, 8,
     "bad GPU 0000:3b:00: Xid 95, uncontained ECC error|"
     "bad GPU 0000:3b:00: Xid 154, driver asks for a reset or a reboot|"},
};

static void check_log (const struct log_case *c, const struct health_xids *x)
{
    findings[0] = '\0';
    health_judge_xids (x, found, NULL);
    assert_string_equal (findings, c->findings);
    assert_int_equal (x->any, c->seq >= 0);
    if (c->seq >= 0)
        assert_int_equal (x->seq, c->seq);
}

static void judge_logs (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (logs) / sizeof (logs[0]); i++) {
        struct health_xids x = {0};

        health_read_log (&x, logs[i].text, strlen (logs[i].text),
                         logs[i].after >= 0, (uint64_t)logs[i].after);
        check_log (&logs[i], &x);
    }
}

/* More GPUs and numbers than there is room for: the first stay. */
static void many_xids (void **state)
{
    struct health_xids x = {0};
    char line[128];

    (void)state;
    for (int i = 0; i < 3 * HEALTH_XIDS; i++) {
        int len = snprintf (line, sizeof (line),
                            "4,%d,1,-;NVRM: Xid (PCI:0000:%02x:00): 79\n", i,
                            i % 256);

        health_read_log (&x, line, (size_t)len, false, 0);
    }
    assert_int_equal (x.n, HEALTH_XIDS);
    assert_int_equal (x.seq, 3 * HEALTH_XIDS - 1);
}

static void listed (void **state)
{
    static const struct {
        const char *list;
        unsigned minor;
        bool in;
    } cases[] = {
        {NULL, 0, false},      {"", 0, false},
        {"0", 0, true},        {"0", 1, false},
        {"0,2", 2, true},      {"0,2", 1, false},
        {"0-3", 2, true},      {"0-3", 4, false},
        {"1,4-6,9", 6, true},  {"1,4-6,9", 9, true},
        {"1,4-6,9", 7, false}, {"3-1", 2, false},
        {"a", 0, false},       {"0,", 0, false},
        {",0", 0, false},      {"0-", 0, false},
        {"-1", 1, false},      {"0 1", 1, false},
        {"10", 1, false},      {"99999999999999999999", 5, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (cases[0]); i++)
        if (health_listed (cases[i].list, cases[i].minor) != cases[i].in)
            fail_msg ("%s and %u", cases[i].list, cases[i].minor);
}

static void report (void **state)
{
    static const char text[] = "note one\nbad two\nseq 12\nnonsense\nbad \n"
                               "bad cut";
    struct health_verdict v;
    char line[64];

    (void)state;
    findings[0] = '\0';
    health_read_report (text, strlen (text), found, NULL, &v);
    assert_string_equal (findings, "note one|bad two|bad |");
    assert_int_equal (v.n_bad, 2);
    assert_string_equal (v.reason, "two (and 1 more)");
    assert_true (v.has_seq && v.seq == 12);
    health_read_report ("", 0, NULL, NULL, &v);
    assert_int_equal (v.n_bad, 0);
    assert_false (v.has_seq);
    health_read_report ("seq x\nseq 1x\n", 13, NULL, NULL, &v);
    assert_false (v.has_seq);
    assert_int_equal (health_format (line, sizeof (line), HEALTH_BAD, "a\nb"),
                      8);
    assert_string_equal (line, "bad a?b\n");
    assert_int_equal (health_format (line, 8, HEALTH_NOTE, "abcdef"), 7);
    assert_string_equal (line, "note a\n");
}

static char *make_dir (void)
{
    static char dir[64];

    snprintf (dir, sizeof (dir), "/tmp/rv-test-health.XXXXXX");
    assert_non_null (mkdtemp (dir));
    return dir;
}

static void seen (void **state)
{
    struct rv_error err = {0};
    char dir[128], file[256];
    char *top = make_dir ();
    uint64_t seq = 5;
    FILE *f;

    (void)state;
    snprintf (dir, sizeof (dir), "%s/rv", top);
    snprintf (file, sizeof (file), "%s/health-n1", dir);
    assert_false (health_seen_load (dir, "n1", &seq));
    assert_int_equal (health_seen_save (dir, "../n1", 7, &err), RV_EINVAL);
    assert_int_equal (health_seen_save (dir, "", 7, &err), RV_EINVAL);
    assert_int_equal (health_seen_save (dir, "n1", 123456, &err), RV_OK);
    assert_true (health_seen_load (dir, "n1", &seq));
    assert_int_equal (seq, 123456);
    assert_int_equal (health_seen_save (dir, "n1", 7, &err), RV_OK);
    assert_true (health_seen_load (dir, "n1", &seq));
    assert_int_equal (seq, 7);
    assert_false (health_seen_load (dir, "n2", &seq));
    /* another boot */
    assert_non_null (f = fopen (file, "w"));
    fputs ("11111111-2222-3333-4444-555555555555 9\n", f);
    fclose (f);
    assert_false (health_seen_load (dir, "n1", &seq));
    /* what others may write, and links */
    assert_int_equal (health_seen_save (dir, "n1", 7, &err), RV_OK);
    assert_int_equal (chmod (file, 0622), 0);
    assert_false (health_seen_load (dir, "n1", &seq));
    assert_int_equal (health_seen_save (dir, "n1", 8, &err), RV_EIO);
    assert_int_equal (chmod (file, 0600), 0);
    assert_true (health_seen_load (dir, "n1", &seq));
    assert_int_equal (chmod (dir, 0777), 0);
    assert_false (health_seen_load (dir, "n1", &seq));
    assert_int_equal (health_seen_save (dir, "n1", 8, &err), RV_EIO);
    assert_int_equal (chmod (dir, 0700), 0);
    assert_int_equal (unlink (file), 0);
    assert_int_equal (symlink ("/dev/null", file), 0);
    assert_int_equal (health_seen_save (dir, "n1", 8, &err), RV_EIO);
    unlink (file);
    rmdir (dir);
    rmdir (top);
}

/* A file gives all its records at once, as /dev/kmsg never does. */
static void kmsg (void **state)
{
    struct rv_error err = {0};
    struct health_xids x;
    char file[128];
    char *top = make_dir ();
    FILE *f;

    (void)state;
    snprintf (file, sizeof (file), "%s/kmsg", top);
    assert_int_equal (health_kmsg_read (file, false, 0, &x, &err), RV_EIO);
    assert_non_null (strstr (err.text, file));
    assert_non_null (f = fopen (file, "w"));
    fputs (XID ("7", "3b", OFF) "6,9,2,-;more\n", f);
    fclose (f);
    assert_int_equal (health_kmsg_read (file, false, 0, &x, &err), RV_OK);
    assert_int_equal (x.n, 1);
    assert_int_equal (x.seq, 9);
    unlink (file);
    rmdir (top);
}

static void no_nvml (void **state)
{
    static struct health_gpu gpu[HEALTH_GPUS];
    struct rv_error err = {0};
    char file[128];
    char *top = make_dir ();
    size_t n = 7;
    FILE *f;

    (void)state;
    snprintf (file, sizeof (file), "%s/lib.so", top);
    assert_int_equal (health_nvml_read (file, "0", NULL, gpu, &n, &err),
                      RV_ENOTFOUND);
    assert_int_equal (health_nvml_read ("lib.so", "0", NULL, gpu, &n, &err),
                      RV_ENOTFOUND);
    assert_non_null (f = fopen (file, "w"));
    fputs ("no library\n", f);
    fclose (f);
    assert_int_equal (chmod (file, 0644), 0);
    assert_int_equal (health_nvml_read (file, "0", NULL, gpu, &n, &err),
                      RV_ENOTFOUND);
    assert_int_equal (chmod (file, 0666), 0);
    assert_int_equal (health_nvml_read (file, "0", NULL, gpu, &n, &err),
                      RV_EINVAL);
    assert_int_equal (n, 7);
    unlink (file);
    rmdir (top);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (judge_gpus), cmocka_unit_test (judge_logs),
        cmocka_unit_test (many_xids),  cmocka_unit_test (listed),
        cmocka_unit_test (report),     cmocka_unit_test (seen),
        cmocka_unit_test (kmsg),       cmocka_unit_test (no_nvml),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
