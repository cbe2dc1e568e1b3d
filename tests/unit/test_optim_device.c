/* SPDX-License-Identifier: Apache-2.0
 * test_optim_device.c - AdamW of a GPU that is not the thread's present one: what
 * is given without a stream waits in a queue of each GPU's own */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fake_nccl.h"
#include "libtrain/optim.h"

#include "kernels/half.h"

#define N 12 /* elements, of which the last do not train */

static const struct fake_orders no_orders = {.rank = -1};

static const train_param_t params[] = {
    {.name = "a", .ndim = 2, .shape = {2, 2}, .count = 4, .decay = true},
    {.name = "b", .ndim = 1, .shape = {4}, .offset = 4, .count = 4},
};

/* What an optimizer works on, and what it came to. */
struct work {
    train_adamw_t *adamw;
    train_tensor_t weights, grads;
    float p[N], g[N], m[N], v[N], masters[N];
    uint16_t half[N];
    int device;
    train_dtype_t dtype;
};

static void view_of (const struct work *w, train_tensor_t *t, void *data,
                     train_dtype_t dtype)
{
    int64_t shape[1] = {N};

    assert_int_equal (train_tensor_view (t, data, dtype, 1, shape, NULL), 0);
    t->t.device = (DLDevice){kDLCUDA, w->device};
}

static void open_work (struct work *w, int device, train_dtype_t dtype)
{
    const train_adamw_options_t o = {.size = sizeof (o),
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .device = {kDLCUDA, device}};

    *w = (struct work){.device = device, .dtype = dtype};
    for (int i = 0; i < N; i++) {
        w->p[i] = 1.0f / (float)(i + 1);
        w->g[i] = (float)(i % 5) - 1.5f;
        w->half[i] = half_to_bf16 (w->p[i]);
    }
    view_of (w, &w->weights, dtype == TRAIN_F32 ? (void *)w->p : w->half,
             dtype);
    view_of (w, &w->grads, w->g, TRAIN_F32);
    assert_int_equal (adamw_create_at (&o, dtype, N, params, NULL, 2, ADAMW_OWN,
                                       &w->adamw, NULL),
                      0);
}

/* As soon as the call is back. */
static void look (struct work *w)
{
    struct adamw_wide wide;

    assert_int_equal (adamw_spread (w->adamw, &w->weights.t, &wide, NULL), 0);
    memcpy (w->m, wide.m, sizeof (w->m));
    memcpy (w->v, wide.v, sizeof (w->v));
    if (wide.masters)
        memcpy (w->masters, wide.masters, sizeof (w->masters));
    adamw_wide_free (&wide);
}

static void steps (struct work *w, int device, train_dtype_t dtype)
{
    open_work (w, device, dtype);
    for (int i = 0; i < 3; i++)
        assert_int_equal (train_adamw_step (w->adamw, &w->weights.t,
                                            &w->grads.t, 0.01, 1.0 / (i + 1),
                                            NULL),
                          0);
    look (w);
    train_adamw_destroy (w->adamw);
}

static void want_same (const struct work *a, const struct work *b)
{
    assert_memory_equal (a->p, b->p, sizeof (a->p));
    assert_memory_equal (a->half, b->half, sizeof (a->half));
    assert_memory_equal (a->m, b->m, sizeof (a->m));
    assert_memory_equal (a->v, b->v, sizeof (a->v));
    assert_memory_equal (a->masters, b->masters, sizeof (a->masters));
}

/* The thread's own GPU is 0. */
static void compare (void (*use) (struct work *, int, train_dtype_t),
                     train_dtype_t dtype)
{
    struct work here, there;

    fake_open (&no_orders);
    fake_queues (true);
    use (&here, 0, dtype);
    use (&there, 3, dtype);
    want_same (&here, &there);
    assert_true (here.m[1] != 0 && here.v[6] != 0);
    fake_queues (false);
    fake_close ();
}

static void test_step (void **state)
{
    (void)state;
    compare (steps, TRAIN_F32);
    compare (steps, TRAIN_BF16);
}

/* Masters from the weights, others in their place, and the weights from those. */
static void masters (struct work *w, int device, train_dtype_t dtype)
{
    float own[N];
    struct adamw_wide wide;

    open_work (w, device, dtype);
    assert_int_equal (adamw_widen (w->adamw, &w->weights.t, NULL), 0);
    look (w);
    for (int i = 0; i < N; i++)
        own[i] = 2 * w->masters[i];
    assert_int_equal (adamw_put (w->adamw, &w->weights.t, own, 0, N, NULL), 0);
    for (int i = 0; i < 8; i++)
        w->half[i] = 0;
    assert_int_equal (adamw_narrow (w->adamw, &w->weights.t, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal (w->half[i], half_to_bf16 (own[i]));
    assert_int_equal (adamw_spread (w->adamw, &w->weights.t, &wide, NULL), 0);
    for (int i = 0; i < 8; i++)
        ((float *)wide.m)[i] = ((float *)wide.v)[i] = (float)(i + 1);
    assert_int_equal (adamw_gather (w->adamw, &w->weights.t, &wide, NULL), 0);
    adamw_wide_free (&wide);
    look (w);
    train_adamw_destroy (w->adamw);
}

static void test_masters (void **state)
{
    (void)state;
    compare (masters, TRAIN_BF16);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_step),
        cmocka_unit_test (test_masters),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
