/* SPDX-License-Identifier: Apache-2.0
 * fake_gpu.c - made-up GPUs: streams that run what they were given when
 * somebody asks */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_impl.h"

#include <assert.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "err.h"
#include "group_ranks.h"
#include "reduce.h"

#define GPUS 8

struct world *world;
struct graph *recorded;
_Atomic int graphs;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int current;
static _Atomic unsigned woken; /* bits of GPUs */
static struct stream *streams;
static struct stream *queue[GPUS]; /* for what is given without a stream */
static bool clocked;

static struct {
    const char *at;
    size_t bytes;
    int device;
} block[64];

size_t size_of (int dtype)
{
    switch (dtype) {
    case NCCL_DTYPE_U8:
        return 1;
    case NCCL_DTYPE_F16:
    case NCCL_DTYPE_BF16:
        return 2;
    case NCCL_DTYPE_I64:
    case NCCL_DTYPE_F64:
        return 8;
    }
    return 4;
}

static train_dtype_t ours (int dtype)
{
    switch (dtype) {
    case NCCL_DTYPE_I32:
        return TRAIN_I32;
    case NCCL_DTYPE_I64:
        return TRAIN_I64;
    case NCCL_DTYPE_F16:
        return TRAIN_F16;
    case NCCL_DTYPE_F64:
        return TRAIN_F64;
    case NCCL_DTYPE_BF16:
        return TRAIN_BF16;
    case NCCL_DTYPE_U8:
        return TRAIN_U8;
    }
    return TRAIN_F32;
}

static train_op_t our_op (int op)
{
    static const train_op_t list[] = {TRAIN_SUM, TRAIN_PROD, TRAIN_MAX,
                                      TRAIN_MIN, TRAIN_AVG};

    return list[op];
}

void suffer (enum fake_fault fault)
{
    if (fault == FAKE_KILL)
        raise (SIGKILL);
    if (fault == FAKE_STOP)
        raise (SIGSTOP);
    while (fault == FAKE_HANG)
        pause ();
}

enum fake_fault order_of (int rank, enum fake_fault fault)
{
    return world->orders.rank == rank ? fault : FAKE_NONE;
}

/* Streams. All below is called under the lock. */

static bool all_posted (const struct op *o)
{
    struct meeting *m = o->comm->meeting;

    for (int r = 0; r < o->comm->size; r++) {
        if ((o->peer < 0 || o->kind == OP_REDUCE || r == o->peer)
            && atomic_load (&m->posted[r]) < o->seq)
            return false;
    }
    return true;
}

/* Has every rank read what lies where [o] puts its data? */
static bool is_free (const struct op *o)
{
    struct meeting *m = o->comm->meeting;

    for (int r = 0; r < o->comm->size; r++) {
        if (atomic_load (&m->ended[r]) + 2 < o->seq)
            return false;
    }
    return true;
}

static void reduce_all (const struct op *o)
{
    struct meeting *m = o->comm->meeting;
    const void *in[FAKE_RANKS];
    static _Alignas(64) char acc[2 * SLOT], out[SLOT];
    struct reduce_step step = {.dtype = ours (o->dtype),
                               .op = our_op (o->op),
                               .size = o->comm->size,
                               .acc = acc,
                               .out = out,
                               .in = in,
                               .n_in = o->comm->size,
                               .first = true};

    for (int r = 0; r < o->comm->size; r++)
        in[r] = m->data[r][o->seq & 1];
    reduce_run (&step, 0, o->n);
    if (o->out)
        memcpy (o->out, out + o->skip, o->bytes);
}

static void share_all (const struct op *o)
{
    struct meeting *m = o->comm->meeting;

    for (int r = 0; o->all && r < o->comm->size; r++)
        memcpy (o->out + (size_t)r * o->bytes, m->data[r][o->seq & 1],
                o->bytes);
    if (!o->all)
        memcpy (o->out, m->data[o->peer][o->seq & 1], o->bytes);
}

/* A collective: put the input where the others see it; then wait for them. */
static bool collective (struct op *o)
{
    struct comm *c = o->comm;
    struct meeting *m = c->meeting;
    enum fake_fault fault = order_of (c->rank, world->orders.kernel);

    if (!o->posted) {
        if (fault == FAKE_HANG)
            return false;
        suffer (fault);
        if (!is_free (o))
            return false;
        assert (o->n * size_of (o->dtype) <= SLOT);
        memcpy (m->data[c->rank][o->seq & 1], o->in, o->n * size_of (o->dtype));
        atomic_store (&m->posted[c->rank], o->seq);
        o->posted = true;
    }
    if (!all_posted (o))
        return false;
    if (o->kind == OP_REDUCE)
        reduce_all (o);
    else
        share_all (o);
    atomic_store (&m->ended[c->rank], o->seq);
    return true;
}

