/* SPDX-License-Identifier: Apache-2.0
 * test_facts.c - what ranks compare: lists, digests, lines, programs, drivers,
 * NCCL libraries */
#define _GNU_SOURCE
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/facts.h"
#include "plan/differ.h"
#include "plan/fsio.h"

#define N(a) (sizeof (a) / sizeof ((a)[0]))

/* This test serves as a library with a version among its constants. */
const char rodata_of_a_library[] =
    "x\0NCCL version 9.8.7+cuda13.0\0NCCL version";

static char dir[] = "/tmp/rv-test-facts-XXXXXX";

static int make_dir (void **state)
{
    (void)state;
    return mkdtemp (dir) && rodata_of_a_library[0] ? 0 : -1;
}

static int drop_dir (void **state)
{
    (void)state;
    return fsio_remove_tree (dir, NULL);
}

static char *file (const char *name, const char *text, size_t len, mode_t mode)
{
    static char path[4096];

    snprintf (path, sizeof (path), "%s/%s", dir, name);
    unlink (path);
    assert_int_equal (fsio_write (path, text, len, mode, NULL), 0);
    return path;
}

static void lists (void **state)
{
    static const char *const good[] = {NULL,
                                       "",
                                       "program",
                                       " nccl , driver",
                                       "NCCL_DEBUG,TORCH_NCCL_X,ranks",
                                       "NCCL_*",
                                       "NCCL_IB_*,DEEPSPEED_TIMEOUT"};
    static const char *const bad[] = {
        "programs", "program,,nccl", "NCCL_",   "NCCL_a",    "*",       "PATH",
        "NCCL_*_X", "NCCL_HOSTID",   "TORCH_X", "program;x", "timeouts"};
    struct rv_error err;

    (void)state;
    for (size_t i = 0; i < N (good); i++)
        assert_int_equal (differ_check (good[i], &err), RV_OK);
    for (size_t i = 0; i < N (bad); i++)
        assert_int_equal (differ_check (bad[i], &err), RV_EINVAL);
    assert_true (differ_allows ("a, NCCL_IB_*,b", "NCCL_IB_HCA"));
    assert_false (differ_allows ("NCCL_IB_*", "NCCL_DEBUG"));
    assert_false (differ_allows ("NCCL_DEBUG", "NCCL_DEBUG_FILE"));
    assert_false (differ_allows ("NCCL_DEBUG_FILE", "NCCL_DEBUG"));
    assert_false (differ_allows (NULL, "program"));
    assert_true (differ_allows ("ranks,program", "program"));
    assert_true (differ_compares ("NCCL_DEBUG=1", 10));
    assert_false (differ_compares ("NCCL_HOSTID", 11));
    assert_false (differ_compares ("NCCL", 4));
    assert_false (differ_compares ("PATH", 4));
}

/* A rank with these facts: name, value, ..., NULL. */
static struct facts rank_with (const char *name, ...)
{
    struct facts f = {0};
    va_list ap;

    va_start (ap, name);
    for (; name; name = va_arg (ap, const char *))
        assert_int_equal (facts_add (&f, name, va_arg (ap, const char *), NULL),
                          0);
    va_end (ap);
    return f;
}

static void digests (void **state)
{
    char *const env[] = {
        "NCCL_B=2",       "PATH=/x",  "NCCL_A=",         "NCCL_HOSTID=n1",
        "TORCH_NCCL_Q=1", "NCCL_ODD", "MYNCCL_DEBUG=no", NULL};
    struct facts a = {0}, b = {0}, c;

    (void)state;
    assert_int_equal (facts_add_env (&a, env), 0);
    assert_int_equal (a.n, 3);
    assert_string_equal (a.v[0].name, "NCCL_A");
    assert_string_equal (a.v[2].name, "TORCH_NCCL_Q");
    /* neither order nor what is shown counts; where a name ends does */
    assert_int_equal (facts_add (&b, "TORCH_NCCL_Q", "1", "one"), 0);
    assert_int_equal (facts_add (&b, "NCCL_B", "2", NULL), 0);
    assert_int_equal (facts_add (&b, "NCCL_A", "", "nothing"), 0);
    assert_true (facts_digest (&a) == facts_digest (&b));
    c = rank_with ("NCCL_AN", "CCL_B2", NULL);
    assert_true (facts_digest (&a) != facts_digest (&c));
    facts_fini (&c);
    c = rank_with ("NCCL_A", "", "NCCL_B", "3", "TORCH_NCCL_Q", "1", NULL);
    assert_true (facts_digest (&a) != facts_digest (&c));
    facts_fini (&a);
    facts_fini (&b);
    facts_fini (&c);
}

