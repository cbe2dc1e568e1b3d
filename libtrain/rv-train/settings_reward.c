/* SPDX-License-Identifier: Apache-2.0
 * settings_reward.c - keys of [reward NAME], and which kind has which */
#include "settings_reward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/conf_impl.h"

#include "settings.h"

#define AT(field) offsetof (struct settings_reward, field)

static const struct conf_key keys[] = {
    {"reward", "kind", CONF_CHOICE, AT (kind), 0, 0,
     "exact,regex,length,arithmetic,program"},
    {"reward", "weight", CONF_DOUBLE, AT (weight), -1e6, 1e6, NULL},
    {"reward", "field", CONF_STRING, AT (field), 0, 0, NULL},
    {"reward", "marker", CONF_STRING, AT (marker), 0, 0, NULL},
    {"reward", "pattern", CONF_STRING, AT (pattern), 0, 0, NULL},
    {"reward", "min", CONF_INT, AT (min), 0, 1e9, NULL},
    {"reward", "max", CONF_INT, AT (max), 1, 1e9, NULL},
    {"reward", "soft", CONF_INT, AT (soft), 0, 1e9, NULL},
    {"reward", "program", CONF_STRING, AT (program), 0, 0, NULL},
    {"reward", "processes", CONF_INT, AT (processes), 1, 256, NULL},
    {"reward", "timeout", CONF_DURATION, AT (timeout), 1, 864e5, NULL},
    {"reward", "start", CONF_DURATION, AT (start), 1, 864e5, NULL},
    {"reward", "max_faults", CONF_INT, AT (max_faults), 1, 1e6, NULL},
};

#define N_KEYS (sizeof (keys) / sizeof (*keys))

static struct settings_reward *find (struct settings_rewards *all,
                                     const char *name)
{
    struct settings_reward *more, *one;

    for (size_t i = 0; i < all->n; i++)
        if (strcmp (all->list[i].name, name) == 0)
            return &all->list[i];
    if (!(more = realloc (all->list, (all->n + 1) * sizeof (*more))))
        return NULL;
    all->list = more;
    one = &more[all->n];
    *one = (struct settings_reward){
        .name = strdup (name), .kind = -1, .weight = 1};
    if (!one->name)
        return NULL;
    all->n++;
    return one;
}

/* "field =" with nothing behind it unsets, so that an override can. */
static void unset_empty (struct settings_reward *r)
{
    char **text[] = {&r->field, &r->marker, &r->pattern, &r->program};

    for (size_t i = 0; i < sizeof (text) / sizeof (*text); i++)
        if (*text[i] && !**text[i]) {
            free (*text[i]);
            *text[i] = NULL;
        }
}

int settings_reward_set (struct settings_rewards *all, const char *name,
                         const char *key, const char *value,
                         struct rv_error *err)
{
    /* without the argument, or conf_apply would look for a sink */
    const struct conf_section section = {.word = "reward"};
    struct settings_reward *one = find (all, name);
    const struct conf_spec spec = {keys, N_KEYS, one, NULL, NULL};
    int rc;

    if (!one)
        return error_set (err, RV_ENOMEM, "no memory for a reward");
    if ((rc = conf_apply (&spec, &section, key, value, err)) == RV_OK)
        unset_empty (one);
    return rc;
}

static int refuse (const struct settings *set, const struct settings_reward *r,
                   const char *key, const char *why, struct rv_error *err)
{
    char where[512], section[80];

    snprintf (section, sizeof (section), "reward %.64s", r->name);
    return error_set (err, RV_EINVAL, "%s: %s",
                      settings_where (set, section, key, where, sizeof (where)),
                      why);
}

#define OF(kind)  (1u << TRAIN_REWARD_##kind)
#define TEXTS     (OF (EXACT) | OF (ARITHMETIC))
#define ALL_TEXTS (TEXTS | OF (REGEX))

static int check_one (const struct settings *set,
                      const struct settings_reward *r, struct rv_error *err)
{
    const struct {
        const char *key;
        bool given;
        unsigned kinds; /* that know it */
    } use[] = {
        {"field", r->field, ALL_TEXTS},
        {"marker", r->marker, TEXTS},
        {"pattern", r->pattern, OF (REGEX)},
        {"min", r->min, OF (LENGTH)},
        {"max", r->max, OF (LENGTH)},
        {"soft", r->soft, OF (LENGTH)},
        {"program", r->program, OF (PROGRAM)},
        {"processes", r->processes, OF (PROGRAM)},
        {"timeout", r->timeout, OF (PROGRAM)},
        {"start", r->start, OF (PROGRAM)},
        {"max_faults", r->max_faults, OF (PROGRAM)},
    };

    if (r->kind < 0)
        return refuse (set, r, "kind",
                       "is not set; exact, regex, length, arithmetic and "
                       "program work",
                       err);
    for (size_t i = 0; i < sizeof (use) / sizeof (*use); i++)
        if (use[i].given && !(use[i].kinds >> r->kind & 1))
            return refuse (set, r, use[i].key,
                           "is of no use to this kind; remove it", err);
    if (r->kind == TRAIN_REWARD_REGEX && !r->pattern)
        return refuse (set, r, "pattern", "is not set", err);
    if (r->kind == TRAIN_REWARD_PROGRAM && !r->program)
        return refuse (set, r, "program", "is not set", err);
    if (r->kind == TRAIN_REWARD_LENGTH && r->min == 0 && r->max == 0)
        return refuse (set, r, "max", "neither min nor max is set", err);
    if (r->max > 0 && r->min > r->max)
        return refuse (set, r, "min", "is above max", err);
    return RV_OK;
}

int settings_reward_check (const struct settings *set,
                           const struct settings_rewards *all,
                           struct rv_error *err)
{
    int rc = RV_OK;

    if (all->n > 0 && set->task != TASK_GRPO)
        return refuse (set, &all->list[0], "kind",
                       "rewards are of task = grpo alone; remove them", err);
    for (size_t i = 0; i < all->n && rc == RV_OK; i++)
        rc = check_one (set, &all->list[i], err);
    return rc;
}

void settings_reward_fini (struct settings_rewards *all)
{
    for (size_t i = 0; i < all->n; i++) {
        conf_free_strings (keys, N_KEYS, &all->list[i]);
        free (all->list[i].name);
    }
    free (all->list);
    *all = (struct settings_rewards){0};
}

train_reward_options_t settings_reward_options (const struct settings_reward *r)
{
    return (train_reward_options_t){
        .size = sizeof (train_reward_options_t),
        .name = r->name,
        .kind = (train_reward_kind_t)r->kind,
        .field = r->field,
        .marker = r->marker,
        .pattern = r->pattern,
        .min = r->min,
        .max = r->max,
        .soft = r->soft,
        .program = r->program,
        .processes = (int)r->processes,
        .timeout_ms = r->timeout,
        .start_ms = r->start,
        .max_faults = (int)r->max_faults,
    };
}
