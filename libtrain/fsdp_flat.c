/* SPDX-License-Identifier: Apache-2.0
 * fsdp_flat.c - flat units and their bundles: where each is in what is whole for
 * a while, and in the gradients
 *
 * A unit of the model beside adapters is two flat units, that of the base and
 * that of the adapters: both are gathered, one is reduced. (Hu et al. 2021,
 * arXiv:2106.09685.) */
#include <stdlib.h>

#include "err.h"
#include "fsdp_impl.h"

#define LINE ((size_t)64) /* elements */

static bool is_frozen (const struct fsdp *f, const train_shard_unit_t *plan)
{
    bool all = plan->n_params > 0;

    for (size_t i = 0; all && i < plan->n_params; i++)
        all = f->frozen[plan->param + i];
    return all;
}

/* Of replicas: from the first parameter that has gradients on. */
static void place_slice (const struct fsdp *f, struct fsdp_flat *flat)
{
    for (size_t i = flat->plan->n_params; i-- > 0;) {
        size_t param = flat->plan->param + i;

        if (f->grad_at[param] == SIZE_MAX)
            continue;
        flat->grads = f->grad_at[param];
        flat->n_grads += train_shard_param (f->plan, param)->count;
    }
}

static void place_grads (const struct fsdp *f, struct fsdp_flat *flat)
{
    if (f->grad_at) {
        place_slice (f, flat);
    } else if (!flat->plan->still) {
        flat->grads = flat->plan->at;
        flat->n_grads = flat->plan->chunk;
    }
}

/* Products write at whole lines. */
static size_t lines (const struct fsdp *f, size_t n)
{
    return f->apart ? (n + LINE - 1) / LINE * LINE : n;
}

/* The next flat unit of bundle [u]; [at]: elements of those before it. */
static void add_flat (struct fsdp *f, struct fsdp_unit *u, size_t *at)
{
    struct fsdp_flat *flat = &f->flats[u->end++];
    size_t all = flat->plan->chunk * f->world;

    flat->at = *at;
    if (flat->at + all > u->whole)
        u->whole = flat->at + all;
    *at += flat->plan->count;
    flat->room_at = u->room;
    u->room += flat->plan->still ? 0 : lines (f, all);
    flat->still = is_frozen (f, flat->plan);
    place_grads (f, flat);
}

static void fill (struct fsdp *f)
{
    size_t kept = 0;

    for (size_t r = 0; r < f->n_flats;) {
        struct fsdp_unit *u = &f->units[f->n_units++];
        size_t bundle = f->flats[r].plan->bundle, at = 0;

        u->first = u->end = r;
        u->room = f->apart ? lines (f, f->sink) : 0;
        while (u->end < f->n_flats && f->flats[u->end].plan->bundle == bundle)
            add_flat (f, u, &at);
        r = u->end;
        u->kept_at = kept;
        kept += u->room;
        if (u->end - u->first > f->most_flats)
            f->most_flats = u->end - u->first;
    }
}

train_status_t fsdp_flats_make (struct fsdp *f, train_error_t *err)
{
    size_t n = f->n_flats = train_shard_n_units (f->plan);

    f->flats = calloc (n, sizeof (*f->flats));
    f->units = calloc (n, sizeof (*f->units));
    f->works = calloc (n, sizeof (*f->works));
    if (!f->flats || !f->units || !f->works)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu units", n);
    for (size_t r = 0; r < n; r++)
        f->flats[r].plan = train_shard_unit (f->plan, r);
    fill (f);
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        if (!(f->room[i].works =
                  calloc (f->most_flats, sizeof (*f->room[i].works))))
            return err_set (err, TRAIN_ENOMEM, "no memory for %zu units",
                            f->most_flats);
    return TRAIN_OK;
}

void fsdp_flats_free (struct fsdp *f)
{
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        free (f->room[i].works);
    free (f->works);
    free (f->units);
    free (f->flats);
}

size_t fsdp_whole_at (const struct fsdp *f, size_t u)
{
    return f->units[u].kept_at * f->esize;
}

size_t fsdp_whole_bytes (const struct fsdp *f, size_t u)
{
    return f->units[u].room * f->esize;
}

train_shard_range_t fsdp_grad_range (const struct fsdp *f, size_t param)
{
    train_shard_range_t r = train_shard_range (f->plan, param, f->rank);

    if (train_shard_param (f->plan, param)->still
        || (f->grad_at && f->grad_at[param] == SIZE_MAX))
        r.count = 0;
    else if (f->grad_at)
        r.at = f->grad_at[param];
    return r;
}

bool fsdp_apart (const struct fsdp *f)
{
    return f->apart;
}

size_t fsdp_room_at (const struct fsdp *f, size_t param)
{
    const struct fsdp_flat *flat = f->flats;

    while (param >= flat->plan->param + flat->plan->n_params)
        flat++;
    return flat->plan->still
               ? SIZE_MAX
               : flat->room_at + train_shard_offset (f->plan, param);
}
