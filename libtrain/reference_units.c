/* SPDX-License-Identifier: Apache-2.0
 * reference_units.c - a reference of which little is on the device at a time:
 * ranks have a part each, or it lies in the host's memory, or both; a unit of
 * the decoder is brought before it is needed
 *
 * Each unit is cut into a chunk a rank, the last ones padded. What the forward
 * visits is the same on all ranks, so their gathers meet. */
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "elem.h"
#include "err.h"
#include "hf_impl.h"
#include "opts.h"

struct units {
    train_reference_units_options_t o;
    train_decoder_t *m; /* bare */
    train_reference_t *plain;
    size_t world, rank;
    char **part;   /* (units) this rank's chunk: of the device, or pinned */
    uint64_t own;  /* sum of them, when they were made */
    uint64_t hash; /* of all ranks': the sum of theirs */
    char *slot;    /* of the device: a whole unit, padded */
};

static size_t chunk_of (const struct units *r, size_t u)
{
    return (decoder_unit (r->m, u)->count + r->world - 1) / r->world;
}

static size_t bytes_of (const struct units *r, size_t u)
{
    return chunk_of (r, u) * r->m->kern->elem_size;
}

/* The rank's own block of the slot, which the others' join. */
static train_status_t gather (struct units *r, size_t u, train_error_t *err)
{
    int64_t n = (int64_t)chunk_of (r, u);
    int64_t all = n * (int64_t)r->world;
    train_dtype_t dtype = r->m->config.dtype;
    train_tensor_t in, out;

    TRY (train_tensor_view (&in, r->slot + r->rank * bytes_of (r, u), dtype, 1,
                            &n, err));
    TRY (train_tensor_view (&out, r->slot, dtype, 1, &all, err));
    if (r->m->gpu)
        in.t.device = out.t.device = r->m->config.device;
    TRY (r->m->ops->sync (r->m->stream, err));
    return train_all_gather (r->o.group, &in.t, &out.t, err);
}

static train_status_t before (void *arg, size_t u, bool backward,
                              train_error_t *err)
{
    struct units *r = arg;
    train_decoder_t *m = r->m;

    (void)backward; /* there is none */
    TRY (m->ops->copy (r->slot + r->rank * bytes_of (r, u), r->part[u],
                       bytes_of (r, u), m->stream, err));
    if (r->world > 1)
        TRY (gather (r, u, err));
    decoder_set_unit (m, u, r->slot, NULL);
    return TRAIN_OK;
}

static train_status_t after (void *arg, size_t u, bool backward,
                             train_error_t *err)
{
    struct units *r = arg;

    (void)backward, (void)err;
    decoder_set_unit (r->m, u, NULL, NULL);
    return TRAIN_OK;
}

static train_status_t op_logps (void *self, const int32_t *ids,
                                const int32_t *prompt_len,
                                const int32_t *total_len, int B, int T,
                                double temperature, float *ret,
                                train_error_t *err)
{
    struct units *r = self;

    return train_reference_logps (r->plain, ids, prompt_len, total_len, B, T,
                                  temperature, ret, err);
}

static train_status_t visit (struct units *r, size_t u, train_error_t *err)
{
    TRY (before (r, u, false, err));
    return after (r, u, false, err);
}

/* The visits of a forward, and nothing else of it. */
static train_status_t op_join (void *self, train_error_t *err)
{
    struct units *r = self;

    if (r->world == 1)
        return TRAIN_OK;
    for (size_t u = 0; u < decoder_n_units (r->m); u++)
        TRY (visit (r, u, err));
    return r->m->config.tie ? visit (r, 0, err) : TRAIN_OK;
}

/* Of element [number] of the model, by the finalizer of Steele et al. 2014
 * ("Fast splittable pseudorandom number generators"): a sum of these is the same
 * however many parts they lie in. */
