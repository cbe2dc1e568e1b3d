/* SPDX-License-Identifier: Apache-2.0
 * check_rate.c - what devices are thought to reach, and what a model asks
 *
 * Half of what a data sheet says for dense products of 16-bit types is what the
 * runs of tests/bench/RESULTS.md reach on an H200 (0.47 to 0.6 of 989). */
#include "config.h"

#include "check_rate.h"

#include <string.h>
#include <unistd.h>

#include "libtrain/err.h"

#ifndef HAVE_CUDA
#define HAVE_CUDA 0
#endif

#define GIB ((size_t)1 << 30)

static const struct check_device known[] = {
    {"cpu", false, 0.02, 0.02, 0}, /* a CPU; times how many there are */
    {"a100", true, 156, 10, 80 * GIB},
    {"h100", true, 490, 30, 80 * GIB},
    {"h200", true, 490, 30, 139 * GIB},
};

train_status_t check_device_find (const char *name,
                                  const struct check_device **ret,
                                  train_error_t *err)
{
    for (size_t i = 0; i < sizeof (known) / sizeof (*known); i++)
        if (strcmp (name, known[i].name) == 0) {
            *ret = &known[i];
            if (known[i].gpu && !HAVE_CUDA)
                return err_set (err, TRAIN_ENOTSUP,
                                "--device %s: this rv-train was built without "
                                "CUDA and does not know the layouts there",
                                name);
            return TRAIN_OK;
        }
    return err_set (err, TRAIN_EINVAL,
                    "--device '%s': cpu, a100, h100 and h200 are known", name);
}

double check_rate (const struct check_device *d, train_dtype_t dtype)
{
    bool half = dtype == TRAIN_BF16 || dtype == TRAIN_F16;
    double one = half ? d->half : d->single;
    long n = sysconf (_SC_NPROCESSORS_ONLN);

    return d->gpu ? one : one * (double)(n > 0 ? n : 1);
}

double check_flop (const train_decoder_config_t *m, int seq)
{
    double dim = m->dim, heads = m->heads,
           kv = m->kv_heads ? m->kv_heads : heads;
    double size = m->head_dim ? m->head_dim : dim / heads;
    double layer =
        dim * size * (heads + 2 * kv) + heads * size * dim + 3 * dim * m->ffn;
    double attention = 2 * heads * size * seq; /* forward, half the square */
    double forward = m->layers * (2 * layer + attention);
    double again = m->recompute == TRAIN_RECOMPUTE_BLOCKS ? forward : 0;

    return forward + m->layers * (4 * layer + 2.5 * attention) + again
           + 6 * dim * m->vocab;
}
