/* SPDX-License-Identifier: Apache-2.0
 * differ.c - what the ranks of a job may differ in when they start */
#include "plan/differ.h"

#include <string.h>

#include "plan/conf.h"

static const char *const fact[] = {"program", "driver", "nccl", "timeout",
                                   "ranks"};
static const char *const head[] = {"NCCL_", "TORCH_NCCL_"};

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static bool is (const char *name, size_t len, const char *word)
{
    return len == strlen (word) && !memcmp (name, word, len);
}

bool differ_compares (const char *name, unsigned long len)
{
    if (is (name, len, "NCCL_HOSTID"))
        return false;
    for (size_t i = 0; i < LENGTH (head); i++)
        if (len > strlen (head[i]) && !memcmp (name, head[i], strlen (head[i])))
            return true;
    return is (name, len, "DEEPSPEED_TIMEOUT");
}

static int check_item (const char *item, struct rv_error *err)
{
    size_t len = strlen (item);

    for (size_t i = 0; i < LENGTH (fact); i++)
        if (!strcmp (item, fact[i]))
            return RV_OK;
    if (len && differ_compares (item, len)
        && strspn (item, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
               >= len - (item[len - 1] == '*'))
        return RV_OK;
    return error_set (err, RV_EINVAL,
                      "'%s' is nothing that ranks are compared in; there are "
                      "program, driver, nccl, timeout, ranks and variables "
                      "that begin with NCCL_ or TORCH_NCCL_",
                      item);
}

int differ_check (const char *list, struct rv_error *err)
{
    char **item = NULL;
    size_t n = 0;
    int rc = conf_split (list ? list : "", &item, &n, err);

    for (size_t i = 0; !rc && i < n; i++)
        rc = check_item (item[i], err);
    conf_split_free (item);
    return rc;
}

static bool matches (const char *item, size_t len, const char *name)
{
    if (len && item[len - 1] == '*')
        return !strncmp (item, name, len - 1);
    return is (item, len, name);
}

bool differ_allows (const char *list, const char *name)
{
    while (list && *list) {
        const char *end;

        list += strspn (list, ", \t");
        end = list + strcspn (list, ", \t");
        if (end > list && matches (list, (size_t)(end - list), name))
            return true;
        list = end;
    }
    return false;
}
