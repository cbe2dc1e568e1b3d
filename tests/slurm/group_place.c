/* SPDX-License-Identifier: Apache-2.0
 * group_place.c - where the tensors of a case are: in the host's memory, or
 * with GROUP_FAULTS_CUDA defined in that of the local rank's GPU */
#include "group_calls.h"

#include <stdlib.h>

#ifdef GROUP_FAULTS_CUDA
#include <cuda_runtime_api.h>

const char *const place_backend = "nccl";

static size_t bytes_of (const struct run *run)
{
    return ELEMENTS * (size_t)run->size * sizeof (float);
}

bool place_open (struct run *run)
{
    run->device.device_type = kDLCUDA;
    run->device.device_id = train_group_local_rank (run->group);
    return cudaSetDevice (run->device.device_id) == cudaSuccess
           && cudaMalloc (&run->gpu_in, bytes_of (run)) == cudaSuccess
           && cudaMalloc (&run->gpu_out, bytes_of (run)) == cudaSuccess;
}

void place_close (struct run *run)
{
    cudaFree (run->gpu_in);
    cudaFree (run->gpu_out);
}

void *place_of (const struct run *run, const float *data)
{
    return data == run->in ? run->gpu_in : run->gpu_out;
}

void place_give (struct run *run)
{
    if (cudaMemcpy (run->gpu_in, run->in, bytes_of (run),
                    cudaMemcpyHostToDevice)
            != cudaSuccess
        || cudaMemcpy (run->gpu_out, run->out, bytes_of (run),
                       cudaMemcpyHostToDevice)
               != cudaSuccess)
        abort ();
}

void place_take (struct run *run)
{
    if (cudaMemcpy (run->in, run->gpu_in, bytes_of (run),
                    cudaMemcpyDeviceToHost)
            != cudaSuccess
        || cudaMemcpy (run->out, run->gpu_out, bytes_of (run),
                       cudaMemcpyDeviceToHost)
               != cudaSuccess)
        abort ();
}

#else

const char *const place_backend = "host";

bool place_open (struct run *run)
{
    run->device.device_type = kDLCPU;
    return true;
}

void place_close (struct run *run)
{
    (void)run;
}

void *place_of (const struct run *run, const float *data)
{
    return data == run->in ? run->in : run->out;
}

void place_give (struct run *run)
{
    (void)run;
}

void place_take (struct run *run)
{
    (void)run;
}

#endif
