/* SPDX-License-Identifier: Apache-2.0
 * test_probe.c - a probe finds every public report of wrong bytes, made on
 * purpose; what it found is kept, and asked for once */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend_fault.h"
#include "copy_impl.h"
#include "own_dir.h"
#include "probe.h"

#define N FAULT_GPUS

static const struct probe_options small = {.most_bytes = (1 << 20) + 12};
static const char *const names[N] = {"fault 0", "fault 1", "fault 2"};
static struct probe_pair pair[N * N];
static char note[512];
static train_error_t err;

static void look (void)
{
    assert_int_equal (probe_pairs (&backend_fault, N, &small, pair, &err), 0);
}

static void good (void **state)
{
    char text[300];

    (void)state;
    fault_set (FAULT_NONE);
    look ();
    for (int i = 0; i < N * N; i++) {
        assert_int_equal (pair[i].verdict, PROBE_GOOD);
        probe_text (&pair[i], 0, 1, text, sizeof (text));
        assert_string_equal (text, "");
    }
    /* 3 pairs, 2 ways by peer copies, 3 sizes, 3 times, both directions */
    assert_int_equal (fault.peers, 3 * 2 * 3 * 3 * 2);
}

static void every_fault (void **state)
{
    (void)state;
    for (int f = FAULT_ZEROS; f < FAULTS; f++) {
        int wrong = 0;

        fault_set ((enum fault)f);
        look ();
        for (int i = 0; i < N * N; i++)
            wrong += pair[i].verdict == PROBE_WRONG;
        if (wrong == 0 || (f != FAULT_FIRST && wrong < N))
            fail_msg ("fault %d: %d pairs are wrong", f, wrong);
    }
}

/* Where, what should be there, and what is. */
static void says_what (void **state)
{
    char text[300], want[300];

    (void)state;
    fault_set (FAULT_ZEROS);
    look ();
    assert_int_equal (pair[1 * N + 0].verdict, PROBE_WRONG);
    assert_int_equal (pair[1 * N + 0].way, PROBE_DRIVER);
    assert_int_equal (pair[1 * N + 0].bytes, 4);
    probe_text (&pair[1 * N + 0], 1, 0, text, sizeof (text));
    snprintf (want, sizeof (want),
              "GPU 0 to GPU 1, the driver's own way: 4 bytes were wrong at "
              "offset 0: expected %08x, got 00000000; copies go through the "
              "host",
              probe_word (1, 0, 0));
    assert_string_equal (text, want);
}

static void no_way_and_slow (void **state)
{
    struct probe_options fast = small;

    (void)state;
    fault_set (FAULT_NONE);
    fault.no_way = true;
    look ();
    assert_int_equal (pair[1].verdict, PROBE_NO_WAY);
    assert_int_equal (pair[0].verdict, PROBE_GOOD);
    fault_set (FAULT_NONE);
    fast.least_gb_s = 1e6;
    assert_int_equal (probe_pairs (&backend_fault, N, &fast, pair, &err), 0);
    assert_int_equal (pair[1].verdict, PROBE_SLOW);
    assert_true (pair[1].peer_gb_s > 0 && pair[1].staged_gb_s > 0);
}

/* Zeros, stale bytes, other pairs and places: all other words. */
static void words_differ (void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4096; i++) {
        uint32_t w = probe_word (1, 0, i);

        assert_true (w != 0 && w != 0xa5a5a5a5);
        assert_true (w != probe_word (0, 1, i) && w != probe_word (2, 0, i));
        assert_true (w != probe_word (1, 0, i + 1));
        assert_true (w != probe_word (1, 0, i + 1024));
    }
}

