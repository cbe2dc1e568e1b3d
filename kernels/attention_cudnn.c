/* SPDX-License-Identifier: Apache-2.0
 * attention_cudnn.c - cuDNN's attention: plans, and running them */
#include "config.h"

#include "kernels/attention_cudnn.h"

#include <float.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/attention_graph.h"

#define CONFIGS 32
#define NOTES   16

/* PyTorch asks for a release above this one for attention: before it, rows past
 * the last multiple of 128 go wrong (aten/native/transformers/cuda). */
#define ODD_T_BROKEN 91500

static size_t round_up (size_t n)
{
    return (n + 255) / 256 * 256;
}

static size_t dtype_bytes (const struct attention_shape *s)
{
    return s->dtype == ATTENTION_F32 ? 4 : 2;
}

bool cudnn_serves (const struct cudnn_api *api, const struct attention_shape *s,
                   char *why, size_t room)
{
    if (s->dtype == ATTENTION_F32) {
        snprintf (why, room, "f32 has no kernel in cuDNN");
        return false;
    }
    if (s->D % 8 != 0 || s->D > 128) {
        snprintf (why, room,
                  "cuDNN takes heads of a multiple of 8 up to 128, not %zu",
                  s->D);
        return false;
    }
    if (s->T % 128 != 0 && api->version <= ODD_T_BROKEN) {
        snprintf (
            why, room,
            "cuDNN %zu.%zu.%zu is wrong where T is no multiple of 128, as "
            "%zu; later than 9.15.0 is right",
            api->version / 10000, api->version / 100 % 100, api->version % 100,
            s->T);
        return false;
    }
    return true;
}

/* The engines for [g] in the order of cuDNN's guess, the best first. */
static int64_t engines (struct graph *g, void *device, int mode, void **config)
{
    void *heur = graph_make (g, DNN_ENGINEHEUR);
    int64_t n = 0;

    graph_set (g, heur, DNN_HEUR_GRAPH, DNN_T_DESCRIPTOR, 1, &g->graph);
    graph_set (g, heur, DNN_HEUR_MODE, DNN_T_HEUR_MODE, 1, &mode);
    if (device)
        graph_set (g, heur, DNN_HEUR_DEVICEPROP, DNN_T_DESCRIPTOR, 1, &device);
    graph_close (g, heur);
    for (int i = 0; i < CONFIGS; i++)
        config[i] = graph_make (g, DNN_ENGINECFG);
    if (g->why[0]
        || g->api->desc_get (heur, DNN_HEUR_RESULTS, DNN_T_DESCRIPTOR, CONFIGS,
                             &n, config)
               != 0)
        return 0;
    return n < CONFIGS ? n : CONFIGS;
}

/* The engine's number and whether it may give other bits next time. */
static bool engine_of (struct graph *g, void *config, int64_t *ret_index,
                       bool *ret_deterministic)
{
    void *engine = graph_make (g, DNN_ENGINE);
    int notes[NOTES];
    int64_t n = 0;

    *ret_index = -1;
    *ret_deterministic = true;
    if (g->why[0]
        || g->api->desc_get (config, DNN_CFG_ENGINE, DNN_T_DESCRIPTOR, 1, &n,
                             &engine)
               != 0)
        return false;
    (void)g->api->desc_get (engine, DNN_ENGINE_INDEX, DNN_T_INT64, 1, &n,
                            ret_index);
    n = 0;
    if (g->api->desc_get (engine, DNN_ENGINE_NOTES, DNN_T_NOTE, NOTES, &n,
                          notes)
        != 0)
        return false;
    for (int64_t i = 0; i < n && i < NOTES; i++)
        *ret_deterministic &= notes[i] != DNN_NOTE_NONDETERMINISTIC;
    return true;
}

static void *device_of (struct graph *g, const char *json)
{
    void *device;

    if (!json)
        return NULL;
    device = graph_make (g, DNN_DEVICEPROP);
    graph_set (g, device, DNN_DEVICEPROP_JSON, DNN_T_CHAR,
               (int64_t)strlen (json), json);
    graph_close (g, device);
    return device;
}

/* The plan is not one of the graph's descriptors: it outlives them. */
static int try_config (struct cudnn_plan *ret, struct graph *g, void *handle,
                       void *device, void *config)
{
    const struct cudnn_api *api = g->api;
    void *plan = NULL;
    int64_t n = 0, bytes = 0;
    int status = api->desc_create (DNN_PLAN, &plan);

    if (status != 0)
        return status;
    status =
        api->desc_set (plan, DNN_PLAN_CONFIG, DNN_T_DESCRIPTOR, 1, &config);
    if (status == 0 && handle)
        status =
            api->desc_set (plan, DNN_PLAN_HANDLE, DNN_T_HANDLE, 1, &handle);
    if (status == 0 && device)
        status = api->desc_set (plan, DNN_PLAN_DEVICEPROP, DNN_T_DESCRIPTOR, 1,
                                &device);
    if (status == 0)
        status = api->desc_finalize (plan);
    if (status == 0)
        status = api->desc_get (plan, DNN_PLAN_WORKSPACE, DNN_T_INT64, 1, &n,
                                &bytes);
    if (status != 0) {
        (void)api->desc_destroy (plan);
        return status;
    }
    ret->plan = plan;
    ret->workspace = bytes > 0 ? (size_t)bytes : 0;
    return 0;
}

static size_t scratch_of (const struct cudnn_plan *p,
                          const struct attention_shape *s)
{
    size_t rows = s->B * s->H * s->T, bytes = round_up (p->workspace);

    if (!p->bwd)
        return bytes;
    bytes += round_up (rows * 4);
    return s->deterministic ? bytes : bytes + round_up (rows * s->D * 4);
}

