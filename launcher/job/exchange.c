/* SPDX-License-Identifier: Apache-2.0
 * exchange.c - what both sides of the exchange share */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/exchange.h"

uint32_t exchange_get32 (const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
           | (uint32_t)p[3] << 24;
}

void exchange_put32 (unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

uint64_t exchange_get64 (const unsigned char *p)
{
    return exchange_get32 (p) | (uint64_t)exchange_get32 (p + 4) << 32;
}

void exchange_put64 (unsigned char *p, uint64_t v)
{
    exchange_put32 (p, (uint32_t)v);
    exchange_put32 (p + 4, (uint32_t)(v >> 32));
}

void exchange_head (unsigned char *p, uint32_t status, uint32_t epoch,
                    uint32_t len)
{
    memcpy (p, "rvxf", 4);
    exchange_put32 (p + 4, status);
    exchange_put32 (p + 8, epoch);
    exchange_put32 (p + 12, len);
}

struct exchange *exchange_create (const struct exchange_opts *opts)
{
    const size_t max = sizeof (((struct exchange *)0)->quick) / sizeof (char *);
    struct exchange *x = calloc (1, sizeof (*x));

    if (!x)
        return NULL;
    x->o = *opts;
    x->listen_fd = x->fd = -1;
    for (size_t i = 0; i + 1 < max && opts->quick && opts->quick[i]; i++)
        if (!(x->quick[i] = strdup (opts->quick[i])))
            goto fail;
    if (opts->lookup && !(x->lookup = strdup (opts->lookup)))
        goto fail;
    return x;
fail:
    exchange_destroy (x);
    return NULL;
}

void exchange_destroy (struct exchange *x)
{
    if (!x)
        return;
    for (size_t i = 0; x->quick[i]; i++)
        free (x->quick[i]);
    free (x->lookup);
    for (size_t i = 0; i < x->n_peers; i++) {
        close (x->peer[i].fd);
        free (x->peer[i].buf);
    }
    free (x->peer);
    if (x->listen_fd >= 0)
        close (x->listen_fd);
    if (x->fd >= 0)
        close (x->fd);
    free (x);
}

const unsigned char *exchange_find (const unsigned char *all, size_t all_len,
                                    uint32_t rank, size_t *ret_len)
{
    size_t at = 0, len;

    for (uint32_t r = 0; all_len - at >= 4; r++) {
        len = exchange_get32 (all + at);
        if (len > all_len - at - 4)
            return NULL;
        if (r == rank) {
            *ret_len = len;
            return all + at + 4;
        }
        at += 4 + len;
    }
    return NULL;
}

/* What rank 0 sent must hold exactly one blob a rank. */
static bool whole (const unsigned char *all, size_t all_len, uint32_t size)
{
    const unsigned char *last;
    size_t len = 0;

    last = exchange_find (all, all_len, size - 1, &len);
    return last && last + len == all + all_len;
}

rv_job_status_t exchange_swap (struct exchange *x, uint32_t epoch,
                               const void *blob, size_t len, int64_t end_ms,
                               unsigned char **ret_all, size_t *ret_len,
                               rv_job_error_t *err)
{
    unsigned char *all = NULL;
    size_t all_len = 0;
    rv_job_status_t status =
        x->o.rank == 0
            ? exchange_host (x, epoch, blob, len, end_ms, &all, &all_len, err)
            : exchange_join (x, epoch, blob, len, end_ms, &all, &all_len, err);

    if (!status && !whole (all, all_len, x->o.size)) {
        free (all);
        status = job_error (err, RV_JOB_EFORMAT,
                            "rank 0 sent values that are malformed");
    }
    if (status)
        return status;
    *ret_all = all;
    *ret_len = all_len;
    return RV_JOB_OK;
}
