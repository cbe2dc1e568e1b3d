/* SPDX-License-Identifier: Apache-2.0
 * test_logps_wire.c - bodies and tokens of a reference server */
#include <math.h>
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

#include "libtrain/logps_wire.h"
#include "libtrain/token_file.h"

#include "own_dir.h"

/* A body of this header and [n] bytes behind it. */
static size_t made (char *body, const char *header, const void *data, size_t n)
{
    uint64_t size = strlen (header);

    memcpy (body, &size, 8); /* little-endian, as every machine of this tree */
    memcpy (body + 8, header, size);
    if (n > 0)
        memcpy (body + 8 + size, data, n);
    return 8 + size + n;
}

#define IDS                                                                    \
    "\"ids\":{\"dtype\":\"I32\",\"shape\":[1,3],\"data_offsets\":[0,12]}"
#define LENS "\"total_len\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":"

static void test_there_and_back (void **state)
{
    int32_t ids[] = {1, 2, 3, 4, 5, 0}, prompt[] = {1, 0}, total[] = {3, 2};
    struct logps_ask a = {.B = 2,
                          .T = 3,
                          .temperature = 0.1 + 0.2,
                          .ids = ids,
                          .prompt_len = prompt,
                          .total_len = total};
    struct logps_ask b = {0};
    char *body = NULL;
    size_t n = 0;

    (void)state;
    assert_int_equal (logps_write_ask (&a, &body, &n, NULL), TRAIN_OK);
    assert_int_equal (logps_read_ask (body, n, 6, &b, NULL), TRAIN_OK);
    assert_true (b.B == 2 && b.T == 3 && b.temperature == 0.1 + 0.2);
    assert_memory_equal (b.ids, ids, sizeof (ids));
    assert_memory_equal (b.prompt_len, prompt, sizeof (prompt));
    assert_memory_equal (b.total_len, total, sizeof (total));
    logps_free_ask (&b);
    assert_null (b.ids);
    free (body);

    a.prompt_len = NULL;
    assert_int_equal (logps_write_ask (&a, &body, &n, NULL), TRAIN_OK);
    assert_int_equal (logps_read_ask (body, n, 6, &b, NULL), TRAIN_OK);
    assert_int_equal (b.prompt_len[0], 0);
    logps_free_ask (&b);
    /* Cut anywhere it is refused. */
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal (logps_read_ask (body, cut, 6, &b, NULL),
                          TRAIN_EFORMAT);
    free (body);
}

static void refused (const char *header, const void *data, size_t n,
                     train_status_t status, const char *says)
{
    char body[1024];
    struct logps_ask a = {0};
    train_error_t err = {0};
    size_t size = made (body, header, data, n);

    assert_int_equal (logps_read_ask (body, size, 10, &a, &err), status);
    if (!strstr (err.text, says))
        fail_msg ("'%s' has no '%s'", err.text, says);
    assert_null (a.ids);
}