/* The first engine of the guess that makes a plan; of deterministic ones alone
 * where such is asked. */
static bool first_plan (struct cudnn_plan *ret, struct graph *g, void *handle,
                        void *device, const struct attention_shape *s,
                        char *why, size_t room)
{
    void *config[CONFIGS];
    int64_t n = engines (g, device, DNN_HEUR_A, config), engine;
    bool same;
    char last[160] = "";
    int status = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!engine_of (g, config[i], &engine, &same)
            || (s->deterministic && !same))
            continue;
        status = try_config (ret, g, handle, device, config[i]);
        if (status == 0) {
            ret->engine = engine;
            ret->deterministic = same;
            ret->scratch = scratch_of (ret, s);
            return true;
        }
        g->api->last_error (last, sizeof (last));
    }
    snprintf (
        why, room, "%s: none of cuDNN's %lld engines makes a plan%s%s: %s",
        ret->bwd ? "backward" : "forward", (long long)n, status ? ", " : "",
        status ? g->api->error_text (status) : "", g->why[0] ? g->why : last);
    return false;
}

bool cudnn_plan_make (struct cudnn_plan *ret, const struct cudnn_api *api,
                      void *handle, const char *device_json, bool bwd,
                      const struct attention_shape *s, char *why, size_t room)
{
    struct graph g;
    bool good =
        bwd ? graph_bwd (&g, api, handle, s) : graph_fwd (&g, api, handle, s);

    *ret = (struct cudnn_plan){.bwd = bwd};
    if (good)
        good = first_plan (ret, &g, handle, device_of (&g, device_json), s, why,
                           room);
    else
        snprintf (why, room, "%s: %s", bwd ? "backward" : "forward", g.why);
    graph_drop (&g);
    return good;
}

void cudnn_plan_drop (struct cudnn_plan *p, const struct cudnn_api *api)
{
    if (p->plan)
        (void)api->desc_destroy (p->plan);
    *p = (struct cudnn_plan){0};
}

int cudnn_engines (const struct cudnn_api *api, const char *device_json,
                   bool bwd, const struct attention_shape *s,
                   int *ret_deterministic, char *why, size_t room)
{
    struct graph g;
    void *config[CONFIGS];
    int64_t n = 0, engine;
    bool same;

    *ret_deterministic = 0;
    if (bwd ? graph_bwd (&g, api, NULL, s) : graph_fwd (&g, api, NULL, s))
        n = engines (&g, device_of (&g, device_json), DNN_HEUR_A, config);
    for (int64_t i = 0; i < n; i++)
        *ret_deterministic += engine_of (&g, config[i], &engine, &same) && same;
    if (g.why[0]) {
        snprintf (why, room, "%s", g.why);
        n = -1;
    }
    graph_drop (&g);
    return (int)n;
}

struct pack {
    int64_t id[AT_IDS];
    void *at[AT_IDS];
    int64_t n;
};

static void give (struct pack *p, enum attention_id id, const void *at)
{
    p->id[p->n] = id;
    p->at[p->n++] = (void *)(uintptr_t)at;
}

/* Every pointer of a call; the scratch is split up as scratch_of adds it. */
static void fill (struct pack *p, const struct cudnn_plan *plan,
                  const struct attention_shape *s, const struct cudnn_call *c)
{
    static const float masked = -FLT_MAX, one = 1;
    size_t k = s->H * s->D * dtype_bytes (s),
           v = k + s->G * s->D * dtype_bytes (s);
    const char *in = c->qkv;
    char *out = c->dqkv, *scratch = c->scratch;

    give (p, AT_Q, in);
    give (p, AT_K, in + k);
    give (p, AT_V, in + v);
    give (p, AT_Y, c->y);
    give (p, AT_LSE, c->lse);
    give (p, AT_SCALE, &c->scale);
    give (p, AT_MASKED, &masked);
    if (!plan->bwd)
        return;
    scratch += round_up (plan->workspace);
    give (p, AT_ONE, &one);
    give (p, AT_DQ, out);
    give (p, AT_DK, out + k);
    give (p, AT_DV, out + v);
    give (p, AT_DY, c->dy);
    give (p, AT_ROWSUM, scratch);
    if (!s->deterministic)
        give (p, AT_DQ_SUM, scratch + round_up (s->B * s->H * s->T * 4));
}

bool cudnn_plan_run (const struct cudnn_plan *p, const struct cudnn_api *api,
                     void *handle, const struct attention_shape *s,
                     const struct cudnn_call *c, char *why, size_t room)
{
    struct pack pack = {.n = 0};
    struct graph g = {.api = api}; /* no graph: it holds one descriptor */
    void *desc, *workspace = c->scratch;
    int status = api->set_stream (handle, c->stream);

    fill (&pack, p, s, c);
    desc = graph_make (&g, DNN_PACK);
    graph_set (&g, desc, DNN_PACK_IDS, DNN_T_INT64, pack.n, pack.id);
    graph_set (&g, desc, DNN_PACK_POINTERS, DNN_T_VOID_PTR, pack.n, pack.at);
    graph_set (&g, desc, DNN_PACK_WORKSPACE, DNN_T_VOID_PTR, 1, &workspace);
    graph_close (&g, desc);
    if (status == 0 && !g.why[0])
        status = api->execute (handle, p->plan, desc);
    graph_drop (&g);
    if (status == 0 && !g.why[0])
        return true;
    snprintf (why, room, "%s of cuDNN: %s", p->bwd ? "backward" : "forward",
              g.why[0] ? g.why : api->error_text (status));
    return false;
}
