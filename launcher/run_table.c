/* SPDX-License-Identifier: Apache-2.0
 * run_table.c - strategies for people, and for programs */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "run_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jsonout.h"
#include "plan/duration.h"

#define COLUMNS 7
#define DAY_S   86400

struct row {
    char cell[COLUMNS][128];
};

static const char *const heads[COLUMNS] = {
    "start", "nodes", "type", "partition", "limit", "cost", "why"};

/* "now", "14:20", "2026-11-30 14:20", in the user's own time. */
static void start_words (const struct plans_item *item, int64_t now_s,
                         char *buf, size_t size)
{
    time_t at = (time_t)item->start_s;
    struct tm tm;

    if (item->known == PLANS_UNKNOWN)
        snprintf (buf, size, "unknown");
    else if (item->known == PLANS_NEVER)
        snprintf (buf, size, "not foreseen");
    else if (item->start_s <= now_s)
        snprintf (buf, size, "now");
    else if (!localtime_r (&at, &tm)
             || !strftime (buf, size,
                           item->start_s - now_s < DAY_S ? "%H:%M"
                                                         : "%Y-%m-%d %H:%M",
                           &tm))
        snprintf (buf, size, "+%llds", (long long)(item->start_s - now_s));
}

static void limit_words (const struct plans_item *item, char *buf, size_t size)
{
    char most[32], least[32];

    duration_format_slurm (item->plan.time_s, most, sizeof (most));
    if (item->plan.time_min_s)
        snprintf (buf, size, "%s..%s",
                  duration_format_slurm (item->plan.time_min_s, least,
                                         sizeof (least)),
                  most);
    else
        snprintf (buf, size, "%s", most);
}

static void fill_row (const struct plans_item *item, int64_t now_s,
                      struct row *row)
{
    const struct strategy_plan *p = &item->plan;
    size_t size = sizeof (row->cell[0]);

    start_words (item, now_s, row->cell[0], size);
    snprintf (row->cell[1], size, "%u x %u", p->nodes, p->gpus_per_node);
    snprintf (row->cell[2], size, "%.127s",
              p->gpus == 0     ? "no GPU"
              : item->types[0] ? item->types
                               : "of no type");
    snprintf (row->cell[3], size, "%.127s", item->partition);
    limit_words (item, row->cell[4], size);
    if (item->cost < 0)
        snprintf (row->cell[5], size, "-");
    else
        snprintf (row->cell[5], size, "%.2f", item->cost);
    snprintf (row->cell[6], size, "%.100s%s", item->why,
              item->kind == PLANS_SEGMENTS ? "; in segments" : "");
}

static void print_rows (const struct row *rows, size_t n)
{
    int width[COLUMNS];

    for (int c = 0; c < COLUMNS; c++) {
        width[c] = (int)strlen (heads[c]);
        for (size_t i = 0; i < n; i++)
            if ((int)strlen (rows[i].cell[c]) > width[c])
                width[c] = (int)strlen (rows[i].cell[c]);
    }
    printf ("   #");
    for (int c = 0; c < COLUMNS; c++)
        printf ("  %-*s", c + 1 < COLUMNS ? width[c] : 0, heads[c]);
    putchar ('\n');
    for (size_t i = 0; i < n; i++) {
        printf ("  %2zu", i + 1);
        for (int c = 0; c < COLUMNS; c++)
            printf ("  %-*s", c + 1 < COLUMNS ? width[c] : 0, rows[i].cell[c]);
        putchar ('\n');
    }
}

void run_table_print (const struct plans *plans, int64_t now_s)
{
    struct row *rows = calloc (plans->n, sizeof (*rows));
    char buf[32];

    if (!rows)
        return;
    for (size_t i = 0; i < plans->n; i++)
        fill_row (&plans->item[i], now_s, &rows[i]);
    printf ("strategies, of which the first is submitted:\n");
    print_rows (rows, plans->n);
    free (rows);
    if (plans->dominated + plans->beyond)
        printf ("      %zu more are no better in anything, %zu are too many\n",
                plans->dominated, plans->beyond);
    if (plans->now_if_s)
        printf ("note       with --time=%s or less it could start now\n",
                duration_format_slurm (plans->now_if_s, buf, sizeof (buf)));
}

/* The words of "a,b". */
static json_t *split (const char *list, char at)
{
    json_t *array = json_array ();

    for (const char *p = list; *p; p += *p == at) {
        const char *end = strchr (p, at);
        size_t n = end ? (size_t)(end - p) : strlen (p);

        json_array_append_new (array, json_stringn (p, n));
        p += n;
    }
    return array;
}

static json_t *item_json (const struct plans_item *item, int64_t now_s,
                          const struct fanout *choice, size_t i)
{
    static const char *const kinds[] = {"direct", "backfill", "segments"};
    static const char *const known[] = {"at", "unknown", "never"};
    bool submit = choice->fate[i] == FANOUT_SUBMIT;
    const struct strategy_plan *p = &item->plan;
    bool at = item->known == PLANS_AT;

    return json_pack (
        "{s:s, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, "
        "s:o, s:I, s:o, s:I, s:s, s:b, s:o}",
        "kind", kinds[item->kind], "start", known[item->known], "start_at",
        at ? jsonout_time (item->start_s) : json_null (), "wait_s",
        at ? json_integer (item->start_s > now_s ? item->start_s - now_s : 0)
           : json_null (),
        "fits_now", item->fits_now, "cost",
        item->cost < 0 ? json_null () : json_real (item->cost), "partitions",
        split (item->partition, ','), "gpu_types", split (item->types, '|'),
        "constraint",
        item->constraint[0] ? jsonout_text (item->constraint) : json_null (),
        "gpus", (json_int_t)p->gpus, "nodes", (json_int_t)p->nodes,
        "gpus_per_node", (json_int_t)p->gpus_per_node, "cpus_per_task",
        (json_int_t)p->cpus_per_task, "mem_bytes",
        p->mem_mb ? json_integer ((json_int_t)p->mem_mb * 1024 * 1024)
                  : json_null (),
        "time_s", (json_int_t)p->time_s, "time_min_s",
        p->time_min_s ? json_integer (p->time_min_s) : json_null (),
        "jobs_before", (json_int_t)item->waiting, "why", item->why, "submit",
        submit, "not_submitted",
        submit ? json_null () : jsonout_text (choice->why[i]));
}

json_t *run_table_json (const struct plans *plans,
                        const struct strategy_cluster *cluster,
                        const struct fanout *choice)
{
    json_t *list = json_array ();
    size_t running = 0;

    for (size_t i = 0; i < plans->n; i++)
        json_array_append_new (
            list, item_json (&plans->item[i], cluster->now_s, choice, i));
    for (size_t i = 0; i < cluster->n_jobs; i++)
        running += cluster->job[i].running;
    return json_pack (
        "{s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "strategies", list, "no_fanout",
        choice->alone[0] ? jsonout_text (choice->alone) : json_null (),
        "dominated", (json_int_t)plans->dominated, "beyond",
        (json_int_t)plans->beyond, "now_if_time_s",
        plans->now_if_s ? json_integer (plans->now_if_s) : json_null (),
        "jobs_running",
        cluster->jobs_hidden ? json_null ()
                             : json_integer ((json_int_t)running),
        "jobs_waiting",
        cluster->jobs_hidden
            ? json_null ()
            : json_integer ((json_int_t)(cluster->n_jobs - running)));
}
