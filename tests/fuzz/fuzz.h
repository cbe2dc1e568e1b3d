/* SPDX-License-Identifier: Apache-2.0
 * fuzz.h - what the fuzz targets share.
 *
 * A target is one file that defines LLVMFuzzerTestOneInput: it reads the bytes
 * as the text of one format and checks what must hold of the result, not only
 * that nothing crashes. With --enable-fuzzing it is linked with libFuzzer,
 * else with replay.c, which runs the files of seeds/TARGET once. */
#ifndef RV_TESTS_FUZZ_H
#define RV_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

/* FUZZ_CHECK - something that holds for every input; the process aborts where it
 * does not, so that libFuzzer keeps the input. */
#define FUZZ_CHECK(condition)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf (stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, \
                     #condition);                                              \
            abort ();                                                          \
        }                                                                      \
    } while (0)

/* fuzz_text - the bytes as a string of its own allocation, so that a sanitizer
 * sees a read behind it. Text ends at the first NUL; free it. */
static inline char *fuzz_text (const uint8_t *data, size_t size)
{
    char *text = malloc (size + 1);

    FUZZ_CHECK (text);
    if (size > 0)
        memcpy (text, data, size);
    text[size] = '\0';
    return text;
}

#endif
