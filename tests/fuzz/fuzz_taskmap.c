/* SPDX-License-Identifier: Apache-2.0
 * fuzz_taskmap.c - tasks per node: the total is the sum */
#include "fuzz.h"
#include "plan/taskmap.h"

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct rv_error err = {0};
    struct taskmap map;
    char *text = fuzz_text (data, size);
    uint64_t sum = 0;

    if (taskmap_parse (text, &map, &err) == 0) {
        FUZZ_CHECK (map.n > 0 && map.n <= 65536);
        for (size_t i = 0; i < map.n; i++)
            sum += map.tasks[i];
        FUZZ_CHECK (sum == map.total);
    } else {
        FUZZ_CHECK (err.code == RV_EINVAL && err.text[0]);
        FUZZ_CHECK (map.n == 0 && map.total == 0 && !map.tasks);
    }
    taskmap_fini (&map);
    free (text);
    return 0;
}
