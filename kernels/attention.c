/* SPDX-License-Identifier: Apache-2.0
 * attention.c - which engine serves a shape of attention, and the call through
 * it */
#include "config.h"

#include "kernels/attention.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention_cudnn.h"
#include "kernels/attention_hopper.h"
#include "kernels/docs.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#define ENTRIES 64

/* Blocks of 128 queries that keep a GPU busy. On an H200 of 132 multiprocessors a
 * quarter of this was 14 % slower, forward and backward. */
#define FILL 4096

/* The shortest sequences for which the kernels for sm_90a were measured. */
#define HOPPER_T 512

/* A shape seen, with what serves it. Plans are empty under our own engine.
 *   part   the shape of one call of the backward's plan */
struct entry {
    struct attention_shape shape, part;
    struct attention_choice choice;
    struct cudnn_plan fwd, bwd;
    uint64_t used; /* 0: a free place */
};

/*   only   -1, or the engine that attention_engine_only named
 *   api    NULL until cuDNN was opened, and for good where it cannot be */
struct attention {
    int only;
    const struct cudnn_api *api;
    void *handle;
    bool tried;
    char no_cudnn[200], error[256];
    uint64_t calls;
    struct entry entries[ENTRIES];
};

struct attention *attention_create (void)
{
    struct attention *a = calloc (1, sizeof (*a));

    if (a)
        a->only = -1;
    return a;
}

static void entry_drop (struct attention *a, struct entry *e)
{
    if (e->used && a->api) {
        cudnn_plan_drop (&e->fwd, a->api);
        cudnn_plan_drop (&e->bwd, a->api);
    }
    *e = (struct entry){0};
}

static void drop_all (struct attention *a)
{
    for (int i = 0; i < ENTRIES; i++)
        entry_drop (a, &a->entries[i]);
}

void attention_destroy (struct attention *a)
{
    if (!a)
        return;
    drop_all (a);
    if (a->handle)
        (void)a->api->destroy (a->handle);
    free (a);
}

void attention_engine_only (struct attention *a, enum attention_engine e)
{
    drop_all (a);
    a->only = (int)e;
}

const char *attention_error (const struct attention *a)
{
    return a->error;
}

__attribute__ ((format (printf, 2, 3))) static bool fail (struct attention *a,
                                                          const char *format,
                                                          ...)
{
    va_list args;

    va_start (args, format);
    (void)vsnprintf (a->error, sizeof (a->error), format, args);
    va_end (args);
    return false;
}

/* cuDNN and a handle on the current device, once. */
static bool have_cudnn (struct attention *a)
{
    const char *why = NULL;
    int status;

    if (a->tried)
        return a->handle != NULL;
    a->tried = true;
    a->api = cudnn_open (&why);
    if (!a->api) {
        snprintf (a->no_cudnn, sizeof (a->no_cudnn), "%s", why);
        return false;
    }
    status = a->api->create (&a->handle);
    if (status == 0)
        return true;
    a->handle = NULL;
    snprintf (a->no_cudnn, sizeof (a->no_cudnn), "cuDNN has no handle here: %s",
              a->api->error_text (status));
    return false;
}

static bool same (const struct attention_shape *a,
                  const struct attention_shape *b)
{
    return a->dtype == b->dtype && a->B == b->B && a->T == b->T && a->H == b->H
           && a->G == b->G && a->D == b->D
           && a->deterministic == b->deterministic && a->grad == b->grad
           && a->documents == b->documents;
}

