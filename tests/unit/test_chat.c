/* SPDX-License-Identifier: Apache-2.0
 * test_chat.c - chat templates: as transformers renders them
 * (tests/interop/chat_golden.py), and which are refused */
#include "own_dir.h"

#include <jansson.h>
#include <unistd.h>

#include <train/prompts.h>

#include "libtrain/chat.h"

/* A folder with a model's template; [file] of its own or in the config. */
static void put_model (const json_t *c, bool file)
{
    json_t *config = json_object ();
    char *text, *path;

    json_object_set (config, "bos_token", json_object_get (c, "bos_token"));
    json_object_set_new (config, "eos_token",
                         json_pack ("{s:O,s:b}", "content",
                                    json_object_get (c, "eos_token"), "special",
                                    1));
    if (!file)
        json_object_set (config, "chat_template",
                         json_object_get (c, "template"));
    text = json_dumps (config, 0);
    write_text ("tokenizer_config.json", text);
    path = fsio_join (dir, "chat_template.jinja");
    unlink (path);
    free (path);
    if (file)
        write_text ("chat_template.jinja",
                    json_string_value (json_object_get (c, "template")));
    free (text);
    json_decref (config);
}

static void check_talk (const struct chat *chat, const char *name,
                        const json_t *talk)
{
    const json_t *want = json_object_get (talk, "text");
    train_error_t err = {0};
    char *got = NULL;
    train_status_t status = chat_render (
        chat, json_object_get (talk, "messages"), NULL, &got, &err);

    if (json_is_null (want)) {
        if (status != TRAIN_EFORMAT || !strstr (err.text, "'prompt' has"))
            fail_msg ("%s: not refused but '%s' (%s)", name, got, err.text);
        return;
    }
    if (status != TRAIN_OK)
        fail_msg ("%s: %s", name, err.text);
    if (strcmp (got, json_string_value (want)) != 0)
        fail_msg ("%s: '%s'\nis not '%s'", name, got, json_string_value (want));
    free (got);
}

static void check_case (const json_t *c, bool file)
{
    const char *name = json_string_value (json_object_get (c, "name"));
    const json_t *talk;
    train_error_t err = {0};
    struct chat chat;
    size_t i;

    put_model (c, file);
    if (chat_find (&chat, NULL, dir, &err) != TRAIN_OK)
        fail_msg ("%s: %s", name, err.text);
    json_array_foreach (json_object_get (c, "talks"), i, talk)
    {
        check_talk (&chat, name, talk);
    }
    assert_non_null (chat_end (&chat));
    chat_fini (&chat);
}

static void test_golden (void **state)
{
    const char *src = getenv ("top_srcdir");
    const json_t *c;
    char path[4096];
    json_t *all;
    size_t i;

    (void)state;
    snprintf (path, sizeof (path), "%s/tests/golden/chat.json",
              src ? src : "..");
    all = json_load_file (path, 0, NULL);
    assert_true (json_array_size (all) > 8);
    json_array_foreach (all, i, c)
    {
        check_case (c, false);
        check_case (c, true);
    }
    json_decref (all);
}

static void expect_unknown (const char *text)
{
    struct chat chat = {.bos = strdup ("<s>"), .eos = strdup ("</s>")};
    train_error_t err = {0};

    if (chat_of (&chat, text, &err) != TRAIN_ENOTSUP)
        fail_msg ("'%s' is taken for one that is known", text);
    assert_non_null (strstr (err.text, "[data] template = NAME"));
    chat_fini (&chat);
}

/* Near to a family, but not of it. */
static void test_unknown (void **state)
{
    (void)state;
    expect_unknown ("");
    expect_unknown ("{{ messages[0]['content'] }}");
    expect_unknown ("<|user|>\\n{{ m.content }}<|end|>\\n<|assistant|>");
    expect_unknown ("<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}"
                    "<|im_end|><|im_start|>assistant\\n");
    expect_unknown ("'<|im_start|>' + m['content'] | trim + '<|im_end|>'"
                    "<|im_start|>assistant\\n");
    expect_unknown ("<|im_start|>x<|im_end|>last_query_index"
                    "<|im_start|>assistant\\n<think>\\n");
    expect_unknown ("<|start_header_id|>{{ m.content }}<|eot_id|>");
    expect_unknown ("<|start_header_id|>m | trim<|eot_id|>Cutting Knowledge "
                    "Date: December 2024");
    expect_unknown ("[INST] {{ m.content }} [/INST]");
    expect_unknown ("bos_token + '[INST] ' + content + ' [/INST]' <<SYS>>\\n");
    expect_unknown ("<start_of_turn>{{ m.content | trim }}<end_of_turn>");
}

