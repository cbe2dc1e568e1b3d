/* SPDX-License-Identifier: Apache-2.0
 * jobtext.h - numbers out of the texts that Slurm gives of jobs. */
#ifndef RV_PLAN_JOBTEXT_H
#define RV_PLAN_JOBTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/gres.h"

/* jobtext_tres - the number of one resource in "cpu=8,mem=64G,node=2", memory
 * in MiB. -1 where it is not there; NULL is an empty text. */
int64_t jobtext_tres (const char *tres, const char *name);

/* jobtext_tasks - how many tasks of an array "0-9", "1,3,5-11:2%4" waits for,
 * at most the number behind '%' (those that run at a time) and [most]. A list
 * that Slurm cut ("...") counts as far as it goes. At least 1. */
uint32_t jobtext_tasks (const char *list, uint32_t most);

/* jobtext_has_task - is [task] in such a list? Of one that Slurm cut any may be;
 * NULL has none. */
bool jobtext_has_task (const char *list, uint64_t task);

/* jobtext_gpus - GPUs in "gres:gpu:a100:2,..." and their type.
 *   type   written: "" where they are of none, or of several
 * 0 for NULL or a text that is not read. */
uint32_t jobtext_gpus (const char *gres, char type[GRES_NAME_MAX]);

#endif
