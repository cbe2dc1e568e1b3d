/* SPDX-License-Identifier: Apache-2.0
 * attention_cudnn.h - cuDNN's attention: plans, and running them. For
 * attention.c. */
#ifndef KERN_ATTENTION_CUDNN_H
#define KERN_ATTENTION_CUDNN_H

#include "kernels/attention.h"
#include "kernels/cudnn_api.h"

/* One pass of one shape, ready to run.
 *   engine          cuDNN's number of what runs
 *   workspace       bytes that cuDNN wants itself
 *   scratch         bytes with what the graph keeps beside
 *   deterministic   cuDNN says so of the engine */
struct cudnn_plan {
    void *plan;
    bool bwd, deterministic;
    int64_t engine;
    size_t workspace, scratch;
};

/* cudnn_serves - whether shapes like [s] may be given to this release of cuDNN.
 * False: [why] says why not. */
bool cudnn_serves (const struct cudnn_api *api, const struct attention_shape *s,
                   char *why, size_t room);

/* cudnn_plan_make
 *   handle        of the thread's device; NULL: as far as it goes for the device
 *                 of [device_json], without a GPU
 *   device_json   properties as cuDNN writes them; NULL with a handle
 * False: [why] says why; ret is empty. */
bool cudnn_plan_make (struct cudnn_plan *ret, const struct cudnn_api *api,
                      void *handle, const char *device_json, bool bwd,
                      const struct attention_shape *s, char *why, size_t room);

/* cudnn_plan_drop - an empty one is allowed. */
void cudnn_plan_drop (struct cudnn_plan *p, const struct cudnn_api *api);

/* cudnn_engines - how many engines cuDNN's heuristics have for a graph on a
 * device that is not here; -1: [why] says why. For tests without a GPU.
 *   ret_deterministic   how many of them are deterministic */
int cudnn_engines (const struct cudnn_api *api, const char *device_json,
                   bool bwd, const struct attention_shape *s,
                   int *ret_deterministic, char *why, size_t room);

/* What a call reads and writes; [dqkv] and [dy] of the backward alone. */
struct cudnn_call {
    void *y, *lse, *dqkv;
    const void *qkv, *dy;
    float scale;
    void *scratch, *stream;
};

/* cudnn_plan_run - enqueue. False: [why] says why. */
bool cudnn_plan_run (const struct cudnn_plan *p, const struct cudnn_api *api,
                     void *handle, const struct attention_shape *s,
                     const struct cudnn_call *c, char *why, size_t room);

#endif
