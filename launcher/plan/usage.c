/* SPDX-License-Identifier: Apache-2.0
 * usage.c - GPUs of many nodes, by type: free, used and down */
#include "plan/usage.h"

#include <stdlib.h>
#include <string.h>

static struct usage_type *find (struct usage *usage, const char *type)
{
    struct usage_type *grown;

    for (size_t i = 0; i < usage->n; i++)
        if (!strcmp (usage->type[i].type, type))
            return &usage->type[i];
    grown = realloc (usage->type, (usage->n + 1) * sizeof (*grown));
    if (!grown)
        return NULL;
    usage->type = grown;
    usage->type[usage->n] = (struct usage_type){.total = 0};
    memcpy (usage->type[usage->n].type, type, strlen (type) + 1);
    return &usage->type[usage->n++];
}

static bool is_gpu (const struct gres_entry *entry)
{
    return !strcmp (entry->name, "gpu");
}

/* Take up to [want] of [*left]. */
static uint64_t take (uint64_t *left, uint64_t want)
{
    uint64_t n = want < *left ? want : *left;

    *left -= n;
    return n;
}

/* How many of the type are in use; what has no type is shared out. */
static uint64_t used_of (struct gres_list *used, const char *type,
                         uint64_t total)
{
    uint64_t n = 0;

    for (size_t i = 0; i < used->n; i++)
        if (is_gpu (&used->entry[i]) && !strcmp (used->entry[i].type, type))
            n += take (&used->entry[i].count, total - n);
    for (size_t i = 0; i < used->n; i++)
        if (is_gpu (&used->entry[i]) && !used->entry[i].type[0])
            n += take (&used->entry[i].count, total - n);
    return n;
}

int usage_add (struct usage *usage, const char *gres, const char *used,
               bool down, struct rv_error *err)
{
    struct gres_list has = {0}, busy = {0};
    int rc = gres_parse (gres, &has, err);

    if (rc == RV_OK)
        rc = gres_parse (used, &busy, err);
    for (size_t i = 0; rc == RV_OK && i < has.n; i++)
        if (is_gpu (&has.entry[i]) && !find (usage, has.entry[i].type))
            rc = error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; rc == RV_OK && i < has.n; i++) {
        const struct gres_entry *entry = &has.entry[i];
        struct usage_type *sum =
            is_gpu (entry) ? find (usage, entry->type) : NULL;
        uint64_t n = sum ? used_of (&busy, entry->type, entry->count) : 0;

        if (!sum)
            continue;
        sum->total += entry->count;
        sum->used += n;
        *(down ? &sum->down : &sum->free) += entry->count - n;
    }
    gres_fini (&has);
    gres_fini (&busy);
    return rc == RV_EINVAL ? RV_EFORMAT : rc;
}

void usage_fini (struct usage *usage)
{
    free (usage->type);
    *usage = (struct usage){0};
}

static uint64_t gpus (const char *tres)
{
    struct gres_list list = {0};
    uint64_t n = 0;

    if (!tres || !*tres || gres_parse (tres, &list, NULL) != RV_OK)
        return 0;
    for (size_t i = 0; i < list.n; i++)
        if (is_gpu (&list.entry[i]))
            n += list.entry[i].count;
    gres_fini (&list);
    return n;
}

uint64_t usage_asked (const char *per_job, const char *per_node,
                      const char *per_task, uint32_t nodes, uint32_t tasks)
{
    uint64_t n = gpus (per_job);

    if (!n)
        n = gpus (per_node) * (nodes ? nodes : 1);
    if (!n)
        n = gpus (per_task) * (tasks ? tasks : 1);
    return n;
}
