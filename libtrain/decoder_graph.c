/* SPDX-License-Identifier: Apache-2.0
 * decoder_graph.c - forward and backward as a CUDA graph, where passes repeat
 *
 * The first pass of a shape runs as ever: algorithms are chosen in it. The
 * second is recorded, and from then on one launch replays it. */
#include "decoder_impl.h"
#include "err.h"

void decoder_replay_forget (train_decoder_t *m)
{
    if (m->replay.graph)
        m->ops->graph->destroy (m->replay.graph);
    m->replay.graph = NULL;
    m->replay.acts = NULL;
}

train_status_t decoder_set_replay (train_decoder_t *m, bool on,
                                   train_error_t *err)
{
    if (on && !m->ops->graph)
        return err_set (err, TRAIN_ENOTSUP,
                        "decoder: graphs of a pass need a GPU");
    decoder_replay_forget (m);
    m->replay.on = on;
    return TRAIN_OK;
}

/* Is this pass, to each address and number that is recorded, the one before? */
static bool is_same (const train_decoder_t *m, double scale)
{
    const struct decoder_replay *r = &m->replay;

    return r->acts && r->acts == m->acts && r->B == m->B && r->T == m->T
           && r->scale == scale && r->spent == m->spent;
}

static train_status_t record (train_decoder_t *m, double scale,
                              train_error_t *err)
{
    const struct backend_graph *g = m->ops->graph;
    train_status_t status, end;

    TRY (g->begin (m->stream, m->device, err));
    status = decoder_step (m, scale, err);
    end = g->end (m->stream, m->device,
                  status == TRAIN_OK ? &m->replay.graph : NULL,
                  status == TRAIN_OK ? err : NULL);
    return status != TRAIN_OK ? status : end;
}

static train_status_t step (train_decoder_t *m, double scale,
                            train_error_t *err)
{
    struct decoder_replay *r = &m->replay;

    if (!r->on || m->hooks.before || m->hooks.after || decoder_drops (m))
        return decoder_step (m, scale, err);
    if (!is_same (m, scale)) {
        decoder_replay_forget (m);
        TRY (decoder_step (m, scale, err));
        r->acts = m->acts;
        r->B = m->B;
        r->T = m->T;
        r->scale = scale;
        r->spent = m->spent;
        return TRAIN_OK;
    }
    if (!r->graph)
        TRY (record (m, scale, err));
    return m->ops->graph->launch (r->graph, m->stream, m->device, err);
}

train_status_t decoder_replay_step (train_decoder_t *m, double scale,
                                    train_error_t *err)
{
    TRY (step (m, scale, err));
    m->spent = false;
    return TRAIN_OK;
}
