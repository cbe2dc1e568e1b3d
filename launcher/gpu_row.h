/* SPDX-License-Identifier: Apache-2.0
 * gpu_row.h - lines of nvidia-smi as srun labels them. Pure. */
#ifndef RV_GPU_ROW_H
#define RV_GPU_ROW_H

#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

/* What gpu_row_parse reads: for nvidia-smi --query-gpu. */
#define GPU_ROW_QUERY                                                          \
    "index,name,utilization.gpu,memory.used,memory.total,temperature.gpu,"     \
    "power.draw,power.limit"

/* Numbers are -1 where the driver does not say. */
struct gpu_row {
    uint32_t task; /* of the label: which node */
    int64_t index;
    char name[64];
    double util;                   /* percent */
    double mem_used, mem_total;    /* MiB */
    double temp;                   /* Celsius */
    double power_draw, power_most; /* watts */
};

/* gpu_row_parse - "1: 0, NVIDIA A100, 35, 1024, 40960, 41, 60.12, 400.00",
 * without a newline. [N/A] and the like are -1. RV_EFORMAT for anything else. */
int gpu_row_parse (const char *line, struct gpu_row *ret, struct rv_error *err);

/* gpu_row_bar - "[####------]" of [part] of [whole]; blank where one of them is
 * not known. Returns buf.
 *   width   characters between the brackets; size > width + 2 */
char *gpu_row_bar (double part, double whole, size_t width, char *buf,
                   size_t size);

#endif
