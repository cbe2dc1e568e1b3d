/* SPDX-License-Identifier: Apache-2.0
 * cluster_limits.c - the limits of a snapshot
 *
 * What "scontrol show assoc_mgr" shows. A limit of the QOS goes before one of
 * the same kind of the association, as slurm.conf(5) and sacctmgr(1) say. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster_limits.h"

#include <pwd.h>
#include <slurm/slurm.h>
#include <slurm/slurmdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ENFORCE_LIMITS 0x2 /* of AccountingStorageEnforce */
#define DEPTH_MAX      32  /* accounts above each other */

struct look {
    const assoc_mgr_info_msg_t *msg;
    const slurmdb_assoc_rec_t *user; /* the association */
    const slurmdb_qos_rec_t *qos;    /* NULL = not known */
    uint32_t gpu;                    /* index of the TRES; tres_cnt = none */
    const char *type;                /* of it: "" of gres/gpu itself */
    json_t *limits;
};

static bool is_limit (uint64_t value)
{
    return value != NO_VAL64 && value != INFINITE64;
}

static bool is_count (uint32_t value)
{
    return value != NO_VAL && value != INFINITE;
}

static bool is_gpus (enum limit_kind kind)
{
    return kind == LIMIT_GPUS || kind == LIMIT_GPUS_JOB;
}

static bool put (struct look *l, enum limit_kind kind, const char *what,
                 const char *name, const char *each, uint64_t most,
                 uint64_t used)
{
    json_array_append_new (
        l->limits, json_pack ("[i, s++, s, I, I, s]", (int)kind, what, " ",
                              name ? name : "?", each, (json_int_t)most,
                              (json_int_t)used, is_gpus (kind) ? l->type : ""));
    return true;
}

/* GPUs of an array of TRES; false where there is no such limit. */
static bool gpus_of (const struct look *l, const uint64_t *tres, uint64_t *ret)
{
    if (!tres || l->gpu >= l->msg->tres_cnt || !is_limit (tres[l->gpu]))
        return false;
    *ret = tres[l->gpu];
    return true;
}

static uint64_t used_gpus (const struct look *l, const uint64_t *tres)
{
    uint64_t used = 0;

    return gpus_of (l, tres, &used) ? used : 0;
}

/* What this user, or this account, uses of the QOS. */
static const slurmdb_used_limits_t *used_of (const struct look *l, bool user)
{
    struct xlist *list =
        user ? l->qos->usage->user_limit_list : l->qos->usage->acct_limit_list;
    const slurmdb_used_limits_t *used = NULL, *one;
    struct listIterator *it = list ? slurm_list_iterator_create (list) : NULL;

    while (it && !used && (one = slurm_list_next (it)))
        if (user ? one->uid == getuid ()
                 : one->acct && !strcasecmp (one->acct, l->user->acct))
            used = one;
    if (it)
        slurm_list_iterator_destroy (it);
    return used;
}

/* The QOS's own of this TRES; [had] tells the kinds that it has. */
static void put_qos_gpus (struct look *l, bool had[LIMIT_SUBMIT + 1])
{
    const slurmdb_qos_rec_t *q = l->qos;
    const slurmdb_used_limits_t *me = used_of (l, true);
    const slurmdb_used_limits_t *acct = used_of (l, false);
    uint64_t most;

    if (gpus_of (l, q->max_tres_pj_ctld, &most))
        had[LIMIT_GPUS_JOB] =
            put (l, LIMIT_GPUS_JOB, "qos", q->name, "a job", most, 0);
    if (gpus_of (l, q->max_tres_pu_ctld, &most))
        put (l, LIMIT_GPUS, "qos", q->name, "a user", most,
             me ? used_gpus (l, me->tres) : 0);
    if (gpus_of (l, q->max_tres_pa_ctld, &most))
        put (l, LIMIT_GPUS, "qos", q->name, "an account", most,
             acct ? used_gpus (l, acct->tres) : 0);
    if (gpus_of (l, q->grp_tres_ctld, &most))
        had[LIMIT_GPUS] = put (l, LIMIT_GPUS, "qos", q->name, "in all", most,
                               used_gpus (l, q->usage->grp_used_tres));
}

