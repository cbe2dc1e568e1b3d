/* SPDX-License-Identifier: Apache-2.0
 * test_prompts.c - prompts and answers from JSON lines */
#include "own_dir.h"

#include <unistd.h>

#include <train/prompts.h>

static train_tokenizer_t *bytes;

static int set_up (void **state)
{
    return make_dir (state)
           || train_tokenizer_open ("bytes", &bytes, NULL) != TRAIN_OK
           || chdir (dir) != 0;
}

static int tear_down (void **state)
{
    train_tokenizer_close (bytes);
    return chdir ("/") || remove_dir (state);
}

static train_prompts_t *open_files (const char *files)
{
    train_prompts_options_t o = {
        .size = sizeof (o), .files = files, .tokenizer = bytes};
    train_prompts_t *p = NULL;
    train_error_t err = {0};

    if (train_prompts_open (&o, &p, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return p;
}

static void test_rows (void **state)
{
    train_prompts_t *p, *q;
    char where[64];
    const int32_t *ids;
    size_t n;

    (void)state;
    write_text ("a.jsonl",
                "\xef\xbb\xbf{\"prompt\": \"1+2=\", \"answer\": 3}\r\n"
                "\n  {\"prompt\": \"x\xc3\xa4\", \"level\": [1]}  \n"
                "{\"prompt\":\"y\",\"answer\":\"no newline\"}");
    write_text ("b.jsonl", "{\"prompt\": \"last\", \"answer\": null}\n");
    p = open_files ("a.jsonl , b*");
    assert_int_equal (train_prompts_count (p), 4);
    assert_string_equal (train_prompts_text (p, 0), "1+2=");
    assert_string_equal (train_prompts_answer (p, 0), "3");
    assert_string_equal (train_prompts_row (p, 1),
                         "{\"prompt\": \"x\xc3\xa4\", \"level\": [1]}");
    assert_null (train_prompts_answer (p, 1));
    assert_string_equal (train_prompts_answer (p, 2), "no newline");
    assert_null (train_prompts_answer (p, 3));
    ids = train_prompts_ids (p, 1, &n);
    assert_int_equal (n, 3);
    assert_int_equal (ids[0], 'x');
    assert_int_equal (ids[2], 0xa4);
    assert_int_equal (train_prompts_end (p), 256);
    assert_string_equal (train_prompts_where (p, 1, where, sizeof (where)),
                         "a.jsonl:3");
    assert_string_equal (train_prompts_where (p, 3, where, sizeof (where)),
                         "b.jsonl:1");
    q = open_files ("a.jsonl");
    assert_true (train_prompts_hash (p) != train_prompts_hash (q));
    train_prompts_close (q);
    train_prompts_close (p);
}

static void expect_refused (const char *text, train_status_t status,
                            const char *why)
{
    train_prompts_options_t o = {.size = sizeof (o),
                                 .files = "bad.jsonl",
                                 .tokenizer = bytes,
                                 .max_ids = 8};
    train_prompts_t *p = NULL;
    train_error_t err = {0};

    write_text ("bad.jsonl", text);
    if (train_prompts_open (&o, &p, &err) != status || p)
        fail_msg ("'%s' is not refused as told: %s", text, err.text);
    if (!strstr (err.text, why))
        fail_msg ("'%s' lacks '%s'", err.text, why);
}

#define GOOD "{\"prompt\": \"good\"}\n"

static void test_refused (void **state)
{
    (void)state;
    expect_refused ("\n \n", TRAIN_EINVAL, "'bad.jsonl' has no line");
    expect_refused (GOOD "{\"prompt\": }\n", TRAIN_EFORMAT,
                    "bad.jsonl:2: no JSON at character");
    expect_refused (GOOD "\n[1]\n", TRAIN_EFORMAT,
                    "bad.jsonl:3: is no JSON object");
    expect_refused ("{\"prompt\": \"a\", \"prompt\": \"b\"}", TRAIN_EFORMAT,
                    "bad.jsonl:1: no JSON");
    expect_refused (GOOD "{\"question\": \"a\"}", TRAIN_EFORMAT,
                    "bad.jsonl:2: no field 'prompt'");
    expect_refused ("{\"prompt\": 3}", TRAIN_EFORMAT,
                    "bad.jsonl:1: 'prompt' is neither");
    expect_refused ("{\"prompt\": \"a\", \"answer\": [1]}", TRAIN_EFORMAT,
                    "bad.jsonl:1: 'answer' is neither");
    expect_refused ("{\"prompt\": \"\"}", TRAIN_EINVAL,
                    "bad.jsonl:1: 'prompt' has no token");
    expect_refused (GOOD "{\"prompt\": \"123456789\"}", TRAIN_EINVAL,
                    "bad.jsonl:2: 'prompt' has 9 tokens, and 8 is the most");
    expect_refused ("{\"prompt\": \"\xff\"}", TRAIN_EFORMAT, "bad.jsonl:1:");
    expect_refused ("{\"prompt\": \"a\", \"answer\": 1e999}", TRAIN_EFORMAT,
                    "bad.jsonl:1:");
}

static void test_files (void **state)
{
    train_prompts_options_t o = {
        .size = sizeof (o), .files = "gone.jsonl", .tokenizer = bytes};
    train_prompts_t *p = NULL;
    train_error_t err = {0};

    (void)state;
    assert_int_equal (train_prompts_open (&o, &p, &err), TRAIN_ENOTFOUND);
    assert_non_null (strstr (err.text, "gone.jsonl"));
    o.files = "none*.jsonl";
    assert_int_equal (train_prompts_open (&o, &p, &err), TRAIN_ENOTFOUND);
    o.files = "/tmp";
    assert_int_equal (train_prompts_open (&o, &p, &err), TRAIN_EINVAL);
    o.files = "a,,b";
    assert_int_equal (train_prompts_open (&o, &p, &err), TRAIN_EINVAL);
    write_file ("nul.jsonl", "{\"prompt\": \"a\0b\"}", 17, 0600);
    o.files = "nul.jsonl";
    assert_int_equal (train_prompts_open (&o, &p, &err), TRAIN_EFORMAT);
    assert_non_null (strstr (err.text, "nul.jsonl:1: a byte 0"));
    o.end = "<end>";
    assert_int_equal (train_prompts_open (&o, &p, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "<end>"));
    assert_null (p);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_rows),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_files),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
