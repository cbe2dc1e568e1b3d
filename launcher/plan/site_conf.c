/* SPDX-License-Identifier: Apache-2.0
 * site_conf.c - rv.conf: the site's GPU types and defaults, the user's on top
 *
 * conf checks every value against one table of both files. Keys of [gpu TYPE]
 * and [mig PROFILE] come to a sink, which finds or makes the element of that
 * name and lets conf place the key in it by the same table without the name;
 * in the user's file the sink refuses them. */
#include "config.h"

#include "plan/site_conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "plan/conf_impl.h"
#include "plan/differ.h"
#include "plan/fanout.h"
#include "plan/fsio.h"
#include "plan/gres.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))
#define COUNT_MAX 1000000
#define COST_MAX  1e9
#define BYTES_MAX 1e18
#define WAIT_MAX  (7 * 86400e3) /* ms: no wait of a collective is a week */

/* One row a key: section, key, type, struct, field, least, most. */
#define KEY(section, key, type, in, field, lo, hi)                             \
    {                                                                          \
        section, key, type, offsetof (struct in, field), lo, hi, NULL          \
    }
#define GPU_KEYS(s)                                                            \
    KEY (s, "gres", CONF_STRING, site_gpu, gres, 0, 0),                        \
        KEY (s, "partition", CONF_LIST, site_gpu, partition, 0, 0),            \
        KEY (s, "constraint", CONF_STRING, site_gpu, constraint, 0, 0),        \
        KEY (s, "alias", CONF_LIST, site_gpu, alias, 0, 0),                    \
        KEY (s, "vram", CONF_SIZE, site_gpu, vram_bytes, 1, BYTES_MAX),        \
        KEY (s, "cost", CONF_DOUBLE, site_gpu, cost, 0, COST_MAX),             \
        KEY (s, "max_per_job", CONF_INT, site_gpu, max_per_job, 0, COUNT_MAX), \
        KEY (s, "max_per_user", CONF_INT, site_gpu, max_per_user, 0,           \
             COUNT_MAX),                                                       \
        KEY (s, "mem_per_gpu", CONF_SIZE, site_gpu, mem_per_gpu_bytes, 1,      \
             BYTES_MAX),                                                       \
        KEY (s, "cpus_per_gpu", CONF_INT, site_gpu, cpus_per_gpu, 1,           \
             COUNT_MAX)
#define MIG_KEYS(s)                                                            \
    KEY (s, "gres", CONF_STRING, site_mig, gres, 0, 0),                        \
        KEY (s, "partition", CONF_LIST, site_mig, partition, 0, 0),            \
        KEY (s, "vram", CONF_SIZE, site_mig, vram_bytes, 1, BYTES_MAX),        \
        KEY (s, "cost", CONF_DOUBLE, site_mig, cost, 0, COST_MAX),             \
        KEY (s, "max_per_job", CONF_INT, site_mig, max_per_job, 0, COUNT_MAX)

/* A default of an option of sbatch; its place among them. */
#define SLURM(key, type, i)                                                    \
    {                                                                          \
        "defaults", key, type,                                                 \
            offsetof (struct site_conf, slurm) + (i) * sizeof (char *), 0, 0,  \
            NULL                                                               \
    }

