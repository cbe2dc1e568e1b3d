/* SPDX-License-Identifier: Apache-2.0
 * plans_fold.c - one job for several partitions and several GPU types
 *
 * -p a,b is one job where every partition admits it, so only places that need
 * the same sbatch call but for the partition are joined, with the least CPUs
 * and memory of them. Several types are one job by --gres=gpu:K without a type
 * and features that tell the types apart: "a|b" on one node, "[a|b]" on
 * several, which Slurm then takes from one type (tried: "a|b" mixes them). That
 * holds only where each node that Slurm may take has one type, so the features
 * must exclude every other node. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "plan/feature.h"
#include "plan/plans_impl.h"

/* A type as people choose it: what Slurm calls it and rv.conf's section. */
struct kind {
    const char *type;
    const struct strategy_rule *rule;
    char feature[GRES_NAME_MAX]; /* of its nodes alone; "" = none is needed */
};

struct folding {
    const struct strategy_cluster *cluster;
    const struct strategy_request *req;
    struct plans_item item;
    struct kind kind[PLANS_MEMBERS];
    size_t n_kinds;
};

static bool named (const struct strategy_request *req)
{
    return req->partition && req->partition[0];
}

/* Do both need the same call, but for partition, type and constraint? */
static bool same_shape (const struct plans_item *a, const struct plans_item *b)
{
    const struct strategy_plan *x = &a->plan, *y = &b->plan;

    return x->nodes == y->nodes && x->gpus_per_node == y->gpus_per_node
           && x->tasks_per_node == y->tasks_per_node && x->time_s == y->time_s
           && (x->mem_mb == 0) == (y->mem_mb == 0);
}

static bool same_kind (const struct plans_item *a, const struct plans_item *b)
{
    return a->plan.rule == b->plan.rule
           && !strcasecmp (a->plan.type, b->plan.type);
}

/* A partition that may refuse the user must not stand in another's job. */
static bool joins (const struct folding *f, const struct plans_item *item)
{
    return named (f->req) || !item->member[0].part->on_request;
}

/* "a" and "b" become "a,b"; one that is there stays once. False when it does
 * not fit. */
static bool join_word (char *list, size_t size, const char *word, char with)
{
    size_t used = strlen (list), n = strlen (word);

    for (char *p = list; (p = strstr (p, word)); p++)
        if ((p == list || p[-1] == with) && (p[n] == '\0' || p[n] == with))
            return true;
    if (used + n + 2 > size)
        return false;
    snprintf (list + used, size - used, "%s%s", used ? (char[]){with, 0} : "",
              word);
    return true;
}

/* Take a place into the job. */
static bool join (struct folding *f, const struct plans_item *place)
{
    struct plans_item *item = &f->item;

    if (item->n_members == PLANS_MEMBERS
        || !join_word (item->partition, sizeof (item->partition),
                       place->member[0].part->name, ','))
        return false;
    item->member[item->n_members++] = place->member[0];
    if (place->plan.cpus_per_task < item->plan.cpus_per_task)
        item->plan.cpus_per_task = place->plan.cpus_per_task;
    if (place->plan.mem_mb < item->plan.mem_mb)
        item->plan.mem_mb = place->plan.mem_mb;
    if (item->cost < 0 || place->cost < 0)
        item->cost = -1;
    else if (place->cost > item->cost)
        item->cost = place->cost;
    return true;
}

/* Places of one type in several partitions. */
static void fold_partitions (struct folding *f, struct plans *plans, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct plans_item *first = &plans->item[i];
        bool seen = !joins (f, first);

        for (size_t j = 0; j < i && !seen; j++)
            seen = joins (f, &plans->item[j])
                   && same_shape (&plans->item[j], first)
                   && same_kind (&plans->item[j], first);
        if (seen)
            continue;
        f->item = *first;
        for (size_t j = i + 1; j < n; j++)
            if (joins (f, &plans->item[j])
                && same_shape (first, &plans->item[j])
                && same_kind (first, &plans->item[j]))
                join (f, &plans->item[j]);
        if (f->item.n_members > 1)
            plans_add (plans, &f->item);
    }
}