static void json (void **state)
{
    static const char *const other[N] = {"fault 0", "fault 2", "fault 1"};
    struct probe_pair back[N * N];
    json_t *doc;

    (void)state;
    fault_set (FAULT_LAST);
    look ();
    doc = probe_to_json (pair, N, names);
    assert_int_equal (probe_from_json (doc, N, names, back, &err), 0);
    for (int i = 0; i < N * N; i++) {
        assert_int_equal (back[i].verdict, pair[i].verdict);
        assert_int_equal (back[i].offset, pair[i].offset);
        assert_int_equal (back[i].expected, pair[i].expected);
        assert_int_equal (back[i].got, pair[i].got);
    }
    assert_int_equal (probe_from_json (doc, N, other, back, &err),
                      TRAIN_EFORMAT);
    assert_string_equal (err.text, "the findings are of other GPUs");
    assert_int_equal (probe_from_json (doc, 2, names, back, &err),
                      TRAIN_EFORMAT);
    json_object_set_new (json_array_get (json_object_get (doc, "pairs"), 3),
                         "dst", json_integer (N));
    assert_int_equal (probe_from_json (doc, N, names, back, &err),
                      TRAIN_EFORMAT);
    assert_string_equal (err.text, "pair 3 is malformed");
    json_decref (doc);
    assert_int_equal (probe_from_json (NULL, N, names, back, NULL),
                      TRAIN_EFORMAT);
}

/* A program that probes: counts its runs, then does [what]. */
static char *program (const char *what)
{
    char text[400];

    snprintf (text, sizeof (text),
              "#!/bin/sh\n[ \"$*\" = 'probe --json' ] || exit 2\n"
              "echo run >>%s/runs\n%s\n",
              dir, what);
    write_file ("program", text, strlen (text), 0700);
    return fsio_join (dir, "program");
}

static int runs (void)
{
    char *path = fsio_join (dir, "runs"), *text = NULL;
    int n = 0;

    if (fsio_read (path, 4096, &text, NULL, NULL) == RV_OK)
        n = (int)strlen (text) / 4;
    free (text);
    free (path);
    return n;
}

static train_status_t load (const char *path, const char *cache)
{
    return probe_load (&backend_fault, N, path, cache, pair, note,
                       sizeof (note), &err);
}

/* The program says what this process would find. */
static void write_findings (enum fault what)
{
    json_t *doc;
    char *text;

    fault_set (what);
    look ();
    doc = probe_to_json (pair, N, names);
    text = json_dumps (doc, 0);
    write_text ("findings", text);
    free (text);
    json_decref (doc);
}

static void asked_once (void **state)
{
    char what[100], *path, *cache = fsio_join (dir, "cache/rv");

    (void)state;
    write_findings (FAULT_BIT);
    snprintf (what, sizeof (what), "sleep 0.3; cat %s/findings", dir);
    path = program (what);
    /* four at once */
    for (int i = 0; i < 4; i++)
        if (fork () == 0)
            _exit (load (path, cache) != TRAIN_OK
                   || pair[1].verdict != PROBE_WRONG);
    for (int i = 0, status; i < 4; i++) {
        assert_true (wait (&status) > 0);
        assert_int_equal (status, 0);
    }
    assert_int_equal (runs (), 1);
    unlink (path);
    assert_int_equal (load (path, cache), TRAIN_OK);
    assert_int_equal (pair[1].verdict, PROBE_WRONG);
    assert_string_equal (note, "");
    free (path);
    free (cache);
}

/* Another boot, driver, list of GPUs: other findings. */
static void keyed (void **state)
{
    static const char ids[2][8] = {"gpu a", "gpu b"},
                      turned[2][8] = {"gpu b", "gpu a"};
    uint64_t key = probe_key ("boot", "580.159", ids, sizeof (ids));

    (void)state;
    assert_true (key == probe_key ("boot", "580.159", ids, sizeof (ids)));
    assert_true (key != probe_key ("boou", "580.159", ids, sizeof (ids)));
    assert_true (key != probe_key ("boot", "580.160", ids, sizeof (ids)));
    assert_true (key != probe_key ("boot", "", ids, sizeof (ids)));
    assert_true (key != probe_key ("boot", "580.159", turned, sizeof (turned)));
    assert_true (key != probe_key ("boot", "580.159", ids, sizeof (*ids)));
}

