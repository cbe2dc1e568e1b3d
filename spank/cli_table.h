/* SPDX-License-Identifier: Apache-2.0
 * cli_table.h - the options of srun, sbatch and salloc as data. */
#ifndef RV_SPANK_CLI_TABLE_H
#define RV_SPANK_CLI_TABLE_H

#include <stddef.h>

#include "cli.h"

enum cli_kind {
    CLI_PLAIN, /* never a value */
    CLI_MAYBE, /* a value only in the same word */
    CLI_VALUE, /* always a value, in the same word or the next */
};

struct cli_option {
    const char *name; /* long, without dashes */
    char letter;      /* short form, 0 = none */
    enum cli_kind kind;
    unsigned clients; /* mask of enum cli_client */
};

extern const struct cli_option cli_table[];
extern const size_t cli_table_n;

#endif
