/* SPDX-License-Identifier: Apache-2.0
 * group_split.c - groups made of ranks of another group
 *
 * The new group meets through the old: each exchange of its beginning is an
 * all-gather there. All ranks of the old group take part until none of them has
 * anything to say any more, so a subgroup that needs fewer exchanges, or fails,
 * leaves nobody waiting. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"
#include "group_impl.h"
#include "sock.h"

/* What a rank wants. */
struct wish {
    int32_t colour, key;
    uint64_t name, list; /* hashes */
};

/* What a rank says in one round. */
struct word {
    uint32_t busy; /* has data, more rounds may follow */
    uint32_t len;
    unsigned char data[JOIN_EXCHANGE_MAX];
};

/* One split on its way. */
struct split {
    train_group_t *group;
    const int *ranks;    /* (join.size) members, in the old group */
    struct word *words;  /* (size of the old group) */
    train_status_t code; /* first failure of the old group */
};

static train_status_t gather (train_group_t *group, const void *mine,
                              size_t len, void *all, train_error_t *err)
{
    struct comm_call call = {
        .kind = COMM_SPLIT, .dtype = TRAIN_U8, .count = len};

    return group_run_host (group, &call, mine, all, err);
}

static train_status_t exchange (struct join *join, void *all, const void *mine,
                                size_t len, train_error_t *err)
{
    struct split *split = join->arg;
    struct word word = {.busy = 1, .len = (uint32_t)len};

    memcpy (word.data, mine, len);
    split->code =
        gather (split->group, &word, sizeof (word), split->words, err);
    for (int r = 0; split->code == TRAIN_OK && r < join->size; r++) {
        const struct word *w = &split->words[split->ranks[r]];

        if (!w->busy || w->len != len)
            return err_set (err, TRAIN_EPEER, "rank %d gave up", r);
        memcpy ((char *)all + (size_t)r * len, w->data, len);
    }
    return split->code;
}

/* Listen while others of the old group still talk. */
static train_status_t wait_idle (struct split *split, train_error_t *err)
{
    struct word word = {0};
    bool busy = true;

    while (split->code == TRAIN_OK && busy) {
        split->code =
            gather (split->group, &word, sizeof (word), split->words, err);
        busy = false;
        for (int r = 0; split->code == TRAIN_OK && r < split->group->size; r++)
            busy |= split->words[r].busy != 0;
    }
    return split->code;
}

train_status_t group_members (const train_group_t *group, const int *ranks,
                              int n, struct join *join, train_error_t *err)
{
    if (!(join->node_of = malloc ((size_t)n * sizeof (int))))
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    join->size = n;
    join->nodes = 0;
    join->local_rank = join->local_size = 0;
    for (int r = 0; r < n; r++) {
        int first = 0;

        while (group->node_of[ranks[first]] != group->node_of[ranks[r]])
            first++;
        join->node_of[r] = first < r ? join->node_of[first] : join->nodes++;
        if (ranks[r] == group->rank) {
            join->rank = r;
            join->node = join->node_of[r];
        }
    }
    for (int r = 0; r < n; r++) {
        join->local_size += join->node_of[r] == join->node;
        join->local_rank += join->node_of[r] == join->node && r < join->rank;
    }
    return TRAIN_OK;
}

/* The members of this rank's subgroup, by key and rank; their number. */
static int choose (const struct wish *wishes, int size, int colour, int *ranks)
{
    int n = 0;

    for (int r = 0; r < size; r++) {
        int at = n;

        if (wishes[r].colour != colour)
            continue;
        while (at > 0 && wishes[ranks[at - 1]].key > wishes[r].key) {
            ranks[at] = ranks[at - 1];
            at--;
        }
        ranks[at] = r;
        n++;
    }
    return n;
}

/* The same verdict on every rank, from the same wishes. */
static train_status_t judge (const train_group_t *group,
                             const struct wish *wishes, train_error_t *err)
{
    for (int r = 1; r < group->size; r++) {
        if (wishes[r].list != wishes[0].list)
            return err_set (err, TRAIN_EMISMATCH,
                            "group '%s': ranks 0 and %d name different ranks "
                            "for a subgroup",
                            group->name, r);
        for (int q = 0; q < r; q++) {
            if (wishes[r].colour < 0 || wishes[q].colour != wishes[r].colour)
                continue;
            if (wishes[q].name != wishes[r].name)
                return err_set (err, TRAIN_EMISMATCH,
                                "group '%s': ranks %d and %d give their "
                                "subgroup different names",
                                group->name, q, r);
            break;
        }
    }
    return TRAIN_OK;
}