static bool message (const struct op *o)
{
    struct comm *c = o->comm;
    struct meeting *m = c->meeting;
    int from = o->kind == OP_SEND ? c->rank : o->peer;
    int to = o->kind == OP_SEND ? o->peer : c->rank;
    uint64_t sent = atomic_load (&m->sent[from][to]);
    uint64_t taken = atomic_load (&m->taken[from][to]);
    enum fake_fault fault = order_of (c->rank, world->orders.kernel);

    if (fault == FAKE_HANG)
        return false;
    suffer (fault);
    if ((o->kind == OP_SEND) != (sent == taken))
        return false;
    if (o->kind == OP_SEND) {
        memcpy (m->mail[from][to], o->in, o->bytes);
        atomic_store (&m->sent[from][to], sent + 1);
    } else {
        memcpy (o->out, m->mail[from][to], o->bytes);
        atomic_store (&m->taken[from][to], taken + 1);
    }
    return true;
}

static bool run (struct op *o)
{
    if (o->comm && o->comm->aborted)
        return true;
    switch (o->kind) {
    case OP_COPY:
        memcpy (o->out, o->in, o->bytes);
        return true;
    case OP_STORE:
        memcpy (o->out, &o->value, sizeof (o->value));
        return true;
    case OP_MOVE:
        kern_view_move_host (&o->dst, &o->src, NULL);
        return true;
    case OP_WAIT:
        return o->other->head >= o->until;
    case OP_CALL:
        o->call (o->args);
        return true;
    case OP_LOCK:
        return false;
    case OP_SEND:
    case OP_RECV:
        return message (o);
    default:
        return collective (o);
    }
}

void go_on (struct stream *s)
{
    while (s->head < s->tail && now_ms () >= s->free_ms
           && run (&s->ops[s->head % OPS]))
        s->head++;
}

void push (struct stream *s, const struct op *o)
{
    if (recorded) {
        assert (recorded->n < OPS);
        recorded->ops[recorded->n++] = *o;
        return;
    }
    assert (s->tail - s->head < OPS);
    s->ops[s->tail++ % OPS] = *o;
}

/* As far as the streams go that it waits for. */
void go_far (struct stream *s)
{
    uint64_t head;

    if (s->busy)
        return;
    s->busy = true;
    do {
        struct op *o;

        go_on (s);
        head = s->head;
        o = &s->ops[head % OPS];
        if (head < s->tail && o->kind == OP_WAIT) {
            go_far ((struct stream *)(uintptr_t)o->other);
            go_on (s);
        }
    } while (s->head != head);
    s->busy = false;
}

void *fake_queue (void *stream, int device)
{
    return stream ? stream : queue[device];
}

void fake_queues (bool on)
{
    for (int i = 0; i < GPUS; i++) {
        assert (!queue[i] || queue[i]->head == queue[i]->tail);
        free (queue[i]);
        queue[i] = on ? calloc (1, sizeof (**queue)) : NULL;
    }
}

int fake_present (void)
{
    return current;
}

unsigned fake_woken (void)
{
    return woken;
}

/* The GPUs. */

static train_status_t gpu_probe (int *ret_devices, train_error_t *err)
{
    (void)err;
    if (ret_devices)
        *ret_devices = GPUS;
    return TRAIN_OK;
}

static int gpu_enter (int device)
{
    int before = current;

    woken |= 1u << device;
    current = device;
    return before;
}

static void gpu_leave (int before)
{
    if (before != current)
        woken |= 1u << before;
    current = before;
}

void fake_visit (int device)
{
    gpu_leave (gpu_enter (device));
}

static train_status_t gpu_alloc (int device, size_t bytes, void **ret,
                                 train_error_t *err)
{
    fake_visit (device);
    TRY (backend_host.alloc (0, bytes, ret, err));
    for (size_t i = 0; i < sizeof (block) / sizeof (*block); i++) {
        if (block[i].at)
            continue;
        block[i].at = *ret;
        block[i].bytes = bytes;
        block[i].device = device;
        return TRAIN_OK;
    }
    return err_set (err, TRAIN_ENOMEM, "no place to remember a block");
}

static void gpu_free (void *memory)
{
    for (struct stream *s = clocked && memory ? streams : NULL; s; s = s->next)
        fake_finish (s); /* as cudaFree waits */
    for (size_t i = 0; i < sizeof (block) / sizeof (*block); i++) {
        if (block[i].at == memory)
            block[i].at = NULL;
    }
    free (memory);
}

static train_status_t gpu_place (const void *memory, int *ret_device,
                                 bool *ret_pinned, train_error_t *err)
{
    (void)err;
    *ret_device = -1;
    *ret_pinned = false;
    for (size_t i = 0; i < sizeof (block) / sizeof (*block); i++) {
        if (block[i].at && (const char *)memory >= block[i].at
            && (const char *)memory < block[i].at + block[i].bytes)
            *ret_device = block[i].device;
    }
    return TRAIN_OK;
}

