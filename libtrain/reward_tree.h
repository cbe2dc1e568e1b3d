/* SPDX-License-Identifier: Apache-2.0
 * reward_tree.h - end a program with all that it has started. Inside libtrain
 * only. */
#ifndef TRAIN_REWARD_TREE_H
#define TRAIN_REWARD_TREE_H

#include <sys/types.h>

/* tree_kill - SIGKILL to [root], a child of this process that leads a process
 * group, to its group, and to its children and theirs, also those that lead a
 * session of their own. All are stopped first, so that none starts another or
 * loses its parent meanwhile. What had lost it before, as a daemon does, stays. */
void tree_kill (pid_t root);

#endif
