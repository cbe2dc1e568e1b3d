/* SPDX-License-Identifier: Apache-2.0
 * run_plan.c - from the words of `rv run` and rv.conf to strategies */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "run_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/mig.h"
#include "plan/narrow.h"

#define SEGMENT_S 1800 /* the least that is worth a start of its own */

struct maker {
    const struct run_opts *opts;
    const struct settings *settings;
    const struct command *command;
    struct strategy_cluster *cluster;
    struct run_plan *out;
    const char *narrowed; /* the option that leaves nodes out; NULL */
};

/* What Slurm calls the type of a section: "gpu:a100" or the section's head. */
static const char *rule_type (const struct site_gpu *gpu)
{
    if (!gpu->gres || strncmp (gpu->gres, "gpu", 3))
        return gpu->type;
    return gpu->gres[3] == ':' ? gpu->gres + 4 : "";
}

static int make_rules (struct maker *m, struct rv_error *err)
{
    const struct site_conf *conf = &m->settings->conf;

    m->out->rules = calloc (conf->n_gpu + 2, sizeof (*m->out->rules));
    if (!m->out->rules)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < conf->n_gpu; i++) {
        const struct site_gpu *gpu = &conf->gpu[i];
        struct strategy_rule *rule = &m->out->rules[i];

        rule->label = gpu->type;
        rule->type = rule_type (gpu);
        rule->partition = gpu->partition;
        rule->constraint = gpu->constraint;
        if (gpu->max_per_job > 0)
            rule->max_per_job = (uint32_t)gpu->max_per_job;
        if (gpu->max_per_user > 0)
            rule->max_per_user = (uint32_t)gpu->max_per_user;
        if (gpu->cpus_per_gpu > 0)
            rule->cpus_per_gpu = (uint32_t)gpu->cpus_per_gpu;
        if (gpu->mem_per_gpu_bytes > 0)
            rule->mem_per_gpu_mb = (uint64_t)gpu->mem_per_gpu_bytes / 1048576;
        if (gpu->vram_bytes > 0)
            rule->vram_mb = (uint64_t)gpu->vram_bytes / 1048576;
        rule->cost = gpu->cost;
    }
    m->cluster->rule = m->out->rules;
    m->cluster->n_rules = conf->n_gpu;
    return RV_OK;
}

static void offers_free (struct node_offer *offers, size_t n)
{
    for (size_t i = 0; offers && i < n; i++)
        free ((char *)offers[i].gres);
    free (offers);
}

/* The slices of each node, as Slurm writes them. */
static struct node_offer *offers_make (const struct strategy_cluster *c)
{
    struct node_offer *offers = calloc (c->n_nodes + 1, sizeof (*offers));

    for (size_t i = 0; offers && i < c->n_nodes; i++) {
        const struct gres_list *gres = &c->node[i].gres;
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream (&text, &size);

        for (size_t j = 0; f && j < gres->n && !c->node[i].left_out; j++)
            if (!strcmp (gres->entry[j].name, "gpu")
                && gres_is_mig (gres->entry[j].type))
                fprintf (f, "%sgpu:%s:%llu", ftell (f) ? "," : "",
                         gres->entry[j].type,
                         (unsigned long long)gres->entry[j].count);
        if (!f || fclose (f)) {
            offers_free (offers, i);
            return NULL;
        }
        offers[i] = (struct node_offer){text, 1};
    }
    return offers;
}

static void add_slice_rule (struct maker *m, const struct site_mig *mig)
{
    m->out->rules[m->cluster->n_rules++] = (struct strategy_rule){
        .label = mig->profile,
        .type = m->out->slices,
        .partition = mig->partition,
        .vram_mb =
            mig->vram_bytes > 0 ? (uint64_t)mig->vram_bytes / 1048576 : 0,
        .cost = mig->cost,
    };
}

/* What rv.conf says of profiles, as mig_resolve takes it; NULL when out of
 * memory. */
static struct mig_rule *slice_rules (const struct site_conf *conf)
{
    struct mig_rule *rules = calloc (conf->n_mig + 1, sizeof (*rules));