static const struct conf_key gpu_keys[] = {GPU_KEYS ("gpu")};
static const struct conf_key mig_keys[] = {MIG_KEYS ("mig")};
static const struct conf_key all_keys[] = {
    KEY ("defaults", "account", CONF_STRING, site_conf, account, 0, 0),
    KEY ("defaults", "qos", CONF_STRING, site_conf, qos, 0, 0),
    KEY ("defaults", "gpus", CONF_INT, site_conf, gpus, 0, COUNT_MAX),
    KEY ("defaults", "time", CONF_TIME, site_conf, time_s, 0, 0),
    KEY ("defaults", "mem", CONF_SIZE, site_conf, mem_bytes, 0, 0),
    KEY ("defaults", "type", CONF_STRING, site_conf, type, 0, 0),
    KEY ("defaults", "partition", CONF_LIST, site_conf, partition, 0, 0),
    KEY ("defaults", "state_dir", CONF_PATH, site_conf, state_dir, 0, 0),
    {"defaults", "fanout", CONF_CHOICE, offsetof (struct site_conf, fanout), 0,
     0, "off,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,on"},
    KEY ("defaults", "nccl_timeout", CONF_DURATION, site_conf, nccl_timeout_ms,
         1, WAIT_MAX),
    SLURM ("reservation", CONF_STRING, 0),
    SLURM ("exclude", CONF_LIST, 1),
    SLURM ("nodelist", CONF_LIST, 2),
    SLURM ("constraint", CONF_STRING, 3),
    SLURM ("dependency", CONF_STRING, 4),
    SLURM ("mail_type", CONF_LIST, 5),
    SLURM ("mail_user", CONF_STRING, 6),
    SLURM ("exclusive", CONF_STRING, 7),
    SLURM ("container_image", CONF_STRING, 8),
    SLURM ("container_mounts", CONF_LIST, 9),
    SLURM ("container_workdir", CONF_STRING, 10),
    SLURM ("container_name", CONF_STRING, 11),
    SLURM ("container_mount_home", CONF_STRING, 12),
    SLURM ("container_writable", CONF_STRING, 13),
    SLURM ("slurm", CONF_STRING, 14),
    KEY ("differ", "allow", CONF_LIST, site_conf, differ, 0, 0),
    {"env", "*", CONF_STRING, 0, 0, 0, NULL},
    GPU_KEYS ("gpu *"),
    MIG_KEYS ("mig *"),
};

_Static_assert(LENGTH (all_keys) <= 64, "site_conf.user has a bit for each");

struct reading {
    struct site_conf *conf;
    bool user;
};

void site_conf_init (struct site_conf *conf)
{
    *conf = (struct site_conf){
        .gpus = -1, .mem_bytes = -1, .fanout = -1, .nccl_timeout_ms = -1};
}

void site_conf_fini (struct site_conf *conf)
{
    if (!conf)
        return;
    conf_free_strings (all_keys, LENGTH (all_keys), conf);
    for (size_t i = 0; i < conf->n_gpu; i++) {
        conf_free_strings (gpu_keys, LENGTH (gpu_keys), &conf->gpu[i]);
        free (conf->gpu[i].type);
    }
    for (size_t i = 0; i < conf->n_mig; i++) {
        conf_free_strings (mig_keys, LENGTH (mig_keys), &conf->mig[i]);
        free (conf->mig[i].profile);
    }
    for (size_t i = 0; i < conf->n_env; i++) {
        free (conf->env[i].name);
        free (conf->env[i].value);
    }
    free (conf->gpu);
    free (conf->mig);
    free (conf->env);
    site_conf_init (conf);
}

/* Room for one more element of an array; NULL when out of memory. */
static void *grown (void *array, size_t n, size_t size)
{
    return realloc (array, (n + 1) * size);
}

/* A name that Slurm takes as a type, and that so far stands once. */
static int check_type (const char *section, const char *name,
                       struct rv_error *err)
{
    struct gres_list list;
    char text[80];
    bool good;

    snprintf (text, sizeof (text), "gpu:%s:1", name);
    good = gres_parse (text, &list, NULL) == 0 && list.n == 1
           && strcmp (list.entry[0].type, name) == 0;
    gres_fini (&list);
    if (!good)
        return error_set (err, RV_EINVAL, "[%s %s]: no type has that name",
                          section, name);
    return 0;
}

static int two_spellings (const char *section, const char *a, const char *b,
                          struct rv_error *err)
{
    return error_set (err, RV_EINVAL,
                      "[%s %s] and [%s %s] are the same to Slurm's users; keep "
                      "one",
                      section, a, section, b);
}

static int find_gpu (struct site_conf *conf, const char *type,
                     struct site_gpu **ret, struct rv_error *err)
{
    struct site_gpu *p;
    int rc;

