/* SPDX-License-Identifier: Apache-2.0
 * differ.c - what the ranks of a job may differ in when they start */
#include "plan/differ.h"

#include <string.h>

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

static bool is_known (const char *item, size_t len)
{
    size_t letters = strspn (item, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

    for (size_t i = 0; i < LENGTH (fact); i++)
        if (is (item, len, fact[i]))
            return true;
    return differ_compares (item, len)
           && (letters == len || (letters == len - 1 && item[len - 1] == '*'));
}

/* The next item of a list behind [*at]: without blanks, [*at] moves behind it.
 * Returns its length, which may be 0. */
static size_t next_item (const char **at, const char **ret)
{
    size_t len = strcspn (*at, ",");
    const char *end = *at + len;

    *ret = *at + strspn (*at, " \t");
    *at = end;
    if (*ret > end)
        *ret = end;
    while (end > *ret && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return (size_t)(end - *ret);
}

int differ_check (const char *list, struct rv_error *err)
{
    const char *at = list, *item;

    if (!list || !*list)
        return RV_OK;
    for (;; at++) {
        size_t len = next_item (&at, &item);

        if (!len)
            return error_set (err, RV_EINVAL, "'%s' has an empty item", list);
        if (!is_known (item, len))
            return error_set (
                err, RV_EINVAL,
                "'%.*s' is nothing that ranks are compared in; there are "
                "program, driver, nccl, timeout, ranks and variables that "
                "begin with NCCL_ or TORCH_NCCL_",
                (int)len, item);
        if (!*at)
            return RV_OK;
    }
}

static bool matches (const char *item, size_t len, const char *name)
{
    if (len && item[len - 1] == '*')
        return !strncmp (item, name, len - 1);
    return is (item, len, name);
}

bool differ_allows (const char *list, const char *name)
{
    const char *at = list, *item;

    while (at) {
        size_t len = next_item (&at, &item);

        if (len && matches (item, len, name))
            return true;
        at = *at ? at + 1 : NULL;
    }
    return false;
}
