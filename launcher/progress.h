/* SPDX-License-Identifier: Apache-2.0
 * progress.h - lines that a program draws over and over, such as tqdm's bars.
 *
 * Such a line returns its carriage in the place of ending. Among lines of
 * several ranks, or in a file, only what it shows last says something. */
#ifndef RV_PROGRESS_H
#define RV_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* progress_clean - what of a line is seen in the end: what stands behind its
 * last carriage return, without sequences that move the cursor (of ECMA-48's
 * those that end in m, colours, stay). A return that stands before the newline
 * or the end belongs to the line's end and stays.
 *   line   (len) changed in place; may end in a newline
 * Returns the new length. */
size_t progress_clean (char *line, size_t len);

/* progress_is_plain - has it no control character but newlines and tabs? */
bool progress_is_plain (const char *text, size_t len);

/* progress_harmless - leave out of a whole, cleaned line what would change the
 * state of a terminal: control characters but tabs and those that end it, and
 * every escape that is no control sequence.
 *   line   (len) changed in place
 * Returns the new length. */
size_t progress_harmless (char *line, size_t len);

/* progress_fit - how many bytes of [text] fit into [columns] of a terminal,
 * each character of UTF-8 as one, up to the first control character. Colours
 * take no room. */
size_t progress_fit (const char *text, size_t len, unsigned columns);

/* The lowest line of a terminal, where an unfinished line is shown until
 * another one comes. */
struct live {
    int fd; /* -1 = none: standard output and error are no terminals */
    bool shown;
    int64_t at_ms; /* when it was drawn last */
};

/* live_init - on standard error, else standard output, if that is a terminal
 * that can erase a line. */
void live_init (struct live *live);

/* live_show - draw [label] and [text] there, cut to the terminal's width; not
 * more than ten times a second.
 *   now_ms   of a monotonic clock
 * Returns false when it was too early. A write that fails is nobody's loss. */
bool live_show (struct live *live, const char *label, const char *text,
                size_t len, int64_t now_ms);

/* live_erase - before anything else is written there. NULL is fine. */
void live_erase (struct live *live);

#endif