/* The one type of a node's GPUs; NULL when it has several. "" stands for none
 * at all in [ret_any]. */
static const char *one_type (const struct strategy_node *node, bool *ret_any)
{
    const char *type = NULL;

    *ret_any = false;
    for (size_t i = 0; i < node->gres.n && !node->left_out; i++) {
        const struct gres_entry *gres = &node->gres.entry[i];

        if (strcmp (gres->name, "gpu") || gres->count == 0)
            continue;
        if (*ret_any && (!type || strcasecmp (type, gres->type)))
            return NULL;
        *ret_any = true;
        type = gres->type;
    }
    return type;
}

/* The kind of a node; f->n_kinds for a node of another, or of several types. */
static size_t kind_of (const struct folding *f,
                       const struct strategy_node *node, bool *ret_any)
{
    const char *type = one_type (node, ret_any);
    size_t i = 0;

    while (type && i < f->n_kinds
           && (strcasecmp (f->kind[i].type, type)
               || (f->kind[i].rule
                   && !feature_match (f->kind[i].rule->constraint,
                                      node->features))))
        i++;
    return type ? i : f->n_kinds;
}

typedef bool (*node_f) (const struct folding *f,
                        const struct strategy_node *node, size_t kind,
                        const void *arg);

/* Does [ask] hold for every node with GPUs that the job's partitions have? */
static bool every_node (const struct folding *f, node_f ask, const void *arg)
{
    for (size_t m = 0; m < f->item.n_members; m++) {
        const struct strategy_partition *part = f->item.member[m].part;
        bool seen = false;

        for (size_t k = 0; k < m && !seen; k++)
            seen = f->item.member[k].part == part;
        for (size_t i = 0; i < part->n_nodes && !seen; i++) {
            const struct strategy_node *node = &f->cluster->node[part->node[i]];
            bool any;
            size_t kind = kind_of (f, node, &any);

            if (any && !ask (f, node, kind, arg))
                return false;
        }
    }
    return true;
}

static bool is_known (const struct folding *f, const struct strategy_node *node,
                      size_t kind, const void *arg)
{
    (void)node;
    (void)arg;
    return kind < f->n_kinds;
}

struct mark {
    size_t kind;
    const char *feature;
};

/* Has the node the feature where it is of the kind, and not otherwise? */
static bool is_marked (const struct folding *f,
                       const struct strategy_node *node, size_t kind,
                       const void *arg)
{
    const struct mark *mark = arg;

    (void)f;
    return feature_list_has (node->features, mark->feature,
                             strlen (mark->feature))
           == (kind == mark->kind);
}

static bool try_feature (struct folding *f, size_t kind, const char *feature,
                         size_t len)
{
    struct kind *k = &f->kind[kind];
    const struct mark mark = {kind, k->feature};

    if (len == 0 || len >= sizeof (k->feature))
        return false;
    memcpy (k->feature, feature, len);
    k->feature[len] = '\0';
    if (feature_is_word (k->feature) && every_node (f, is_marked, &mark))
        return true;
    k->feature[0] = '\0';
    return false;
}

/* The features of one node of the kind. */
static const char *features_of (const struct folding *f, size_t kind)
{
    for (size_t m = 0; m < f->item.n_members; m++) {
        const struct strategy_partition *part = f->item.member[m].part;

        for (size_t i = 0; i < part->n_nodes; i++) {
            bool any;

            if (kind_of (f, &f->cluster->node[part->node[i]], &any) == kind)
                return f->cluster->node[part->node[i]].features;
        }
    }
    return NULL;
}

/* A feature that tells the nodes of a kind from all others: rv.conf's, the
 * type's name, else any. */
static bool find_feature (struct folding *f, size_t kind)
{
    const struct kind *k = &f->kind[kind];
    const char *list = features_of (f, kind);

    if (k->rule && k->rule->constraint)
        return try_feature (f, kind, k->rule->constraint,
                            strlen (k->rule->constraint));
    if (try_feature (f, kind, k->type, strlen (k->type)))
        return true;
    for (const char *p = list; p && *p; p += *p == ',') {
        size_t n = strcspn (p, ",");

        if (try_feature (f, kind, p, n))
            return true;
        p += n;
    }
    return false;
}

