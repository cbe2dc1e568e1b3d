/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt_device.c - checkpoints of what lies on made-up GPUs, and of halves
 */
#include "config.h"

#include "ckpt_run.h"

#include "backend_fault.h"
#include "ckpt_place.h"
#include "kernels/half.h"

#define N 1000 /* elements of each tensor */

/* A tensor of the host and two of GPUs, one of them in two pieces. */
struct three {
    float *data[3];
    train_ckpt_piece_t piece[4];
};

static train_ckpt_piece_t piece_of (const char *name, float *data, int gpu,
                                    int64_t first, int64_t count)
{
    train_ckpt_piece_t p = {.name = name,
                            .dtype = TRAIN_F32,
                            .ndim = 2,
                            .shape = {N / 10, 10},
                            .first = first,
                            .count = count,
                            .data = data + first};

    if (gpu >= 0)
        p.device = (DLDevice){kDLCUDA, gpu};
    return p;
}

static struct three three_of (float mark)
{
    struct three t;

    for (int k = 0; k < 3; k++) {
        void *data = NULL;

        assert_int_equal (
            k == 0 ? backend_host.alloc (0, N * sizeof (float), &data, NULL)
                   : backend_fault.alloc (k, N * sizeof (float), &data, NULL),
            0);
        t.data[k] = data;
        for (int i = 0; i < N; i++)
            t.data[k][i] = mark + (float)(k * N + i);
    }
    t.piece[0] = piece_of ("host", t.data[0], -1, 0, N);
    t.piece[1] = piece_of ("one", t.data[1], 1, 0, N);
    t.piece[2] = piece_of ("two", t.data[2], 2, 0, 123);
    t.piece[3] = piece_of ("two", t.data[2], 2, 123, N - 123);
    return t;
}

static void drop_three (struct three *t)
{
    backend_host.free (t->data[0]);
    backend_fault.free (t->data[1]);
    backend_fault.free (t->data[2]);
}

static bool same_three (const struct three *a, const struct three *b)
{
    for (int k = 0; k < 3; k++)
        if (memcmp (a->data[k], b->data[k], N * sizeof (float)) != 0)
            return false;
    return true;
}

static int open_gpus (void **state)
{
    (void)state;
    fault_set (FAULT_NONE);
    ckpt_replace_gpu (&backend_fault);
    return 0;
}

static int close_gpus (void **state)
{
    (void)state;
    fault_set (FAULT_NONE);
    ckpt_replace_gpu (NULL);
    return 0;
}

static train_ckpt_options_t options_at (const char *to, int64_t step)
{
    return (train_ckpt_options_t){
        .size = sizeof (train_ckpt_options_t), .dir = to, .step = step};
}

/* Copies are made late here, and the memory changes right after the call. */
static void pieces_come_back (const char *to)
{
    struct three was = three_of (0.5f), now = three_of (0.5f),
                 got = three_of (-7);
    train_ckpt_options_t o = options_at (to, 1);
    train_ckpt_saver_t *s = NULL;
    train_ckpt_t *c = NULL;
    char *path;

    assert_int_equal (train_ckpt_saver_create (NULL, &s, NULL), 0);
    for (; o.step <= 2; o.step++) {
        assert_int_equal (train_ckpt_start (s, now.piece, 4, &o, NULL), 0);
        for (int k = 0; k < 3; k++)
            memset (now.data[k], 0x77, N * sizeof (float));
        assert_int_equal (train_ckpt_wait (s, NULL), 0);
        for (int k = 0; k < 3; k++)
            memcpy (now.data[k], was.data[k], N * sizeof (float));
    }
    path = find (to);
    assert_int_equal (train_ckpt_open (path, &c, NULL), 0);
    assert_int_equal (train_ckpt_read (c, got.piece, 4, NULL), 0);
    train_ckpt_close (c);
    assert_true (same_three (&got, &was));
    free (path);
    train_ckpt_saver_destroy (s);
    drop_three (&was);
    drop_three (&now);
    drop_three (&got);
}

static void test_pieces (void **state)
{
    (void)state;
    fault.lazy = true;
    pieces_come_back ("gpu");
    assert_true (fault.copies > 0);
    assert_int_equal (fault.unpinned, 1); /* one room for both */
}

static void test_no_pinned_memory (void **state)
{
    (void)state;
    fault.pin_limit = 64;
    pieces_come_back ("unpinned");
    assert_int_equal (fault.unpinned, 0);
}

static void test_other_devices (void **state)
{
    struct three t = three_of (1);
    train_ckpt_options_t o = options_at ("other", 1);
    train_ckpt_saver_t *s = NULL;
    train_error_t err = {0};

    (void)state;
    assert_int_equal (train_ckpt_saver_create (NULL, &s, NULL), 0);
    t.piece[0].device = (DLDevice){kDLVulkan, 0};
    assert_int_equal (train_ckpt_start (s, t.piece, 4, &o, &err),
                      TRAIN_ENOTSUP);
    assert_non_null (strstr (err.text, "'host' is on device type 7"));
    assert_int_equal (access ("other", F_OK), -1);
    train_ckpt_saver_destroy (s);
    drop_three (&t);
}

static const int32_t tokens[8] = {1, 5, 2, 9, 15, 0, 3, 7};

