/* SPDX-License-Identifier: Apache-2.0
 * test_rows.c - training samples of prompts and their answers */
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

static train_status_t make (train_rows_options_t o, const char *text,
                            train_data_t **ret, size_t *skipped,
                            train_error_t *err)
{
    train_prompts_options_t po = {
        .size = sizeof (po), .files = "r.jsonl", .tokenizer = bytes};
    train_prompts_t *p = NULL;
    train_status_t status;

    write_text ("r.jsonl", text);
    assert_int_equal (train_prompts_open (&po, &p, NULL), TRAIN_OK);
    o.size = sizeof (o);
    o.tokenizer = bytes;
    *ret = NULL;
    status = train_data_of_prompts (&o, p, ret, skipped, err);
    train_prompts_close (p); /* not needed afterwards */
    return status;
}

#define ROWS                                                                   \
    "{\"prompt\": \"ab\", \"answer\": \"cd\"}\n"                               \
    "{\"prompt\": \"x\", \"answer\": \"\"}\n"                                  \
    "{\"prompt\": \"long\", \"answer\": \"er\"}\n"

/* No id of a row is 0. */
static void expect (const train_data_t *d, int64_t position,
                    const int32_t *tokens, const int32_t *targets)
{
    int32_t x[6], y[6], documents[6];

    train_data_get (d, position, x, y);
    assert_memory_equal (x, tokens, sizeof (x));
    assert_memory_equal (y, targets, sizeof (y));
    train_data_documents (d, position, documents);
    for (int i = 0; i < 6; i++) /* what is behind the row is another's */
        assert_int_equal (documents[i], tokens[i] == 0);
}

static void test_samples (void **state)
{
    const int32_t x[3][6] = {{'a', 'b', 'c', 'd', 0, 0},
                             {'x', 0, 0, 0, 0, 0},
                             {'l', 'o', 'n', 'g', 'e', 'r'}};
    const int32_t y[3][6] = {{-1, 'c', 'd', 256, -1, -1},
                             {256, -1, -1, -1, -1, -1},
                             {-1, -1, -1, 'e', 'r', 256}};
    train_data_t *d, *held;

    (void)state;
    assert_int_equal (
        make ((train_rows_options_t){.seq = 6}, ROWS, &d, NULL, NULL), 0);
    assert_int_equal (train_data_n_samples (d), 3);
    assert_int_equal (train_data_vocab (d), 257);
    assert_int_equal (train_data_end (d), 256);
    assert_int_equal (train_data_seq (d), 6);
    assert_int_equal (train_data_n_files (d), 1);
    assert_string_equal (train_data_file (d, 0), "r.jsonl");
    assert_int_equal (train_data_bytes (d), strlen (ROWS));
    assert_false (train_data_is_documents (d));
    for (int i = 0; i < 6; i++) /* the second epoch is as the first */
        expect (d, i, x[i % 3], y[i % 3]);
    assert_int_equal (train_data_counted (d, 0, 1), 3);
    assert_int_equal (train_data_counted (d, 1, 1), 1);
    assert_int_equal (train_data_counted (d, 0, 3), 7);
    assert_int_equal (train_data_counted (d, 2, 3), 3 + 3 + 1);
    assert_int_equal (make ((train_rows_options_t){.seq = 6, .held = 1}, ROWS,
                            &held, NULL, NULL),
                      0);
    assert_int_equal (train_data_n_samples (held), 2);
    expect (held, -1, x[2], y[2]);
    expect (held, 2, x[0], y[0]);
    assert_true (train_data_hash (held) != train_data_hash (d));
    train_data_close (held);
    train_data_close (d);
}

/* An epoch has each row once, and every epoch in another order. */
static void test_shuffle (void **state)
{
    char text[4096] = "";
    train_data_t *d;
    int order[2][20], n_other = 0;

    (void)state;
    for (int i = 0; i < 20; i++)
        snprintf (text + strlen (text), sizeof (text) - strlen (text),
                  "{\"prompt\": \"%c\", \"answer\": \"%d\"}\n", 'a' + i, i);
    assert_int_equal (
        make ((train_rows_options_t){.seq = 3, .shuffle = true, .seed = 5},
              text, &d, NULL, NULL),
        0);
    for (int e = 0; e < 2; e++) {
        unsigned seen = 0;

        for (int i = 0; i < 20; i++) {
            int32_t x[3], y[3];

            train_data_get (d, e * 20 + i, x, y);
            order[e][i] = x[0];
            seen |= 1u << (x[0] - 'a');
        }
        assert_int_equal (seen, (1u << 20) - 1);
    }
    for (int i = 0; i < 20; i++)
        n_other += order[0][i] != order[1][i];
    assert_true (n_other > 10);
    train_data_close (d);
}

static void test_long (void **state)
{
    const int32_t x[6] = {'a', 'b', 'c', 'd', 0, 0},
                  y[6] = {-1, 'c', 'd', 256, 0, 0};
    train_rows_options_t o = {.seq = 4, .too_long = TRAIN_ROWS_SKIP};
    int32_t got_x[6] = {0}, got_y[6] = {0};
    train_error_t err = {0};
    train_data_t *d;
    size_t skipped = 9;

    (void)state;
    assert_int_equal (make (o, ROWS, &d, &skipped, NULL), 0);
    assert_int_equal (skipped, 1);
    assert_int_equal (train_data_n_samples (d), 2);
    train_data_close (d);
    o.seq = 3;
    o.too_long = TRAIN_ROWS_CUT; /* of the third no answer is left */
    assert_int_equal (make (o, ROWS, &d, &skipped, NULL), 0);
    assert_int_equal (skipped, 1);
    train_data_get (d, 0, got_x, got_y);
    assert_memory_equal (got_x, x, 3 * sizeof (*x));
    assert_memory_equal (got_y, y, 2 * sizeof (*y));
    assert_int_equal (got_y[2], 'd');
    assert_int_equal (train_data_counted (d, 0, 1), 2);
    train_data_close (d);
    o.too_long = TRAIN_ROWS_REFUSE;
    assert_int_equal (make (o, ROWS, &d, &skipped, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "r.jsonl:1: prompt and answer have 5"));
    assert_null (d);
    o.seq = 1;
    o.too_long = TRAIN_ROWS_SKIP;
    assert_int_equal (
        make (o, "{\"prompt\": \"ab\", \"answer\": \"c\"}", &d, NULL, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "of 0 samples (1 rows were too long)"));
}

