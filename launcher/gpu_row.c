/* SPDX-License-Identifier: Apache-2.0
 * gpu_row.c - lines of nvidia-smi as srun labels them */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "gpu_row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 8

/* Cut [text] at its commas; returns how many fields there are. */
static size_t split (char *text, char *field[FIELDS])
{
    size_t n = 0;
    char *comma;

    for (;;) {
        while (*text == ' ')
            text++;
        if (n < FIELDS)
            field[n] = text;
        n++;
        if (!(comma = strchr (text, ',')))
            return n;
        *comma = '\0';
        text = comma + 1;
    }
}

/* A number, or what the driver writes where it has none: [N/A]. */
static int number (const char *text, double *ret)
{
    char *end;
    double value = strtod (text, &end);

    if (*text == '[') {
        *ret = -1;
        return 0;
    }
    while (*end == ' ')
        end++;
    if (end == text || *end || !isfinite (value) || value < 0)
        return -1;
    *ret = value;
    return 0;
}

int gpu_row_parse (const char *line, struct gpu_row *ret, struct rv_error *err)
{
    struct gpu_row row = {.task = 0};
    char copy[400], *field[FIELDS], *colon;
    double index = -1;
    double *const to[] = {&index,          NULL,           &row.util,
                          &row.mem_used,   &row.mem_total, &row.temp,
                          &row.power_draw, &row.power_most};

    snprintf (copy, sizeof (copy), "%s", line);
    row.task = (uint32_t)strtoul (copy, &colon, 10);
    if (colon == copy || colon[0] != ':' || split (colon + 1, field) != FIELDS)
        return error_set (err, RV_EFORMAT, "nvidia-smi said '%.200s'", line);
    for (size_t i = 0; i < FIELDS; i++)
        if (to[i] && number (field[i], to[i]))
            return error_set (err, RV_EFORMAT, "nvidia-smi said '%.200s'",
                              line);
    if (index < 0 || index > UINT16_MAX)
        return error_set (err, RV_EFORMAT, "nvidia-smi said '%.200s'", line);
    row.index = (int64_t)index;
    snprintf (row.name, sizeof (row.name), "%.63s", field[1]);
    *ret = row;
    return RV_OK;
}

char *gpu_row_bar (double part, double whole, size_t width, char *buf,
                   size_t size)
{
    size_t full;

    if (size < width + 3)
        width = size - 3;
    if (part < 0 || whole <= 0) {
        snprintf (buf, size, "%*s", (int)width + 2, "");
        return buf;
    }
    full = (size_t)(part / whole * (double)width + 0.5);
    if (full > width)
        full = width;
    buf[0] = '[';
    memset (buf + 1, '#', full);
    memset (buf + 1 + full, '-', width - full);
    memcpy (buf + 1 + width, "]", 2);
    return buf;
}