static void packing (void **state)
{
    struct facts a = {0}, b = {0};
    char *buf;
    size_t len;

    (void)state;
    assert_int_equal (facts_unpack ("x", 1, &b, NULL), RV_EFORMAT);
    assert_int_equal (facts_add (&a, "n", "", "shown"), 0);
    assert_int_equal (facts_add (&a, "m", "v\nw", NULL), 0);
    assert_int_equal (facts_pack (&a, &buf, &len), 0);
    assert_int_equal (facts_unpack (buf, len, &b, NULL), 0);
    assert_int_equal (b.n, 2);
    assert_string_equal (b.v[0].value, "v\nw");
    assert_null (b.v[0].show);
    assert_string_equal (b.v[1].show, "shown");
    facts_fini (&b);
    /* cut anywhere it is refused or shorter, and nothing is read past it */
    for (size_t n = 0; n < len; n++) {
        char *part = malloc (n ? n : 1);

        memcpy (part, buf, n);
        if (!facts_unpack (part, n, &b, NULL))
            facts_fini (&b);
        free (part);
    }
    facts_fini (&a);
    free (buf);
}

static void compare (const struct facts *of, uint32_t n, const char *allow,
                     const char *want)
{
    char text[512] = "";

    assert_int_equal (facts_compare (of, n, allow, text, sizeof (text)),
                      want != NULL);
    if (want && strncmp (text, want, strlen (want)) != 0)
        fail_msg ("%s\nbut wanted\n%s", text, want);
}

static void differences (void **state)
{
    struct facts of[6];

    (void)state;
    for (uint32_t r = 0; r < 6; r++)
        of[r] = r == 4 ? rank_with ("driver", "2", "ranks", "6", NULL)
                       : rank_with ("NCCL_X", r == 2 || r == 3 ? "a\nb" : "c",
                                    "driver", "1", "ranks", "6", NULL);
    compare (of, 1, NULL, NULL);
    compare (of, 2, NULL, NULL);
    compare (of, 4, NULL,
             "ranks differ in NCCL_X: 'c' on ranks 0-1, 'a?b' on ranks 2-3; "
             "make them equal, or allow it by RV_DIFFER=NCCL_X");
    compare (of, 6, NULL,
             "ranks differ in NCCL_X: 'c' on ranks 0-1,5, 'a?b' on ranks 2-3, "
             "and 1 other value; also in driver; make them equal, or allow it "
             "by RV_DIFFER=NCCL_X,driver");
    compare (of, 6, "NCCL_*",
             "ranks differ in driver: '1' on ranks 0-3,5, '2' on rank 4; make");
    compare (of + 4, 2, NULL,
             "ranks differ in NCCL_X: unset on rank 0, 'c' on rank 1;");
    compare (of, 6, "driver,NCCL_X", NULL);
    for (uint32_t r = 0; r < 6; r++)
        facts_fini (&of[r]);
}

/* However long names, values and lists are, it is one line that ends. */
static void long_line (void **state)
{
    struct facts of[600];
    char value[300], text[512];

    (void)state;
    memset (value, 'v', sizeof (value) - 1);
    value[sizeof (value) - 1] = '\0';
    for (uint32_t r = 0; r < N (of); r++) {
        value[0] = r % 2 ? 'a' : 'b';
        of[r] = rank_with ("NCCL_LONG", value, NULL);
    }
    assert_true (facts_compare (of, N (of), NULL, text, sizeof (text)));
    assert_non_null (strstr (text, "v+' on ranks 0,2,4,"));
    assert_non_null (strstr (text, "RV_DIFFER=NCCL_LONG"));
    for (uint32_t r = 0; r < N (of); r++)
        facts_fini (&of[r]);
}