static train_status_t gpu_copy (void *dst, const void *src, size_t bytes,
                                void *stream, train_error_t *err)
{
    struct op o = {.kind = OP_COPY, .in = src, .out = dst, .bytes = bytes};

    (void)err;
    if (bytes == 0)
        return TRAIN_OK;
    stream = fake_queue (stream, current);
    if (!stream) {
        memcpy (dst, src, bytes);
        return TRAIN_OK;
    }
    pthread_mutex_lock (&lock);
    push (stream, &o);
    pthread_mutex_unlock (&lock);
    return TRAIN_OK;
}

void fake_finish (void *stream)
{
    struct stream *s = stream;

    for (bool empty = !s; !empty;) {
        pthread_mutex_lock (&lock);
        go_far (s);
        empty = s->head == s->tail;
        pthread_mutex_unlock (&lock);
        if (!empty)
            sched_yield ();
    }
}

static train_status_t gpu_sync (void *stream, train_error_t *err)
{
    (void)err;
    fake_finish (fake_queue (stream, current));
    return TRAIN_OK;
}

static void gpu_move (const struct kern_view *dst, const struct kern_view *src,
                      void *stream)
{
    struct op o = {.kind = OP_MOVE, .dst = *dst, .src = *src};

    stream = fake_queue (stream, current);
    if (!stream) {
        kern_view_move_host (dst, src, NULL);
        return;
    }
    pthread_mutex_lock (&lock);
    push (stream, &o);
    pthread_mutex_unlock (&lock);
}

static train_status_t gpu_stream_create (int device, void **ret,
                                         train_error_t *err)
{
    struct stream *s = calloc (1, sizeof (*s));

    (void)err;
    fake_visit (device);
    pthread_mutex_lock (&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock (&lock);
    *ret = s;
    return TRAIN_OK;
}

static void gpu_stream_destroy (void *stream)
{
    struct stream **at = &streams;

    pthread_mutex_lock (&lock);
    while (*at && *at != stream)
        at = &(*at)->next;
    if (*at)
        *at = (*at)->next;
    pthread_mutex_unlock (&lock);
    free (stream);
}

static void *tick (void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock (&lock);
        for (struct stream *s = streams; s; s = s->next)
            go_on (s);
        pthread_mutex_unlock (&lock);
        usleep (20);
    }
    return NULL;
}

void fake_clock (void)
{
    pthread_t thread;

    clocked = true;
    assert_int_equal (pthread_create (&thread, NULL, tick, NULL), 0);
    pthread_detach (thread);
}

/* A node of its own has GPUs of its own. */
static train_status_t gpu_ident (int device, char *text, size_t size,
                                 train_error_t *err)
{
    const char *node = getenv ("NODE_RANK");

    (void)err;
    snprintf (text, size, "made-up-%s-%d", node ? node : "0", device);
    return TRAIN_OK;
}

static struct backend_ops fake_gpu;
static struct view_ops fake_view;

void fake_open (const struct fake_orders *orders)
{
    world = mmap (NULL, sizeof (*world), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true (world != MAP_FAILED);
    world->orders = *orders;
    fake_gpu = backend_host;
    fake_gpu.name = "fake";
    fake_gpu.probe = gpu_probe;
    fake_gpu.alloc = gpu_alloc;
    fake_gpu.free = gpu_free;
    fake_gpu.copy = gpu_copy;
    fake_gpu.fill = fake_fill;
    fake_gpu.sync = gpu_sync;
    fake_gpu.place = gpu_place;
    fake_gpu.ident = gpu_ident;
    fake_gpu.stream_create = gpu_stream_create;
    fake_gpu.stream_destroy = gpu_stream_destroy;
    fake_gpu.event_create = fake_event_create;
    fake_gpu.event_destroy = free;
    fake_gpu.event_record = fake_event_record;
    fake_gpu.event_wait = fake_event_wait;
    fake_gpu.event_done = fake_event_done;
    fake_gpu.timer_create = fake_timer_create;
    fake_gpu.timer_between = fake_timer_between;
    fake_gpu.graph = &fake_graph;
    fake_gpu.enter = gpu_enter;
    fake_gpu.leave = gpu_leave;
    fake_view = view_host;
    fake_view.move = gpu_move;
    fake_gpu.view = &fake_view;
    fake_gpu.flat = &fake_flat;
    backend_replace (&fake_gpu);
    nccl_replace (&fake_nccl, &fake_gpu);
}

void fake_close (void)
{
    backend_replace (NULL);
    nccl_replace (NULL, NULL);
    munmap (world, sizeof (*world));
    world = NULL;
}

void *fake_take (void)
{
    return world;
}

void fake_give (void *taken)
{
    world = taken;
}

struct fake_seen *fake_seen_of (int rank)
{
    return &world->seen[rank];
}

void *fake_alloc (int device, size_t bytes)
{
    void *memory = NULL;

    return gpu_alloc (device, bytes, &memory, NULL) == TRAIN_OK ? memory : NULL;
}

size_t fake_bytes (int device)
{
    size_t sum = 0;

    for (size_t i = 0; i < sizeof (block) / sizeof (*block); i++)
        if (block[i].at && block[i].device == device)
            sum += block[i].bytes;
    return sum;
}
