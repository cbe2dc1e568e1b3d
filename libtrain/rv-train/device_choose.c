/* SPDX-License-Identifier: Apache-2.0
 * device_choose.c - host or GPUs, from what was asked and what the ranks see */
#include "device.h"

#include "libtrain/err.h"

const char *device_host_alone (const struct settings *set)
{
    if (set->param == FP64)
        return "fp64 is of the host";
    if (set->task == TASK_GRPO && set->param == FP16)
        return "grpo with fp16 is of the host";
    return NULL;
}

train_status_t device_choose (const struct settings *set, const int32_t *gpus,
                              int ranks, bool *ret_gpu, train_error_t *err)
{
    int sees = -1, blind = -1;

    *ret_gpu = set->device == DEVICE_CUDA;
    if (set->device != DEVICE_AUTO || device_host_alone (set))
        return TRAIN_OK;
    for (int r = ranks - 1; r >= 0; r--)
        if (gpus[r] > 0)
            sees = r;
        else
            blind = r;
    if (sees >= 0 && blind >= 0)
        return err_set (err, TRAIN_EINVAL,
                        "rank %d sees a GPU and rank %d none, so auto cannot "
                        "tell which is meant; device = cpu, or a GPU for each "
                        "rank",
                        sees, blind);
    *ret_gpu = sees >= 0;
    return TRAIN_OK;
}
