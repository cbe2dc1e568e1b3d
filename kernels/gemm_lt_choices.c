/* SPDX-License-Identifier: Apache-2.0
 * gemm_lt_choices.c - the chosen algorithms as bytes and as words
 *
 * A header, the choices, and a 64-bit FNV-1a sum of both, in the machine's byte
 * order. cublasLt.h: an algorithm "can be trivially serialized and later restored
 * for use with the same version of cuBLAS library". */
#include "config.h"

#include "gemm_lt_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "rvgemm1\n"

struct head {
    char magic[8];
    uint64_t library; /* 0: no library */
    uint32_t capability, multiprocessors;
    uint64_t count;
};

static struct head head_of (const struct gemm_lt *g)
{
    struct head h = {.library = g->api ? g->api->version () : 0,
                     .capability = (uint32_t)g->capability,
                     .multiprocessors = (uint32_t)g->multiprocessors};

    memcpy (h.magic, MAGIC, sizeof (h.magic));
    for (size_t i = 0; i < g->count; i++)
        h.count += g->plans[i].chosen;
    return h;
}

static uint64_t sum_of (const unsigned char *at, size_t n)
{
    uint64_t sum = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++)
        sum = (sum ^ at[i]) * 0x100000001b3u;
    return sum;
}

size_t gemm_lt_choices_save (const struct gemm_lt *g, void *to, size_t room)
{
    struct head h = head_of (g);
    size_t each = sizeof (struct gemm_lt_choice);
    size_t body = sizeof (h) + (size_t)h.count * each;
    unsigned char *at = to;
    uint64_t sum;

    if (!to || room < body + sizeof (sum))
        return body + sizeof (sum);
    memcpy (at, &h, sizeof (h));
    at += sizeof (h);
    for (size_t i = 0; i < g->count; i++) {
        if (!g->plans[i].chosen)
            continue;
        memcpy (at, &g->plans[i].choice, each);
        at += each;
    }
    sum = sum_of (to, body);
    memcpy (at, &sum, sizeof (sum));
    return body + sizeof (sum);
}

static bool whole (const void *from, size_t bytes, struct head *h)
{
    size_t each = sizeof (struct gemm_lt_choice);
    uint64_t sum;

    if (bytes < sizeof (*h) + sizeof (sum))
        return false;
    memcpy (h, from, sizeof (*h));
    if (memcmp (h->magic, MAGIC, sizeof (h->magic)) != 0
        || h->count > bytes / each
        || bytes != sizeof (*h) + (size_t)h->count * each + sizeof (sum))
        return false;
    memcpy (&sum, (const char *)from + bytes - sizeof (sum), sizeof (sum));
    return sum == sum_of (from, bytes - sizeof (sum));
}

/* Room for all before the first is taken: nothing changes halfway. */
static bool make_room (struct gemm_lt *g, size_t more)
{
    size_t room = g->count + more;
    struct gemm_lt_plan *p;

    if (room <= g->room)
        return true;
    p = realloc (g->plans, room * sizeof (*p));
    if (!p)
        return false;
    g->plans = p;
    g->room = room;
    return true;
}

static void take (struct gemm_lt *g, const struct gemm_lt_choice *choice)
{
    struct gemm_lt_plan *p;

    for (size_t i = 0; i < g->count; i++) {
        p = &g->plans[i];
        if (memcmp (&p->choice.key, &choice->key, sizeof (choice->key)) != 0)
            continue;
        p->choice = *choice;
        p->chosen = true;
        return;
    }
    p = gemm_lt_add (g, choice);
    p->chosen = true;
}