/* Rows of 4, 1, 6, 2 and 3 places in samples of 6: the second goes to the first,
 * the fourth opens one that takes the fifth. */
static void test_packed (void **state)
{
    const char *const text = "{\"prompt\": \"ab\", \"answer\": \"cd\"}\n"
                             "{\"prompt\": \"x\", \"answer\": \"\"}\n"
                             "{\"prompt\": \"long\", \"answer\": \"er\"}\n"
                             "{\"prompt\": \"p\", \"answer\": \"q\"}\n"
                             "{\"prompt\": \"r\", \"answer\": \"st\"}\n";
    const int32_t x[3][6] = {{'a', 'b', 'c', 'd', 'x', 0},
                             {'l', 'o', 'n', 'g', 'e', 'r'},
                             {'p', 'q', 'r', 's', 't', 0}};
    const int32_t y[3][6] = {{-1, 'c', 'd', 256, 256, -1},
                             {-1, -1, -1, 'e', 'r', 256},
                             {'q', 256, 's', 't', 256, -1}};
    const int32_t starts[3][6] = {
        {0, 0, 0, 0, 4, 5}, {0, 0, 0, 0, 0, 0}, {0, 0, 2, 2, 2, 5}};
    const int32_t documents[3][6] = {
        {0, 0, 0, 0, 1, 2}, {0, 0, 0, 0, 0, 0}, {0, 0, 1, 1, 1, 2}};
    train_rows_options_t o = {.seq = 6, .packed = true};
    int32_t a[6], b[6];
    train_data_t *d, *plain;

    (void)state;
    assert_int_equal (make (o, text, &d, NULL, NULL), 0);
    assert_int_equal (train_data_n_samples (d), 3);
    assert_true (train_data_is_documents (d));
    for (int i = 0; i < 3; i++) {
        train_data_get (d, i, a, b);
        assert_memory_equal (a, x[i], sizeof (a));
        assert_memory_equal (b, y[i], sizeof (b));
        train_data_starts_at (d, i, x[i], a);
        assert_memory_equal (a, starts[i], sizeof (a));
        train_data_documents (d, i, a);
        assert_memory_equal (a, documents[i], sizeof (a));
    }
    assert_int_equal (train_data_counted (d, 0, 3), 3 + 1 + 3 + 2 + 3);
    o.packed = false;
    assert_int_equal (make (o, text, &plain, NULL, NULL), 0);
    assert_int_equal (train_data_n_samples (plain), 5);
    assert_true (train_data_hash (plain) != train_data_hash (d));
    train_data_close (plain);
    train_data_close (d);
}

/* Many rows: each stands in the samples once, and no sample is over full. */
static void test_packed_many (void **state)
{
    char *text = calloc (500, 80);
    int seen[500] = {0}, n = 0;
    train_data_t *d;

    (void)state;
    assert_non_null (text);
    for (int i = 0; i < 500; i++)
        snprintf (text + strlen (text), 80,
                  "{\"prompt\": \"%03d\", \"answer\": \"%.*s\"}\n", i,
                  i * 7 % 23, "abcdefghijklmnopqrstuvwxyz");
    assert_int_equal (make ((train_rows_options_t){.seq = 32, .packed = true},
                            text, &d, NULL, NULL),
                      0);
    for (int64_t s = 0; s < train_data_n_samples (d); s++) {
        int32_t x[32], y[32], starts[32];

        train_data_get (d, s, x, y);
        train_data_starts_at (d, s, x, starts);
        for (int i = 0; i < 32; i++)
            if (starts[i] == i && x[i] != 0) {
                seen[(x[i] - '0') * 100 + (x[i + 1] - '0') * 10 + x[i + 2]
                     - '0']++;
                n++;
            }
    }
    assert_int_equal (n, 500);
    for (int i = 0; i < 500; i++)
        assert_int_equal (seen[i], 1);
    assert_true (train_data_n_samples (d)
                 < 270); /* 500 x 14 places / 32 = 219 */
    train_data_close (d);
    free (text);
}

static void test_refused (void **state)
{
    train_rows_options_t o = {.seq = 0};
    train_error_t err = {0};
    train_data_t *d;

    (void)state;
    assert_int_equal (make (o, ROWS, &d, NULL, &err), TRAIN_EINVAL);
    o.seq = 6;
    assert_int_equal (make (o, ROWS "{\"prompt\": \"a\"}", &d, NULL, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "r.jsonl:4: no field 'answer'"));
    o.held = 3;
    assert_int_equal (make (o, ROWS, &d, NULL, &err), TRAIN_EINVAL);
    o.held = -1;
    assert_int_equal (make (o, ROWS, &d, NULL, &err), TRAIN_EINVAL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_samples),     cmocka_unit_test (test_shuffle),
        cmocka_unit_test (test_long),        cmocka_unit_test (test_packed),
        cmocka_unit_test (test_packed_many), cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
