/* SPDX-License-Identifier: Apache-2.0
 * site.c - the site's rv.conf, in client processes only
 *
 * libplan reads INI files through inih. Linked, it would be loaded into slurmd
 * and slurmstepd, and slurmd would not start where it is missing; so the one
 * function that is needed is looked up when a client reads the file. */
#include "config.h"

#include "site.h"

#include <dlfcn.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"
#include "plan/conf.h"
#include "plan/gres.h"

#define INIH "libinih.so.1"

typedef int (*parse_f) (ini_reader, void *, ini_handler, void *);

static parse_f parse; /* of inih, once loaded */

/* In the place of inih's own; this module's alone, as no symbol of it is
 * exported. */
int ini_parse_stream (ini_reader reader, void *stream, ini_handler handler,
                      void *user)
{
    return parse (reader, stream, handler, user);
}

static int load_inih (struct rv_error *err)
{
    void *lib;

    if (parse)
        return RV_OK;
    lib = dlopen (INIH, RTLD_NOW | RTLD_LOCAL);
    if (lib)
        nvml_find (lib, "ini_parse_stream", &parse);
    if (!parse)
        return error_set (err, RV_ENOTFOUND, "%s; install inih", dlerror ());
    return RV_OK;
}

int site_load (const char *path, struct site_conf *ret, struct rv_error *err)
{
    const char *name = path ? path : site_conf_site_path ();
    int fd, rc;

    site_conf_init (ret);
    rc = conf_open_trusted (name, &fd, err);
    if (rc == RV_ENOTFOUND && !path)
        return RV_OK;
    if (rc)
        return rc;
    rc = load_inih (err);
    if (rc == RV_OK)
        rc = site_conf_read_site (ret, fd, name, err);
    close (fd);
    if (rc)
        site_conf_fini (ret);
    return rc;
}

/* type_of - "1g.10gb" of "gpu:1g.10gb"; "" for none. */
static void type_of (const char *gres, char type[GRES_NAME_MAX])
{
    struct gres_list list;

    type[0] = '\0';
    if (!gres || gres_parse (gres, &list, NULL))
        return;
    if (list.n == 1)
        memcpy (type, list.entry[0].type, GRES_NAME_MAX);
    gres_fini (&list);
}

void site_gpu_type (const struct site_gpu *gpu, char type[GRES_NAME_MAX])
{
    if (gpu->gres)
        type_of (gpu->gres, type);
    else
        snprintf (type, GRES_NAME_MAX, "%s", gpu->type);
}

struct mig_rule *site_mig_rules (const struct site_conf *conf, size_t *ret_n)
{
    size_t n = conf->n_mig;
    struct mig_rule *rules;

    *ret_n = 0;
    rules = n ? calloc (n, sizeof (*rules) + GRES_NAME_MAX) : NULL;
    if (!rules)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        char *type = (char *)(rules + n) + i * GRES_NAME_MAX;

        type_of (conf->mig[i].gres, type);
        rules[i] = (struct mig_rule){
            .profile = conf->mig[i].profile,
            .type = type,
            .max_per_job = conf->mig[i].max_per_job,
            .partition = conf->mig[i].partition,
        };
    }
    *ret_n = n;
    return rules;
}