static void scan (char *const *argv, struct program_files *files)
{
    struct command cmd;
    int argc = 0;

    while (argv[argc])
        argc++;
    assert_int_equal (command_scan (argc, argv, &cmd, NULL), 0);
    program_files (&cmd, argv, files);
}

static void programs (void **state)
{
    char script[4096];
    char *const plain[] = {"true", script, NULL},
                *const shell[] = {"sh", script, "x", NULL},
                *const text[] = {"sh", "-c", script, NULL},
                *const python[] = {"env", "A=1", "python3", "-u", script, NULL},
                *const nothing[] = {"/no/such", NULL};
    struct program_files files;
    uint64_t a, b;

    (void)state;
    snprintf (script, sizeof (script), "%s", file ("s.py", "one", 3, 0600));
    setenv ("PATH", "/no:/usr/bin:/bin", 1);
    scan (plain, &files);
    assert_non_null (strstr (files.path[0], "/true"));
    assert_string_equal (files.path[1], "");
    scan (text, &files);
    assert_string_equal (files.path[1], "");
    scan (nothing, &files);
    assert_string_equal (files.path[0], "");
    assert_int_equal (program_hash (&files, &a, NULL), RV_ENOTFOUND);
    scan (python, &files);
    assert_string_equal (files.path[1], script);
    scan (shell, &files);
    assert_string_equal (files.path[1], script);

    assert_int_equal (program_hash (&files, &a, NULL), 0);
    assert_int_equal (program_hash (&files, &b, NULL), 0);
    assert_true (a == b);
    a = program_identity (&files);
    assert_true (a && a == program_identity (&files));
    file ("s.py", "two", 3, 0600);
    assert_true (a != program_identity (&files));
    assert_int_equal (program_hash (&files, &a, NULL), 0);
    assert_true (a != b);
    file ("s.py", "one", 3, 0600); /* content counts, not the file */
    assert_int_equal (program_hash (&files, &a, NULL), 0);
    assert_true (a == b);
    unlink (script);
    assert_true (program_identity (&files) == 0);
    assert_int_equal (program_hash (&files, &a, NULL), RV_ENOTFOUND);
}

static void drivers (void **state)
{
    static const struct {
        const char *text, *want;
    } v[] = {
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue Aug "
         "12 10:00:00 UTC 2026\nGCC version:  gcc version 12.2.0\n",
         "580.159.03"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54  "
         "Release Build\n",
         "550.54"},
        {"NVRM version: none to be seen\n", "unknown"},
        {"", "none"},
    };
    char got[64];

    (void)state;
    driver_version ("/no/such/file", got, sizeof (got));
    assert_string_equal (got, "none");
    for (size_t i = 0; i < N (v); i++) {
        driver_version (file ("version", v[i].text, strlen (v[i].text), 0600),
                        got, sizeof (got));
        assert_string_equal (got, v[i].want);
    }
}

static const char *preload, *library_path;

static char *fake_env (const char *name)
{
    const char *value = !strcmp (name, "LD_PRELOAD")        ? preload
                        : !strcmp (name, "LD_LIBRARY_PATH") ? library_path
                                                            : NULL;

    return (char *)(uintptr_t)value;
}

/* ld.so.cache with one entry: head, entry, key, value. */
static char *cache_of (const char *value, uint32_t key_at)
{
    struct {
        char magic[20];
        uint32_t n, strings, unused[5];
        int32_t flags;
        uint32_t key, value, os;
        uint64_t hwcap;
        char text[200];
    } c = {.magic = "", .n = 1, .key = key_at, .value = 72 + 13};

    memcpy (c.magic, "glibc-ld.so.cache1.1", 20);
    memcpy (c.text, "libnccl.so.2", 13);
    snprintf (c.text + 13, sizeof (c.text) - 13, "%s", value);
    return file ("cache", (char *)&c, sizeof (c), 0600);
}

