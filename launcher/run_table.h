/* SPDX-License-Identifier: Apache-2.0
 * run_table.h - strategies for people, and for programs. */
#ifndef RV_RUN_TABLE_H
#define RV_RUN_TABLE_H

#include <jansson.h>
#include <stdint.h>

#include "plan/fanout.h"

/* run_table_print - a line a strategy on stdout, the best first, and what was
 * left out.
 *   now_s   of the snapshot */
void run_table_print (const struct plans *plans, int64_t now_s);

/* run_table_json - the "forecast" of rv.run/1; NULL when out of memory.
 *   choice   which of them become jobs */
json_t *run_table_json (const struct plans *plans,
                        const struct strategy_cluster *cluster,
                        const struct fanout *choice);

#endif
