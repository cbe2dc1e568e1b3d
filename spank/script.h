/* SPDX-License-Identifier: Apache-2.0
 * script.h - the #SBATCH lines of a batch script. */
#ifndef RV_SPANK_SCRIPT_H
#define RV_SPANK_SCRIPT_H

#include <stddef.h>

#include "cli.h"

#define SCRIPT_LINE_MAX 1024 /* longer #SBATCH lines are passed over */

/* script_scan - call [seen] for the options of the #SBATCH lines that stand
 * before the first command, as sbatch(1) reads them.
 *   text   (len) borrowed; needs no NUL at its end
 *   seen   its values live during the call alone */
void script_scan (const char *text, size_t len, cli_seen_f seen, void *arg);

/* script_peek - the beginning of the script, without consuming it.
 *   path   NULL = standard input, which is read only where it is a file
 *   buf    (size) written
 * Returns the bytes read, 0 when there is nothing to look at. */
size_t script_peek (const char *path, char *buf, size_t size);

#endif