    for (size_t i = 0; i < conf->n_gpu; i++) {
        *ret = &conf->gpu[i];
        if (strcmp (conf->gpu[i].type, type) == 0)
            return 0;
        if (strcasecmp (conf->gpu[i].type, type) == 0)
            return two_spellings ("gpu", conf->gpu[i].type, type, err);
    }
    if ((rc = check_type ("gpu", type, err)) != 0)
        return rc;
    if (!(p = grown (conf->gpu, conf->n_gpu, sizeof (*p))))
        return error_set (err, RV_ENOMEM, "out of memory");
    conf->gpu = p;
    p += conf->n_gpu;
    *p = (struct site_gpu){.vram_bytes = -1,
                           .cost = -1,
                           .max_per_job = -1,
                           .max_per_user = -1,
                           .mem_per_gpu_bytes = -1,
                           .cpus_per_gpu = -1};
    if (!(p->type = strdup (type)))
        return error_set (err, RV_ENOMEM, "out of memory");
    conf->n_gpu++;
    *ret = p;
    return 0;
}

static int find_mig (struct site_conf *conf, const char *profile,
                     struct site_mig **ret, struct rv_error *err)
{
    struct site_mig *p;
    int rc;

    for (size_t i = 0; i < conf->n_mig; i++) {
        *ret = &conf->mig[i];
        if (strcmp (conf->mig[i].profile, profile) == 0)
            return 0;
        if (strcasecmp (conf->mig[i].profile, profile) == 0)
            return two_spellings ("mig", conf->mig[i].profile, profile, err);
    }
    if ((rc = check_type ("mig", profile, err)) != 0)
        return rc;
    if (!gres_is_mig (profile))
        return error_set (err, RV_EINVAL,
                          "[mig %s]: not a MIG profile such as 1g.10gb",
                          profile);
    if (!(p = grown (conf->mig, conf->n_mig, sizeof (*p))))
        return error_set (err, RV_ENOMEM, "out of memory");
    conf->mig = p;
    p += conf->n_mig;
    *p = (struct site_mig){.vram_bytes = -1, .cost = -1, .max_per_job = -1};
    if (!(p->profile = strdup (profile)))
        return error_set (err, RV_ENOMEM, "out of memory");
    conf->n_mig++;
    *ret = p;
    return 0;
}

static bool is_variable (const char *name)
{
    size_t n = strspn (name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "abcdefghijklmnopqrstuvwxyz0123456789_");

    return n > 0 && !name[n] && (name[0] < '0' || name[0] > '9');
}

static int set_env (struct site_conf *conf, const char *name, const char *value,
                    struct rv_error *err)
{
    struct site_env *p;
    size_t i = 0;
    char *copy;

    if (!is_variable (name))
        return error_set (err, RV_EINVAL, "'%.64s' is not a variable's name",
                          name);
    if (!(copy = strdup (value)))
        return error_set (err, RV_ENOMEM, "out of memory");
    while (i < conf->n_env && strcmp (conf->env[i].name, name) != 0)
        i++;
    if (i < conf->n_env) {
        free (conf->env[i].value);
        conf->env[i].value = copy;
        return 0;
    }
    if ((p = grown (conf->env, i, sizeof (*p)))) {
        conf->env = p;
        p[i].value = copy;
        if ((p[i].name = strdup (name))) {
            conf->n_env++;
            return 0;
        }
    }
    free (copy);
    return error_set (err, RV_ENOMEM, "out of memory");
}

/* "gpu:a100" of a section: one kind of GPU, no more. */
static int check_gres (const char *text, struct rv_error *err)
{
    struct gres_list list;
    int rc = gres_parse (text, &list, err);

    if (rc == 0 && (list.n != 1 || strcmp (list.entry[0].name, "gpu") != 0))
        rc = error_set (err, RV_EINVAL,
                        "gres: '%.100s' is not one kind of GPU such as "
                        "gpu:a100",
                        text);
    gres_fini (&list);
    return rc;
}