    for (size_t i = 0; rules && i < conf->n_mig; i++)
        rules[i] = (struct mig_rule){
            .profile = conf->mig[i].profile,
            .type = conf->mig[i].gres && !strncmp (conf->mig[i].gres, "gpu:", 4)
                        ? conf->mig[i].gres + 4
                        : "",
            .max_per_job = conf->mig[i].max_per_job,
            .partition = conf->mig[i].partition,
        };
    return rules;
}

/* find_slices - the type of the slices, where some are asked for, and what
 * rv.conf says of it. */
static int find_slices (struct maker *m, uint32_t count, struct rv_error *err)
{
    const struct run_opts *o = m->opts;
    const struct site_conf *conf = &m->settings->conf;
    const char *type = o->mig    ? (o->mig_profile ? o->mig_profile : "")
                       : o->type ? o->type
                                 : conf->type;
    struct mig_rule *rules;
    struct node_offer *offers;
    struct mig_request req = {.count = count};
    struct mig_choice choice;
    int rc = RV_OK;

    if (count == 0 || (!o->mig && !gres_is_mig (type)))
        return RV_OK;
    if ((rc = mig_parse (type, &req, err)))
        return rc;
    req.count = count;
    rules = slice_rules (conf);
    offers = offers_make (m->cluster);
    if (!rules || !offers)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    else
        rc = mig_resolve (&req, offers, m->cluster->n_nodes, rules, conf->n_mig,
                          &choice, err);
    if (rc == RV_OK) {
        memcpy (m->out->slices, choice.type, sizeof (m->out->slices));
        if (choice.rule)
            add_slice_rule (m, site_conf_mig (conf, choice.rule->profile));
    }
    offers_free (offers, m->cluster->n_nodes);
    free (rules);
    return rc;
}

/* A process of CUDA uses one slice, and a launcher's are Slurm's one task. */
static int check_slices (const struct maker *m, struct rv_error *err)
{
    const struct strategy_plan *p = &m->out->plans.item[0].plan;

    if (!m->out->slices[0] || p->tasks_per_node == p->gpus_per_node)
        return RV_OK;
    return error_set (err, RV_EINVAL,
                      "%u slices for %u task%s a node, and each task uses one; "
                      "run the program without its launcher, ask for -g 1, or "
                      "for whole GPUs",
                      p->gpus_per_node, p->tasks_per_node,
                      p->tasks_per_node == 1 ? "" : "s");
}

/* The last option of this name that goes to sbatch as it is; NULL = none. */
static const struct run_slurm_opt *handed_on (const struct run_opts *opts,
                                              const char *name)
{
    const struct run_slurm_opt *found = NULL;

    for (size_t i = 0; i < opts->slurm.n; i++)
        if (opts->slurm.opt[i].name && !strcmp (opts->slurm.opt[i].name, name))
            found = &opts->slurm.opt[i];
    return found;
}

/* The value of an option that goes to sbatch as it is; NULL = not given. */
static const char *value_of (const struct maker *m, const char *name)
{
    const struct run_slurm_opt *opt = handed_on (m->opts, name);

    return opt ? opt->value : NULL;
}

/* The GPUs a node and the nodes alone tell how many it wants. */
static bool gpus_by_nodes (const struct maker *m)
{
    return !m->opts->gpus_given && m->command->nproc
           && m->command->launch == COMMAND_PER_NODE;
}

/* Leave of the cluster what -x, -w and --reservation leave. What the snapshot
 * cannot tell of makes the start unforeseen. */
static int narrow (struct maker *m, struct strategy_request *req,
                   struct rv_error *err)
{
    const char *exclude = value_of (m, "exclude");
    const char *nodelist = value_of (m, "nodelist");
    const char *reservation = value_of (m, "reservation");
    bool done = true;
    int status = RV_OK;

