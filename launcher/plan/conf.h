/* SPDX-License-Identifier: Apache-2.0
 * conf.h - read INI files strictly.
 *
 * inih does the parsing (ini_parse_stream); our reader counts lines and
 * refuses those longer than inih's buffer (Debian's cuts them at 200 bytes
 * without an error). The caller declares what may stand there; an unknown
 * section or key, a key twice, a line too long, a NUL byte or a bad value is
 * RV_EINVAL "FILE:LINE: ..." with the nearest known name.
 *
 * Form: "[section]" or "[section NAME]", "key = value" or "key: value", blank
 * lines, and comments on lines of their own that begin with ';' or '#'. Lines
 * may be indented; none continues the one before. inih would end a value at
 * " ;" and drop what stands behind "]": both are refused, so nothing that is
 * written is lost. Quotes are part of a value. A file has at most 1 MiB and
 * 4096 keys. */
#ifndef RV_PLAN_CONF_H
#define RV_PLAN_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

enum conf_type {
    CONF_STRING,   /* char *          malloc'ed copy */
    CONF_BOOL,     /* bool            on|off */
    CONF_INT,      /* int64_t         within [min, max] */
    CONF_DOUBLE,   /* double          within [min, max], finite */
    CONF_DURATION, /* int64_t ms      unit needed */
    CONF_SIZE,     /* int64_t bytes */
    CONF_CHOICE,   /* int             index into choices */
    CONF_TIME,     /* int64_t s       as --time: Slurm's forms, -1 unlimited */
    CONF_LIST,     /* char *          "a,b" of "a , b"; no item is empty */
    CONF_PATH,     /* char *          as it stands; begins with / or ~/ */
};

struct conf_key {
    const char *section; /* "model"; "gpu *" matches "[gpu TYPE]" */
    const char *key;     /* "*" takes any name ([env]) */
    enum conf_type type;
    size_t offset;       /* of the value inside the target struct */
    double min, max;     /* of a number; both 0 = any */
    const char *choices; /* CONF_CHOICE: "auto,cpu,cuda" */
};

/* conf_sink_f - called for keys of sections with an argument ("[gpu a100]",
 * "[reward x]") and for "*" keys, instead of writing into the target.
 *   arg           the caller's
 *   section       without its argument: "gpu" of "[gpu a100]"
 *   section_arg   "a100" or ""
 *   value         was found good for the key's type
 * All text lives for the call. A nonzero return ends the reading and is the
 * result; put the reason into [err] (never NULL here). */
typedef int (*conf_sink_f) (void *arg, const char *section,
                            const char *section_arg, const char *key,
                            const char *value, struct rv_error *err);

/* conf_read - read [path] into [target] by [keys]. The target holds defaults
 * beforehand and may be half written on failure (strings stay owned).
 * RV_ENOTFOUND when the file is not there, RV_EIO when unreadable. */
int conf_read (const char *path, const struct conf_key *keys, size_t n,
               void *target, conf_sink_f sink, void *sink_arg,
               struct rv_error *err);

/* conf_read_fd - the same from an open descriptor (borrowed, read to its end);
 * [name] stands in messages. The plugin opens and checks its file itself. */
int conf_read_fd (int fd, const char *name, const struct conf_key *keys,
                  size_t n, void *target, conf_sink_f sink, void *sink_arg,
                  struct rv_error *err);

/* conf_set - one "section.key=value" override, checked like a line of a file
 * (the section is what stands before the last '.' of the name, so
 * "gpu 1g.10gb.cost=1" works). An override may repeat and replaces the value of
 * a file. Messages begin with the override instead of FILE:LINE. */
int conf_set (const char *assignment, const struct conf_key *keys, size_t n,
              void *target, conf_sink_f sink, void *sink_arg,
              struct rv_error *err);

/* conf_open - open a file for conf_read_fd: a regular one, links followed.
 *   ret_fd   written on success; close it
 * It never waits. RV_ENOTFOUND when it is not there, RV_EIO when it cannot be
 * opened or is a FIFO, a device or a folder. */
int conf_open (const char *path, int *ret_fd, struct rv_error *err);

/* conf_open_trusted - open a file that root may believe: a regular file, not a
 * link, owned by root (or by the caller, where that is not root), and not
 * writable by group or others.
 *   ret_fd   written on success; close it
 * RV_ENOTFOUND when it is not there, RV_EIO when it cannot be opened (a link or
 * anything irregular among that), RV_EINVAL when it must not be believed. Folders above it are not
 * looked at: whoever may write there can only put a file of their own in its
 * place, and that has the wrong owner. */
int conf_open_trusted (const char *path, int *ret_fd, struct rv_error *err);

/* conf_split - the items of a list, "a, b,c": without the blanks around them.
 *   ret     malloc'ed array of *ret_n strings, and a NULL behind them; free it
 *           with conf_split_free. "" gives no items.
 * An empty item is RV_EINVAL. */
int conf_split (const char *text, char ***ret, size_t *ret_n,
                struct rv_error *err);
void conf_split_free (char **items); /* NULL is fine */

/* conf_free_strings - free every char * of [target] and set it NULL. */
void conf_free_strings (const struct conf_key *keys, size_t n, void *target);

#endif
