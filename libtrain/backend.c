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

static int elem_of (train_dtype_t dtype)
{
    return dtype == TRAIN_F32    ? KERN_F32
           : dtype == TRAIN_BF16 ? KERN_BF16
                                 : KERN_F16;
}

void backend_cast (const struct backend_ops *ops, void *dst, train_dtype_t to,
                   const void *src, train_dtype_t from, size_t n, void *stream)
{
    int wide = (int)train_dtype_size (from), thin = (int)train_dtype_size (to);
    struct kern_view out = {
        .data = dst, .compact = 1, .in_size = thin, .wire_size = thin, .n = n};
    struct kern_view in = {.data = (void *)(uintptr_t)src,
                           .compact = 1,
                           .from = elem_of (from),
                           .to = elem_of (to),
                           .in_size = wide,
                           .wire_size = thin,
                           .n = n};

    ops->view->move (&out, &in, stream);
}