static uint64_t mix (uint64_t bits, uint64_t number)
{
    uint64_t z = bits + (number + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t sum_of (const void *x, size_t size, size_t n, size_t number)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += mix (size == 2   ? ((const uint16_t *)x)[i]
                    : size == 4 ? ((const uint32_t *)x)[i]
                                : ((const uint64_t *)x)[i],
                    number + i);
    return sum;
}

/* Of unit [u] this rank's elements, without what pads them. */
static train_status_t sum_unit (const struct units *r, size_t u, uint64_t *sum,
                                train_error_t *err)
{
    const struct decoder_unit *unit = decoder_unit (r->m, u);
    size_t n = chunk_of (r, u), first = r->rank * n, bytes = bytes_of (r, u);
    void *copy = malloc (bytes ? bytes : 1);
    train_status_t status;

    if (!copy)
        return err_set (err, TRAIN_ENOMEM, "no memory for a unit");
    if (first + n > unit->count)
        n = first < unit->count ? unit->count - first : 0;
    status = r->m->ops->copy (copy, r->part[u], bytes, r->m->stream, err);
    if (status == TRAIN_OK)
        status = r->m->ops->sync (r->m->stream, err);
    if (status == TRAIN_OK)
        *sum += sum_of (copy, r->m->kern->elem_size, n, unit->first + first);
    free (copy);
    return status;
}

static train_status_t sum_parts (const struct units *r, uint64_t *ret,
                                 train_error_t *err)
{
    uint64_t sum = 0;

    for (size_t u = 0; u < decoder_n_units (r->m); u++)
        TRY (sum_unit (r, u, &sum, err));
    *ret = sum;
    return TRAIN_OK;
}

static train_status_t op_check (void *self, train_error_t *err)
{
    struct units *r = self;
    uint64_t now = 0;

    TRY (sum_parts (r, &now, err));
    return now == r->own
               ? TRAIN_OK
               : err_set (err, TRAIN_ECORRUPT,
                          "reference: its weights are not those it had");
}

static void op_close (void *self)
{
    struct units *r = self;
    size_t n = r->m ? decoder_n_units (r->m) : 0;

    train_reference_close (r->plain);
    for (size_t u = 0; r->part && u < n; u++)
        if (r->o.offload && r->part[u])
            r->m->ops->unpin (r->part[u], bytes_of (r, u));
        else
            r->m->ops->free (r->part[u]);
    free (r->part);
    if (r->m)
        r->m->ops->free (r->slot);
    train_decoder_destroy (r->m);
    free (r);
}

static bool op_hash (void *self, uint64_t *ret)
{
    const struct units *r = self;

    *ret = r->hash;
    return true;
}

static size_t op_bytes (const void *self, int B, int T)
{
    const struct units *r = self;

    return reference_bytes (r->plain, B, T);
}

static const struct reference_ops ops = {
    .name = "parts",
    .bytes = op_bytes,
    .logps = op_logps,
    .close = op_close,
    .check = op_check,
    .hash = op_hash,
    .join = op_join,
};

/* The types of masters: what is drawn or read is rounded once, as a trainer's
 * weights are. */
static train_status_t drawing (const struct units *r, train_decoder_t **ret,
                               train_error_t *err)
{
    train_decoder_config_t c = r->m->config;

    c.dtype = c.dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;
    c.device = (DLDevice){kDLCPU, 0};
    return decoder_create_bare (&c, ret, err);
}

static train_status_t room_for (struct units *r, size_t u, void **ret,
                                train_error_t *err)
{
    const struct backend_ops *b = r->m->ops;
    size_t bytes = bytes_of (r, u);

    return r->o.offload ? b->pin (r->m->device, bytes, ret, err)
                        : b->alloc (r->m->device, bytes, ret, err);
}

/* This rank's chunk of the unit, whose whole is [drawn]; 0 behind its end. */
static train_status_t keep (struct units *r, size_t u, train_dtype_t from,
                            const void *drawn, train_error_t *err)
{
    size_t n = chunk_of (r, u), first = r->rank * n;
    size_t all = decoder_unit (r->m, u)->count;
    void *chunk = calloc (n ? n : 1, r->m->kern->elem_size), *part = NULL;
    train_status_t status;

    if (!chunk)
        return err_set (err, TRAIN_ENOMEM, "no memory for a unit");
    for (size_t i = 0; i < n && first + i < all; i++)
        elem_put (r->m->config.dtype, chunk, i,
                  elem_get (from, drawn, first + i));
    status = room_for (r, u, &part, err);
    r->part[u] = part;
    if (status == TRAIN_OK)
        status =
            r->m->ops->copy (part, chunk, bytes_of (r, u), r->m->stream, err);
    if (status == TRAIN_OK)
        status = r->m->ops->sync (r->m->stream, err);
    free (chunk);
    return status;
}

static train_status_t make_unit (struct units *r, const train_decoder_t *draws,
                                 const train_safetensors_t *files, size_t u,
                                 train_error_t *err)
{
    void *drawn =
        malloc (decoder_unit (draws, u)->count * draws->kern->elem_size);
    train_status_t status;

    if (!drawn)
        return err_set (err, TRAIN_ENOMEM, "no memory for unit %zu", u);
    if (files)
        hf_unit (draws, files, u, r->o.seed, drawn);
    else
        decoder_init_unit (draws, u, r->o.seed, drawn);
    status = keep (r, u, draws->config.dtype, drawn, err);
    free (drawn);
    return status;
}

static train_status_t make_parts (struct units *r, train_error_t *err)
{
    size_t n = decoder_n_units (r->m);
    train_decoder_t *draws = NULL;
    train_safetensors_t *files = NULL;
    train_status_t status = drawing (r, &draws, err);

    if (status == TRAIN_OK && r->o.dir)
        status = hf_open (r->o.dir, draws, &files, err);
    for (size_t u = 0; u < n && status == TRAIN_OK; u++)
        status = make_unit (r, draws, files, u, err);
    train_safetensors_close (files);
    train_decoder_destroy (draws);
    return status;
}

static train_status_t make_slot (struct units *r, train_error_t *err)
{
    void *slot = NULL;
    size_t most = 1;

    for (size_t u = 0; u < decoder_n_units (r->m); u++)
        if (bytes_of (r, u) * r->world > most)
            most = bytes_of (r, u) * r->world;
    TRY (r->m->ops->alloc (r->m->device, most, &slot, err));
    r->slot = slot;
    return TRAIN_OK;
}

/* What a rank says of its part. Sent as it stands. */
struct card {
    uint64_t own;
    int32_t code;
    char text[sizeof (((train_error_t *)0)->text)];
};

/* The first that failed is named everywhere but there, where the text is longer. */
static train_status_t judge (const struct card *cards, size_t n,
                             train_status_t status, uint64_t *ret_hash,
                             train_error_t *err)
{
    if (status != TRAIN_OK)
        return status;
    *ret_hash = 0;
    for (size_t r = 0; r < n; r++) {
        if (cards[r].code != TRAIN_OK)
            return err_set (err, (train_status_t)cards[r].code,
                            "reference: another rank failed: rank %zu: %.*s", r,
                            (int)sizeof (cards[r].text), cards[r].text);
        *ret_hash += cards[r].own;
    }
    return TRAIN_OK;
}

/* All ranks come here, one whose part could not be made as well.
 *   own        the sum of this rank's part
 *   ret_hash   of all; written where none failed */
static train_status_t agree (train_group_t *group, uint64_t own,
                             train_status_t status, uint64_t *ret_hash,
                             train_error_t *err)
{
    size_t n = group ? (size_t)train_group_size (group) : 1;
    size_t *lens = calloc (n, sizeof (*lens));
    struct card mine = {.own = own, .code = status};
    train_error_t lost = {0};
    void *cards = NULL;
    train_status_t s = TRAIN_OK;

    if (status != TRAIN_OK && err)
        snprintf (mine.text, sizeof (mine.text), "%s", err->text);
    if (!lens)
        s = err_set (&lost, TRAIN_ENOMEM, "no memory for a reference");
    else if (n > 1)
        s = train_gather_object (group, &mine, sizeof (mine), -1, &cards, lens,
                                 &lost);
    free (lens);
    if (s == TRAIN_OK)
        status = judge (n > 1 ? cards : &mine, n, status, ret_hash, err);
    else if (status == TRAIN_OK) /* else its own text tells more */
        status = err_set (err, s, "%s", lost.text);
    free (cards);
    return status;
}

static train_status_t fill (struct units *r, train_error_t *err)
{
    if (!(r->part = calloc (decoder_n_units (r->m), sizeof (*r->part))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a reference");
    TRY (make_parts (r, err));
    TRY (make_slot (r, err));
    return sum_parts (r, &r->own, err);
}

static train_status_t make (struct units *r,
                            const train_decoder_config_t *config,
                            train_error_t *err)
{
    train_decoder_config_t c = *config;
    struct decoder_hooks hooks = {before, after, r};

    c.lora = (train_lora_t){0};
    c.recompute = TRAIN_RECOMPUTE_BLOCKS;
    TRY (decoder_create_bare (&c, &r->m, err));
    TRY (fill (r, err));
    decoder_set_hooks (r->m, &hooks);
    return reference_open_any (r->m, &r->plain, err);
}

static train_status_t set_up (struct units *r,
                              const train_decoder_config_t *config,
                              train_error_t *err)
{
    train_status_t status = make (r, config, err);

    return agree (r->o.group, r->own, status, &r->hash, err);
}

train_status_t train_reference_open_units (
    const train_decoder_config_t *config,
    const train_reference_units_options_t *opts, train_reference_t **ret,
    train_error_t *err)
{
    train_reference_units_options_t o;
    struct units *r;
    train_status_t status;

    TRY (opts_read (&o, sizeof (o), opts, "reference", err));
    if (!config || !ret)
        return err_set (err, TRAIN_EINVAL,
                        "reference: config or ret_reference is NULL");
    if (!(r = calloc (1, sizeof (*r))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a reference");
    r->o = o;
    r->world = o.group ? (size_t)train_group_size (o.group) : 1;
    r->rank = o.group ? (size_t)train_group_rank (o.group) : 0;
    if ((status = set_up (r, config, err)) != TRAIN_OK) {
        op_close (r);
        return status;
    }
    return reference_new (&ops, r, config->vocab, ret, err);
}