/* conf_sink_f of both files. */
static int take (void *arg, const char *section, const char *section_arg,
                 const char *key, const char *value, struct rv_error *err)
{
    struct reading *r = arg;
    struct conf_section head = {.word = ""};
    struct conf_spec spec = {0};
    struct site_gpu *gpu = NULL;
    struct site_mig *mig = NULL;
    int rc;

    if (strcmp (section, "env") == 0)
        return set_env (r->conf, key, value, err);
    if (r->user)
        return error_set (err, RV_EINVAL,
                          "[%s %s] stands in the site's rv.conf alone", section,
                          section_arg);
    if (strcmp (key, "gres") == 0 && (rc = check_gres (value, err)) != 0)
        return rc;
    snprintf (head.word, sizeof (head.word), "%s", section);
    if (strcmp (section, "gpu") == 0) {
        rc = find_gpu (r->conf, section_arg, &gpu, err);
        spec = (struct conf_spec){gpu_keys, LENGTH (gpu_keys), gpu, NULL, NULL};
    } else {
        rc = find_mig (r->conf, section_arg, &mig, err);
        spec = (struct conf_spec){mig_keys, LENGTH (mig_keys), mig, NULL, NULL};
    }
    return rc ? rc : conf_apply (&spec, &head, key, value, err);
}

/* Is [word] an item of the list? Without case. */
static bool in_list (const char *list, const char *word)
{
    char **items;
    bool found = false;

    if (!list || conf_split (list, &items, NULL, NULL) != 0)
        return false;
    for (size_t i = 0; items[i]; i++)
        found = found || strcasecmp (items[i], word) == 0;
    conf_split_free (items);
    return found;
}