static train_status_t begin (struct split *split, const int *ranks, int n,
                             const char *name, train_group_t **ret_group,
                             train_error_t *err)
{
    train_group_t *group = split->group;
    struct join join = {
        .timeout_ms = group->timeout_ms,
        .deadline_ms = clock_ms () + group->timeout_ms,
        .name = name,
        .address = group->address,
        .exchange = exchange,
        .arg = split,
    };
    train_status_t status = group_members (group, ranks, n, &join, err);

    split->ranks = ranks;
    if (status == TRAIN_OK)
        status = group_begin (&join, NULL, group->where, group, ranks,
                              ret_group, err);
    free (join.node_of);
    return status;
}

/* All ranks know all wishes. */
static train_status_t part (train_group_t *group, const struct wish *wishes,
                            const char *name, train_group_t **ret_group,
                            train_error_t *err)
{
    size_t size = (size_t)group->size;
    struct split split = {.group = group};
    int colour = wishes[group->rank].colour;
    int *ranks = malloc (size * sizeof (*ranks));
    train_status_t status = judge (group, wishes, err), after;
    train_group_t *made = NULL;
    train_error_t why;

    split.words = calloc (size, sizeof (*split.words));
    if (status == TRAIN_OK && (!ranks || !split.words)) {
        err_set (&why, TRAIN_ENOMEM, "group: no memory for a subgroup");
        status = group_break (group, &why, err);
    } else if (status == TRAIN_OK) {
        if (colour >= 0)
            status = begin (&split, ranks,
                            choose (wishes, group->size, colour, ranks), name,
                            &made, err);
        after = wait_idle (&split, status == TRAIN_OK ? err : NULL);
        status = status == TRAIN_OK ? after : status;
    }
    free (ranks);
    free (split.words);
    if (status == TRAIN_OK)
        *ret_group = made;
    else
        train_group_destroy (made);
    return status;
}

static train_status_t make_wish (train_group_t *group, struct wish *wish,
                                 const char *name, train_group_t **ret_group,
                                 train_error_t *err)
{
    struct wish *wishes = calloc ((size_t)group->size, sizeof (*wishes));
    train_status_t status;

    if (!wishes)
        return err_set (err, TRAIN_ENOMEM, "group: no memory");
    name = name ? name : "split";
    wish->name = XXH3_64bits (name, strlen (name));
    status = gather (group, wish, sizeof (*wish), wishes, err);
    if (status == TRAIN_OK)
        status = part (group, wishes, name, ret_group, err);
    free (wishes);
    return status;
}

static train_status_t check (const train_group_t *group, const char *name,
                             train_group_t **ret_group, train_error_t *err)
{
    if (!group || !ret_group)
        return err_set (err, TRAIN_EINVAL, "group: no group or no result");
    return group_check_name (name, err);
}

train_status_t train_group_split (train_group_t *group, int colour, int key,
                                  const char *name, train_group_t **ret_group,
                                  train_error_t *err)
{
    struct wish wish = {.colour = colour, .key = key};
    train_status_t status = check (group, name, ret_group, err);

    if (status == TRAIN_OK && colour < TRAIN_NO_COLOUR)
        status =
            err_set (err, TRAIN_EINVAL,
                     "group: colour %d; 0 or more, or TRAIN_NO_COLOUR", colour);
    if (status != TRAIN_OK)
        return status;
    return make_wish (group, &wish, name, ret_group, err);
}

train_status_t train_group_subset (train_group_t *group, const int *ranks,
                                   int n, const char *name,
                                   train_group_t **ret_group,
                                   train_error_t *err)
{
    struct wish wish = {.colour = TRAIN_NO_COLOUR};
    train_status_t status = check (group, name, ret_group, err);

    if (status == TRAIN_OK && (!ranks || n < 1 || n > group->size))
        status = err_set (err, TRAIN_EINVAL,
                          "group '%s': a subgroup of %d ranks; it has 1 to %d",
                          group->name, n, group->size);
    for (int i = 0; status == TRAIN_OK && i < n; i++) {
        status = group_root (group, "subset", ranks[i], err);
        for (int k = 0; status == TRAIN_OK && k < i; k++) {
            if (ranks[k] == ranks[i])
                status =
                    err_set (err, TRAIN_EINVAL,
                             "subset: rank %d stands there twice", ranks[i]);
        }
        if (status == TRAIN_OK && ranks[i] == group->rank)
            wish = (struct wish){.colour = 0, .key = i};
    }
    if (status != TRAIN_OK)
        return status;
    wish.list = XXH3_64bits (ranks, (size_t)n * sizeof (*ranks));
    return make_wish (group, &wish, name, ret_group, err);
}
