/* SPDX-License-Identifier: Apache-2.0
 * log.h - what rv-exec says, one line a fact, on stderr. */
#ifndef RV_EXEC_LOG_H
#define RV_EXEC_LOG_H

#include <stdint.h>

enum log_level {
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG,
};

/* log_init - read RV_LOG (error, warn, info, debug; default warn; an unknown
 * word is warn); [verbose] is at least info. */
void log_init (int verbose);

/* log_rank - from now on lines begin "rv[rank N on NODE]: " and not "rv: ". */
void log_rank (uint32_t rank);

/* log_node - this node's name: Slurm's, else the host's. Static. */
const char *log_node (void);

void log_line (enum log_level level, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

#endif