static bool check (struct attention *a, const struct attention_shape *s)
{
    if (s->dtype != ATTENTION_F32 && s->dtype != ATTENTION_BF16
        && s->dtype != ATTENTION_F16)
        return fail (a, "attention: type %d is none of f32, bf16, f16",
                     (int)s->dtype);
    if (s->B == 0 || s->T == 0 || s->H == 0 || s->G == 0 || s->H % s->G != 0)
        return fail (a,
                     "attention: %zu x %zu, %zu heads over %zu: sizes are "
                     "positive, and key-value heads divide the heads",
                     s->B, s->T, s->H, s->G);
    if (s->D < 2 || s->D % 2 != 0 || s->D > 256)
        return fail (a, "attention: heads of %zu; even ones up to 256 would do",
                     s->D);
    if (s->T > INT32_MAX / 2 || s->B * s->H > INT32_MAX)
        return fail (a, "attention: %zu x %zu x %zu is too large", s->B, s->H,
                     s->T);
    return true;
}

/* cuDNN's deterministic backward keeps a T x T matrix of each head: it gets the
 * sequences in equal parts, as few at a time as still fill the GPU. */
static struct attention_shape part_of (const struct attention_shape *s)
{
    size_t blocks = s->H * ((s->T + 127) / 128);
    struct attention_shape part = *s;

    if (!s->deterministic)
        return part;
    for (part.B = 1; part.B < s->B; part.B++)
        if (s->B % part.B == 0 && part.B * blocks >= FILL)
            break;
    return part;
}

/* The backward too with [bwd]. False: why says what cuDNN lacks. */
static bool choose_cudnn (struct attention *a, struct entry *e, bool bwd,
                          char *why, size_t room)
{
    const struct attention_shape *s = &e->shape;

    if (s->dtype != ATTENTION_F32 && !have_cudnn (a)) {
        snprintf (why, room, "%s", a->no_cudnn);
        return false;
    }
    if (!cudnn_serves (a->api, s, why, room)
        || !cudnn_plan_make (&e->fwd, a->api, a->handle, NULL, false, s, why,
                             room))
        return false;
    e->part = part_of (s);
    if (bwd
        && !cudnn_plan_make (&e->bwd, a->api, a->handle, NULL, true, &e->part,
                             why, room)) {
        cudnn_plan_drop (&e->fwd, a->api);
        return false;
    }
    e->choice.engine = e->choice.bwd = ATTENTION_CUDNN;
    e->choice.scratch_fwd = e->fwd.scratch;
    e->choice.scratch_bwd = e->bwd.scratch;
    e->choice.deterministic =
        e->fwd.deterministic
        && (!bwd || (s->deterministic && e->bwd.deterministic));
    snprintf (e->choice.why, sizeof (e->choice.why),
              "cuDNN %zu.%zu.%zu, engines %lld and %lld%s",
              a->api->version / 10000, a->api->version / 100 % 100,
              a->api->version % 100, (long long)e->fwd.engine,
              bwd ? (long long)e->bwd.engine : -1LL,
              !bwd               ? ""
              : s->deterministic ? ", deterministic backward with T x T kept"
                                 : ", backward adds dQ in any order");
    return true;
}

/* Where they were faster than cuDNN's backwards on an H200, 1.03 to 1.36 times,
 * and 1.2 to 1.6 times its deterministic one. */
static bool hopper_gains (const struct attention_shape *s)
{
    return s->T >= HOPPER_T && s->B * s->H * s->T >= 65536;
}

#if HAVE_CUDA
/* An error of a launch waits until somebody asks; before ours it is another's. */
static bool launched (struct attention *a, const struct attention_shape *s,
                      const char *what)
{
    cudaError_t e = cudaGetLastError ();

    return e == cudaSuccess
           || fail (a, "%s, %zu x %zu, %zu heads of %zu: %s", what, s->B, s->T,
                    s->H, s->D, cudaGetErrorString (e));
}

/* What the kernels for sm_90a are written for. */
static bool hopper_fits (const struct attention_shape *s)
{
    return s->grad && s->dtype != ATTENTION_F32 && s->D == 64 && !s->documents;
}

