/* SPDX-License-Identifier: Apache-2.0
 * generate.c - add tokens to texts until they end */
#include "config.h"

#include <train/generate.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "generate_run.h"
#include "opts.h"

#include "kernels/decode.h"

static train_status_t check_options (const train_generate_options_t *o,
                                     train_error_t *err)
{
    if (o->max_new < 1 || o->at_once < 0)
        return err_set (err, TRAIN_EINVAL,
                        "generate: max_new is %d and at_once %d: must be 1 and "
                        "0 or above",
                        o->max_new, o->at_once);
    if (!(o->temperature >= 0) || !isfinite (o->temperature))
        return err_set (err, TRAIN_EINVAL,
                        "generate: temperature is %g: must be 0 or above",
                        o->temperature);
    if (o->top_k < 0 || !(o->top_p >= 0 && o->top_p <= 1)
        || !(o->min_p >= 0 && o->min_p <= 1))
        return err_set (err, TRAIN_EINVAL,
                        "generate: top_k is %d, top_p %g and min_p %g: must be "
                        "0 or above, and within 0 and 1",
                        o->top_k, o->top_p, o->min_p);
    if (o->group < 0 || o->first < 0)
        return err_set (
            err, TRAIN_EINVAL,
            "generate: group is %d and first %d: must be 0 or above", o->group,
            o->first);
    if (!(o->repetition >= 0) || !isfinite (o->repetition))
        return err_set (err, TRAIN_EINVAL,
                        "generate: repetition is %g: must be 0 or above",
                        o->repetition);
    return TRAIN_OK;
}

static train_status_t run_all (struct generate_run *r, train_error_t *err)
{
    size_t alive;

    for (;;) {
        TRY (generate_enter (r, err));
        if ((alive = generate_alive (r)) == 0)
            return TRAIN_OK;
        TRY (generate_turns (r, alive, err));
    }
}

static train_status_t check_groups (const struct generate_run *r,
                                    train_error_t *err)
{
    for (int b = 0; r->o->group > 1 && b < r->B; b++) {
        int first = b - b % r->o->group;
        size_t bytes = (size_t)r->n[b] * sizeof (**r->prompts);

        if (r->n[b] != r->n[first]
            || memcmp (r->prompts[b], r->prompts[first], bytes) != 0)
            return err_set (err, TRAIN_EINVAL,
                            "generate: the prompt of text %d is not that of "
                            "text %d, of the same group of %d",
                            b, first, r->o->group);
    }
    return TRAIN_OK;
}

static train_status_t check_prompts (const struct generate_run *r, int *ret_T,
                                     size_t *ret_all, train_error_t *err)
{
    int longest = 0;

    for (int b = 0; b < r->B; b++) {
        if (r->n[b] < 1 || r->n[b] > (1 << 30) - r->o->max_new)
            return err_set (err, TRAIN_EINVAL,
                            "generate: the prompt of text %d has %d tokens: "
                            "at least 1 is needed",
                            b, r->n[b]);
        for (int t = 0; t < r->n[b]; t++)
            if (r->prompts[b][t] < 0 || (size_t)r->prompts[b][t] >= r->V)
                return err_set (err, TRAIN_EINVAL,
                                "generate: id %d of text %d at place %d is not "
                                "within 0 and %zu",
                                (int)r->prompts[b][t], b, t, r->V - 1);
        longest = r->n[b] > longest ? r->n[b] : longest;
        *ret_all += (size_t)r->n[b];
    }
    *ret_T = longest + r->o->max_new;
    return check_groups (r, err);
}

static size_t slots_of (int B, int at_once)
{
    return (size_t)(at_once > 0 && at_once < B ? at_once : B);
}

size_t generate_bytes (train_decoder_t *m, int B, int at_once, int prompt,
                       int more, bool repetition)
{
    size_t slots = slots_of (B, at_once), kept;

    return kv_foresee (m, m->gpu, slots, (size_t)(prompt + more),
                       kv_feed_rows (m->gpu, (size_t)B * (size_t)prompt, slots),
                       repetition, &kept);
}

static train_status_t allot (struct generate_run *r, size_t T, size_t all,
                             train_error_t *err)
{
    r->slots = slots_of (r->B, r->o->at_once);
    r->rows = kv_feed_rows (r->m->gpu, all, r->slots);
    r->text = calloc (r->slots, sizeof (*r->text));
    r->fed = calloc (r->slots, sizeof (*r->fed));
    r->lead = calloc (r->slots, sizeof (*r->lead));
    r->drawer = calloc (r->slots, sizeof (*r->drawer));
    if (!r->text || !r->fed || !r->lead || !r->drawer)
        return err_set (err, TRAIN_ENOMEM, "no memory to generate");
    for (size_t s = 0; s < r->slots; s++)
        r->text[s] = -1;
    TRY (kv_create (r->m, r->slots, T, r->rows, r->slots, &r->cache, err));
    return kv_rules (r->cache, r->o, err);
}

static void drop (struct generate_run *r)
{
    kv_destroy (r->cache);
    free (r->text);
    free (r->fed);
    free (r->lead);
    free (r->drawer);
}

train_status_t train_generate (int32_t *ids, int *ret_n, train_decoder_t *m,
                               const int32_t *const *prompts, const int *n,
                               int B, const train_generate_options_t *opts,
                               train_error_t *err)
{
    train_generate_options_t o;
    struct generate_run r = {.o = &o,
                             .m = m,
                             .prompts = prompts,
                             .n = n,
                             .ids = ids,
                             .added = ret_n,
                             .B = B};
    train_status_t status;
    size_t all = 0;
    int T = 0;

    if (!ids || !ret_n || !m || !prompts || !n || B < 1)
        return err_set (err, TRAIN_EINVAL,
                        "generate: an argument is missing, or B is below 1");
    TRY (opts_read (&o, sizeof (o), opts, "generate", err));
    TRY (check_options (&o, err));
    r.V = m->dims.V;
    TRY (check_prompts (&r, &T, &all, err));
    memset (ret_n, 0, (size_t)B * sizeof (*ret_n));
    status = allot (&r, (size_t)T, all, err);
    if (status == TRAIN_OK)
        status = run_all (&r, err);
    drop (&r);
    return status;
}