static void take_steps (struct run *r, int n)
{
    for (int i = 0; i < n; i++) {
        DLTensor *g = train_decoder_grads (r->decoder);
        double loss;
        int64_t counted;

        memset (g->data, 0, train_tensor_bytes (g));
        assert_int_equal (train_decoder_step (r->decoder, tokens, tokens, 1, 8,
                                              0.125, &loss, &counted, NULL),
                          0);
        assert_int_equal (train_adamw_step (r->adamw,
                                            train_decoder_weights (r->decoder),
                                            g, 1e-3, 1, NULL),
                          0);
    }
}

static struct run drawn (train_dtype_t dtype)
{
    train_decoder_config_t c = small;
    struct run r;

    c.dtype = dtype;
    r = make (&c, 0);
    memset (train_adamw_m (r.adamw)->data, 0,
            train_tensor_bytes (train_adamw_m (r.adamw)));
    memset (train_adamw_v (r.adamw)->data, 0,
            train_tensor_bytes (train_adamw_v (r.adamw)));
    train_decoder_init (r.decoder, 3);
    return r;
}

static void load (const char *from, struct run *r)
{
    train_ckpt_state_t s = {.size = sizeof (s)};
    train_error_t err = {0};
    char *path = find (from);

    if (train_ckpt_load (path, r->decoder, r->adamw, &s, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    train_adamw_set_updates (r->adamw, 5);
    free (path);
}

/* 5 steps, saved, loaded elsewhere, 5 more: the weights, masters and moments of
 * 10 steps. */
static void halves_go_on (train_dtype_t dtype, const char *to)
{
    struct run whole = drawn (dtype), one = drawn (dtype), two = drawn (dtype);

    take_steps (&whole, 10);
    take_steps (&one, 5);
    save (to, &one, 5, 1);
    take_steps (&two, 1); /* masters of its own, to be replaced */
    load (to, &two);
    assert_true (same (&one, &two));
    take_steps (&two, 5);
    assert_true (same (&whole, &two));
    assert_true (same_bits (train_adamw_masters (whole.adamw),
                            train_adamw_masters (two.adamw)));
    assert_false (same (&whole, &one));
    drop (&whole);
    drop (&one);
    drop (&two);
}

static void test_halves (void **state)
{
    (void)state;
    halves_go_on (TRAIN_BF16, "bf16");
    halves_go_on (TRAIN_F16, "f16");
}

/* Before the first step masters are the weights. */
static void test_halves_at_first (void **state)
{
    struct run a = drawn (TRAIN_BF16), b = drawn (TRAIN_BF16);

    (void)state;
    save ("first", &a, 1, 1);
    memset (train_decoder_weights (b.decoder)->data, 0,
            train_tensor_bytes (train_decoder_weights (b.decoder)));
    load ("first", &b);
    assert_true (same (&a, &b));
    drop (&a);
    drop (&b);
}

/* What a half wrote, others read: the masters as they are, or rounded. */
static void test_across_types (void **state)
{
    struct run from = drawn (TRAIN_BF16), wide = drawn (TRAIN_F32);
    struct run other = drawn (TRAIN_F16);
    const float *masters = train_adamw_masters (from.adamw)->data;
    const uint16_t *h = train_decoder_weights (other.decoder)->data;

    (void)state;
    take_steps (&from, 3);
    save ("across", &from, 3, 1);
    load ("across", &wide);
    load ("across", &other);
    assert_memory_equal (train_decoder_weights (wide.decoder)->data, masters,
                         train_tensor_bytes (train_adamw_masters (from.adamw)));
    for (size_t i = 0; i < train_decoder_numel (other.decoder); i++)
        assert_int_equal (h[i], half_to_f16 (masters[i]));
    drop (&from);
    drop (&wide);
    drop (&other);
}

/* An optimizer of another model has no place in the files. */
static void test_another_optimizer (void **state)
{
    train_decoder_config_t c = small;
    train_ckpt_state_t s = state_at (1);
    train_error_t err = {0};
    struct run a = make (&small, 1), b;

    (void)state;
    c.ffn = 20;
    b = make (&c, 1);
    assert_int_equal (
        train_ckpt_save ("another", &s, a.decoder, b.adamw, 1, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "elements"));
    assert_int_equal (access ("another", F_OK), -1);
    drop (&a);
    drop (&b);
}

static void test_scaler_state (void **state)
{
    struct run a = make (&small, 1);
    train_ckpt_state_t s = state_at (4), got = {.size = sizeof (got)};
    char *path;

    (void)state;
    s.scale = 32768;
    s.scale_good = 12;
    s.scale_budget = 1;
    s.scale_stuck = 3;
    assert_int_equal (
        train_ckpt_save ("scaler", &s, a.decoder, a.adamw, 1, NULL), 0);
    path = find ("scaler");
    assert_int_equal (train_ckpt_load (path, a.decoder, a.adamw, &got, NULL),
                      0);
    assert_true (got.scale == 32768);
    assert_int_equal (got.scale_good, 12);
    assert_int_equal (got.scale_budget, 1);
    assert_int_equal (got.scale_stuck, 3);
    free (path);
    drop (&a);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (test_pieces, open_gpus, close_gpus),
        cmocka_unit_test_setup_teardown (test_no_pinned_memory, open_gpus,
                                         close_gpus),
        cmocka_unit_test_setup_teardown (test_other_devices, open_gpus,
                                         close_gpus),
        cmocka_unit_test (test_halves),
        cmocka_unit_test (test_halves_at_first),
        cmocka_unit_test (test_across_types),
        cmocka_unit_test (test_another_optimizer),
        cmocka_unit_test (test_scaler_state),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