static bool choose_own (struct attention *a, struct entry *e, const char *why)
{
    const struct attention_shape *s = &e->shape;

    (void)a;
    e->choice.engine = e->choice.bwd = ATTENTION_OWN;
    e->choice.deterministic = true;
    if (s->grad)
        e->choice.scratch_bwd =
            kern_attention_cuda_scratch (s->B, s->T, s->H, s->G, s->D);
    snprintf (e->choice.why, sizeof (e->choice.why), "own kernels: %s", why);
    return true;
}

bool attention_hopper_here (void)
{
    return kern_attention_hopper_served ();
}

/* Whether the kernels for sm_90a serve the backward of [s]; false: why. */
static bool hopper_serves (const struct attention_shape *s, char *why,
                           size_t room)
{
    if (!hopper_fits (s))
        snprintf (
            why, room,
            "the kernels for sm_90a are a backward, of bf16 or f16, heads "
            "of 64, one document a row");
    else if (!kern_attention_hopper_served ())
        snprintf (why, room, "no GPU of sm_90a here");
    else
        return true;
    return false;
}

/* The backward goes to them; what [e] had chosen keeps the forward. */
static void take_hopper (struct entry *e)
{
    const struct attention_shape *s = &e->shape;
    size_t n = strlen (e->choice.why);

    e->choice.bwd = ATTENTION_HOPPER;
    e->choice.scratch_bwd = kern_attention_hopper_scratch (s->B, s->T, s->H);
    snprintf (e->choice.why + n, sizeof (e->choice.why) - n,
              "; backward: own kernels for sm_90a");
}

static bool hopper_bwd (struct attention *a, const struct attention_shape *s,
                        const struct cudnn_call *c, double scale)
{
    bool good = s->dtype == ATTENTION_BF16
                    ? kern_attention_hopper_bwd_bf16_cuda (
                        c->dqkv, c->dy, c->y, c->lse, c->qkv, c->scratch, s->B,
                        s->T, s->H, s->G, scale, c->stream)
                    : kern_attention_hopper_bwd_f16_cuda (
                        c->dqkv, c->dy, c->y, c->lse, c->qkv, c->scratch, s->B,
                        s->T, s->H, s->G, scale, c->stream);

    return good || fail (a, "attention: the driver makes no map of the tiles");
}

static const int32_t *starts_of (const struct attention_shape *s)
{
    return s->documents ? s->starts : NULL;
}

static void own_fwd (const struct attention_shape *s,
                     const struct cudnn_call *c, double scale)
{
    const int32_t *starts = starts_of (s);

    if (s->dtype == ATTENTION_F32)
        kern_attention_docs_fwd_f32_cuda (c->y, c->lse, c->qkv, starts, NULL,
                                          s->B, s->T, s->H, s->G, s->D, scale,
                                          c->stream);
    else if (s->dtype == ATTENTION_BF16)
        kern_attention_docs_fwd_bf16_cuda (c->y, c->lse, c->qkv, starts, NULL,
                                           s->B, s->T, s->H, s->G, s->D, scale,
                                           c->stream);
    else
        kern_attention_docs_fwd_f16_cuda (c->y, c->lse, c->qkv, starts, NULL,
                                          s->B, s->T, s->H, s->G, s->D, scale,
                                          c->stream);
}

static void own_bwd (const struct attention_shape *s,
                     const struct cudnn_call *c, double scale)
{
    const int32_t *starts = starts_of (s);

    if (s->dtype == ATTENTION_F32)
        kern_attention_docs_bwd_f32_cuda (c->dqkv, c->dy, c->y, c->lse, c->qkv,
                                          starts, c->scratch, s->B, s->T, s->H,
                                          s->G, s->D, scale, c->stream);
    else if (s->dtype == ATTENTION_BF16)
        kern_attention_docs_bwd_bf16_cuda (c->dqkv, c->dy, c->y, c->lse, c->qkv,
                                           starts, c->scratch, s->B, s->T, s->H,
                                           s->G, s->D, scale, c->stream);
    else
        kern_attention_docs_bwd_f16_cuda (c->dqkv, c->dy, c->y, c->lse, c->qkv,
                                          starts, c->scratch, s->B, s->T, s->H,
                                          s->G, s->D, scale, c->stream);
}
#else
static bool choose_own (struct attention *a, struct entry *e, const char *why)
{
    (void)e;
    (void)why;
    return fail (a, "attention: built without CUDA");
}

