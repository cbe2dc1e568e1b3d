/* SPDX-License-Identifier: Apache-2.0
 * conf_impl.h - the two halves of conf: reading lines, and taking values. */
#ifndef RV_PLAN_CONF_IMPL_H
#define RV_PLAN_CONF_IMPL_H

#include "plan/conf.h"

/* What the caller of conf_read declared. */
struct conf_spec {
    const struct conf_key *keys;
    size_t n;
    void *target;
    conf_sink_f sink;
    void *sink_arg;
};

/* A section's name cut into its word and its argument. */
struct conf_section {
    char word[64];
    char arg[64]; /* "" when there is none */
};

/* conf_is_text - does a value of this type lie in a malloc'ed char *? */
static inline bool conf_is_text (enum conf_type type)
{
    return type == CONF_STRING || type == CONF_LIST || type == CONF_PATH;
}

/* conf_section_find - split the name of a section and look it up.
 * RV_EINVAL with the nearest section when no key has it. */
int conf_section_find (const struct conf_spec *spec, const char *name,
                       struct conf_section *ret, struct rv_error *err);

/* conf_apply - take one value: look the key up, check it, store it or hand it
 * to the sink. Text of errors has no place in front. */
int conf_apply (const struct conf_spec *spec,
                const struct conf_section *section, const char *key,
                const char *value, struct rv_error *err);

#endif
