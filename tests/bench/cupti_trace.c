/* SPDX-License-Identifier: Apache-2.0
 * cupti_trace.c - what a GPU did in the last milliseconds of a program: kernels
 * by time, and what the rest of the time was waited for
 *
 * A library for CUDA_INJECTION64_PATH (CUPTI, "Initialization"): the driver
 * calls InitializeInjection when the program meets CUDA. At its end one JSON
 * object goes to TRACE_OUT, of the TRACE_MS (300) before the last kernel, in
 * shares of that time:
 *   kernel   a kernel that is not NCCL's ran
 *   link     none did, but one of NCCL or a copy; waiting for another rank too
 *   launch   nothing ran though the next had been launched: it waited for the
 *            card, an event or memory
 *   host     nothing ran and nothing was launched
 * RANK says who writes: rank 0 alone. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>

#include <cupti.h>

#define BUFFER ((size_t)8 << 20)
#define NAMES  4096

enum kind { KERNEL, LINK, KINDS };

struct span {
    uint64_t begin, end, launched; /* nanoseconds; launched: 0 = not known */
    uint32_t correlation;
    uint32_t name; /* in names */
    uint8_t kind;
};

struct call {
    uint32_t correlation;
    uint64_t end;
};

/* Grown by doubling; one lock for all, as CUPTI's thread alone adds. */
static struct {
    pthread_mutex_t lock;
    struct span *span;
    size_t n, room;
    struct call *call;
    size_t n_calls, calls_room;
    const char *name[NAMES]; /* for ever */
    uint32_t n_names;
    bool full;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* CUPTI, by dlsym: this library is built where it is not. */
static CUptiResult (*next_record) (uint8_t *, size_t, CUpti_Activity **);
static CUptiResult (*flush_all) (uint32_t);

static bool grow (void **list, size_t *room, size_t size)
{
    size_t more = *room ? 2 * *room : 65536;
    void *p = realloc (*list, more * size);

    if (!p)
        return false;
    *list = p;
    *room = more;
    return true;
}

static uint32_t name_of (const char *text)
{
    const char *own;

    if (!text)
        text = "?";
    for (uint32_t i = 0; i < all.n_names; i++)
        if (strcmp (all.name[i], text) == 0)
            return i;
    if (all.n_names == NAMES)
        return NAMES - 1;
    own = strdup (text);
    all.name[all.n_names] = own ? own : "?";
    return all.n_names++;
}

static void add_span (uint64_t begin, uint64_t end, uint32_t correlation,
                      const char *name, enum kind kind)
{
    if (all.n == all.room
        && !grow ((void **)&all.span, &all.room, sizeof (*all.span))) {
        all.full = true;
        return;
    }
    all.span[all.n++] =
        (struct span){begin, end, 0, correlation, name_of (name), kind};
}

static void add_call (const CUpti_ActivityAPI *a)
{
    if (all.n_calls == all.calls_room
        && !grow ((void **)&all.call, &all.calls_room, sizeof (*all.call))) {
        all.full = true;
        return;
    }
    all.call[all.n_calls++] = (struct call){a->correlationId, a->end};
}

static void add (const CUpti_Activity *a)
{
    const CUpti_ActivityKernel9 *k = (const void *)a;
    const CUpti_ActivityMemcpy5 *c = (const void *)a;
    const CUpti_ActivityMemset4 *m = (const void *)a;

    switch (a->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        add_span (k->start, k->end, k->correlationId, k->name,
                  k->name && strstr (k->name, "nccl") ? LINK : KERNEL);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        add_span (c->start, c->end, c->correlationId, "memcpy",
                  c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD ? KERNEL
                                                                 : LINK);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        add_span (m->start, m->end, m->correlationId, "memset", KERNEL);
        break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
        add_call ((const void *)a);
        break;
    default:
        break;
    }
}

static void CUPTIAPI ask (uint8_t **ret, size_t *ret_size, size_t *ret_most)
{
    *ret = aligned_alloc (8, BUFFER);
    *ret_size = *ret ? BUFFER : 0;
    *ret_most = 0;
}

static void CUPTIAPI take (CUcontext context, uint32_t stream, uint8_t *buffer,
                           size_t size, size_t valid)
{
    CUpti_Activity *a = NULL;

    (void)context, (void)stream, (void)size;
    pthread_mutex_lock (&all.lock);
    while (next_record (buffer, valid, &a) == CUPTI_SUCCESS)
        add (a);
    pthread_mutex_unlock (&all.lock);
    free (buffer);
}

static int by_begin (const void *x, const void *y)
{
    const struct span *a = x, *b = y;

    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int by_correlation (const void *x, const void *y)
{
    const struct call *a = x, *b = y;

    return (a->correlation > b->correlation)
           - (a->correlation < b->correlation);
}

static void find_launches (size_t from)
{
    qsort (all.call, all.n_calls, sizeof (*all.call), by_correlation);
    for (size_t i = from; i < all.n; i++) {
        const struct call key = {all.span[i].correlation, 0};
        const struct call *c = all.n_calls
                                   ? bsearch (&key, all.call, all.n_calls,
                                              sizeof (key), by_correlation)
                                   : NULL;

        all.span[i].launched = c ? c->end : 0;
    }
}

struct shares {
    double kernel, link, launch, host, whole; /* ns */
    size_t spans;
};

/* Until [at]: what ran last until [kernel] and [link], and then the gap that
 * the span [next] ends. */
static void account (struct shares *s, uint64_t *now, uint64_t at,
                     uint64_t kernel, uint64_t link, const struct span *next)
{
    uint64_t t = *now, to;

    if (kernel > t) {
        to = kernel < at ? kernel : at;
        s->kernel += (double)(to - t);
        t = to;
    }
    if (link > t && t < at) {
        to = link < at ? link : at;
        s->link += (double)(to - t);
        t = to;
    }
    if (t < at && next) {
        to = next->launched > t ? next->launched : t;
        to = to < at ? to : at;
        s->host += (double)(to - t);
        s->launch += (double)(at - to);
    }
    *now = at;
}

static struct shares share (size_t from)
{
    struct shares s = {0};
    uint64_t until[KINDS] = {0}, now = all.span[from].begin;

    for (size_t i = from; i < all.n; i++) {
        const struct span *p = &all.span[i];

        account (&s, &now, p->begin, until[KERNEL], until[LINK], p);
        if (p->end > until[p->kind])
            until[p->kind] = p->end;
        s.spans++;
    }
    account (&s, &now,
             until[KERNEL] > until[LINK] ? until[KERNEL] : until[LINK],
             until[KERNEL], until[LINK], NULL);
    s.whole = (double)(now - all.span[from].begin);
    return s;
}

struct sum {
    double ns;
    uint32_t name, count;
};

static int by_time (const void *x, const void *y)
{
    double d = ((const struct sum *)y)->ns - ((const struct sum *)x)->ns;

    return (d > 0) - (d < 0);
}

static void print_name (FILE *f, const char *text)
{
    for (int i = 0; text[i] && i < 90; i++)
        fputc (text[i] == '"' || text[i] == '\\' || (unsigned char)text[i] < ' '
                   ? '?'
                   : text[i],
               f);
}

static void print (FILE *f, size_t from, const struct shares *s)
{
    static struct sum sum[NAMES];

    for (uint32_t i = 0; i < NAMES; i++)
        sum[i].name = i;
    for (size_t i = from; i < all.n; i++) {
        sum[all.span[i].name].ns +=
            (double)(all.span[i].end - all.span[i].begin);
        sum[all.span[i].name].count++;
    }
    qsort (sum, NAMES, sizeof (*sum), by_time);
    fprintf (f,
             "{\"op\": \"trace\", \"ms\": %.3f, \"kernel\": %.4f, \"link\": "
             "%.4f, \"launch\": %.4f, \"host\": %.4f, \"spans\": %zu, "
             "\"whole\": %s, \"top\": [",
             s->whole * 1e-6, s->kernel / s->whole, s->link / s->whole,
             s->launch / s->whole, s->host / s->whole, s->spans,
             all.full ? "false" : "true");
    for (int i = 0; i < 25 && sum[i].count > 0; i++) {
        fprintf (f, "%s{\"us\": %.1f, \"count\": %u, \"name\": \"",
                 i ? ", " : "", sum[i].ns * 1e-3, sum[i].count);
        print_name (f, all.name[sum[i].name]);
        fprintf (f, "\"}");
    }
    fprintf (f, "]}\n");
}

static void finish (void)
{
    const char *out = getenv ("TRACE_OUT"), *ms = getenv ("TRACE_MS");
    double window = ms ? strtod (ms, NULL) : 300;
    FILE *f = out ? fopen (out, "we") : stderr;
    struct shares s;
    size_t from = 0;

    flush_all (1);
    pthread_mutex_lock (&all.lock);
    if (f && all.n > 0) {
        qsort (all.span, all.n, sizeof (*all.span), by_begin);
        while (from + 1 < all.n
               && (double)(all.span[all.n - 1].begin - all.span[from].begin)
                      > window * 1e6)
            from++;
        find_launches (from);
        s = share (from);
        print (f, from, &s);
    }
    if (f && f != stderr)
        fclose (f);
    pthread_mutex_unlock (&all.lock);
}

static void *symbol (void *lib, const char *name)
{
    void *p = dlsym (lib, name);

    if (!p)
        fprintf (stderr, "cupti_trace: CUPTI has no %s\n", name);
    return p;
}

/* The driver looks this up by name. */
int InitializeInjection (void);
int InitializeInjection (void)
{
    static const CUpti_ActivityKind kinds[] = {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
        CUPTI_ACTIVITY_KIND_DRIVER};
    CUptiResult (*set) (CUpti_BuffersCallbackRequestFunc,
                        CUpti_BuffersCallbackCompleteFunc);
    CUptiResult (*enable) (CUpti_ActivityKind);
    const char *rank = getenv ("RANK");
    void *lib, *at[4];

    if (rank && strcmp (rank, "0") != 0)
        return 1;
    lib = dlopen ("libcupti.so.13", RTLD_NOW);
    if (!lib)
        lib = dlopen ("libcupti.so.12", RTLD_NOW);
    if (!lib) {
        fprintf (stderr, "cupti_trace: %s\n", dlerror ());
        return 1;
    }
    at[0] = symbol (lib, "cuptiActivityRegisterCallbacks");
    at[1] = symbol (lib, "cuptiActivityEnable");
    at[2] = symbol (lib, "cuptiActivityGetNextRecord");
    at[3] = symbol (lib, "cuptiActivityFlushAll");
    if (!at[0] || !at[1] || !at[2] || !at[3])
        return 1;
    memcpy (&set, &at[0], sizeof (set));
    memcpy (&enable, &at[1], sizeof (enable));
    memcpy (&next_record, &at[2], sizeof (next_record));
    memcpy (&flush_all, &at[3], sizeof (flush_all));
    if (set (ask, take) != CUPTI_SUCCESS)
        return 1;
    for (size_t i = 0; i < sizeof (kinds) / sizeof (*kinds); i++)
        enable (kinds[i]);
    atexit (finish);
    return 1;
}
