/* SPDX-License-Identifier: Apache-2.0
 * run_opts.h - the words of `rv run`, before anything is asked of Slurm.
 *
 * Pure but for getopt's globals: text in, numbers and borrowed text out. */
#ifndef RV_RUN_OPTS_H
#define RV_RUN_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/checkpoint.h"
#include "plan/error.h"
#include "run_slurm.h"

#define RUN_OUTPUTS_MAX 32

struct run_opts {
    bool gpus_given;
    uint32_t gpus;           /* 0 is allowed: one task without a GPU */
    bool mig;                /* slices, of [mig_profile] or the site's own */
    const char *mig_profile; /* NULL = not given */
    const char *type, *name, *partition, *account, *qos; /* NULL = not given */
    bool time_given;
    int64_t time_s;     /* -1 = unlimited */
    int64_t time_min_s; /* 0 = not given */
    int64_t mem_bytes;  /* 0 = not given */
    int64_t vram_bytes; /* of a GPU; 0 = not given */
    uint32_t nodes;     /* 0 = not given */
    unsigned fanout;    /* jobs at most; 0 = not given */
    bool single_node;   /* [nodes] is 1 then */
    struct checkpoint checkpoint;
    bool snapshot;                       /* the job runs in a copy */
    const char *output[RUN_OUTPUTS_MAX]; /* (n_output) lists of outpath_parse */
    size_t n_output;
    bool follow, label, dry_run, json, help;
    struct run_slurm slurm; /* what goes to sbatch as it is */
    bool dashes;            /* "--" stands before the command */
    int argc;               /* the command; its words stand unchanged */
    char **argv;
};

/* run_opts_parse - read the words after "run".
 *   argc, argv   argv[0] is "run"; argv is borrowed, its order is kept
 *   opts         written on success
 * Options end at the first word that is none, or at "--". RV_EINVAL names the
 * word that is wrong. */
int run_opts_parse (int argc, char *argv[], struct run_opts *opts,
                    struct rv_error *err);

/* run_opts_check - wishes that exclude each other: RV_EINVAL. run_opts_parse
 * has asked; again after defaults have joined. */
int run_opts_check (const struct run_opts *opts, struct rv_error *err);

/* run_opts_misplaced - the first word behind the command that reads like an
 * option of rv run; NULL when there is none, or "--" stands before the command,
 * or before that word. It is the command's: to be pointed out, no more. */
const char *run_opts_misplaced (const struct run_opts *opts);

/* run_opts_json - is --json among them? Words that are no options are passed
 * over: it decides how those are reported. */
bool run_opts_json (int argc, char *argv[]);

/* Lines of help about the options; static. */
extern const char run_opts_help[];

#endif