static void child_fails (void **state)
{
    static const struct {
        const char *what, *why;
    } v[] = {
        {"echo 'rv-train: cannot probe the GPUs: none' >&2; exit 1",
         "probe failed: rv-train: cannot probe the GPUs: none"},
        {"echo '{\"schema\": \"train.probe/1\"}'",
         "probe failed: {\"schema\": \"train.probe/1\"}"},
        {"kill -9 $$", "probe failed: "},
    };
    char *cache = fsio_join (dir, "cache"), *path;

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        path = program (v[i].what);
        assert_int_equal (load (path, cache), TRAIN_EFORMAT);
        assert_true (strncmp (err.text, path, strlen (path)) == 0);
        assert_string_equal (err.text + strlen (path) + 1, v[i].why);
        assert_int_equal (pair[1].verdict, PROBE_UNKNOWN);
        free (path);
    }
    assert_int_equal (load ("/nonexistent/rv-train", cache), TRAIN_EIO);
    /* a hang is itself what broken links do */
    path = program ("exec sleep 600");
    probe_child_ms = 500;
    assert_int_equal (load (path, cache), TRAIN_ETIMEDOUT);
    probe_child_ms = 60000;
    assert_int_equal (pair[1].verdict, PROBE_NO_WAY);
    assert_int_equal (runs (), 4);
    free (path);
    free (cache);
}

/* Another's, or torn, findings are not believed. */
static void kept_but_wrong (void **state)
{
    char what[100], *path, *cache = fsio_join (dir, "cache");
    char spoil[160];

    (void)state;
    write_findings (FAULT_NONE);
    snprintf (what, sizeof (what), "cat %s/findings", dir);
    path = program (what);
    assert_int_equal (load (path, cache), TRAIN_OK);
    assert_int_equal (runs (), 1);
    snprintf (spoil, sizeof (spoil),
              "for f in %s/cache/peers-*; do printf '{\"schema' >$f; done",
              dir);
    write_file ("spoil", spoil, strlen (spoil), 0700);
    if (fork () == 0) {
        execl ("/bin/sh", "sh", "-c", spoil, (char *)NULL);
        _exit (127);
    }
    wait (NULL);
    assert_int_equal (load (path, cache), TRAIN_OK);
    assert_int_equal (pair[1].verdict, PROBE_GOOD);
    assert_int_equal (runs (), 2);
    free (path);
    free (cache);
}

static char line[16][512];
static int lines;

static void keep (void *arg, const char *text)
{
    (void)arg;
    if (lines < 16)
        snprintf (line[lines++], sizeof (*line), "%s", text);
}

/* The copier goes by the host where a pair is wrong, and by peer elsewhere. */
static void copier_obeys (void **state)
{
    train_copier_options_t o = {.size = sizeof (o), .log = keep};
    train_copier_t *copier;
    char what[100], *path;

    (void)state;
    write_findings (FAULT_FIRST);
    snprintf (what, sizeof (what), "cat %s/findings", dir);
    path = program (what);
    o.probe = path;
    setenv ("XDG_CACHE_HOME", dir, 1);
    lines = 0;
    assert_int_equal (copier_create_with (&backend_fault, &o, &copier, &err),
                      0);
    assert_int_equal (lines, 1);
    assert_non_null (strstr (line[0], "bytes were wrong at offset 0"));
    for (int i = 0; i < N * N; i++)
        assert_int_equal (copier->pair[i / N][i % N],
                          pair[i].verdict == PROBE_WRONG ? PAIR_BAD : PAIR_NEW);
    train_copier_destroy (copier);
    /* without an answer nothing goes by peer */
    unlink (path);
    setenv ("XDG_CACHE_HOME", "/proc/none", 1);
    lines = 0;
    assert_int_equal (copier_create_with (&backend_fault, &o, &copier, &err),
                      0);
    assert_int_equal (copier->pair[0][1], PAIR_NONE);
    assert_int_equal (lines, 2);
    assert_non_null (strstr (line[0], "peer copies are not tried: "));
    assert_non_null (strstr (line[1], "cannot be kept"));
    train_copier_destroy (copier);
    free (path);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (good),
        cmocka_unit_test (every_fault),
        cmocka_unit_test (says_what),
        cmocka_unit_test (no_way_and_slow),
        cmocka_unit_test (words_differ),
        cmocka_unit_test (json),
        cmocka_unit_test (keyed),
        cmocka_unit_test_setup_teardown (asked_once, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (child_fails, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (kept_but_wrong, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (copier_obeys, make_dir, remove_dir),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