/* The QOS's own of the rest. */
static void put_qos (struct look *l, bool had[LIMIT_SUBMIT + 1])
{
    const slurmdb_qos_rec_t *q = l->qos;
    const slurmdb_used_limits_t *me = used_of (l, true);

    if (is_count (q->max_wall_pj))
        had[LIMIT_WALL] = put (l, LIMIT_WALL, "qos", q->name, "a job",
                               (uint64_t)q->max_wall_pj * 60, 0);
    if (is_count (q->max_jobs_pu))
        had[LIMIT_JOBS] = put (l, LIMIT_JOBS, "qos", q->name, "a user",
                               q->max_jobs_pu, me ? me->jobs : 0);
    if (is_count (q->grp_jobs))
        put (l, LIMIT_JOBS, "qos", q->name, "in all", q->grp_jobs,
             q->usage->grp_used_jobs);
    if (is_count (q->max_submit_jobs_pu))
        had[LIMIT_SUBMIT] =
            put (l, LIMIT_SUBMIT, "qos", q->name, "a user",
                 q->max_submit_jobs_pu, me ? me->submit_jobs : 0);
    if (is_count (q->grp_submit_jobs))
        put (l, LIMIT_SUBMIT, "qos", q->name, "in all", q->grp_submit_jobs,
             q->usage->grp_used_submit_jobs);
}

static void put_group_gpus (struct look *l, const slurmdb_assoc_rec_t *a,
                            const bool had[LIMIT_SUBMIT + 1])
{
    uint64_t most;

    if (a->usage && !had[LIMIT_GPUS] && gpus_of (l, a->grp_tres_ctld, &most))
        put (l, LIMIT_GPUS, "account", a->acct, "in all", most,
             used_gpus (l, a->usage->grp_used_tres));
}

static void put_group (struct look *l, const slurmdb_assoc_rec_t *a)
{
    if (!a->usage)
        return;
    if (is_count (a->grp_jobs))
        put (l, LIMIT_JOBS, "account", a->acct, "in all", a->grp_jobs,
             a->usage->used_jobs);
    if (is_count (a->grp_submit_jobs))
        put (l, LIMIT_SUBMIT, "account", a->acct, "in all", a->grp_submit_jobs,
             a->usage->used_submit_jobs);
}

/* The association's own; they hold for the user in this account. */
static void put_user (struct look *l, const bool had[LIMIT_SUBMIT + 1])
{
    const slurmdb_assoc_rec_t *a = l->user;

    if (!had[LIMIT_WALL] && is_count (a->max_wall_pj))
        put (l, LIMIT_WALL, "account", a->acct, "a job",
             (uint64_t)a->max_wall_pj * 60, 0);
    if (!a->usage)
        return;
    if (!had[LIMIT_JOBS] && is_count (a->max_jobs))
        put (l, LIMIT_JOBS, "account", a->acct, "a user", a->max_jobs,
             a->usage->used_jobs);
    if (!had[LIMIT_SUBMIT] && is_count (a->max_submit_jobs))
        put (l, LIMIT_SUBMIT, "account", a->acct, "a user", a->max_submit_jobs,
             a->usage->used_submit_jobs);
}

/* The association of [user] (NULL = the account's own) in [acct]. */
static const slurmdb_assoc_rec_t *find_assoc (const assoc_mgr_info_msg_t *msg,
                                              const char *acct,
                                              const char *user)
{
    struct listIterator *it =
        msg->assoc_list ? slurm_list_iterator_create (msg->assoc_list) : NULL;
    const slurmdb_assoc_rec_t *a, *found = NULL;

    while (it && !found && (a = slurm_list_next (it))) {
        bool mine =
            user ? a->user && !strcmp (a->user, user) : !a->user || !a->user[0];

        if (mine && (!a->partition || !a->partition[0])
            && (acct ? a->acct && !strcasecmp (a->acct, acct) : a->is_def != 0))
            found = a;
    }
    if (it)
        slurm_list_iterator_destroy (it);
    return found;
}

