/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt_lost.c - files that lose their bytes, memory that lacks, folders
 * without exchange: which checkpoint is read then
 */
#include "config.h"

#include "ckpt_world.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static bool no_exchange; /* as NFS has it */
static int at_rename;    /* what the second rename to a name does: */
enum { RENAMES, FAILS, ENDS };

int renameat2 (int from_dir, const char *from, int to_dir, const char *to,
               unsigned flags)
{
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall (SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int rename (const char *from, const char *to)
{
    if (no_exchange && at_rename != RENAMES && access (to, F_OK) < 0
        && strstr (from, ".tmp-step") && strstr (to, "/step-")) {
        if (at_rename == ENDS)
            _exit (0);
        errno = EIO;
        return -1;
    }
    return (int)syscall (SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* A file that loses its bytes while it is open is an error that names it, and no
 * signal; nothing is written. */
static void test_shortened (void **state)
{
    static const char file[] = "shortened/step-00000001/model.safetensors";
    static struct model m, got;
    train_ckpt_piece_t first, second;
    train_error_t err = {0};
    train_ckpt_t *c;

    (void)state;
    fill (&m, 9);
    save_well ("shortened", 1, &m, 1, FLAT);
    c = open_latest ("shortened");
    memset (&got, 0xee, sizeof (got));
    first = piece (&got, 0, 0, 1, FLAT);
    second = piece (&got, 1, 0, 1, FLAT);
    assert_int_equal (train_ckpt_read (c, &first, 1, NULL), 0);
    assert_int_equal (truncate (file, 0), 0);
    assert_int_equal (train_ckpt_read (c, &second, 1, &err), TRAIN_EIO);
    if (!strstr (err.text, file) || !strstr (err.text, "'layers.0.norm'")
        || !strstr (err.text, "too soon"))
        fail_msg ("%s", err.text);
    assert_int_equal (got.data[1][0], 0xee);
    assert_int_equal (train_ckpt_verify (c, &err), TRAIN_EIO);
    /* what was summed before is gone as well */
    assert_int_equal (train_ckpt_read (c, &first, 1, &err), TRAIN_EIO);
    train_ckpt_close (c);
}

static bool lacking; /* the next allocation of jansson fails */

static void *sometimes (size_t n)
{
    bool now = lacking;

    lacking = false;
    return now ? NULL : malloc (n);
}

/* A manifest that memory lacks for is not a damaged one, that an older checkpoint
 * would stand in for. */
static void test_no_memory (void **state)
{
    static struct model m;
    train_error_t passed = {0}, err = {0};
    char *path = NULL;

    (void)state;
    fill (&m, 2);
    save_well ("memory", 1, &m, 1, FLAT);
    save_well ("memory", 2, &m, 1, FLAT);
    json_set_alloc_funcs (sometimes, free);
    lacking = true;
    assert_int_equal (train_ckpt_find_good ("memory", &path, &passed, &err),
                      TRAIN_ENOMEM);
    json_set_alloc_funcs (malloc, free);
    assert_non_null (strstr (err.text, "memory/step-00000002"));
    assert_int_equal (train_ckpt_find_good ("memory", &path, &passed, &err), 0);
    assert_string_equal (path, "memory/step-00000002");
    free (path);
}

static int64_t n_listed (const char *where)
{
    int64_t *steps = NULL;
    size_t n = 0;

    assert_int_equal (train_ckpt_list (where, &steps, &n, NULL), 0);
    free (steps);
    return (int64_t)n;
}

static void expect_latest (const char *where, const struct model *m)
{
    train_ckpt_t *c = open_latest (where);

    read_as (c, m, 1, FLAT);
    train_ckpt_close (c);
}

/* A checkpoint is written over one of the same step on a file system where two
 * names cannot be exchanged: whatever happens, one of them is the latest. */
static void test_no_exchange (void **state)
{
    static struct model m[4];
    char *path = NULL;
    int status;
    pid_t pid;

    (void)state;
    for (int i = 0; i < 4; i++)
        fill (&m[i], (unsigned)i);
    save_well ("nfs", 7, &m[0], 1, FLAT);
    no_exchange = true;
    save_well ("nfs", 7, &m[1], 1, FLAT);
    expect_latest ("nfs", &m[1]);
    at_rename = FAILS;
    assert_int_equal (save_as ("nfs", 7, &m[2], 1, FLAT, NULL), TRAIN_EIO);
    expect_latest ("nfs", &m[1]);
    at_rename = ENDS;
    assert_true ((pid = fork ()) >= 0);
    if (pid == 0)
        save_well ("nfs", 7, &m[2], 1, FLAT);
    assert_int_equal (waitpid (pid, &status, 0), pid);
    assert_int_equal (status, 0);
    at_rename = RENAMES;
    assert_int_equal (n_listed ("nfs"), 0); /* it has no name now, but: */
    expect_latest ("nfs", &m[1]);
    assert_int_equal (train_ckpt_find_good ("nfs", &path, NULL, NULL), 0);
    free (path);
    save_well ("nfs", 8, &m[3], 1, FLAT);
    expect_latest ("nfs", &m[3]);
    assert_int_equal (n_listed ("nfs"), 2); /* it has again */
    no_exchange = false;
}

/* More than is read at a time, in ranges that begin and end anywhere. */
static void test_large (void **state)
{
    const int64_t n = 1500001;
    train_ckpt_options_t o = options ("large", 1);
    train_ckpt_piece_t p = {.name = "w",
                            .dtype = TRAIN_F32,
                            .ndim = 1,
                            .shape = {n},
                            .count = n,
                            .file = "model"};
    float *from = malloc ((size_t)n * sizeof (*from)), *to;
    train_ckpt_saver_t *s = NULL;
    train_ckpt_t *c;

    (void)state;
    to = calloc ((size_t)n, sizeof (*to));
    assert_true (from && to);
    for (int64_t i = 0; i < n; i++)
        from[i] = (float)i;
    p.data = from;
    assert_int_equal (train_ckpt_saver_create (NULL, &s, NULL), 0);
    assert_int_equal (train_ckpt_start (s, &p, 1, &o, NULL), 0);
    assert_int_equal (train_ckpt_wait (s, NULL), 0);
    train_ckpt_saver_destroy (s);
    c = open_latest ("large");
    p.first = 7;
    p.count = n - 12;
    p.data = to + 7;
    assert_int_equal (train_ckpt_read (c, &p, 1, NULL), 0);
    assert_memory_equal (to + 7, from + 7, (size_t)p.count * sizeof (*to));
    for (int i = 0; i < 7; i++)
        assert_true (to[i] == 0 && to[n - 1 - i % 5] == 0);
    train_ckpt_close (c);
    free (from);
    free (to);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_shortened),
        cmocka_unit_test (test_no_memory),
        cmocka_unit_test (test_no_exchange),
        cmocka_unit_test (test_large),
    };

    return cmocka_run_group_tests_name ("ckpt_lost", tests, set_up, tear_down);
}
