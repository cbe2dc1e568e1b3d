/* SPDX-License-Identifier: Apache-2.0
 * backend.c - the table of backends, in order of preference */
#include "config.h"

#include "backend.h"

#include <string.h>

#include "err.h"

static const struct backend_ops *const all[] = {
#if HAVE_CUDA
    &backend_cuda,
#endif
    &backend_host,
};

static const struct backend_ops *replaced;

void backend_replace (const struct backend_ops *cuda)
{
    replaced = cuda;
}

train_status_t backend_find (const char *name,
                             const struct backend_ops **ret_ops,
                             train_error_t *err)
{
    if (replaced && name && strcmp (name, "cuda") == 0) {
        *ret_ops = replaced;
        return TRAIN_OK;
    }
    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        train_status_t status;

        if (name && strcmp (name, all[i]->name) != 0)
            continue;
        status = all[i]->probe (NULL, err);
        if (status == TRAIN_OK)
            *ret_ops = all[i];
        if (status == TRAIN_OK || name)
            return status;
    }
    if (name && strcmp (name, "cuda") == 0)
        return err_set (err, TRAIN_ENOTSUP,
                        "device cuda: libtrain was built without CUDA");
    return err_set (err, TRAIN_EINVAL,
                    "no device '%s'; there are host and cuda", name);
}
