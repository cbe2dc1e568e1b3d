/* SPDX-License-Identifier: Apache-2.0
 * json_why.h - why a text was not read as JSON. Inside libtrain only. */
#ifndef TRAIN_JSON_WHY_H
#define TRAIN_JSON_WHY_H

#include <jansson.h>
#include <stdbool.h>

/* json_no_memory - for lack of memory, of which jansson may say nothing. The
 * text is no worse then: it can be read another time. */
static inline bool json_no_memory (const json_error_t *why)
{
    return !why->text[0] || json_error_code (why) == json_error_out_of_memory;
}

#endif