/* rv.conf may keep a type to some partitions; in others its nodes could be
 * taken all the same. */
static bool rules_hold (const struct folding *f)
{
    for (size_t i = 0; i < f->n_kinds; i++)
        for (size_t m = 0; m < f->item.n_members; m++) {
            const struct strategy_rule *rule = f->kind[i].rule;
            const char *part = f->item.member[m].part->name;

            if (rule && rule->partition && !named (f->req)
                && !feature_list_has (rule->partition, part, strlen (part)))
                return false;
        }
    return true;
}

/* The words for -C; false when nothing tells the types apart. */
static bool make_constraint (struct folding *f)
{
    struct plans_item *item = &f->item;
    size_t size = sizeof (item->constraint) - 2; /* for the brackets */
    char words[sizeof (item->constraint)] = "";
    bool plain = item->plan.nodes == 1 && every_node (f, is_known, NULL);

    item->constraint[0] = '\0';
    for (size_t i = 0; i < f->n_kinds; i++)
        plain = plain && !(f->kind[i].rule && f->kind[i].rule->constraint);
    if (plain)
        return true;
    /* "[a|b]" and the user's own -C cannot stand in one -C. */
    if (f->req->constraint)
        return false;
    for (size_t i = 0; i < f->n_kinds; i++)
        if (!find_feature (f, i)
            || !join_word (words, size, f->kind[i].feature, '|'))
            return false;
    snprintf (item->constraint, sizeof (item->constraint), "%s%.*s%s",
              item->plan.nodes > 1 ? "[" : "", (int)size - 1, words,
              item->plan.nodes > 1 ? "]" : "");
    return true;
}

static void add_kind (struct folding *f, const struct plans_item *place)
{
    for (size_t i = 0; i < f->n_kinds; i++)
        if (f->kind[i].rule == place->plan.rule
            && !strcasecmp (f->kind[i].type, place->plan.type))
            return;
    f->kind[f->n_kinds++] =
        (struct kind){.type = place->plan.found_type, .rule = place->plan.rule};
    join_word (f->item.types, sizeof (f->item.types), place->types, '|');
}

/* Places of one shape in all their partitions and types. */
static void fold_types_of (struct folding *f, struct plans *plans, size_t n,
                           size_t first)
{
    f->item = plans->item[first];
    f->item.types[0] = '\0';
    f->n_kinds = 0;
    add_kind (f, &plans->item[first]);
    for (size_t j = first + 1; j < n; j++)
        if (joins (f, &plans->item[j])
            && same_shape (&plans->item[first], &plans->item[j])
            && f->n_kinds < PLANS_MEMBERS && join (f, &plans->item[j]))
            add_kind (f, &plans->item[j]);
    if (f->n_kinds < 2 || !rules_hold (f) || !make_constraint (f))
        return;
    f->item.n_types = f->n_kinds;
    f->item.plan.rule = NULL;
    /* Sections of one type may keep its name before the count. */
    for (size_t i = 1; i < f->n_kinds; i++)
        if (strcasecmp (f->kind[0].type, f->kind[i].type))
            f->item.plan.type[0] = '\0';
    plans_add (plans, &f->item);
}

static void fold_types (struct folding *f, struct plans *plans, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool seen = !joins (f, &plans->item[i]);

        for (size_t j = 0; j < i && !seen; j++)
            seen = joins (f, &plans->item[j])
                   && same_shape (&plans->item[j], &plans->item[i]);
        if (!seen)
            fold_types_of (f, plans, n, i);
    }
}

void plans_fold (const struct strategy_cluster *cluster,
                 const struct strategy_request *req, struct plans *plans,
                 size_t n)
{
    struct folding f = {.cluster = cluster, .req = req};

    fold_partitions (&f, plans, n);
    if (req->gpus && !req->rule)
        fold_types (&f, plans, n);
}
