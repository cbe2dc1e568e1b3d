/* SPDX-License-Identifier: Apache-2.0
 * fsdp_rules.c - parameters that do not decay, and those that stay as they are
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "fsdp_impl.h"

/* Set [set] of each parameter that one pattern fits. */
static train_status_t mark (const train_shard_plan_t *plan, const char *pattern,
                            const char *what, bool *set, train_error_t *err)
{
    bool any = false;

    for (size_t i = 0; i < train_shard_n_params (plan); i++)
        if (fnmatch (pattern, train_shard_param (plan, i)->name, 0) == 0)
            any = set[i] = true;
    if (any)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "%s: no parameter fits '%s'; the first is called %s", what,
                    pattern, train_shard_param (plan, 0)->name);
}

static train_status_t mark_all (const train_shard_plan_t *plan,
                                const char *list, const char *what, bool **ret,
                                train_error_t *err)
{
    char *copy = strdup (list ? list : ""), *next = copy, *pattern;
    train_status_t status = TRAIN_OK;

    *ret = calloc (train_shard_n_params (plan), sizeof (**ret));
    if (!copy || !*ret)
        status = err_set (err, TRAIN_ENOMEM, "no memory for rules");
    while (status == TRAIN_OK && (pattern = strsep (&next, ",")))
        if (*pattern)
            status = mark (plan, pattern, what, *ret, err);
    free (copy);
    return status;
}

/* Beside adapters nothing else trains. */
static void freeze_base (const train_shard_plan_t *plan, bool *frozen)
{
    bool any = false;

    for (size_t i = 0; i < train_shard_n_params (plan); i++)
        any |= decoder_is_lora (train_shard_param (plan, i)->name);
    for (size_t i = 0; any && i < train_shard_n_params (plan); i++)
        frozen[i] |= !decoder_is_lora (train_shard_param (plan, i)->name);
}

train_status_t fsdp_match (const train_shard_plan_t *plan, const char *no_decay,
                           const char *frozen, bool **ret_no_decay,
                           bool **ret_frozen, train_error_t *err)
{
    size_t still = 0;

    TRY (mark_all (plan, no_decay, "no_decay", ret_no_decay, err));
    TRY (mark_all (plan, frozen, "frozen", ret_frozen, err));
    freeze_base (plan, *ret_frozen);
    for (size_t i = 0; i < train_shard_n_params (plan); i++)
        still += (*ret_frozen)[i];
    if (still == train_shard_n_params (plan))
        return err_set (err, TRAIN_EINVAL,
                        "frozen: fits every parameter, so none would train");
    return TRAIN_OK;
}

train_status_t fsdp_still (struct fsdp *f, train_error_t *err)
{
    for (size_t i = 0; i < train_shard_n_params (f->plan); i++) {
        train_shard_range_t r = fsdp_grad_range (f, i);

        if (f->frozen[i] && r.count > 0)
            TRY (fsdp_clear (f, (char *)f->grads.t.data + r.at * f->esize,
                             r.count * f->esize, err));
    }
    return TRAIN_OK;
}
