/* SPDX-License-Identifier: Apache-2.0
 * jsonout.h - values as rv's JSON has them, and the object on stdout. */
#ifndef RV_JSONOUT_H
#define RV_JSONOUT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* jsonout_text - a string; bytes that are not UTF-8 become U+FFFD. NULL gives
 * null. */
json_t *jsonout_text (const char *s);

/* jsonout_time - Unix seconds as RFC 3339 with the local offset; 0 gives null.
 */
json_t *jsonout_time (int64_t t);

/* jsonout_print - one object and a newline on stdout; takes [json]. Returns 0,
 * or -1 when it could not be written. */
int jsonout_print (json_t *json_take);

#endif
