/* SPDX-License-Identifier: Apache-2.0
 * envfile.h - NAME=VALUE text: the user's secrets, and files in .env form.
 *
 * Pure: text in, text out. A line is blank, a comment (#), or an assignment
 * with "export " before it or not:
 *   NAME=word        up to the end of the line, blanks at both ends dropped;
 *                    quotes, a backslash or " #" in it are refused: readers of
 *                    such files disagree on what they mean
 *   NAME='text'      as it stands, newlines too; no ' in it
 *   NAME="text"      newlines too; \n \r \t \" \\ \$ and \` are escapes, any
 *                    other backslash is refused
 * Nothing is expanded: $ and ` are characters. A name twice is an error. What
 * envfile_format writes, envfile_parse reads as it was, whatever the bytes.
 * Values are secrets: memory is wiped before it is freed. */
#ifndef RV_PLAN_ENVFILE_H
#define RV_PLAN_ENVFILE_H

#include <stddef.h>

#include "plan/error.h"

#define ENVFILE_MAX  (1 << 20) /* bytes of a file */
#define ENVFILE_VARS 4096
/* "NAME=value" and its NUL, as execve(2) takes it: MAX_ARG_STRLEN */
#define ENVFILE_PAIR_MAX 131072

struct envfile_var {
    char *name, *value;
};

struct envfile {
    struct envfile_var *var; /* (n) in the order of the file */
    size_t n;
};

/* envfile_parse - read [text] (len bytes, which need no NUL behind them).
 *   name   of the file, for messages; values never stand in one
 *   ret    written on success; free with envfile_fini
 * RV_EFORMAT "NAME:LINE: ..." when a line is wrong, RV_EINVAL likewise when a
 * variable may not be set (envfile_set), RV_ENOMEM. */
int envfile_parse (const char *text, size_t len, const char *name,
                   struct envfile *ret, struct rv_error *err);

/* envfile_format - the text of [env], malloc'ed; free it with envfile_wipe.
 * NULL when out of memory. */
char *envfile_format (const struct envfile *env, size_t *ret_len);

/* envfile_check - may a variable be called [name]? Not what Slurm, PMIx and rv
 * set themselves in every rank: a value of the user's would break the job or
 * be lost. RV_EINVAL says why. */
int envfile_check (const char *name, struct rv_error *err);

/* envfile_set - add, or give a new value to, one variable; both are copied.
 * RV_EINVAL when the name may not be, or the pair is too long for execve. */
int envfile_set (struct envfile *env, const char *name, const char *value,
                 struct rv_error *err);

/* envfile_find - the value, or NULL. */
const char *envfile_find (const struct envfile *env, const char *name);

/* envfile_unset - take one out. RV_ENOTFOUND when it is not there. */
int envfile_unset (struct envfile *env, const char *name, struct rv_error *err);

/* envfile_wipe - zero [len] bytes and free them; NULL is fine. */
void envfile_wipe (char *text, size_t len);

void envfile_fini (struct envfile *env); /* NULL is fine */

#endif
