/* SPDX-License-Identifier: Apache-2.0
 * backend_cuda_graph.c - CUDA graphs by stream capture */
#include "backend.h"

#include <cuda_runtime.h>

#include "err.h"

static train_status_t check (cudaError_t rc, const char *what,
                             train_error_t *err)
{
    if (rc == cudaSuccess)
        return TRAIN_OK;
    (void)cudaGetLastError ();
    return err_set (
        err, rc == cudaErrorMemoryAllocation ? TRAIN_ENOMEM : TRAIN_EDEVICE,
        "%s: %s (%s)", what, cudaGetErrorString (rc), cudaGetErrorName (rc));
}

/* Relaxed: calls that are recorded may need memory. */
static train_status_t graph_begin (void *stream, int device, train_error_t *err)
{
    int before = backend_cuda.enter (device);
    train_status_t status =
        check (cudaStreamBeginCapture ((cudaStream_t)stream,
                                       cudaStreamCaptureModeRelaxed),
               "record of a graph", err);

    backend_cuda.leave (before);
    return status;
}

static train_status_t graph_end (void *stream, int device, void **ret,
                                 train_error_t *err)
{
    int before = backend_cuda.enter (device);
    cudaGraphExec_t exec = NULL;
    cudaGraph_t graph = NULL;
    train_status_t status =
        check (cudaStreamEndCapture ((cudaStream_t)stream, &graph),
               "record of a graph", err);

    if (status == TRAIN_OK && ret)
        status = check (cudaGraphInstantiate (&exec, graph, 0),
                        "graph from its record", err);
    if (status == TRAIN_OK && ret) /* else its first launch waits for this */
        status = check (cudaGraphUpload (exec, (cudaStream_t)stream),
                        "graph from its record", err);
    if (status != TRAIN_OK && exec)
        (void)cudaGraphExecDestroy (exec);
    if (graph)
        (void)cudaGraphDestroy (graph);
    backend_cuda.leave (before);
    if (status == TRAIN_OK && ret)
        *ret = exec;
    return status;
}

static train_status_t graph_launch (void *graph, void *stream, int device,
                                    train_error_t *err)
{
    int before = backend_cuda.enter (device);
    train_status_t status =
        check (cudaGraphLaunch ((cudaGraphExec_t)graph, (cudaStream_t)stream),
               "launch of a graph", err);

    backend_cuda.leave (before);
    return status;
}

static void graph_destroy (void *graph)
{
    (void)cudaGraphExecDestroy ((cudaGraphExec_t)graph);
}

static train_status_t graph_mark (volatile uint32_t *flag, uint32_t value,
                                  void *stream, int device, train_error_t *err)
{
    int before = backend_cuda.enter (device);
    void *there = NULL;
    train_status_t status =
        check (cudaHostGetDevicePointer (&there, (void *)(uintptr_t)flag, 0),
               "mark of a graph", err);

    if (status == TRAIN_OK) {
        kern_mark_cuda (there, value, stream);
        status = check (cudaGetLastError (), "mark of a graph", err);
    }
    backend_cuda.leave (before);
    return status;
}

const struct backend_graph backend_cuda_graph = {
    .begin = graph_begin,
    .end = graph_end,
    .launch = graph_launch,
    .destroy = graph_destroy,
    .mark = graph_mark,
};