    if (handed_on (m->opts, "dependency"))
        req->unforeseen = "dependency";
    if (exclude)
        narrow_exclude (m->cluster, exclude);
    if (nodelist)
        status = narrow_nodelist (m->cluster, nodelist,
                                  gpus_by_nodes (m) ? 0 : req->gpus,
                                  &req->nodes, &done, err);
    if (!done)
        req->unforeseen = "nodelist";
    if (reservation && !narrow_reservation (m->cluster, reservation))
        req->unforeseen = "reservation";
    m->narrowed = nodelist && done ? "nodelist"
                  : reservation    ? "reservation"
                  : exclude        ? "exclude"
                                   : NULL;
    return status;
}

/* A job of segments may have shorter ones, where that lets it start earlier; but
 * not so short that it does little but write checkpoints. */
static void fill_limit (const struct maker *m, struct strategy_request *req)
{
    const struct checkpoint *c = &m->opts->checkpoint;
    int64_t least = SEGMENT_S;

    req->segments = c->signal != 0;
    req->time_min_s = m->opts->time_min_s;
    if (4 * (int64_t)c->seconds > least)
        least = 4 * (int64_t)c->seconds;
    if (req->segments && !req->time_min_s
        && (req->time_s == STRATEGY_UNLIMITED || least < req->time_s))
        req->time_min_s = least;
}

static void fill_request (const struct maker *m, struct strategy_request *req)
{
    const struct run_slurm_opt *alone = handed_on (m->opts, "exclusive");
    const struct run_opts *o = m->opts;
    const struct settings *s = m->settings;
    const struct command *c = m->command;
    const struct site_gpu *gpu;

    req->gpus = o->gpus_given ? o->gpus : s->gpus;
    req->type = o->type ? o->type : s->conf.type;
    req->vram_mb = ((uint64_t)o->vram_bytes + 1048575) / 1048576;
    /* A section of rv.conf, or an alias of one, stands for the type that Slurm
     * knows, on the nodes that the section means. */
    gpu = req->type ? site_conf_gpu (&s->conf, req->type) : NULL;
    if (gpu) {
        req->type = rule_type (gpu);
        req->rule = gpu->type;
    }
    req->partition = o->partition ? o->partition : s->conf.partition;
    req->time_fixed = o->time_given;
    req->time_s = o->time_given ? o->time_s : s->time_s;
    req->mem_bytes = o->mem_bytes ? o->mem_bytes : s->mem_bytes;
    req->launch = c->launch;
    req->nodes = o->nodes;
    fill_limit (m, req);
    req->constraint = o->slurm.constraint;
    req->exclusive = alone && !alone->value;
    if (c->launch != COMMAND_PER_NODE || req->gpus == 0)
        return;
    /* What the command says of itself holds where no option says it. */
    req->nproc = c->nproc;
    if (!req->nodes)
        req->nodes = c->nnodes;
    if (!req->nodes && c->tool == COMMAND_TORCHRUN
        && command_option (c, o->argv, "standalone"))
        req->nodes = 1;
}

int run_plan_make (const struct run_opts *opts, const struct settings *settings,
                   const struct command *command,
                   struct strategy_cluster *cluster, struct run_plan *ret,
                   struct rv_error *err)
{
    struct maker m = {opts, settings, command, cluster, ret, NULL};
    struct strategy_request req = {.gpus = 0};
    int status;

    memset (ret, 0, sizeof (*ret));
    if ((status = make_rules (&m, err)) == RV_OK) {
        fill_request (&m, &req);
        status = narrow (&m, &req, err);
        if (gpus_by_nodes (&m) && req.gpus)
            req.gpus = command->nproc * (req.nodes ? req.nodes : 1);
    }
    if (status == RV_OK)
        status = find_slices (&m, req.gpus, err);
    if (ret->slices[0]) {
        req.type = ret->slices;
        req.rule = NULL;
    }
    if (status == RV_OK)
        status = plan_strategies (cluster, &req, &ret->plans, err);
    if (status != RV_OK && m.narrowed)
        error_prefix (err, "with --%s", m.narrowed);
    if (status == RV_OK)
        status = check_slices (&m, err);
    if (status != RV_OK)
        run_plan_fini (ret);
    return status;
}

void run_plan_fini (struct run_plan *plan)
{
    if (!plan)
        return;
    plans_fini (&plan->plans);
    free (plan->rules);
    plan->rules = NULL;
}
