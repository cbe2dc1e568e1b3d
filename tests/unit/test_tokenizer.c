/* SPDX-License-Identifier: Apache-2.0
 * test_tokenizer.c - ids and texts that Hugging Face's tokenizers made
 * (tests/interop/tokenizer_check.py); what a file may not ask for; hard texts */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/tokenizer.h>

#include "tokenizer_impl.h"

#define LENGTH(a) (sizeof (a) / sizeof (*(a)))

static train_tokenizer_t *parse (const json_t *json)
{
    char *text = json_dumps (json, 0);
    train_tokenizer_t *t = NULL;
    train_error_t err = {0};

    assert_non_null (text);
    if (train_tokenizer_parse (text, strlen (text), &t, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    free (text);
    return t;
}

static char *from_hex (const json_t *hex, size_t *n)
{
    const char *s = json_string_value (hex);
    char *out = malloc (strlen (s) / 2 + 1);

    assert_non_null (out);
    for (*n = 0; s[2 * *n]; ++*n) {
        unsigned byte;

        assert_int_equal (sscanf (s + 2 * *n, "%2x", &byte), 1);
        out[*n] = (char)byte;
    }
    return out;
}

static void check_case (train_tokenizer_t *t, const json_t *c)
{
    const json_t *want = json_object_get (c, "ids");
    size_t size, n, back_size, got_size, bad;
    char *text = from_hex (json_object_get (c, "hex"), &size), *got;
    char *back = from_hex (json_object_get (c, "back"), &back_size);
    int32_t *ids;

    assert_int_equal (
        train_tokenizer_encode (t, &ids, &n, text, size, true, &bad, NULL),
        TRAIN_OK);
    assert_int_equal (bad, 0);
    assert_int_equal (n, json_array_size (want));
    for (size_t i = 0; i < n; i++)
        assert_int_equal (ids[i],
                          json_integer_value (json_array_get (want, i)));
    assert_int_equal (
        train_tokenizer_decode (t, &got, &got_size, ids, n, true, NULL),
        TRAIN_OK);
    assert_int_equal (got_size, back_size);
    assert_memory_equal (got, back, back_size);
    free (got);
    free (ids);
    free (back);
    free (text);
}

static void test_golden (void **state)
{
    const char *top = getenv ("top_srcdir");
    char path[4096];
    train_tokenizer_t *t;
    json_t *file, *c;
    size_t i;

    snprintf (path, sizeof (path), "%s/tests/golden/tokenizer-%s.json",
              top ? top : ".", (const char *)*state);
    file = json_load_file (path, 0, NULL);
    if (!file)
        fail_msg ("cannot read %s", path);
    t = parse (json_object_get (file, "tokenizer"));
    assert_true (json_array_size (json_object_get (file, "cases")) > 50);
    json_array_foreach (json_object_get (file, "cases"), i, c)
        check_case (t, c);
    train_tokenizer_close (t);
    json_decref (file);
}

/* Keys of a small good file, to be replaced one by one. */
#define MODEL                                                                  \
    "'type':'BPE','unk_token':'?','vocab':{'?':0,'a':1,'b':2,'ab':3,'\xe2\x96" \
    "\x81':4}"
#define MERGES  "'merges':['a b']"
#define WORK(m) "{'model':{" MODEL "," m "}"
#define GOOD    WORK (MERGES) ","

static train_status_t try (const char *text, train_tokenizer_t **t,
                           train_error_t *err)
{
    char json[2048];
    size_t n = strlen (text);

    assert_true (n < sizeof (json));
    for (size_t i = 0; i <= n; i++)
        json[i] = text[i] == '\'' ? '"' : text[i] == '`' ? '\'' : text[i];
    return train_tokenizer_parse (json, n, t, err);
}

struct wrong {
    const char *text;
    train_status_t status;
    const char *says;
};

static const struct wrong refused[] = {
    {"[]", TRAIN_EFORMAT, "not a JSON object"},
    {"{", TRAIN_EFORMAT, "line 1"},
    {"{}", TRAIN_EFORMAT, "'model'"},
    {"{'model':{'type':'Unigram'}}", TRAIN_ENOTSUP,
     "'model.type' is 'Unigram'"},
    {WORK ("'merges':['a b','a x']") "}", TRAIN_EFORMAT,
     "'model.merges[1]': 'x' is not in"},
    {WORK ("'merges':['ab']") "}", TRAIN_EFORMAT, "'model.merges[0]'"},
    {WORK ("'merges':[['a','b'],['a']]") "}", TRAIN_EFORMAT,
     "'model.merges[1]'"},
    {WORK ("'merges':['b a']") "}", TRAIN_EFORMAT, "'ba' is not in"},
    {WORK (MERGES ",'dropout':0.1") "}", TRAIN_ENOTSUP, "model.dropout"},
    {WORK (MERGES ",'end_of_word_suffix':'</w>'") "}", TRAIN_ENOTSUP,
     "model.end_of_word_suffix"},
    {WORK (MERGES ",'fuse_unk':1") "}", TRAIN_EFORMAT, "model.fuse_unk"},
    {"{'model':{'vocab':{'a':0,'b':0},'merges':[]}}", TRAIN_EFORMAT,
     "have one id"},
    {"{'model':{'vocab':{'a':-1},'merges':[]}}", TRAIN_EFORMAT,
     "'model.vocab': the id of 'a'"},
    {"{'model':{'vocab':{'a':1000000},'merges':[]}}", TRAIN_EFORMAT,
     "ids up to 1000000"},
    {"{'model':{'vocab':{'a':0},'merges':[]}}", TRAIN_ENOTSUP, "would be lost"},
    {GOOD "'truncation':{}}", TRAIN_ENOTSUP, "'truncation'"},
    {GOOD "'normalizer':{'type':'NFKC'}}", TRAIN_ENOTSUP,
     "'normalizer.type' is 'NFKC'"},
    {GOOD "'normalizer':{'type':'Replace','pattern':{'Regex':' {2,}'},"
          "'content':'x'}}",
     TRAIN_ENOTSUP, "'normalizer.pattern.Regex' is ' {2,}'"},
    {GOOD "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':"
          "'Split','pattern':{'Regex':'\\\\d+'},'behavior':'Isolated'}]}}",
     TRAIN_ENOTSUP, "'pre_tokenizer.pretokenizers[0].pattern.Regex' is '\\d+'"},
    {GOOD "'pre_tokenizer':{'type':'Whitespace'}}", TRAIN_ENOTSUP,
     "'Whitespace'"},
    {GOOD "'decoder':{'type':'WordPiece'}}", TRAIN_ENOTSUP, "'WordPiece'"},
    {GOOD "'post_processor':{'type':'BertProcessing'}}", TRAIN_ENOTSUP,
     "'BertProcessing'"},
    {GOOD "'added_tokens':[{'id':9,'content':'<x>'},{'id':1,'content':"
          "'<y>'}]}",
     TRAIN_EFORMAT, "'added_tokens[1].id' is 1"},
    {GOOD "'added_tokens':[{'id':7,'content':'a'}]}", TRAIN_EFORMAT,
     "'model.vocab' has the token as 1"},
    {GOOD "'added_tokens':[{'id':9,'content':'x','single_word':true}]}",
     TRAIN_ENOTSUP, "added_tokens[0].single_word"},
    {GOOD "'post_processor':{'type':'TemplateProcessing','single':["
          "{'SpecialToken':{'id':'<s>'}},{'Sequence':{'id':'A'}}],"
          "'special_tokens':{'<s>':{'ids':[77]}}}}",
     TRAIN_EFORMAT, "id 77 is no token"},
};

static void test_refused (void **state)
{
    train_tokenizer_t *t = NULL;
    train_error_t err;

    (void)state;
    if (try (GOOD "'x':0}", &t, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    train_tokenizer_close (t);
    for (size_t i = 0; i < LENGTH (refused); i++) {
        err = (train_error_t){0};
        t = NULL;
        if (try (refused[i].text, &t, &err) != refused[i].status
            || !strstr (err.text, refused[i].says))
            fail_msg ("%s: %s", refused[i].text, err.text);
        assert_null (t);
    }
}

static void test_bytes (void **state)
{
    const char text[] = "a\xff\0b";
    train_tokenizer_t *t;
    int32_t *ids, wrong = 256;
    size_t n, size;
    char *back;

    (void)state;
    assert_int_equal (train_tokenizer_open ("bytes", &t, NULL), TRAIN_OK);
    assert_int_equal (train_tokenizer_vocab (t), 256);
    assert_int_equal (
        train_tokenizer_encode (t, &ids, &n, text, 4, true, NULL, NULL),
        TRAIN_OK);
    assert_int_equal (n, 4);
    assert_int_equal (ids[1], 255);
    assert_int_equal (
        train_tokenizer_decode (t, &back, &size, ids, n, false, NULL),
        TRAIN_OK);
    assert_int_equal (size, 4);
    assert_memory_equal (back, text, 4);
    free (back);
    free (ids);
    assert_int_equal (
        train_tokenizer_decode (t, &back, &size, &wrong, 1, false, NULL),
        TRAIN_EINVAL);
    assert_null (back);
    train_tokenizer_close (t);
    assert_int_equal (train_tokenizer_open ("/nowhere/at/all", &t, NULL),
                      TRAIN_ENOTFOUND);
}

/* Byte-level, and byte 'c' has no token, as some are missing from SmolLM2's: a
 * text with it is refused, each time, and others are not. */
static void test_lost (void **state)
{
    train_tokenizer_t *t;
    train_error_t err;
    int32_t *ids;
    size_t n;

    (void)state;
    if (try ("{'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a "
             "b']},'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':"
             "false,'use_regex':false},'decoder':{'type':'ByteLevel'}}",
             &t, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    for (int i = 0; i < 2; i++) {
        assert_int_equal (
            train_tokenizer_encode (t, &ids, &n, "abc", 3, false, NULL, &err),
            TRAIN_EINVAL);
        assert_non_null (strstr (err.text, "byte 0x63"));
        assert_int_equal (
            train_tokenizer_encode (t, &ids, &n, "aba", 3, false, NULL, &err),
            TRAIN_OK);
        assert_int_equal (n, 2);
        free (ids);
    }
    train_tokenizer_close (t);
}

/* A special token is hidden; another that was added, one of the model's, and what
 * is no token are not. */
static void test_hidden (void **state)
{
    train_tokenizer_t *t;
    train_error_t err;

    (void)state;
    if (try ("{'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a "
             "b']},'added_tokens':[{'id':3,'content':'<|end|>','special':true},"
             "{'id':4,'content':'<tool>','special':false}],'pre_tokenizer':"
             "{'type':'ByteLevel','add_prefix_space':false,'use_regex':false},"
             "'decoder':{'type':'ByteLevel'}}",
             &t, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_int_equal (train_tokenizer_hidden (t, "<|end|>"), 3);
    assert_int_equal (train_tokenizer_hidden (t, "<tool>"), -1);
    assert_int_equal (train_tokenizer_hidden (t, "ab"), -1);
    assert_int_equal (train_tokenizer_hidden (t, "<|end|> "), -1);
    train_tokenizer_close (t);
    assert_int_equal (train_tokenizer_open ("bytes", &t, NULL), TRAIN_OK);
    assert_int_equal (train_tokenizer_hidden (t, "<|end|>"), -1);
    train_tokenizer_close (t);
}

/* One piece of a million symbols: n log n, not n n; and bytes that are no
 * UTF-8 are counted. */
static void test_hard (void **state)
{
    enum { N = 1 << 20 };
    train_tokenizer_t *t;
    train_error_t err;
    int32_t *ids;
    size_t n, bad;
    char *text = malloc (N), *back;

    (void)state;
    assert_non_null (text);
    if (try (GOOD "'x':0}", &t, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    for (size_t i = 0; i < N; i++)
        text[i] = i % 2 ? 'b' : 'a';
    assert_int_equal (
        train_tokenizer_encode (t, &ids, &n, text, N, false, &bad, &err),
        TRAIN_OK);
    assert_int_equal (n, N / 2);
    assert_int_equal (ids[N / 2 - 1], 3);
    free (ids);
    memcpy (text,
            "a\xe2\x82"
            "b\xff\xfe",
            6);
    assert_int_equal (
        train_tokenizer_encode (t, &ids, &n, text, 6, false, &bad, &err),
        TRAIN_OK);
    assert_int_equal (bad, 3);
    assert_int_equal (n, 5); /* a ? b ? ? */
    assert_int_equal (
        train_tokenizer_decode (t, &back, &n, ids, n, false, &err), TRAIN_OK);
    assert_string_equal (back, "a ? b ? ?");
    assert_int_equal (train_tokenizer_id (t, "ab"), 3);
    assert_int_equal (train_tokenizer_id (t, "ba"), -1);
    free (back);
    free (ids);
    free (text);
    train_tokenizer_close (t);
}

#define GOLDEN(name)                                                           \
    {                                                                          \
        "golden " name, test_golden, NULL, NULL, (void *)name                  \
    }

/* Tokens that take the white space beside them: one all of whose own is taken
 * already is none (ids of Hugging Face's tokenizers 0.23.3). */
static void test_white_space (void **state)
{
    static const struct {
        const char *text;
        size_t n;
        int32_t ids[3];
    } cases[] = {
        {"       ", 1, {5}},  {"a       b", 3, {1, 5, 2}},
        {"<s>   ", 1, {6}},   {"<s>\t", 1, {6}},
        {"\t<s>", 2, {7, 6}}, {"a \t<s>  \t", 3, {1, 7, 6}},
    };
    train_tokenizer_t *t;
    train_error_t err;

    (void)state;
    if (try (GOOD "'added_tokens':[{'id':5,'content':'   ','lstrip':true,"
                  "'rstrip':true},{'id':6,'content':'<s>','rstrip':true},"
                  "{'id':7,'content':'\\t','lstrip':true}]}",
             &t, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    for (size_t i = 0; i < LENGTH (cases); i++) {
        int32_t *ids;
        size_t n;

        assert_int_equal (train_tokenizer_encode (t, &ids, &n, cases[i].text,
                                                  strlen (cases[i].text), false,
                                                  NULL, &err),
                          TRAIN_OK);
        if (n != cases[i].n || memcmp (ids, cases[i].ids, n * sizeof (*ids)))
            fail_msg ("'%s': %zu ids, the first %d", cases[i].text, n, ids[0]);
        free (ids);
    }
    train_tokenizer_close (t);
}

/* The versions of Unicode that the library has: 16 for classes, 9 for normal
 * form C. */
static void test_unicode (void **state)
{
    static const struct {
        const char *from, *to;
    } nfc[] = {
        {"e\xcc\x81", "\xc3\xa9"},
        {"e\xcc\x81\xcc\xa3", "\xe1\xba\xb9\xcc\x81"},
        /* U+1715 and U+0C3C are later, and U+11938 has no parts yet */
        {"a\xe1\x9c\x95\xcc\xb4", "a\xe1\x9c\x95\xcc\xb4"},
        {"\xcd\x85\xe0\xb0\xbc", "\xcd\x85\xe0\xb0\xbc"},
        {"\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0",
         "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0"},
    };
    uint8_t *classes = malloc (UNICODE_CLASS_BYTES);

    (void)state;
    assert_non_null (classes);
    unicode_classes (classes);
    assert_int_equal (unicode_class (classes, 0x4e00), UNICODE_LETTER);
    assert_int_equal (unicode_class (classes, 0x31350), UNICODE_LETTER);
    assert_int_equal (unicode_class (classes, 0x2ee5d), UNICODE_LETTER);
    assert_int_equal (unicode_class (classes, 0x116d0), UNICODE_NUMBER);
    assert_int_equal (unicode_class (classes, 0x323b0), UNICODE_OTHER);
    assert_int_equal (unicode_class (classes, 0x3000), UNICODE_SPACE);
    free (classes);
    for (size_t i = 0; i < LENGTH (nfc); i++) {
        struct tok_buf b = {0};

        unicode_nfc (&b, nfc[i].from, strlen (nfc[i].from));
        tok_buf_add (&b, "", 1);
        assert_false (b.failed);
        assert_string_equal (b.p, nfc[i].to);
        free (b.p);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        GOLDEN ("gpt2"),
        GOLDEN ("llama2"),
        GOLDEN ("llama3"),
        GOLDEN ("metaspace-first"),
        GOLDEN ("qwen2"),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_bytes),
        cmocka_unit_test (test_lost),
        cmocka_unit_test (test_hidden),
        cmocka_unit_test (test_hard),
        cmocka_unit_test (test_white_space),
        cmocka_unit_test (test_unicode),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