static const slurmdb_qos_rec_t *find_qos (const struct look *l,
                                          const char *name)
{
    struct listIterator *it =
        l->msg->qos_list ? slurm_list_iterator_create (l->msg->qos_list) : NULL;
    const slurmdb_qos_rec_t *q, *found = NULL;
    uint32_t id = l->user->def_qos_id;

    while (it && !found && (q = slurm_list_next (it)))
        if (name                  ? q->name && !strcasecmp (q->name, name)
            : is_count (id) && id ? q->id == id
                                  : q->name && !strcmp (q->name, "normal"))
            found = q;
    if (it)
        slurm_list_iterator_destroy (it);
    return found && found->usage ? found : NULL;
}

/* The most GPUs that a job of this QOS may have. */
static uint64_t most_gpus (const struct look *l, const slurmdb_qos_rec_t *q)
{
    const uint64_t *all[] = {q->max_tres_pj_ctld, q->max_tres_pu_ctld,
                             q->max_tres_pa_ctld, q->grp_tres_ctld};
    uint64_t most = UINT64_MAX, one;

    for (size_t i = 0; i < sizeof (all) / sizeof (all[0]); i++)
        if (gpus_of (l, all[i], &one) && one < most)
            most = one;
    return most;
}

/* Those of the association's list, as ids or names. */
static bool may_use (const slurmdb_assoc_rec_t *a, const slurmdb_qos_rec_t *q)
{
    struct listIterator *it =
        a->qos_list ? slurm_list_iterator_create (a->qos_list) : NULL;
    const char *word;
    bool found = false;

    while (it && !found && (word = slurm_list_next (it))) {
        char *end;
        unsigned long id = strtoul (word, &end, 10);

        found = *word && !*end ? id == q->id : !strcasecmp (word, q->name);
    }
    if (it)
        slurm_list_iterator_destroy (it);
    return found;
}

static json_t *other_qos (const struct look *l)
{
    struct listIterator *it =
        l->msg->qos_list ? slurm_list_iterator_create (l->msg->qos_list) : NULL;
    const slurmdb_qos_rec_t *q;
    json_t *list = json_array ();

    while (it && (q = slurm_list_next (it))) {
        uint64_t most = most_gpus (l, q);

        if (q != l->qos && q->name && may_use (l->user, q))
            json_array_append_new (list, json_pack ("[s, I]", q->name,
                                                    most > INT64_MAX
                                                        ? (json_int_t)-1
                                                        : (json_int_t)most));
    }
    if (it)
        slurm_list_iterator_destroy (it);
    return list;
}

/* The association of the account above [a]; NULL at the top. */
static const slurmdb_assoc_rec_t *above (const struct look *l,
                                         const slurmdb_assoc_rec_t *a)
{
    const char *acct = a == l->user ? a->acct : a->parent_acct;

    return acct && acct[0] ? find_assoc (l->msg, acct, NULL) : NULL;
}

/* All limits on the TRES at l->gpu. */
static void put_gpus (struct look *l)
{
    const slurmdb_assoc_rec_t *a = l->user;
    bool had[LIMIT_SUBMIT + 1] = {false};
    uint64_t most;

    if (l->qos)
        put_qos_gpus (l, had);
    if (!had[LIMIT_GPUS_JOB] && gpus_of (l, a->max_tres_ctld, &most))
        put (l, LIMIT_GPUS_JOB, "account", a->acct, "a job", most, 0);
    for (int i = 0; a && i < DEPTH_MAX; i++, a = above (l, a))
        put_group_gpus (l, a, had);
}

/* gres/gpu, "" in [ret], or gres/gpu:TYPE. */
static bool is_gpu (const char *tres, const char **ret)
{
    static const char name[] = "gres/gpu";
    size_t n = sizeof (name) - 1;

    if (!tres || strncmp (tres, name, n) || (tres[n] && tres[n] != ':'))
        return false;
    *ret = tres + n + (tres[n] == ':');
    return true;
}

