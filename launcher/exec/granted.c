/* SPDX-License-Identifier: Apache-2.0
 * granted.c - what a job was given, beside what its request asked for */
#include "config.h"

#include "exec/granted.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "exec/log.h"
#include "jobfile.h"
#include "plan/gres.h"
#include "plan/hostlist.h"
#include "proc.h"

#define ASK_MS 10000

/* One line "Nodes=n[1-2] CPU_IDs=0-1 Mem=100 GRES=gpu:a100:2(IDX:0-1)": each of
 * these nodes has that. */
struct line {
    char nodes[100], gres[512];
    uint32_t n_nodes, cpus, gpus;
    uint64_t mem_mb;      /* 0: not counted */
    char type[64];        /* of its GPUs; "" = without */
    bool mixed, all_cpus; /* two types; CPUs not told */
};

/* The word behind [key] on this line, [ret_len] long and of any length; an empty
 * one where there is none. */
static const char *word_at (const char *line, const char *key, size_t *ret_len)
{
    const char *end = line + strcspn (line, "\n"), *at = strstr (line, key);

    at = at && at < end ? at + strlen (key) : end;
    *ret_len = strcspn (at, " \n");
    return at;
}

/* The same into [buf], for messages: what does not fit is cut. */
static void word_of (const char *line, const char *key, char *buf, size_t size)
{
    size_t len;
    const char *at = word_at (line, key, &len);

    snprintf (buf, size, "%.*s", (int)len, at);
}

/* How many numbers "0-3,8" names. */
static uint32_t count_ids (const char *text)
{
    uint32_t n = 0;

    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long from = strtoul (text, &end, 10), to = from;

        if (*end == '-')
            to = strtoul (end + 1, &end, 10);
        n += to >= from && to - from < 1000000 ? (uint32_t)(to - from + 1) : 0;
        text = end + (*end == ',');
    }
    return n;
}

/* "gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2)": commas stand within brackets too. */
static void read_gres (struct line *l)
{
    const char *at = l->gres;

    while (*at) {
        size_t n = strcspn (at, "(,");
        struct gres_list list;
        char entry[200];

        snprintf (entry, sizeof (entry), "%.*s", (int)n, at);
        at += n;
        if (*at == '(') {
            at += strcspn (at, ")");
            at += *at == ')';
        }
        at += *at == ',';
        if (gres_parse (entry, &list, NULL) != RV_OK)
            continue;
        for (size_t i = 0; i < list.n; i++) {
            const struct gres_entry *e = &list.entry[i];

            if (strcmp (e->name, "gpu") || !e->count)
                continue;
            l->mixed = l->mixed || (l->gpus && strcasecmp (l->type, e->type));
            l->gpus += (uint32_t)e->count;
            snprintf (l->type, sizeof (l->type), "%s", e->type);
        }
        gres_fini (&list);
    }
}

/* How many nodes the line is of. A job of hundreds that lie apart has a list of
 * thousands of bytes. */
static int count_nodes (const char *text, uint32_t *ret, struct rv_error *err)
{
    struct hostlist hosts = {0};
    size_t len;
    const char *at = word_at (text, "Nodes=", &len);
    char *list = strndup (at, len);
    int rc = list ? hostlist_parse (list, &hosts, err)
                  : error_set (err, RV_ENOMEM, "out of memory");

    free (list);
    *ret = (uint32_t)hosts.n;
    hostlist_fini (&hosts);
    return rc;
}

static int read_line (const char *text, struct line *l, struct rv_error *err)
{
    char mem[40];
    size_t len;

    *l = (struct line){0};
    word_of (text, "Nodes=", l->nodes, sizeof (l->nodes));
    word_of (text, " Mem=", mem, sizeof (mem));
    word_of (text, " GRES=", l->gres, sizeof (l->gres));
    l->cpus = count_ids (word_at (text, " CPU_IDs=", &len));
    l->all_cpus = l->cpus == 0;
    l->mem_mb = strtoull (mem, NULL, 10);
    read_gres (l);
    return count_nodes (text, &l->n_nodes, err);
}

/* The first line of a node's at or after [text]; NULL = none. */
static const char *next_line (const char *text)
{
    for (; *text; text += *text == '\n') {
        text += strspn (text, " \t");
        if (!strncmp (text, "Nodes=", 6) && strstr (text, " CPU_IDs="))
            return text;
        text += strcspn (text, "\n");
    }
    return NULL;
}

static int fewer (const struct line *l, const char *what, uint64_t asked,
                  uint64_t given, const char *unit, struct rv_error *err)
{
    return error_set (err, RV_EMISMATCH,
                      "asked for %" PRIu64 "%s%s a node and given %" PRIu64
                      "%s on %s",
                      asked, unit, what, given, unit, l->nodes);
}