bool attention_hopper_here (void)
{
    return false;
}

static bool hopper_serves (const struct attention_shape *s, char *why,
                           size_t room)
{
    (void)s;
    snprintf (why, room, "built without CUDA");
    return false;
}

/* These are never called: choose_own has refused. */
static bool launched (struct attention *a, const struct attention_shape *s,
                      const char *what)
{
    (void)s;
    (void)what;
    return fail (a, "attention: built without CUDA");
}

static void take_hopper (struct entry *e)
{
    (void)e;
}

static bool hopper_bwd (struct attention *a, const struct attention_shape *s,
                        const struct cudnn_call *c, double scale)
{
    (void)s;
    (void)c;
    (void)scale;
    return fail (a, "attention: built without CUDA");
}

static void own_fwd (const struct attention_shape *s,
                     const struct cudnn_call *c, double scale)
{
    (void)s;
    (void)c;
    (void)scale;
}

static void own_bwd (const struct attention_shape *s,
                     const struct cudnn_call *c, double scale)
{
    own_fwd (s, c, scale);
}
#endif

static bool choose (struct attention *a, struct entry *e)
{
    char why[200] = "asked for";
    bool only = a->only == (int)ATTENTION_HOPPER;
    bool cudnn = a->only != (int)ATTENTION_OWN && !only;
    bool hopper = (only || (a->only < 0 && hopper_gains (&e->shape)))
                  && hopper_serves (&e->shape, why, sizeof (why));
    bool good;

    if (only && !hopper)
        return fail (a, "attention: %s", why);
    if (cudnn && e->shape.documents) {
        snprintf (why, sizeof (why), "cuDNN's graph has no mask of documents");
        cudnn = false;
    }
    good = cudnn
           && choose_cudnn (a, e, e->shape.grad && !hopper, why, sizeof (why));
    if (!good && a->only == (int)ATTENTION_CUDNN)
        return fail (a, "attention: %s", why);
    if (!good && !choose_own (a, e, why))
        return false;
    /* more than twice as fast as our others */
    if (!good && a->only < 0 && e->shape.T >= HOPPER_T)
        hopper = hopper_serves (&e->shape, why, sizeof (why));
    if (hopper)
        take_hopper (e);
    return true;
}

/* The entry of [s]; a new one in the place not used for longest. NULL: error. */
static struct entry *find (struct attention *a, const struct attention_shape *s)
{
    struct entry *oldest = a->entries;

    a->calls++;
    for (struct entry *e = a->entries; e < a->entries + ENTRIES; e++) {
        if (e->used && same (&e->shape, s)) {
            e->used = a->calls;
            return e;
        }
        if (e->used < oldest->used)
            oldest = e;
    }
    if (!check (a, s))
        return NULL;
    entry_drop (a, oldest);
    oldest->shape = *s;
    if (!choose (a, oldest)) {
        *oldest = (struct entry){0};
        return NULL;
    }
    oldest->used = a->calls;
    return oldest;
}

bool attention_choose (struct attention *a, const struct attention_shape *s,
                       struct attention_choice *ret)
{
    struct entry *e = find (a, s);

    if (!e)
        return false;
    *ret = e->choice;
    return true;
}

#if HAVE_CUDA
/* Of cuDNN's backward: keys' and values' gradients of each query head where
 * several share them, the T x T matrix or the sum of dQ, and a sum a row. */