static json_t *pack (struct look *l)
{
    bool had[LIMIT_SUBMIT + 1] = {false};
    const slurmdb_assoc_rec_t *a = l->user;
    json_t *others;

    l->limits = json_array ();
    if (l->qos)
        put_qos (l, had);
    put_user (l, had);
    for (int i = 0; a && i < DEPTH_MAX; i++, a = above (l, a))
        put_group (l, a);
    for (l->gpu = 0; l->gpu < l->msg->tres_cnt; l->gpu++)
        if (is_gpu (l->msg->tres_names[l->gpu], &l->type))
            put_gpus (l);
    /* What other QOS allow is told of GPUs of any type. */
    for (l->gpu = 0; l->gpu < l->msg->tres_cnt; l->gpu++)
        if (is_gpu (l->msg->tres_names[l->gpu], &l->type) && !l->type[0])
            break;
    others = other_qos (l);
    return json_pack ("[o, o]", l->limits, others);
}

json_t *cluster_limits_ask (const struct cluster_as *as, unsigned enforce)
{
    assoc_mgr_info_request_msg_t ask = {.flags = ASSOC_MGR_INFO_FLAG_ASSOC
                                                 | ASSOC_MGR_INFO_FLAG_USERS
                                                 | ASSOC_MGR_INFO_FLAG_QOS};
    const struct passwd *pw = getpwuid (getuid ());
    assoc_mgr_info_msg_t *msg = NULL;
    struct look l = {.msg = NULL};

    if (!(enforce & ENFORCE_LIMITS) || !pw
        || slurm_load_assoc_mgr_info (&ask, &msg) || !msg)
        return NULL;
    l.msg = msg;
    l.user = find_assoc (msg, as->account, pw->pw_name);
    if (!l.user)
        return NULL;
    l.qos = find_qos (&l, as->qos);
    return pack (&l);
}

static int read_limit (const json_t *json, struct limit *l)
{
    const char *holder, *each, *type;
    json_int_t most, used;
    int kind;

    if (json_unpack ((json_t *)json, "[i, s, s, I, I, s]", &kind, &holder,
                     &each, &most, &used, &type)
        || kind < 0 || kind > LIMIT_SUBMIT)
        return RV_EFORMAT;
    *l = (struct limit){(enum limit_kind)kind, strdup (holder), strdup (each),
                        (uint64_t)most,        (uint64_t)used,  strdup (type)};
    return l->holder && l->each && l->type ? RV_OK : RV_ENOMEM;
}

static int read_qos (const json_t *json, struct limit_qos *q)
{
    const char *name;
    json_int_t most;

    if (json_unpack ((json_t *)json, "[s, I]", &name, &most))
        return RV_EFORMAT;
    q->gpus = most < 0 ? UINT64_MAX : (uint64_t)most;
    q->name = strdup (name);
    return q->name ? RV_OK : RV_ENOMEM;
}

int cluster_limits_read (const json_t *json, struct limits *ret,
                         struct rv_error *err)
{
    const json_t *limits = json_array_get (json, 0);
    const json_t *qos = json_array_get (json, 1);
    int rc = RV_OK;

    memset (ret, 0, sizeof (*ret));
    ret->limit = calloc (json_array_size (limits) + 1, sizeof (*ret->limit));
    ret->qos = calloc (json_array_size (qos) + 1, sizeof (*ret->qos));
    if (!ret->limit || !ret->qos)
        rc = RV_ENOMEM;
    for (size_t i = 0; !rc && i < json_array_size (limits); i++)
        rc = read_limit (json_array_get (limits, i), &ret->limit[ret->n++]);
    for (size_t i = 0; !rc && i < json_array_size (qos); i++)
        rc = read_qos (json_array_get (qos, i), &ret->qos[ret->n_qos++]);
    return rc ? error_set (err, rc, "a limit's record is malformed") : RV_OK;
}