static void expect_lack (const char *text, const char *bos, const char *token)
{
    struct chat chat = {.bos = bos ? strdup (bos) : NULL};
    train_error_t err = {0};

    if (chat_of (&chat, text, &err) != TRAIN_EFORMAT)
        fail_msg ("'%s' does without %s", text, token);
    assert_non_null (strstr (err.text, token));
    chat_fini (&chat);
}

/* A token that stands in every text, and which the folder does not name. */
static void test_lacking (void **state)
{
    static const char llama2[] =
        "<<SYS>>\n bos_token + '[INST] ' + content.strip() + ' [/INST]' "
        "content.strip() + ' ' + eos_token";
    static const char mistral[] =
        "{{ bos_token }}'[INST] ' + message['content'] + ' [/INST]'"
        "{{ message['content'] + eos_token + ' ' }}";

    (void)state;
    expect_lack (llama2, NULL, "bos_token");
    expect_lack (llama2, "<s>", "eos_token");
    expect_lack (mistral, NULL, "bos_token");
    expect_lack (mistral, "<s>", "eos_token");
    expect_lack ("bos_token<|start_header_id|>m | trim<|eot_id|>", NULL,
                 "bos_token");
}

static train_status_t open_one (const char *name, const char *prompt,
                                const char *system, char *text, size_t size)
{
    train_prompts_options_t o = {
        .size = sizeof (o), .files = prompt, .chat = name, .system = system};
    train_prompts_t *p = NULL;
    train_error_t err = {0};
    train_status_t status;
    char path[64];

    snprintf (path, sizeof (path), "%s/p.jsonl", dir);
    write_text ("p.jsonl", prompt);
    o.files = path;
    assert_int_equal (train_tokenizer_open ("bytes", &o.tokenizer, NULL), 0);
    status = train_prompts_open (&o, &p, &err);
    snprintf (text, size, "%s",
              status == TRAIN_OK ? train_prompts_text (p, 0) : err.text);
    if (status == TRAIN_OK)
        assert_int_equal (train_prompts_end (p), 256);
    train_prompts_close (p);
    train_tokenizer_close (o.tokenizer);
    return status;
}

#define TALK "{\"prompt\": [{\"role\": \"user\", \"content\": \"x\"}]}"
#define LAST                                                                   \
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"x\"},"                  \
    "{\"role\": \"assistant\", \"content\": \"y\"}]}"

/* By name, without a model's folder; texts and messages. */
static void test_prompts (void **state)
{
    char t[600];

    (void)state;
    assert_int_equal (
        open_one ("chatml", "{\"prompt\": \"x\"}", "S", t, sizeof (t)), 0);
    assert_string_equal (t, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user"
                            "\nx<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal (open_one ("llama2", TALK, NULL, t, sizeof (t)), 0);
    assert_string_equal (t, "<s>[INST] x [/INST]");
    assert_int_equal (
        open_one ("plain", "{\"prompt\": \"x\"}", NULL, t, sizeof (t)), 0);
    assert_string_equal (t, "x");
    assert_int_equal (open_one (NULL, TALK, NULL, t, sizeof (t)),
                      TRAIN_EFORMAT);
    assert_non_null (strstr (t, "p.jsonl:1: 'prompt' has messages"));
    assert_int_equal (open_one ("chatml", LAST, NULL, t, sizeof (t)),
                      TRAIN_EFORMAT);
    assert_non_null (strstr (t, "does not end with a message of role user"));
    assert_int_equal (
        open_one ("chatml", "{\"prompt\": []}", NULL, t, sizeof (t)),
        TRAIN_EFORMAT);
    assert_int_equal (open_one ("chatml",
                                "{\"prompt\": [{\"role\": \"user\"}]}", NULL, t,
                                sizeof (t)),
                      TRAIN_EFORMAT);
    assert_int_equal (
        open_one ("chatml",
                  "{\"prompt\": [{\"role\": \"tool\", \"content\": \"\"}]}",
                  NULL, t, sizeof (t)),
        TRAIN_EFORMAT);
    assert_int_equal (open_one ("gemma", TALK, "S", t, sizeof (t)),
                      TRAIN_EFORMAT);
    assert_int_equal (open_one ("llama9", TALK, NULL, t, sizeof (t)),
                      TRAIN_EINVAL);
    assert_non_null (strstr (t, "template 'llama9' is none of"));
    assert_int_equal (
        open_one ("plain", "{\"prompt\": \"x\"}", "S", t, sizeof (t)),
        TRAIN_EINVAL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_golden),
        cmocka_unit_test (test_unknown),
        cmocka_unit_test (test_lacking),
        cmocka_unit_test (test_prompts),
    };

    return cmocka_run_group_tests (tests, make_dir, remove_dir);
}
