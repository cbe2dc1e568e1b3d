/* SPDX-License-Identifier: Apache-2.0
 * layer_set.h - the arrays of one kernel call, on the host and on a GPU
 *
 * A test adds arrays to a set and gives a function that calls the kernel on
 * either side; set_check runs it on the host once and on the GPU twice, from the
 * same bytes. It wants the host's numbers within the room of each array, the
 * same bits both times, and whole guards around all. Arrays that a kernel only
 * reads are compared too. */
#ifndef TESTS_GPU_LAYER_SET_H
#define TESTS_GPU_LAYER_SET_H

#include "tap.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

#define GUARD 256 /* bytes around an array, which must stay */

enum type { F32, BF16, F16, INT };

/* One step of the type: two roundings of nearly equal numbers may differ so. */
static const float type_step[] = {2e-6f, 0x1p-7f, 0x1p-10f, 0};

struct array {
    enum type type;
    size_t n, bytes;
    float room; /* beside the step */
    char *host, *start, *base, *dev;
};

struct set {
    enum type type; /* of elem */
    size_t shift;   /* elements past an aligned address */
    size_t shape[8];
    struct array a[12];
    int count;
    bool on_gpu;
};

typedef void run_fn (struct set *s);

static uint32_t seed = 1;

static float number (void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) * 0x1p-23f - 1;
}

static void must (cudaError_t e)
{
    if (e == cudaSuccess)
        return;
    printf ("Bail out! %s\n", cudaGetErrorString (e));
    exit (1);
}

static float value_of (enum type type, const char *at, size_t i)
{
    if (type == F32)
        return ((const float *)at)[i];
    if (type == BF16)
        return half_from_bf16 (((const uint16_t *)at)[i]);
    if (type == F16)
        return half_from_f16 (((const uint16_t *)at)[i]);
    return (float)((const int32_t *)at)[i];
}

static void set_value (enum type type, char *at, size_t i, float x)
{
    if (type == F32)
        ((float *)at)[i] = x;
    else if (type == BF16)
        ((uint16_t *)at)[i] = half_to_bf16 (x);
    else if (type == F16)
        ((uint16_t *)at)[i] = half_to_f16 (x);
    else
        ((int32_t *)at)[i] = (int32_t)x;
}

/* Add [n] made-up numbers of a type in (-size,size); size 0: NaN everywhere, as
 * poison. Returns the array's number. */
static int set_add (struct set *s, enum type type, size_t n, float size,
                    float room)
{
    struct array *a = &s->a[s->count];
    size_t width = type == F32 || type == INT ? 4 : 2;
    size_t shift = GUARD + s->shift * width;

    a->type = type;
    a->n = n;
    a->bytes = n * width;
    a->room = room;
    a->host = malloc (a->bytes + 1);
    a->start = malloc (a->bytes + 1);
    for (size_t i = 0; i < n; i++)
        set_value (type, a->start, i,
                   size > 0 || type == INT ? size * number () : NAN);
    must (cudaMalloc ((void **)&a->base, shift + a->bytes + GUARD));
    a->dev = a->base + shift;
    return s->count++;
}

static inline int set_elem (struct set *s, size_t n, float size, float room)
{
    return set_add (s, s->type, n, size, room);
}

/* Where array [i] is on the side that runs. */
static inline void *set_at (const struct set *s, int i)
{
    return s->on_gpu ? s->a[i].dev : s->a[i].host;
}

static inline void *set_scratch (size_t bytes)
{
    static char *base;
    static size_t have;

    if (bytes + GUARD > have) {
        must (cudaFree (base));
        must (cudaMalloc ((void **)&base, bytes + GUARD));
        have = bytes + GUARD;
    }
    must (cudaMemset (base, 0xff, have));
    return base;
}

static void set_load (struct set *s)
{
    for (int i = 0; i < s->count; i++) {
        struct array *a = &s->a[i];
        size_t lead = (size_t)(a->dev - a->base);

        must (cudaMemset (a->base, 0xa5, lead + a->bytes + GUARD));
        must (cudaMemcpy (a->dev, a->start, a->bytes, cudaMemcpyHostToDevice));
    }
}

/* Array [i] of the GPU; whether its guards are whole. */
static bool set_store (struct set *s, int i, char *to)
{
    struct array *a = &s->a[i];
    size_t lead = (size_t)(a->dev - a->base), all = lead + a->bytes + GUARD;
    unsigned char *bytes = malloc (all);
    bool whole = true;

    must (cudaMemcpy (bytes, a->base, all, cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < lead; k++)
        whole &= bytes[k] == 0xa5;
    for (size_t k = lead + a->bytes; k < all; k++)
        whole &= bytes[k] == 0xa5;
    memcpy (to, bytes + lead, a->bytes);
    free (bytes);
    if (!whole)
        printf ("# array %d: written outside\n", i);
    return whole;
}

static bool near (const struct array *a, int number, const char *got)
{
    for (size_t i = 0; i < a->n; i++) {
        float x = value_of (a->type, got, i);
        float y = value_of (a->type, a->host, i);

        if (x == y || (isnan (x) && isnan (y)))
            continue;
        if (!(fabsf (x - y) <= type_step[a->type] * fabsf (y) + a->room)) {
            printf ("# array %d [%zu] %.9g, want %.9g\n", number, i, (double)x,
                    (double)y);
            return false;
        }
    }
    return true;
}

static inline bool set_check (struct set *s, run_fn *run)
{
    bool good = true;

    for (int i = 0; i < s->count; i++)
        memcpy (s->a[i].host, s->a[i].start, s->a[i].bytes);
    s->on_gpu = false;
    run (s);
    s->on_gpu = true;
    set_load (s);
    run (s);
    must (cudaDeviceSynchronize ());
    for (int i = 0; i < s->count; i++) {
        char *got = malloc (s->a[i].bytes + 1);

        good &= set_store (s, i, got) && near (&s->a[i], i, got);
        free (s->a[i].host);
        s->a[i].host = got;
    }
    set_load (s);
    run (s);
    must (cudaDeviceSynchronize ());
    for (int i = 0; i < s->count; i++) {
        char *again = malloc (s->a[i].bytes + 1);

        good &= set_store (s, i, again);
        if (memcmp (again, s->a[i].host, s->a[i].bytes) != 0) {
            printf ("# array %d: other bits the second time\n", i);
            good = false;
        }
        free (again);
        free (s->a[i].host);
        free (s->a[i].start);
        must (cudaFree (s->a[i].base));
    }
    if (!good)
        printf ("# type %d, shift %zu, shape %zu %zu %zu %zu %zu\n", s->type,
                s->shift, s->shape[0], s->shape[1], s->shape[2], s->shape[3],
                s->shape[4]);
    return good;
}

/* The kernel [op] of the set's type on the side that runs. */
#define SET_CALL(s, op, ...)                                                   \
    do {                                                                       \
        if ((s)->on_gpu && (s)->type == F32)                                   \
            kern_##op##_f32_cuda (__VA_ARGS__);                                \
        else if ((s)->on_gpu && (s)->type == BF16)                             \
            kern_##op##_bf16_cuda (__VA_ARGS__);                               \
        else if ((s)->on_gpu)                                                  \
            kern_##op##_f16_cuda (__VA_ARGS__);                                \
        else if ((s)->type == F32)                                             \
            kern_##op##_f32_host (__VA_ARGS__);                                \
        else if ((s)->type == BF16)                                            \
            kern_##op##_bf16_host (__VA_ARGS__);                               \
        else                                                                   \
            kern_##op##_f16_host (__VA_ARGS__);                                \
    } while (0)

#endif