static size_t foresee_cudnn (const struct attention_shape *s)
{
    const struct attention_shape part = part_of (s);
    size_t rows = part.B * s->H * s->T, bytes = rows * 4;

    bytes += s->deterministic ? rows * s->T * 2 : rows * s->D * 4;
    return s->G < s->H ? bytes + 2 * rows * s->D * 2 : bytes;
}

/* As choose decides it. */
size_t attention_foresee (const struct attention_shape *s, bool sm_90a)
{
    const struct cudnn_api newest = {.version = 91900};
    char why[200];
    bool cudnn = !s->documents && cudnn_serves (&newest, s, why, sizeof (why));

    if (!s->grad)
        return 0;
    if (sm_90a && hopper_fits (s)
        && (hopper_gains (s) || (!cudnn && s->T >= HOPPER_T)))
        return kern_attention_hopper_scratch (s->B, s->T, s->H);
    return cudnn ? foresee_cudnn (s)
                 : kern_attention_cuda_scratch (s->B, s->T, s->H, s->G, s->D);
}
#else
size_t attention_foresee (const struct attention_shape *s, bool sm_90a)
{
    (void)s;
    (void)sm_90a;
    return 0;
}
#endif

bool attention_fwd (struct attention *a, const struct attention_shape *s,
                    void *y, float *lse, const void *qkv, double scale,
                    void *scratch, void *stream)
{
    struct entry *e = find (a, s);
    struct cudnn_call c = {.y = y,
                           .lse = lse,
                           .qkv = qkv,
                           .scale = (float)scale,
                           .scratch = scratch,
                           .stream = stream};

    if (!e)
        return false;
    if (e->choice.engine == ATTENTION_CUDNN)
        return cudnn_plan_run (&e->fwd, a->api, a->handle, s, &c, a->error,
                               sizeof (a->error));
    if (!launched (a, s, "a kernel before attention"))
        return false;
    own_fwd (s, &c, scale);
    return launched (a, s, "attention: own forward");
}

/* The backward's plan on each part of the sequences in turn; the scratch serves
 * them all. */
static bool cudnn_bwd (struct attention *a, const struct entry *e,
                       const struct cudnn_call *whole)
{
    const struct attention_shape *s = &e->shape;
    size_t y = s->T * s->H * s->D * 2, qkv = y + 2 * s->T * s->G * s->D * 2;

    for (size_t b = 0; b < s->B; b += e->part.B) {
        struct cudnn_call c = *whole;

        c.y = (char *)c.y + b * y;
        c.dy = (const char *)c.dy + b * y;
        c.lse = (float *)c.lse + b * s->H * s->T;
        c.qkv = (const char *)c.qkv + b * qkv;
        c.dqkv = (char *)c.dqkv + b * qkv;
        if (!cudnn_plan_run (&e->bwd, a->api, a->handle, &e->part, &c, a->error,
                             sizeof (a->error)))
            return false;
    }
    return true;
}

bool attention_bwd (struct attention *a, const struct attention_shape *s,
                    void *dqkv, const void *dy, const void *y, const float *lse,
                    const void *qkv, double scale, void *scratch, void *stream)
{
    struct entry *e = find (a, s);
    struct cudnn_call c = {.y = (void *)(uintptr_t)y,
                           .lse = (void *)(uintptr_t)lse,
                           .dqkv = dqkv,
                           .qkv = qkv,
                           .dy = dy,
                           .scale = (float)scale,
                           .scratch = scratch,
                           .stream = stream};

    if (!e)
        return false;
    if (!s->grad)
        return fail (a, "attention: the shape was chosen without a gradient");
    if (e->choice.bwd == ATTENTION_CUDNN)
        return cudnn_bwd (a, e, &c);
    if (!launched (a, s, "a kernel before attention"))
        return false;
    if (e->choice.bwd == ATTENTION_HOPPER && scale > 0)
        return hopper_bwd (a, s, &c, scale)
               && launched (a, s, "attention: backward for sm_90a");
    own_bwd (s, &c, scale);
    return launched (a, s, "attention: own backward");
}
