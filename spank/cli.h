/* SPDX-License-Identifier: Apache-2.0
 * cli.h - read a command line of srun, sbatch or salloc as they will.
 *
 * A SPANK option's callback comes after the client has read its environment,
 * which is too late for variables that ask for GPUs. So the plugin reads the
 * command line itself, beforehand, and must see what getopt_long(3) will see:
 * abbreviations, clusters of short options, values in the next word, the end
 * at "--" or at the first word that is no option.
 *
 * Pure: no Slurm header. The options known here are those of Slurm 22.05 to
 * 26.05 and this plugin's; the caller must compare what it got with what the
 * callbacks bring. */
#ifndef RV_SPANK_CLI_H
#define RV_SPANK_CLI_H

#include <stddef.h>

enum cli_client {
    CLI_SRUN = 1,
    CLI_SBATCH = 2,
    CLI_SALLOC = 4,
};

/* cli_seen_f - one option of the command line.
 *   name    the whole long name, also for short options and abbreviations
 *   value   NULL when it has none; borrowed from argv */
typedef void (*cli_seen_f) (void *arg, const char *name, const char *value);

/* cli_scan - call [seen] for each option that is known, in order.
 *   argv    (argc) argv[0] is the client's name and is passed over
 * An option that is unknown or ambiguous is passed over as if it took no
 * value. Returns the index of the first word that is not of the client's
 * options: the command, or argc. */
int cli_scan (enum cli_client client, int argc, char *const *argv,
              cli_seen_f seen, void *arg);

/* cli_might_be - could [word] be "--NAME", abbreviated or with a value?
 *   name    long name without dashes */
int cli_might_be (const char *word, const char *name);

/* cli_split - the words of a /proc/PID/cmdline, each ended by NUL.
 *   buf        (len) borrowed: the words point into it
 *   ret_argv   written: malloc'ed array with a NULL behind the last; free it
 * Returns the number of words, or -1 when out of memory or when the last word
 * has no end. */
int cli_split (char *buf, size_t len, char ***ret_argv);

#endif