static void test_refused (void **state)
{
    static const int32_t good[] = {1, 2, 3, 3}, ten[] = {1, 10, 3, 3},
                         four[] = {1, 2, 3, 4}, under[] = {1, -2, 3, 3},
                         below[] = {1, 2, 3, -1},
                         late[] = {1, 2, 3, 2, 3} /* prompt_len 3 of 2 */;
    static const char hot[] =
        "{\"__metadata__\":{\"temperature\":\"%s\"}," IDS "," LENS "[12,16]}}";
    static const char *const temperatures[] = {"0",     "-1", "nan", "1,5",
                                               "1e999", "",   "[1]", "true"};
    char header[512];

    (void)state;
    refused ("{" IDS "," LENS "[12,16]}}", ten, 16, TRAIN_EINVAL,
             "has 10 at 1");
    refused ("{" IDS "," LENS "[12,16]}}", under, 16, TRAIN_EINVAL,
             "has -2 at 1");
    refused ("{" IDS "," LENS "[12,16]}}", four, 16, TRAIN_EINVAL, "row 0");
    refused ("{" IDS "," LENS "[12,16]}}", below, 16, TRAIN_EINVAL, "row 0");
    refused ("{" IDS "," LENS "[12,16]},\"prompt_len\":{\"dtype\":\"I32\","
             "\"shape\":[1],\"data_offsets\":[16,20]}}",
             late, 20, TRAIN_EINVAL, "prompt of 3");
    refused ("{" IDS "}", good, 12, TRAIN_EFORMAT, "total_len");
    refused ("{" LENS "[0,4]}}", good, 4, TRAIN_EFORMAT, "'ids'");
    refused ("{" IDS "," LENS "[12,16]},\"prompt\":{\"dtype\":\"I32\","
             "\"shape\":[0],\"data_offsets\":[16,16]}}",
             good, 16, TRAIN_EFORMAT, "'prompt'");
    refused ("{\"ids\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":"
             "[0,16]}}",
             good, 16, TRAIN_EFORMAT, "I64");
    refused ("{\"ids\":{\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":"
             "[0,16]}}",
             good, 16, TRAIN_EFORMAT, "1 dimensions");
    refused ("{\"ids\":{\"dtype\":\"I32\",\"shape\":[0,4],\"data_offsets\":"
             "[0,0]}}",
             NULL, 0, TRAIN_EFORMAT, "'ids'");
    refused ("{" IDS ",\"total_len\":{\"dtype\":\"I32\",\"shape\":[2],"
             "\"data_offsets\":[12,20]}}",
             late, 20, TRAIN_EFORMAT, "2 rows");
    refused ("not json", NULL, 0, TRAIN_EFORMAT, "");
    for (size_t i = 0; i < sizeof (temperatures) / sizeof (char *); i++) {
        snprintf (header, sizeof (header), hot, temperatures[i]);
        refused (header, good, 16, TRAIN_EFORMAT, "temperature");
    }
}

/* Nothing behind a body is read: not the first byte of a header without any. */
static void test_no_header (void **state)
{
    char *body = calloc (1, 8);
    struct logps_ask a = {0};
    train_error_t err = {0};

    (void)state;
    assert_non_null (body);
    assert_int_equal (logps_read_ask (body, 8, 10, &a, &err), TRAIN_EFORMAT);
    assert_non_null (strstr (err.text, "'{'"));
    free (body);
}

/* A header may not make the server read a hundred megabytes of JSON. */
static void test_long_header (void **state)
{
    size_t n = 8 + LOGPS_HEADER + 1;
    char *body = calloc (1, n);
    uint64_t size = LOGPS_HEADER + 1;
    struct logps_ask a = {0};
    train_error_t err = {0};

    (void)state;
    assert_non_null (body);
    memset (body, ' ', n);
    memcpy (body, &size, 8);
    assert_int_equal (logps_read_ask (body, n, 10, &a, &err), TRAIN_EFORMAT);
    assert_non_null (strstr (err.text, "65537"));
    size = UINT64_MAX;
    memcpy (body, &size, 8);
    assert_int_equal (logps_read_ask (body, n, 10, &a, &err), TRAIN_EFORMAT);
    free (body);
}

static void test_most (void **state)
{
    enum { N = 1000 };
    int32_t *ids = calloc (3 * N, sizeof (*ids));
    struct logps_ask a = {.B = N,
                          .T = 1,
                          .temperature = 1e-300,
                          .ids = ids,
                          .prompt_len = ids + N,
                          .total_len = ids + (size_t)2 * N};
    char *body = NULL;
    size_t n = 0;

    (void)state;
    assert_int_equal (logps_write_ask (&a, &body, &n, NULL), TRAIN_OK);
    assert_true (n <= logps_body_most (N));
    free (body);
    free (ids);
}