/* Every name of a GPU type leads to one section. */
static int check_aliases (const struct site_conf *conf, const char *name,
                          struct rv_error *err)
{
    for (size_t i = 0; i < conf->n_gpu; i++) {
        char **alias = NULL;
        int rc = 0;

        if (conf->gpu[i].alias)
            rc = conf_split (conf->gpu[i].alias, &alias, NULL, err);
        for (size_t k = 0; rc == 0 && alias && alias[k]; k++) {
            for (size_t j = 0; rc == 0 && j < conf->n_gpu; j++) {
                if (strcasecmp (alias[k], conf->gpu[j].type) == 0
                    || (j != i && in_list (conf->gpu[j].alias, alias[k])))
                    rc = error_set (err, RV_EINVAL,
                                    "%s: alias '%.64s' of [gpu %s] is also a "
                                    "name of [gpu %s]",
                                    name, alias[k], conf->gpu[i].type,
                                    conf->gpu[j].type);
            }
        }
        conf_split_free (alias);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* A name that nobody compares would let nothing differ. */
static int check_differ (const struct site_conf *conf, const char *name,
                         struct rv_error *err)
{
    int rc = differ_check (conf->differ, err);

    if (rc && err)
        error_prefix (err, "%s: [differ] allow", name);
    return rc;
}

int site_conf_read_site (struct site_conf *conf, int fd, const char *name,
                         struct rv_error *err)
{
    struct reading r = {conf, false};
    int rc;

    if (!conf)
        return error_set (err, RV_EINVAL, "site_conf_read_site: no conf");
    rc = conf_read_fd (fd, name, all_keys, LENGTH (all_keys), conf, take, &r,
                       err);
    rc = rc ? rc : check_aliases (conf, name, err);
    return rc ? rc : check_differ (conf, name, err);
}

/* The place of a text of [defaults]; NULL for another key. */
static char **default_text (struct site_conf *conf, const struct conf_key *k)
{
    if (!conf_is_text (k->type) || strcmp (k->section, "defaults") != 0)
        return NULL;
    return (char **)((char *)conf + k->offset);
}

int site_conf_read_user (struct site_conf *conf, int fd, const char *name,
                         struct rv_error *err)
{
    struct reading r = {conf, true};
    char *site[LENGTH (all_keys)] = {NULL}, **text;
    int rc;

    if (!conf)
        return error_set (err, RV_EINVAL, "site_conf_read_user: no conf");
    /* Put aside, so that what stands there afterwards is the user's. */
    for (size_t i = 0; i < LENGTH (all_keys); i++)
        if ((text = default_text (conf, &all_keys[i]))) {
            site[i] = *text;
            *text = NULL;
        }
    rc = conf_read_fd (fd, name, all_keys, LENGTH (all_keys), conf, take, &r,
                       err);
    for (size_t i = 0; i < LENGTH (all_keys); i++) {
        if (!(text = default_text (conf, &all_keys[i])))
            continue;
        if (*text) {
            conf->user |= 1ULL << i;
            free (site[i]);
        } else
            *text = site[i];
    }
    return rc ? rc : check_differ (conf, name, err);
}

static int load (struct site_conf *conf, const char *path,
                 int (*opener) (const char *, int *, struct rv_error *),
                 int (*read) (struct site_conf *, int, const char *,
                              struct rv_error *),
                 struct rv_error *err)
{
    int fd, rc;

    if (!path)
        return 0;
    rc = opener (path, &fd, err);
    if (rc)
        return rc == RV_ENOTFOUND ? 0 : rc;
    rc = read (conf, fd, path, err);
    close (fd);
    return rc;
}

int site_conf_load (struct site_conf *conf, const char *site, const char *user,
                    struct rv_error *err)
{
    int rc = load (conf, site, conf_open_trusted, site_conf_read_site, err);

    return rc ? rc : load (conf, user, conf_open, site_conf_read_user, err);
}

const char *site_conf_default (const struct site_conf *conf, const char *key,
                               bool *ret_user)
{
    for (size_t i = 0; i < LENGTH (all_keys); i++) {
        char **text = default_text ((struct site_conf *)conf, &all_keys[i]);

        if (!text || strcmp (all_keys[i].key, key) != 0)
            continue;
        if (ret_user)
            *ret_user = conf->user >> i & 1;
        return *text && **text ? *text : NULL;
    }
    return NULL;
}

/* $VARIABLE/tail where that is an absolute path, else $HOME/home_tail. */
static char *under (const char *variable, const char *tail,
                    const char *home_tail)
{
    const char *xdg = getenv (variable), *home = getenv ("HOME");

    if (xdg && *xdg == '/')
        return fsio_join (xdg, tail);
    return home && *home ? fsio_join (home, home_tail) : NULL;
}

char *site_conf_user_path (void)
{
    return under ("XDG_CONFIG_HOME", "rv/rv.conf", ".config/rv/rv.conf");
}

int site_conf_state_dir (const struct site_conf *conf, char **ret,
                         struct rv_error *err)
{
    const char *home = getenv ("HOME");
    const char *said = conf ? conf->state_dir : NULL;
    char *dir;

    if (!ret)
        return error_set (err, RV_EINVAL, "site_conf_state_dir: no result");
    if (!said)
        dir = under ("XDG_STATE_HOME", "rv", ".local/state/rv");
    else if (*said == '~')
        dir = home && *home ? fsio_join (home, said + 2) : NULL;
    else
        dir = strdup (said);
    if (!dir)
        return error_set (err, RV_ENOTFOUND,
                          "no folder for requests: HOME is not set; set HOME "
                          "or state_dir in rv.conf");
    *ret = dir;
    return 0;
}

unsigned site_conf_fanout (const struct site_conf *conf)
{
    _Static_assert(FANOUT_MOST == 16, "the choices of fanout end there");
    if (conf->fanout < 0)
        return FANOUT_DEFAULT;
    if (conf->fanout > FANOUT_MOST)
        return FANOUT_ON;
    return conf->fanout ? (unsigned)conf->fanout : 1;
}

const char *site_conf_site_path (void)
{
    return SYSCONFDIR "/rv/rv.conf";
}

const struct site_gpu *site_conf_gpu (const struct site_conf *conf,
                                      const char *type)
{
    for (size_t i = 0; conf && type && i < conf->n_gpu; i++) {
        if (strcasecmp (conf->gpu[i].type, type) == 0
            || in_list (conf->gpu[i].alias, type))
            return &conf->gpu[i];
    }
    return NULL;
}

const struct site_mig *site_conf_mig (const struct site_conf *conf,
                                      const char *profile)
{
    for (size_t i = 0; conf && profile && i < conf->n_mig; i++) {
        if (strcasecmp (conf->mig[i].profile, profile) == 0)
            return &conf->mig[i];
    }
    return NULL;
}
