/* SPDX-License-Identifier: Apache-2.0
 * train/reward.h - how good a completion is: rules of our own, or any program.
 *
 * A handle is one reward; several with weights are several handles, whose
 * columns train/grpo.h adds up. A reward that says nothing of a completion is
 * NaN, which train/grpo.h leaves out: the row lacks what the rule needs, or the
 * program failed at this one sample. NaN is counted by kind of fault, never an
 * error by itself.
 *
 * A program reads requests from stdin and writes replies to stdout, a line of
 * JSON each, one after the other:
 *
 *   {"id": 7, "prompt": "12+34=", "completion": "46", "answer": "46"}
 *   {"id": 7, "reward": 1.0}
 *
 * A request has all fields of the row, but for ones named id, prompt and
 * completion, and of these prompt is the text that the model saw. A reward is a
 * number or null, which is NaN. A reply must be flushed. Several processes share
 * the samples. One that ends, says something else (1 MiB without an end of line
 * among that) or keeps its time limit waiting costs the one sample that it has,
 * is killed, and another is started. One that fails has ended even where a child holds
 * its output; one that ends with status 0 may have left its work to a child. At the
 * end stdin closes; what does not end
 * within a second is killed. They die with the thread that called open or score
 * when they were started. stderr is the caller's; PYTHONUNBUFFERED=1 is set
 * unless it is.
 *
 * Texts end at their NUL or after their size, where one is given; what is no
 * UTF-8, and NUL within a size, is seen as U+FFFD. One thread at a time. */
#ifndef TRAIN_REWARD_H
#define TRAIN_REWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_reward train_reward_t;

typedef enum train_reward_kind {
    /* 1 where the completion is the row's [field], else 0, blanks around both
     * aside. With [marker]: what follows its last place in the completion, to
     * the end of that line; likewise of the field where it has the marker. */
    TRAIN_REWARD_EXACT = 0,
    /* 1 where the POSIX extended regular expression [pattern] matches in the
     * completion, else 0. With [field], its first group must be that too. */
    TRAIN_REWARD_REGEX = 1,
    /* 1 where the completion has min to max characters; outside it falls to 0
     * over [soft] characters. */
    TRAIN_REWARD_LENGTH = 2,
    /* 1 where the completion is the right result of an expression of integers,
     * decimals, + - * / and brackets: the last that stands in the row's prompt
     * ("12+34="; of messages the user's last), or with [field] the whole of that.
     * Right is what is equal: 46, 46.0 and 92/2. With [marker] the result stands
     * behind its last place, else it is all there is. */
    TRAIN_REWARD_ARITHMETIC = 3,
    /* What [program] says, see below. */
    TRAIN_REWARD_PROGRAM = 4,
} train_reward_kind_t;

typedef struct train_reward_options {
    size_t size;      /* sizeof (train_reward_options_t) */
    const char *name; /* in messages; NULL = "reward" */
    train_reward_kind_t kind;
    const char *field;      /* of the row: text or a number; NULL: "answer" of
                              EXACT, none of REGEX */
    const char *marker;     /* of EXACT and ARITHMETIC, "####"; NULL = the
                              whole text */
    const char *pattern;    /* of REGEX */
    int64_t min, max, soft; /* of LENGTH, characters; max 0 = no limit */
    const char *program; /* of PROGRAM: words between blanks, which quotes and
                               \\ keep as in a shell; no shell runs it */
    int processes;       /* 1 to 256; 0 = 1 */
    int64_t timeout_ms;  /* for a reply; 0 = 10 s */
    int64_t start_ms; /* more of it for the first of a process; 0 = 60 s. Once
                            one was too late with it, of each eighth, until
                            one has replied */
    int max_faults;   /* in a row, on all its processes, before it is an
                           error; 0 = 100 */
    bool (*ends) (void *arg); /* of PROGRAM, asked several times a second while
                                 a call waits: true ends it with TRAIN_EABORTED
                                 unless all have replied half a second later.
                                 NULL: nobody is asked */
    void *ends_arg;
    bool later; /* of PROGRAM: processes start when they have a sample; open
                   looks whether there is such a program */
} train_reward_options_t;

/* One completion. Borrowed for the call. */
typedef struct train_sample {
    const char *prompt;     /* the text that the model saw */
    const char *completion; /* without the end token */
    const char *row;        /* the prompt's line of JSON, an object; NULL: {} */
    size_t prompt_size, completion_size; /* bytes; 0 = up to the NUL */
} train_sample_t;

/* Samples since the handle was opened. */
typedef struct train_reward_report {
    size_t size;     /* sizeof (train_reward_report_t) */
    int64_t scored;  /* with a number */
    int64_t nothing; /* the rule or the program has nothing to say */
    int64_t timeouts, crashes,
        garbage;     /* faults of a program: no reply in time;
                                           it ended or could not be started; a
                                           line that is no reply to the sample */
    int64_t started; /* processes */
} train_reward_report_t;

/* train_reward_open - what is given is copied; the processes of a program start.
 * TRAIN_EINVAL names the option that is wrong; TRAIN_ENOTFOUND, TRAIN_EIO: the
 * program cannot be started; TRAIN_ENOMEM. */
train_status_t train_reward_open (const train_reward_options_t *opts,
                                  train_reward_t **ret_reward,
                                  train_error_t *err);
void train_reward_close (train_reward_t *reward); /* NULL is fine */

/* train_reward_score - rewards of [n] completions.
 *   ret   (n) host, written: finite, or NaN = none
 * TRAIN_EINVAL: a sample without completion, or a row that is no JSON object;
 * TRAIN_EPEER: max_faults; TRAIN_EABORTED: [ends] was true, and the processes
 * that had a sample are killed; TRAIN_ENOMEM. It takes at most n time limits over the
 * number of processes: of a sample that a new process has, as each has behind a
 * fault, timeout_ms and start_ms. */
train_status_t train_reward_score (train_reward_t *reward,
                                   const train_sample_t *samples, int n,
                                   float *ret, train_error_t *err);

/* train_reward_fault - the program's latest fault, a line: "./score.py did not
 * reply within 10 s". NULL: none. Lives until the next call. */
const char *train_reward_fault (const train_reward_t *reward);

/* train_reward_report - counts so far. TRAIN_EINVAL: its size is not set. */
train_status_t train_reward_report (const train_reward_t *reward,
                                    train_reward_report_t *ret,
                                    train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
