/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_golden.c - a step that PyTorch computed in fp64
 * (tests/interop/decoder_torch.py --golden): logits, loss and every gradient,
 * by libtrain in both types */
#include "kern_check.h"

#include <stdio.h>

#include <train/decoder.h>
#include <train/safetensors.h>

static train_safetensors_t *file;

static int open_file (void **state)
{
    const char *top = getenv ("top_srcdir");
    train_error_t err;
    char path[4096];

    (void)state;
    snprintf (path, sizeof (path), "%s/tests/golden/decoder.safetensors",
              top ? top : ".");
    if (train_safetensors_open (path, &file, &err) != TRAIN_OK) {
        print_error ("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int close_file (void **state)
{
    (void)state;
    train_safetensors_close (file);
    return 0;
}

static const train_st_entry_t *find (const char *kind, const char *name)
{
    const train_st_entry_t *e;
    char full[128];

    snprintf (full, sizeof (full), "%s%s", kind, name);
    e = train_safetensors_find (file, full);
    if (!e)
        fail_msg ("no tensor %s", full);
    return e;
}

static int meta (const char *key)
{
    const char *value = train_safetensors_meta (file, key);

    assert_non_null (value);
    return (int)strtol (value, NULL, 10);
}

/* [n] elements of either type, in double. Freed by the caller. */
static double *widen (const void *x, size_t n, train_dtype_t dtype)
{
    double *y = zeros (n);

    for (size_t i = 0; i < n; i++)
        y[i] = dtype == TRAIN_F32 ? (double)((const float *)x)[i]
                                  : ((const double *)x)[i];
    return y;
}

static void load (train_decoder_t *m, train_dtype_t dtype)
{
    for (size_t i = 0; i < train_decoder_n_params (m); i++) {
        const train_param_t *p = train_decoder_param (m, i);
        const train_st_entry_t *e = find ("w.", p->name);
        void *w = train_decoder_weights (m)->data;

        assert_int_equal (e->bytes, p->count * sizeof (double));
        for (size_t k = 0; k < p->count; k++) {
            double x = ((const double *)e->data)[k];

            if (dtype == TRAIN_F32)
                ((float *)w)[p->offset + k] = (float)x;
            else
                ((double *)w)[p->offset + k] = x;
        }
    }
}

static void compare (const char *name, const void *x, const train_st_entry_t *e,
                     train_dtype_t dtype, double bound)
{
    size_t n = e->bytes / sizeof (double);
    double *wide = widen (x, n, dtype);

    check_close (name, wide, e->data, n, bound);
    free (wide);
}

static void check (train_dtype_t dtype, double bound)
{
    train_decoder_config_t c = {
        .size = sizeof (c),
        .layers = meta ("layers"),
        .dim = meta ("dim"),
        .heads = meta ("heads"),
        .kv_heads = meta ("kv_heads"),
        .ffn = meta ("ffn"),
        .vocab = meta ("vocab"),
        .tie = meta ("tie") != 0,
        .rope_theta = 10000,
        .norm_eps = 1e-5,
        .dtype = dtype,
    };
    int B = meta ("batch"), T = meta ("seq");
    const int32_t *tokens = find ("tokens", "")->data;
    const int32_t *targets = find ("targets", "")->data;
    double *logits = zeros ((size_t)(B * T * c.vocab)), loss, again;
    train_decoder_t *m = NULL;
    int64_t n;

    assert_int_equal (train_decoder_create (&c, &m, NULL), TRAIN_OK);
    load (m, dtype);
    assert_int_equal (train_decoder_forward (m, logits, tokens, targets, B, T,
                                             &loss, &n, NULL),
                      TRAIN_OK);
    compare ("logits", logits, find ("logits", ""), dtype, bound);
    check_close ("loss", &loss, find ("loss_sum", "")->data, 1, bound);
    assert_int_equal (train_decoder_step (m, tokens, targets, B, T,
                                          1.0 / (double)n, &again, &n, NULL),
                      TRAIN_OK);
    check_close ("loss of the step", &again, &loss, 1, bound);
    for (size_t i = 0; i < train_decoder_n_params (m); i++) {
        const train_param_t *p = train_decoder_param (m, i);
        const char *g = train_decoder_grads (m)->data;

        compare (p->name, g + p->offset * train_dtype_size (dtype),
                 find ("g.", p->name), dtype, bound);
    }
    train_decoder_destroy (m);
    free (logits);
}

static void test_f64 (void **state)
{
    (void)state;
    check (TRAIN_F64, 1e-13);
}

static void test_f32 (void **state)
{
    (void)state;
    check (TRAIN_F32, 1e-5);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_f64),
        cmocka_unit_test (test_f32),
    };

    return cmocka_run_group_tests (tests, open_file, close_file);
}