static int compare_line (const struct line *l, const struct exec_request *q,
                         struct rv_error *err)
{
    uint32_t gpus = q->nodes ? q->gpus / q->nodes : 0;
    uint32_t cpus = q->cpus_per_task * q->tasks_per_node;
    uint64_t mem_mb = q->mem_bytes >> 20;

    if (l->gpus < gpus)
        return fewer (l, gpus == 1 ? " GPU" : " GPUs", gpus, l->gpus, "", err);
    if (gpus && q->gpu_type && *l->type && strcasecmp (q->gpu_type, l->type)
        && !gres_is_mig (l->type))
        return error_set (err, RV_EMISMATCH,
                          "asked for type %s and given %s on %s", q->gpu_type,
                          l->type, l->nodes);
    if (gpus && l->mixed)
        return error_set (err, RV_EMISMATCH,
                          "given GPUs of several types on %s: %s", l->nodes,
                          l->gres);
    if (!l->all_cpus && l->cpus < cpus)
        return fewer (l, cpus == 1 ? " CPU" : " CPUs", cpus, l->cpus, "", err);
    if (l->mem_mb && l->mem_mb < mem_mb)
        return fewer (l, " of memory", mem_mb, l->mem_mb, "M", err);
    return RV_OK;
}

/* A job that ends, or is put back into the queue, has fewer nodes from one
 * moment to the next: each is given back when it is clean. */
static bool shows_running (const char *show)
{
    const char *state = strstr (show, " JobState=");

    return state && !strncmp (state, " JobState=RUNNING ", 18);
}

int granted_compare (const char *show, const struct exec_request *q, char *ret,
                     size_t size, struct rv_error *err)
{
    char type[64] = "";
    uint32_t nodes = 0;
    size_t at = 0;
    struct line l;
    int rc = RV_OK;

    ret[0] = '\0';
    if (!shows_running (show))
        return error_set (err, RV_EFORMAT, "the job does not run any more");
    for (const char *p = show; rc == RV_OK && (p = next_line (p)); p++) {
        if ((rc = read_line (p, &l, err)) != RV_OK) {
            error_prefix (err, "scontrol's nodes");
            return rc;
        }
        nodes += l.n_nodes;
        rc = compare_line (&l, q, err);
        if (rc != RV_OK || !q->gpus || !l.gpus)
            continue;
        if (*type && strcasecmp (type, l.type))
            rc = error_set (err, RV_EMISMATCH,
                            "given %s on one node and %s on %s", type, l.type,
                            l.nodes);
        snprintf (type, sizeof (type), "%s", l.type);
        if (at < size)
            at += (size_t)snprintf (ret + at, size - at, "%s%u %s on %s",
                                    at ? ", " : "", l.gpus,
                                    *l.type ? l.type : "GPUs", l.nodes);
    }
    if (rc == RV_OK && nodes == 0)
        return error_set (err, RV_EFORMAT, "scontrol tells of no node");
    if (rc == RV_OK && nodes != q->nodes)
        rc = error_set (err, RV_EMISMATCH, "asked for %u node%s and given %u",
                        q->nodes, q->nodes == 1 ? "" : "s", nodes);
    return rc;
}

int granted_check (const struct exec_request *q, uint32_t job_id,
                   struct rv_error *err)
{
    const char *array = getenv ("SLURM_ARRAY_JOB_ID"),
               *task = getenv ("SLURM_ARRAY_TASK_ID");
    char id[24], given[512];
    char *const argv[] = {"scontrol", "show", "job", "--details", id, NULL};
    struct proc_opts opts = {.deadline_ms = ASK_MS};
    struct rv_error why = {0};
    struct proc_result r;
    int rc;

    /* The number alone may be that of all tasks of an array. */
    if (array && task)
        snprintf (id, sizeof (id), "%.10s_%.10s", array, task);
    else
        snprintf (id, sizeof (id), "%u", job_id);
    if (!(rc = proc_run (argv, &opts, &r, &why))) {
        if (r.status)
            rc = error_set (&why, RV_EIO, "scontrol: %.200s",
                            *r.err ? r.err : "failed");
        else
            rc = granted_compare (r.out, q, given, sizeof (given), &why);
        proc_result_fini (&r);
    }
    if (rc == RV_EMISMATCH) {
        return error_set (err, rc,
                          JOBFILE_NOT_GRANTED
                          "%s; a job_submit plugin or scontrol update "
                          "changed the request: ask for what the site gives",
                          why.text);
    }
    if (rc) {
        why.text[strcspn (why.text, "\n")] = '\0';
        log_line (LOG_WARN,
                  "what was granted is not compared with what was asked: %s",
                  why.text);
    } else if (*given && !q->gpu_type && !strstr (given, " GPUs on "))
        log_line (LOG_WARN, "granted %s", given);
    return RV_OK;
}