static void test_answer (void **state)
{
    const float logps[] = {0, -1.5f, -0.25f, 0, 0, -INFINITY};
    float back[6];
    char *body = NULL, model[LOGPS_MODEL];
    size_t n = 0;

    (void)state;
    assert_int_equal (
        logps_write_answer (logps, 2, 3, "00ff00ff00ff00ff", &body, &n, NULL),
        TRAIN_OK);
    assert_int_equal (logps_read_answer (body, n, 2, 3, back, model, NULL),
                      TRAIN_OK);
    assert_memory_equal (back, logps, sizeof (logps));
    assert_string_equal (model, "00ff00ff00ff00ff");
    assert_int_equal (logps_read_answer (body, n, 3, 2, back, model, NULL),
                      TRAIN_EFORMAT);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal (
            logps_read_answer (body, cut, 2, 3, back, model, NULL),
            TRAIN_EFORMAT);
    free (body);
}

static void write_token (const char *path, const char *text, mode_t mode)
{
    FILE *f;

    unlink (path);
    f = fopen (path, "w");
    assert_non_null (f);
    fputs (text, f);
    assert_int_equal (fclose (f), 0);
    assert_int_equal (chmod (path, mode), 0);
}

static void test_token_file (void **state)
{
    char path[64], token[TOKEN_MOST + 1], text[2048];
    train_error_t err = {0};

    (void)state;
    snprintf (path, sizeof (path), "%s/token", dir);
    assert_int_equal (token_file_read (path, token, NULL), TRAIN_ENOTFOUND);
    write_token (path, "0123456789abcdef\nmore\n", 0600);
    assert_int_equal (token_file_read (path, token, NULL), TRAIN_OK);
    assert_string_equal (token, "0123456789abcdef");
    assert_int_equal (chmod (path, 0400), 0);
    assert_int_equal (token_file_read (path, token, NULL), TRAIN_OK);
    for (mode_t bit = 1; bit <= 040; bit <<= 1) {
        assert_int_equal (chmod (path, 0600 | bit), 0);
        assert_int_equal (token_file_read (path, token, &err), TRAIN_EFORMAT);
        assert_non_null (strstr (err.text, "chmod 0600"));
        assert_null (strstr (err.text, "0123456789abcdef"));
    }
    write_token (path, "0123456789abcde\n", 0600);
    assert_int_equal (token_file_read (path, token, &err), TRAIN_EFORMAT);
    assert_non_null (strstr (err.text, "15"));
    write_token (path, "0123456789 abcdef\n", 0600);
    assert_int_equal (token_file_read (path, token, &err), TRAIN_EFORMAT);
    memset (text, 'x', sizeof (text));
    text[TOKEN_MOST] = '\0';
    write_token (path, text, 0600);
    assert_int_equal (token_file_read (path, token, NULL), TRAIN_OK);
    assert_int_equal (strlen (token), TOKEN_MOST);
    text[TOKEN_MOST] = 'x';
    text[TOKEN_MOST + 1] = '\0';
    write_token (path, text, 0600);
    assert_int_equal (token_file_read (path, token, NULL), TRAIN_EFORMAT);
    assert_int_equal (token_file_read (dir, token, NULL), TRAIN_EFORMAT);
}

static void test_token_same (void **state)
{
    (void)state;
    assert_true (token_same ("0123456789abcdef", "0123456789abcdef"));
    assert_false (token_same ("0123456789abcdef", "0123456789abcdee"));
    assert_false (token_same ("0123456789abcdef", "1123456789abcdef"));
    assert_false (token_same ("0123456789abcdef", "0123456789abcde"));
    assert_false (token_same ("0123456789abcdef", ""));
    assert_false (
        token_same ("0123456789abcdef", "0123456789abcdef0123456789abcdef"));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_there_and_back),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_no_header),
        cmocka_unit_test (test_long_header),
        cmocka_unit_test (test_most),
        cmocka_unit_test (test_answer),
        cmocka_unit_test_setup_teardown (test_token_file, make_dir, remove_dir),
        cmocka_unit_test (test_token_same),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
