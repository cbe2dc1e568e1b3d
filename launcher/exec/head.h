/* SPDX-License-Identifier: Apache-2.0
 * head.h - find the step's first node where its name tells nothing. */
#ifndef RV_EXEC_HEAD_H
#define RV_EXEC_HEAD_H

#include <stdbool.h>
#include <stddef.h>

/* head_export - in a step of several nodes without PMIx, where the plugin has
 * not left RV_HEAD_ADDR: if the first node's name does not resolve here, or to
 * loopback alone (as Debian's installer writes it), ask Slurm for the node's
 * address (scontrol) and set RV_HEAD_ADDR for librvjob. Takes at most
 * HEAD_LOOKUP_MS and HEAD_ASK_MS, and is no error when it finds nothing.
 * Returns whether it set it: the caller takes it out again once the job is
 * joined, since elsewhere it is the plugin's word. */
#define HEAD_LOOKUP_MS 5000
#define HEAD_ASK_MS    10000
bool head_export (void);

/* head_node_addr - the value of NodeAddr in [text], what
 * "scontrol show node -o NAME" prints. False when there is none. */
bool head_node_addr (const char *text, char *buf, size_t size);

#endif