enum gemm_lt_status gemm_lt_choices_load (struct gemm_lt *g, const void *from,
                                          size_t bytes, char *why)
{
    struct head mine = head_of (g), h;
    const char *at = (const char *)from + sizeof (h);
    struct gemm_lt_choice choice;

    if (!whole (from, bytes, &h))
        return gemm_lt_say (why, GEMM_LT_EFORMAT,
                            "choices of products: %zu bytes that are not such "
                            "or are damaged",
                            bytes);
    if (h.library != mine.library || h.capability != mine.capability
        || h.multiprocessors != mine.multiprocessors)
        return gemm_lt_say (
            why, GEMM_LT_EMISMATCH,
            "choices of products: of cuBLASLt %llu on compute capability "
            "%u.%u with %u multiprocessors; here are %llu, %u.%u and %u",
            (unsigned long long)h.library, h.capability / 10, h.capability % 10,
            h.multiprocessors, (unsigned long long)mine.library,
            mine.capability / 10, mine.capability % 10, mine.multiprocessors);
    if (!make_room (g, (size_t)h.count))
        return gemm_lt_say (why, GEMM_LT_ENOMEM,
                            "choices of products: out of memory");
    for (uint64_t i = 0; i < h.count; i++) {
        memcpy (&choice, at + i * sizeof (choice), sizeof (choice));
        take (g, &choice);
    }
    return GEMM_LT_OK;
}

static const char *dtype_name (uint32_t dtype)
{
    static const char *const names[] = {"f32", "bf16", "f16"};

    return dtype < 3 ? names[dtype] : "?";
}

void gemm_lt_name (const struct gemm_lt_key *k, char *to, size_t room)
{
    snprintf (to, room, "product %s%s %llux%llux%llu %s to %s%s%s%s%s",
              k->flags & GEMM_LT_TA ? "T" : "N",
              k->flags & GEMM_LT_TB ? "T" : "N", (unsigned long long)k->m,
              (unsigned long long)k->n, (unsigned long long)k->k,
              dtype_name (k->in), dtype_name (k->out),
              k->flags & GEMM_LT_BIAS ? " + bias" : "",
              k->flags & GEMM_LT_ADD ? " added" : "",
              k->flags & GEMM_LT_TF32 ? " tf32" : "",
              k->flags & GEMM_LT_FIXED ? " deterministic" : "");
}

/* The smallest power of two of 2 to 16 bytes that all rows and addresses are
 * multiples of. */
static unsigned together (const struct gemm_lt_key *k)
{
    uint64_t in = k->in == GEMM_LT_F32 ? 4 : 2;
    uint64_t out = k->out == GEMM_LT_F32 ? 4 : 2;
    uint64_t all = 16 | k->align_a | k->align_b | k->align_c | k->lda * in
                   | k->ldb * in | k->ldc * out;

    return (unsigned)(all & (~all + 1));
}

static unsigned config (const struct gemm_lt *g, const struct lt_algo *algo,
                        int what)
{
    uint32_t value = 0;
    size_t size;

    if (what == LT_CONFIG_CLUSTER) {
        uint16_t shorter = 0;

        (void)g->api->config_get (algo, what, &shorter, sizeof (shorter),
                                  &size);
        return shorter;
    }
    (void)g->api->config_get (algo, what, &value, sizeof (value), &size);
    return value;
}

void gemm_lt_report (const struct gemm_lt *g,
                     void (*line) (void *arg, const char *text), void *arg)
{
    for (size_t i = 0; i < g->count; i++) {
        const struct gemm_lt_choice *c = &g->plans[i].choice;
        unsigned bytes = together (&c->key);
        char name[200], slow[80] = "", text[512];

        gemm_lt_name (&c->key, name, sizeof (name));
        if (bytes < 16)
            snprintf (slow, sizeof (slow),
                      "; slow: rows or addresses are multiples of %u bytes, "
                      "not 16",
                      bytes);
        snprintf (text, sizeof (text),
                  "%s: candidate %u of %u, algorithm %u tile %u stages %u "
                  "cluster %u split %u, %.4f ms (first candidate %.4f)%s",
                  name, c->picked, c->candidates,
                  config (g, &c->algo, LT_CONFIG_ID),
                  config (g, &c->algo, LT_CONFIG_TILE),
                  config (g, &c->algo, LT_CONFIG_STAGES),
                  config (g, &c->algo, LT_CONFIG_CLUSTER),
                  config (g, &c->algo, LT_CONFIG_SPLITK), (double)c->ms,
                  (double)c->first_ms, slow);
        line (arg, text);
    }
}
