/* SPDX-License-Identifier: Apache-2.0
 * conf.c - rv doctor: does rv.conf speak of partitions and GPUs that are there?
 *
 * What it says wrongly a user learns at the submission alone, and of a section
 * that nobody's request meets, never. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "doctor/doctor.h"
#include "plan/conf.h"
#include "plan/gres.h"

struct findings {
    const struct doctor_site *site;
    char text[300];
    bool defaults; /* of a finding that all requests meet */
    size_t n;
};

static void note (struct findings *f, const char *where, const char *name,
                  const char *what, const char *value)
{
    size_t used = strlen (f->text);

    f->n++;
    f->defaults = f->defaults || !strcmp (where, "defaults");
    snprintf (f->text + used, sizeof (f->text) - used, "%s[%s%s%s] %s '%s'",
              used ? "; " : "", where, name ? " " : "", name ? name : "", what,
              value);
}

static bool has_partition (const struct doctor_site *site, const char *name)
{
    for (size_t i = 0; i < site->n_parts; i++)
        if (!strcmp (site->part[i].name, name))
            return true;
    return false;
}

static void look_at_partitions (struct findings *f, const char *where,
                                const char *name, const char *list)
{
    char **item = NULL;
    size_t n = 0;

    if (!list || conf_split (list, &item, &n, NULL) != RV_OK)
        return;
    for (size_t i = 0; i < n; i++)
        if (!has_partition (f->site, item[i]))
            note (f, where, name, "names no partition that is up:", item[i]);
    conf_split_free (item);
}

/* Has any node such a GPU, or slice? An empty type is any. */
static bool has_type (const struct doctor_site *site, const char *type)
{
    bool found = false;

    for (size_t i = 0; i < site->n_nodes && !found; i++) {
        struct gres_list list = {0};

        if (!site->node[i].gres
            || gres_parse (site->node[i].gres, &list, NULL) != RV_OK)
            continue;
        for (size_t k = 0; k < list.n; k++)
            found =
                found
                || (!strcmp (list.entry[k].name, "gpu") && list.entry[k].count
                    && (!*type || !strcasecmp (list.entry[k].type, type)));
        gres_fini (&list);
    }
    return found;
}

/* [gres] is "gpu:a100"; NULL is "gpu:" and the section's own name. */
static void look_at_gres (struct findings *f, const char *where,
                          const char *name, const char *gres)
{
    struct gres_list list = {0};
    bool there;

    if (!gres)
        there = has_type (f->site, name);
    else if (gres_parse (gres, &list, NULL) == RV_OK && list.n == 1
             && !strcmp (list.entry[0].name, "gpu"))
        there = has_type (f->site, list.entry[0].type);
    else
        there = true; /* another kind of resource: Slurm judges it */
    gres_fini (&list);
    if (!there)
        note (f, where, name,
              "asks for a gres that no node has:", gres ? gres : name);
}

void doctor_conf (struct doctor_check *check, const struct site_conf *conf,
                  const struct doctor_site *site)
{
    struct findings f = {.site = site};

    check->name = "rv_conf";
    look_at_partitions (&f, "defaults", NULL, conf->partition);
    if (conf->type && !site_conf_gpu (conf, conf->type)
        && !site_conf_mig (conf, conf->type) && !has_type (site, conf->type))
        note (&f, "defaults", NULL,
              "asks for a type that no node has:", conf->type);
    for (size_t i = 0; i < conf->n_gpu; i++) {
        const struct site_gpu *gpu = &conf->gpu[i];

        look_at_gres (&f, "gpu", gpu->type, gpu->gres);
        look_at_partitions (&f, "gpu", gpu->type, gpu->partition);
    }
    for (size_t i = 0; i < conf->n_mig; i++) {
        const struct site_mig *mig = &conf->mig[i];

        look_at_gres (&f, "mig", mig->profile, mig->gres);
        look_at_partitions (&f, "mig", mig->profile, mig->partition);
    }
    if (f.n)
        doctor_set (check, f.defaults ? DOCTOR_FAIL : DOCTOR_WARN,
                    "'sinfo -o \"%P %a %G\"' shows what there is; see "
                    "rv.conf(5)",
                    "rv.conf: %s", f.text);
    else
        doctor_set (check, DOCTOR_OK, NULL,
                    "what rv.conf names is there: %zu types, %zu profiles",
                    conf->n_gpu, conf->n_mig);
}
