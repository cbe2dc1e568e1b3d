/* SPDX-License-Identifier: Apache-2.0
 * tok_tool.c - a tokenizer as a filter, for scripts
 *
 *   tok_tool encode TOKENIZER [around]   records of text to records of ids
 *   tok_tool decode TOKENIZER [skip]     the other way
 *   tok_tool time TOKENIZER FILE         ids, seconds of the best of five
 * A record is its length, 4 bytes in this machine's order, and that many bytes;
 * ids are 4 bytes each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <train/tokenizer.h>

static void die (const train_error_t *err)
{
    fprintf (stderr, "tok_tool: %s\n", err->text);
    exit (1);
}

static char *take (uint32_t *n)
{
    char *p;

    if (fread (n, sizeof (*n), 1, stdin) != 1)
        return NULL;
    p = malloc (*n + 1);
    if (!p || fread (p, 1, *n, stdin) != *n)
        exit (1);
    return p;
}

static void give (const void *p, size_t n)
{
    uint32_t size = (uint32_t)n;

    fwrite (&size, sizeof (size), 1, stdout);
    fwrite (p, 1, n, stdout);
    free ((void *)p);
}

static double now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure (train_tokenizer_t *t, const char *path, train_error_t *err)
{
    FILE *f = fopen (path, "r");
    char *text = malloc (64 << 20);
    size_t size = f && text ? fread (text, 1, 64 << 20, f) : 0, n = 0;
    double best = 1e9;

    for (int i = 0; i < 5; i++) {
        double start = now ();
        int32_t *ids;

        if (train_tokenizer_encode (t, &ids, &n, text, size, false, NULL, err)
            != TRAIN_OK)
            die (err);
        best = now () - start < best ? now () - start : best;
        free (ids);
    }
    printf ("%zu %.6f\n", n, best);
    if (f)
        fclose (f);
    free (text);
}

int main (int argc, char **argv)
{
    bool encode = argc > 2 && strcmp (argv[1], "encode") == 0;
    train_tokenizer_t *t;
    train_error_t err;
    uint32_t size;
    char *in;

    if (argc < 3 || train_tokenizer_open (argv[2], &t, &err) != TRAIN_OK)
        die (&err);
    if (strcmp (argv[1], "time") == 0 && argc == 4) {
        measure (t, argv[3], &err);
        return 0;
    }
    while ((in = take (&size))) {
        int32_t *ids;
        char *text;
        size_t n;

        if (encode) {
            if (train_tokenizer_encode (t, &ids, &n, in, size, argc > 3, NULL,
                                        &err)
                != TRAIN_OK)
                die (&err);
            give (ids, 4 * n);
        } else {
            if (train_tokenizer_decode (t, &text, &n, (int32_t *)(void *)in,
                                        size / 4, argc > 3, &err)
                != TRAIN_OK)
                die (&err);
            give (text, n);
        }
        free (in);
    }
    train_tokenizer_close (t);
    return 0;
}