static void libraries (void **state)
{
    char path[4200], version[32], self[4096], lib[4096], both[8600], named[64],
        wrong[64], cache[4096];
    ssize_t n = readlink ("/proc/self/exe", self, sizeof (self) - 1);

    (void)state;
    assert_true (n > 0);
    self[n] = '\0';
    snprintf (lib, sizeof (lib), "%s/lib", dir);
    snprintf (named, sizeof (named), "%s/named", dir);
    snprintf (wrong, sizeof (wrong), "%s/wrong", dir);
    assert_int_equal (
        mkdir (lib, 0700) || mkdir (named, 0700) || mkdir (wrong, 0700), 0);
    /* a file that tells by its text, one by its name, one that cannot load */
    snprintf (path, sizeof (path), "%s/libnccl.so.2", lib);
    assert_int_equal (symlink (self, path), 0);
    snprintf (path, sizeof (path), "%s/libnccl.so.2", named);
    assert_int_equal (symlink ("libnccl.so.2.19.3", path), 0);
    file ("wrong/libnccl.so.2", "no library", 10, 0700);
    snprintf (cache, sizeof (cache), "%s", cache_of ("/no/libnccl.so.2", 72));

    preload = NULL;
    library_path = lib;
    assert_true (nccl_find (fake_env, cache, path, sizeof (path), version,
                            sizeof (version)));
    assert_string_equal (version, "9.8.7");
    assert_string_equal (path, self);
    /* the first that loads */
    snprintf (both, sizeof (both), "/no:%s:%s:%s", wrong, lib, named);
    library_path = both;
    assert_true (nccl_find (fake_env, cache, path, sizeof (path), version,
                            sizeof (version)));
    assert_string_equal (path, self);
    /* what is loaded before all */
    snprintf (both, sizeof (both), "libx.so %s/libnccl.so.2", lib);
    preload = both;
    library_path = wrong;
    assert_true (nccl_find (fake_env, cache, path, sizeof (path), version,
                            sizeof (version)));
    assert_string_equal (path, self);
    preload = library_path = NULL;
    snprintf (both, sizeof (both), "%s/libnccl.so.2", lib);
    assert_true (nccl_find (fake_env, cache_of (both, 72), path, sizeof (path),
                            version, sizeof (version)));
    assert_string_equal (path, self);
    /* strings that lie outside, and no cache at all: no matter */
    (void)nccl_find (fake_env, cache_of (both, 0x7fffffff), path, sizeof (path),
                     version, sizeof (version));
    (void)nccl_find (fake_env, file ("cache", "glibc-ld.so.cache1.1", 20, 0600),
                     path, sizeof (path), version, sizeof (version));
    (void)nccl_find (fake_env, "/no/cache", path, sizeof (path), version,
                     sizeof (version));
}

/* By its name alone: the head of a library is enough. */
static void library_names (void **state)
{
    char path[4096], version[32], named[64], head[4096];
    FILE *f = fopen ("/proc/self/exe", "re");

    (void)state;
    assert_non_null (f);
    assert_int_equal (fread (head, 1, sizeof (head), f), sizeof (head));
    fclose (f);
    file ("named/libnccl.so.2.19.3", head, sizeof (head), 0700);
    snprintf (named, sizeof (named), "%s/named", dir);
    preload = NULL;
    library_path = named;
    assert_true (nccl_find (fake_env, "/no/cache", path, sizeof (path), version,
                            sizeof (version)));
    assert_string_equal (version, "2.19.3");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (lists),         cmocka_unit_test (digests),
        cmocka_unit_test (packing),       cmocka_unit_test (differences),
        cmocka_unit_test (long_line),     cmocka_unit_test (programs),
        cmocka_unit_test (drivers),       cmocka_unit_test (libraries),
        cmocka_unit_test (library_names),
    };

    cmocka_set_message_output (CM_OUTPUT_TAP);
    return cmocka_run_group_tests (tests, make_dir, drop_dir);
}
