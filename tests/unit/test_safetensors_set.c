/* SPDX-License-Identifier: Apache-2.0
 * test_safetensors_set.c - every type, files piece by piece, sets of files */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors.h"
#include "st_file.h"
#include "st_written.h"

static void expect_sound (void)
{
    train_safetensors_t *file = NULL;
    train_error_t err = {0};

    if (train_safetensors_open (path, &file, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    train_safetensors_close (file);
}

/* Every type of the format, written and read as it is. */
static void test_every_type (void **state)
{
    static const uint8_t bytes[16] = {0x7f, 1, 0xff, 3, 0xc0, 5, 6, 7};
    train_st_entry_t e[22];
    char name[22][16];
    train_safetensors_t *file = NULL;
    train_error_t err;

    (void)state;
    for (int i = 0; i < 22; i++) {
        snprintf (name[i], sizeof (name[i]), "t%d", i + 1);
        e[i] = (train_st_entry_t){.name = name[i],
                                  .ndim = 1,
                                  .shape = {4},
                                  .data = bytes,
                                  .type = (train_st_type_t)(i + 1)};
        if (train_st_type_bits (e[i].type) > 32)
            e[i].shape[0] = 2;
        assert_string_not_equal (train_st_type_name (e[i].type), "unknown");
    }
    assert_int_equal (train_st_type_bits ((train_st_type_t)23), 0);
    assert_string_equal (train_st_type_name (TRAIN_ST_AUTO), "unknown");
    assert_int_equal (train_safetensors_write (path, e, 22, NULL, 0, &err),
                      TRAIN_OK);
    assert_int_equal (train_safetensors_open (path, &file, &err), TRAIN_OK);
    assert_int_equal (train_safetensors_count (file), 22);
    for (int i = 0; i < 22; i++) {
        const train_st_entry_t *r = train_safetensors_find (file, name[i]);
        unsigned bits = train_st_type_bits (e[i].type);

        assert_int_equal (r->type, e[i].type);
        assert_int_equal (r->bytes, (size_t)e[i].shape[0] * bits / 8);
        assert_memory_equal (r->data, bytes, r->bytes);
        assert_int_equal ((uintptr_t)r->data % (bits < 8 ? 1 : bits / 8), 0);
        if (r->dtype != TRAIN_ST_NO_DTYPE)
            assert_string_equal (train_dtype_name (r->dtype),
                                 train_st_type_name (r->type));
    }
    train_safetensors_close (file);
    e[1].shape[0] = 3; /* F4: a byte and a half */
    assert_int_equal (train_safetensors_write (path, e, 2, NULL, 0, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "whole number of bytes"));
}

static int n_files (void)
{
    DIR *d = opendir (dir);
    int n = 0;

    while (readdir (d))
        n++;
    closedir (d);
    return n - 2;
}

static void test_stream (void **state)
{
    train_st_writer_t *w = NULL;
    train_safetensors_t *file = NULL;
    train_error_t err;

    (void)state;
    assert_int_equal (
        train_safetensors_create (NULL, written, 4, NULL, 0, &w, &err),
        TRAIN_EINVAL);
    assert_int_equal (
        train_safetensors_create (path, written, 4, meta, 2, &w, &err),
        TRAIN_OK);
    assert_int_equal (train_safetensors_put (w, 4, d_data, 1, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_safetensors_put (w, 2, w_bits, 25, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_safetensors_put (w, 2, NULL, 1, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_safetensors_put (w, 2, w_bits, 5, &err), TRAIN_OK);
    assert_int_equal (train_safetensors_put (w, 0, u_data, 3, &err), TRAIN_OK);
    assert_int_equal (train_safetensors_put (w, 3, d_data, 8, &err), TRAIN_OK);
    assert_int_equal (
        train_safetensors_put (w, 2, (const char *)w_bits + 5, 19, &err),
        TRAIN_OK);
    assert_int_equal (train_safetensors_commit (w, &err), TRAIN_OK);
    assert_int_equal (train_safetensors_open (path, &file, &err), TRAIN_OK);
    assert_memory_equal (train_safetensors_find (file, written[2].name)->data,
                         w_bits, sizeof (w_bits));
    assert_memory_equal (train_safetensors_find (file, "u")->data, u_data, 3);
    train_safetensors_close (file);
}

/* What is not complete does not take the place of what was there. */
static void test_stream_incomplete (void **state)
{
    train_st_writer_t *w = NULL;
    train_error_t err;

    (void)state;
    train_safetensors_write (path, written, 4, meta, 2, NULL);
    assert_int_equal (
        train_safetensors_create (path, written, 1, NULL, 0, &w, &err),
        TRAIN_OK);
    assert_int_equal (train_safetensors_put (w, 0, u_data, 2, &err), TRAIN_OK);
    assert_int_equal (n_files (), 2);
    assert_int_equal (train_safetensors_commit (w, &err), TRAIN_ESTATE);
    assert_non_null (strstr (err.text, "2 of its 3 bytes"));
    assert_int_equal (
        train_safetensors_create (path, written, 1, NULL, 0, &w, &err),
        TRAIN_OK);
    train_safetensors_abandon (w);
    train_safetensors_abandon (NULL);
    assert_int_equal (train_safetensors_commit (NULL, &err), TRAIN_EINVAL);
    assert_int_equal (n_files (), 1);
    expect_sound ();
}

static void sub (char *buf, size_t size, const char *name)
{
    snprintf (buf, size, "%s/%s", dir, name);
}

static void put_text (const char *name, const char *text)
{
    char file[192];
    FILE *out;

    sub (file, sizeof (file), name);
    assert_non_null (out = fopen (file, "we"));
    fputs (text, out);
    fclose (out);
}

static void drop (const char *name)
{
    char file[192];

    sub (file, sizeof (file), name);
    assert_int_equal (unlink (file), 0);
}

static void expect_set (const char *at, size_t n)
{
    train_safetensors_t *set = NULL;
    train_error_t err = {0};

    if (train_safetensors_open_set (at, &set, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_int_equal (train_safetensors_count (set), n);
    for (size_t i = 0; i < n; i++) {
        const train_st_entry_t *e =
            train_safetensors_find (set, written[i].name);

        assert_non_null (e);
        if (e->bytes > 0)
            assert_memory_equal (e->data, written[i].data, e->bytes);
    }
    assert_string_equal (train_safetensors_meta (set, "step"), "12");
    train_safetensors_close (set);
}

static void test_sharded (void **state)
{
    char index[192], one[192];
    train_error_t err;
    train_st_entry_t two[2] = {written[0], written[0]};

    (void)state;
    unlink (path);
    sub (index, sizeof (index), "model.safetensors.index.json");
    sub (one, sizeof (one), "model.safetensors");
    assert_int_equal (train_safetensors_write_sharded (dir, NULL, written, 4,
                                                       meta, 2, 100, &err),
                      TRAIN_OK);
    assert_int_equal (n_files (), 1);
    expect_set (dir, 4);
    expect_set (one, 4);
    /* 3 and 0 and 24 and 8 bytes: "u", "empty"; "w"; "scalar" */
    assert_int_equal (train_safetensors_write_sharded (dir, NULL, written, 4,
                                                       meta, 2, 8, &err),
                      TRAIN_OK);
    assert_int_equal (n_files (), 4);
    expect_set (dir, 4);
    expect_set (index, 4);
    assert_int_equal (
        train_safetensors_write_sharded (dir, NULL, two, 2, meta, 2, 1, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "'u' twice"));
    assert_int_equal (
        train_safetensors_write_sharded (dir, "a/b", two, 1, meta, 2, 1, &err),
        TRAIN_EINVAL);
    assert_int_equal (
        train_safetensors_write_sharded (dir, NULL, two, 1, meta, 2, 0, &err),
        TRAIN_EINVAL);
    assert_int_equal (n_files (), 4);
    expect_set (dir, 4);
    drop ("model-00001-of-00003.safetensors");
    drop ("model-00002-of-00003.safetensors");
    drop ("model-00003-of-00003.safetensors");
    drop ("model.safetensors.index.json");
}

static void test_index_rejects (void **state)
{
    static const struct {
        const char *text;
        train_status_t status;
        const char *why;
    } bad[] = {
        {"", TRAIN_EFORMAT, "byte 0"},
        {"[]", TRAIN_EFORMAT, "'weight_map'"},
        {"{\"weight_map\":[]}", TRAIN_EFORMAT, "'weight_map'"},
        {"{\"weight_map\":{\"u\":3}}", TRAIN_EFORMAT, "no string"},
        {"{\"weight_map\":{\"u\":\"\"}}", TRAIN_EFORMAT, "beside the index"},
        {"{\"weight_map\":{\"u\":\"..\"}}", TRAIN_EFORMAT, "beside"},
        {"{\"weight_map\":{\"u\":\"/etc/passwd\"}}", TRAIN_EFORMAT, "beside"},
        {"{\"weight_map\":{\"u\":\"../x\"}}", TRAIN_EFORMAT, "beside"},
        {"{\"weight_map\":{\"u\":\"none\"}}", TRAIN_ENOTFOUND, "none: "},
        {"{\"weight_map\":{\"v\":\"file\"}}", TRAIN_EFORMAT,
         "'v' is not in file"},
        {"{\"weight_map\":{\"u\":\"file\",\"u\":\"file\"}}", TRAIN_EFORMAT,
         "duplicate"},
        {"{\"weight_map\":{\"u\":\"x.safetensors.index.json\"}}", TRAIN_EFORMAT,
         "over the format's"},
    };
    char index[192];
    train_safetensors_t *set = NULL;
    train_error_t err;

    (void)state;
    train_safetensors_write (path, written, 4, meta, 2, NULL);
    sub (index, sizeof (index), "x.safetensors.index.json");
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        train_status_t status;

        put_text ("x.safetensors.index.json", bad[i].text);
        status = train_safetensors_open_set (index, &set, &err);
        if (status != bad[i].status || !strstr (err.text, bad[i].why))
            fail_msg ("%s: %s (%s)", bad[i].text, train_status_name (status),
                      err.text);
        assert_null (set);
    }
    /* tensors that it does not list are passed over */
    put_text ("x.safetensors.index.json",
              "{\"metadata\":1.5,\"weight_map\":{\"u\":\"file\"}}");
    expect_set (index, 1);
    put_text ("x.safetensors.index.json", "{\"weight_map\":{}}");
    assert_int_equal (train_safetensors_open_set (index, &set, &err), TRAIN_OK);
    assert_int_equal (train_safetensors_count (set), 0);
    train_safetensors_close (set);
    set = NULL;
    drop ("x.safetensors.index.json");
    assert_int_equal (train_safetensors_open_set (dir, &set, &err),
                      TRAIN_ENOTFOUND);
    assert_int_equal (train_safetensors_open_set (NULL, &set, &err),
                      TRAIN_EINVAL);
    assert_null (set);
}

/* Maps of two files, a small one below a large one: each tensor is read of its
 * own file, also one that is larger than a file before its own. */
static void test_place (void **state)
{
    struct st_part part[2] = {{0}, {0}};
    train_safetensors_t set = {.parts = part, .n_parts = 2};
    char *memory = malloc (5000), low[8], high[4000];
    train_st_entry_t e[2] = {{.name = "low"}, {.name = "high"}};
    train_error_t err = {0};

    (void)state;
    assert_non_null (memory);
    for (int i = 0; i < 5000; i++)
        memory[i] = (char)(i * 7 + i / 256);
    for (int i = 0; i < 2; i++) {
        char name[128];
        FILE *f;

        part[i].map = memory + 500 * i;
        part[i].map_bytes = i ? 4500 : 500;
        snprintf (name, sizeof (name), "%s/%d", dir, i);
        assert_non_null (f = fopen (name, "w"));
        assert_int_equal (fwrite (part[i].map, 1, part[i].map_bytes, f),
                          part[i].map_bytes);
        assert_int_equal (fclose (f), 0);
        assert_true ((part[i].fd = open (name, O_RDONLY)) >= 0);
        assert_int_equal (unlink (name), 0);
    }
    e[0].data = memory + 492; /* to the last byte of its file */
    e[0].bytes = sizeof (low);
    e[1].data = memory + 1000;
    e[1].bytes = sizeof (high);
    assert_ptr_equal (st_part_of (&set, &e[0]), &part[0]);
    assert_ptr_equal (st_part_of (&set, &e[1]), &part[1]);
    assert_int_equal (st_read (&set, &e[0], 0, low, sizeof (low), &err), 0);
    assert_int_equal (st_read (&set, &e[1], 0, high, sizeof (high), &err), 0);
    assert_memory_equal (low, e[0].data, sizeof (low));
    assert_memory_equal (high, e[1].data, sizeof (high));
    assert_int_equal (st_read (&set, &e[1], 3999, high, 2, &err), TRAIN_EIO);
    close (part[0].fd);
    close (part[1].fd);
    free (memory);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_every_type),
        cmocka_unit_test (test_stream),
        cmocka_unit_test (test_stream_incomplete),
        cmocka_unit_test (test_sharded),
        cmocka_unit_test (test_index_rejects),
        cmocka_unit_test (test_place),
    };

    return cmocka_run_group_tests_name ("safetensors_set", tests, make_dir,
                                        remove_dir);
}
