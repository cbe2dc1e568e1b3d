/* SPDX-License-Identifier: Apache-2.0
 * test_grpo_need.c - what a policy that writes is said to take, beside what it
 * asks of its device */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <train/generate.h>

#include "fsdp_impl.h"
#include "generate_impl.h"
#include "grpo_run.h"
#include "grpo_task.h"
#include "reference.h"

/* ---- memory that is counted ------------------------------------------- */

enum { BLOCKS = 256 };

static struct {
    void *at[BLOCKS];
    size_t bytes[BLOCKS], now, peak;
} held;
static struct backend_ops counted;
static const struct backend_ops *plain;

static train_status_t alloc (int device, size_t bytes, void **ret,
                             train_error_t *err)
{
    train_status_t status = plain->alloc (device, bytes, ret, err);
    size_t i = 0;

    if (status != TRAIN_OK || !*ret)
        return status;
    while (i < BLOCKS && held.at[i])
        i++;
    assert_true (i < BLOCKS);
    held.at[i] = *ret;
    held.bytes[i] = bytes;
    held.now += bytes;
    held.peak = held.now > held.peak ? held.now : held.peak;
    return TRAIN_OK;
}

/* What was there before it was counted is passed over. */
static void drop (void *memory)
{
    for (size_t i = 0; memory && i < BLOCKS; i++)
        if (held.at[i] == memory) {
            held.at[i] = NULL;
            held.now -= held.bytes[i];
        }
    plain->free (memory);
}

static const struct backend_ops *count (const struct backend_ops *ops)
{
    plain = ops;
    counted = *ops;
    counted.alloc = alloc;
    counted.free = drop;
    held.now = held.peak = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        held.at[i] = NULL;
    return &counted;
}

/* ---- the tests -------------------------------------------------------- */

enum { TEXTS = 9, PROMPT = 5, MORE = 6 };

static train_decoder_t *make (int vocab)
{
    const train_decoder_config_t c = {.size = sizeof (c),
                                      .layers = 2,
                                      .dim = 16,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .ffn = 24,
                                      .vocab = vocab,
                                      .tie = true,
                                      .rope_theta = 10000,
                                      .norm_eps = 1e-5,
                                      .dtype = TRAIN_F32};
    train_decoder_t *m = NULL;

    assert_int_equal (train_decoder_create (&c, &m, NULL), TRAIN_OK);
    train_decoder_init (m, 3);
    return m;
}

static void write_texts (train_decoder_t *m, int at_once, double repetition)
{
    static const int32_t ids[PROMPT] = {3, 1, 4, 1, 5};
    const train_generate_options_t o = {.size = sizeof (o),
                                        .max_new = MORE,
                                        .temperature = 1,
                                        .repetition = repetition,
                                        .at_once = at_once};
    const int32_t *prompts_of[TEXTS];
    int32_t n[TEXTS], ret[TEXTS * MORE];
    int got[TEXTS];

    for (int i = 0; i < TEXTS; i++) {
        prompts_of[i] = ids;
        n[i] = PROMPT;
    }
    assert_int_equal (
        train_generate (ret, got, m, prompts_of, n, TEXTS, &o, NULL), TRAIN_OK);
}

/* To the byte: all texts at once or some, a table of what was said or none. */
static void test_writing (void **state)
{
    static const int at_once[] = {0, 1, 4, TEXTS};
    train_decoder_t *m = make (3000);
    size_t without = 0;

    (void)state;
    m->ops = count (m->ops);
    for (size_t i = 0; i < 8; i++) {
        double repetition = i < 4 ? 0 : 1.1;
        size_t said = generate_bytes (m, TEXTS, at_once[i % 4], PROMPT, MORE,
                                      repetition > 0);

        held.peak = held.now;
        write_texts (m, at_once[i % 4], repetition);
        assert_int_equal (held.peak, said);
        assert_int_equal (held.now, 0);
        if (i % 4 == 0 && i > 0)
            assert_true (said > without);
        without = i % 4 == 0 ? said : without;
    }
    m->ops = plain;
    train_decoder_destroy (m);
}

/* A reference's own passes. */
static void test_reference (void **state)
{
    static const int32_t ids[2 * 7], total[] = {7, 7};
    train_decoder_t *m = make (V);
    train_reference_t *r = NULL;
    size_t numbers = 2 * sizeof (ids) / sizeof (*ids) * sizeof (float);
    float ret[2 * 7];

    (void)state;
    assert_int_equal (train_reference_open_decoder (m, &r, NULL), TRAIN_OK);
    m->ops = count (m->ops);
    assert_int_equal (
        train_reference_logps (r, ids, NULL, total, 2, 7, 1, ret, NULL),
        TRAIN_OK);
    assert_int_equal (held.now, reference_bytes (r, 2, 7));
    assert_int_equal (held.peak, held.now + numbers);
    train_reference_close (r);
    m->ops = plain;
    train_decoder_destroy (m);
    assert_int_equal (reference_bytes (NULL, 2, 7), 0);
}

/* Two cycles and an evaluation, within a tenth. */
static void check_need (const train_grpo_trainer_options_t *o,
                        train_group_t *group, const char *what)
{
    train_error_t err = {0};
    struct run r;
    double reward;
    size_t need;

    if (open_run (&r, o, group, TRAIN_F32, score, &err) != TRAIN_OK)
        fail_msg ("%s: %s", what, err.text);
    need = grpo_need (r.trainer, 1 + o->max_new);
    r.decoder->ops = r.trainer->trainer->fsdp->ops = count (r.decoder->ops);
    for (int i = 0; i < 1 + (o->iterations > 1 ? o->iterations : 1); i++)
        (void)step (&r);
    if (o->held > 0)
        assert_int_equal (train_grpo_trainer_try (r.trainer, &prompts, o->held,
                                                  0, score, r.decoder, &reward,
                                                  &err),
                          TRAIN_OK);
    if ((double)need < 0.9 * (double)held.peak
        || (double)need > 1.1 * (double)held.peak)
        fail_msg ("%s: %zu bytes are said, and %zu held", what, need,
                  held.peak);
    r.decoder->ops = r.trainer->trainer->fsdp->ops = plain;
    close_run (&r);
}

static void test_need (void **state)
{
    train_grpo_trainer_options_t o = options ();
    train_group_t *group = NULL;

    (void)state;
    unsetenv ("RANK");
    setenv ("RV_BOOT", "single", 1);
    assert_int_equal (train_group_create (NULL, &group, NULL), TRAIN_OK);
    layers = 3;
    o.trainer.strategy = TRAIN_FULL_SHARD;
    o.trainer.batch = 16;
    o.max_new = 20;
    o.ends = NULL; /* all are as long as they may be */
    o.n_ends = 0;
    check_need (&o, group, "all at once");
    o.trainer.micro_batch = 2;
    check_need (&o, group, "small passes");
    o.iterations = 2;
    o.at_once = 3;
    check_need (&o, group, "a few at once");
    o.at_once = 0;
    o.trainer.batch = 8;
    o.group = 4;
    o.repetition = 1.2;
    check_need (&o, group, "repetition");
    o.trainer.batch = 2;
    o.group = 2;
    o.held = PROMPTS;
    o.held_prompt = 1;
    check_need (&o, group, "an evaluation that is larger");
    o.held = 0;
    o.loss.beta = 0.1;
    adapters = (train_lora_t){.rank = 2, .alpha = 4, .targets = 127};
    check_need (&o, group, "adapters, and the policy as their reference");
    train_group_destroy (group);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_writing),
        cmocka_unit_test (test_reference),
        cmocka_unit_test (test_need),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
