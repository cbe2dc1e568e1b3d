/* SPDX-License-Identifier: Apache-2.0
 * fuzz_differ.c - what may differ: the list of --rv-differ, then a name a line */
#include "fuzz.h"
#include "plan/differ.h"

static const char *const facts[] = {"program", "driver", "nccl",
                                    "timeout", "ranks",  "DEEPSPEED_TIMEOUT"};

static bool blank (char c)
{
    return c == ' ' || c == '\t';
}

static bool is_fact (const char *name)
{
    bool found = false;

    for (size_t i = 0; i < sizeof (facts) / sizeof (facts[0]); i++)
        found = found || strcmp (name, facts[i]) == 0;
    return found;
}

/* What differ.h says of an item, in other words. */
static bool is_item (const char *item)
{
    const char *rest = strncmp (item, "TORCH_", 6) ? item : item + 6;

    if (is_fact (item))
        return true;
    if (strncmp (rest, "NCCL_", 5) != 0 || !rest[5]
        || strcmp (item, "NCCL_HOSTID") == 0)
        return false;
    while ((*rest >= 'A' && *rest <= 'Z') || (*rest >= '0' && *rest <= '9')
           || *rest == '_')
        rest++;
    return !*rest || (*rest == '*' && !rest[1]);
}

/* The items once more, each cut out by another way than differ.c's. Returns
 * whether all are known alone; *ret_allowed, whether one of them lets [name]
 * differ. */
static bool by_items (const char *list, const char *name, bool *ret_allowed)
{
    char *copy = strdup (list), *rest = copy, *item;
    bool known = true;

    FUZZ_CHECK (copy);
    *ret_allowed = false;
    while ((item = strsep (&rest, ","))) {
        size_t len;

        while (blank (*item))
            item++;
        for (len = strlen (item); len && blank (item[len - 1]);)
            item[--len] = '\0';
        known = known && is_item (item);
        if (!len)
            continue;
        if (item[len - 1] == '*')
            *ret_allowed |= strncmp (name, item, len - 1) == 0;
        else
            *ret_allowed |= strcmp (name, item) == 0;
    }
    free (copy);
    return known;
}

/* A checked list names only what is compared, so it lets no other differ. */
static void check_name (const char *list, bool good, const char *name)
{
    bool allowed, compared = differ_compares (name, strlen (name));

    by_items (list, name, &allowed);
    FUZZ_CHECK (differ_allows (list, name) == allowed);
    if (!good || !allowed || strcmp (name, "NCCL_HOSTID") == 0)
        return;
    compared = compared || is_fact (name);
    /* "NCCL_*" lets the bare beginning differ, which is nobody's. */
    FUZZ_CHECK (compared || strcmp (name, "NCCL_") == 0
                || strcmp (name, "TORCH_NCCL_") == 0);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    char *list = fuzz_text (data, size), *rest = list, *name;
    struct rv_error err = {0};
    bool good, allowed;

    strsep (&rest, "\n");
    good = differ_check (list, &err) == RV_OK;
    FUZZ_CHECK (good || (err.code == RV_EINVAL && err.text[0]));
    if (list[0])
        FUZZ_CHECK (by_items (list, "", &allowed) == good);
    while ((name = strsep (&rest, "\n")))
        check_name (list, good, name);
    free (list);
    return 0;
}
