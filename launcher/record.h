/* SPDX-License-Identifier: Apache-2.0
 * record.h - thousands of records in one text, for a child's answer.
 *
 * A JSON object a job costs more than Slurm's answer itself where there are
 * thousands. A record is a line of fields with a tab behind each; fields have no
 * names, so the code that reads them stands beside the code that writes them.
 * Texts lose their tabs and newlines; one that is not UTF-8 is "?". */
#ifndef RV_RECORD_H
#define RV_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begins as {0}. */
struct record_out {
    char *text;
    size_t len, size;
    bool failed; /* out of memory */
};

void record_int (struct record_out *out, int64_t n);
void record_text (struct record_out *out, const char *s); /* NULL is "" */

/* record_range - indices [first] to [last]; any number of them, and then
 * record_ranges_end, are one field. */
void record_range (struct record_out *out, int32_t first, int32_t last);
void record_ranges_end (struct record_out *out);

/* record_ranges - the field of Slurm's pairs of first and last index, -1 at the
 * end. NULL is the empty list. */
void record_ranges (struct record_out *out, const int32_t *pairs);

/* record_end - end the record. */
void record_end (struct record_out *out);

/* record_json - all of it as a JSON string, and free it. NULL when out of
 * memory. */
json_t *record_json (struct record_out *out);

/* Where a reader is; the text stays the JSON value's. */
struct record_in {
    const char *at;
    bool failed; /* a field was not there, or not of its kind */
};

/* record_begin - NULL, and a value that is no string, have no records. */
struct record_in record_begin (const json_t *json);

/* record_count - how many records there are from here on. */
size_t record_count (const struct record_in *in);

/* record_more - is there another record? */
bool record_more (const struct record_in *in);

/* Each takes the next field of the record. One that is not there, or malformed,
 * sets in->failed and gives 0, or the empty text. */
int64_t record_get_int (struct record_in *in);

/* record_get_text - malloc'ed; NULL and in->failed when out of memory. */
char *record_get_text (struct record_in *in);

/* record_get_indices - all indices below [limit] of ranges.
 *   ret   malloc'ed; NULL and in->failed when out of memory */
void record_get_indices (struct record_in *in, size_t limit, uint32_t **ret,
                         size_t *ret_n);

/* record_next - on to the next record; one with fields left has failed. */
void record_next (struct record_in *in);

#endif
