/* SPDX-License-Identifier: Apache-2.0
 * test_device_open.c - each rank of rv-train takes a GPU, and wakes no other */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "fake_nccl.h"
#include "group_ranks.h"
#include "libtrain/rv-train/device.h"

static const struct fake_orders no_orders = {.rank = -1};

/* What stands in no file. */
char *settings_where (const struct settings *set, const char *section,
                      const char *key, char *to, size_t size)
{
    (void)set;
    snprintf (to, size, "[%s] %s", section, key);
    return to;
}

static void open_one (struct job *job, int rank, train_group_t *group)
{
    const struct settings set = {.device = DEVICE_CUDA,
                                 .strategy = TRAIN_FULL_SHARD};
    struct seen *seen = &job->shared->seen[rank];
    train_decoder_config_t config = {.size = sizeof (config)};
    const struct backend_ops *ops = NULL;
    train_group_t *gpus = NULL;
    char name[128] = "";

    seen->status = device_open (&set, group, &config, name, sizeof (name),
                                &gpus, &seen->err);
    train_group_destroy (gpus);
    if (seen->status == TRAIN_OK
        && backend_find ("cuda", &ops, &seen->err) == TRAIN_OK)
        /* as all do that has a GPU's memory, streams or kernels */
        ops->leave (ops->enter (config.device.device_id));
    if (seen->status == TRAIN_OK
        && (config.device.device_id != rank || fake_woken () != 1u << rank))
        snprintf (seen->note, sizeof (seen->note),
                  "GPU %d, and as bits %#x are awake", config.device.device_id,
                  fake_woken ());
}

static void test_own (void **state)
{
    struct job job = {.layout = "aaa", .body = open_one};

    (void)state;
    fake_open (&no_orders);
    run_job (&job);
    want_ok (&job);
    free_job (&job);
    fake_close ();
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_own),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
