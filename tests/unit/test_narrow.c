/* SPDX-License-Identifier: Apache-2.0
 * test_narrow.c - what -x, -w and --reservation leave of a cluster */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/narrow.h"
#include "plan/plans.h"

#define NOW   1000000
#define NODES 4

/* Nodes n1 and n2 of 4 a100, n3 and n4 of 4 v100, one partition. All that
 * strategy_cluster_fini frees is malloc'ed. */
struct site {
    struct strategy_cluster c;
    struct strategy_request req;
    struct plans plans;
    struct rv_error err;
};

static int setup (void **state)
{
    struct site *s = calloc (1, sizeof (*s));
    struct strategy_cluster *c = &s->c;

    c->now_s = NOW;
    c->n_nodes = NODES;
    c->node = calloc (NODES, sizeof (*c->node));
    c->n_parts = 1;
    c->part = calloc (1, sizeof (*c->part));
    c->part[0] =
        (struct strategy_partition){.name = strdup ("gpu"),
                                    .up = true,
                                    .is_default = true,
                                    .max_time_s = STRATEGY_UNLIMITED,
                                    .node = calloc (NODES, sizeof (uint32_t)),
                                    .n_nodes = NODES};
    c->job = calloc (4, sizeof (*c->job));
    c->resv = calloc (2, sizeof (*c->resv));
    for (uint32_t i = 0; i < NODES; i++) {
        const char *gres = i < 2 ? "gpu:a100:4" : "gpu:v100:4";

        c->part[0].node[i] = i;
        c->node[i] = (struct strategy_node){
            .name = strdup ((char[]){'n', (char)('1' + i), '\0'}),
            .cpus = 8,
            .threads = 1,
            .mem_mb = 1000,
            .usable = true};
        assert_int_equal (gres_parse (gres, &c->node[i].gres, NULL), RV_OK);
    }
    s->req = (struct strategy_request){.gpus = 4, .time_s = 3600};
    *state = s;
    return 0;
}

static int teardown (void **state)
{
    struct site *s = *state;

    plans_fini (&s->plans);
    strategy_cluster_fini (&s->c);
    free (s);
    return 0;
}

/* A waiting job of four GPUs of [type] for two hours. */
static struct strategy_job *waits (struct site *s, const char *type)
{
    struct strategy_job *job = &s->c.job[s->c.n_jobs++];

    *job = (struct strategy_job){.job_id = (uint32_t)s->c.n_jobs,
                                 .nodes = 1,
                                 .gpus = 4,
                                 .cpus = 4,
                                 .type = strdup (type),
                                 .partition = strdup ("gpu"),
                                 .time_s = 7200};
    return job;
}

/* Node n2 from now + 600 to now + 6000. */
static void reserve (struct site *s, const char *name)
{
    struct strategy_reservation *resv = &s->c.resv[s->c.n_resv++];

    *resv = (struct strategy_reservation){.start_s = NOW + 600,
                                          .end_s = NOW + 6000,
                                          .node = calloc (1, sizeof (uint32_t)),
                                          .n_nodes = 1,
                                          .name = name ? strdup (name) : NULL};
    resv->node[0] = 1;
}

static const struct plans_item *plan (struct site *s)
{
    plans_fini (&s->plans);
    if (plan_strategies (&s->c, &s->req, &s->plans, &s->err))
        fail_msg ("%s", s->err.text);
    return &s->plans.item[0];
}

static void excluded (void **state)
{
    struct site *s = *state;

    /* what is none of its nodes changes nothing */
    narrow_exclude (&s->c, "n[");
    narrow_exclude (&s->c, "n9,/etc/hosts");
    for (int i = 0; i < NODES; i++)
        assert_false (s->c.node[i].left_out);
    narrow_exclude (&s->c, "n[1-2]");
    assert_string_equal (plan (s)->plan.type, "v100");
    assert_int_equal (plan (s)->start_s, NOW);
    s->req.type = "a100";
    assert_int_equal (plan_strategies (&s->c, &s->req, &s->plans, &s->err),
                      RV_ENOTFOUND);
    assert_string_equal (s->err.text,
                         "there is no GPU type 'a100'; there is v100 (8 in "
                         "all, 4 a node)");
}

/* Jobs that wait go where the request may not: it need not wait for them. */
static void others_use_what_is_left_out (void **state)
{
    struct site *s = *state;

    waits (s, "v100");
    narrow_exclude (&s->c, "n[1-2]");
    assert_int_equal (plan (s)->start_s, NOW);
    narrow_exclude (&s->c, "n3");
    waits (s, "v100");
    assert_int_equal (plan (s)->start_s, NOW + 7200);
}

static void listed (void **state)
{
    static const struct {
        const char *list;
        uint32_t gpus, nodes, nodes_then;
        bool done;
        const char *why;
    } v[] = {
        {"n3", 4, 0, 1, true, NULL},
        {"n[3-4]", 4, 0, 2, true, NULL},
        {"n4,n3,n4", 4, 2, 2, true, NULL},
        {"n3", 4, 2, 2, false, NULL},
        {"n[3-4]", 0, 0, 2, true, NULL},
        {"n9", 4, 0, 0, false, NULL},
        {"n3,n9", 4, 0, 0, false, NULL},
        {"/tmp/nodes", 4, 0, 0, false, NULL},
        {"n[1-3]", 6, 2, 2, false,
         "--nodelist names 3 nodes, of which a job has all, and the job has 2; "
         "--nodes=3 would work"},
        {"n[1-3]", 1, 0, 0, false,
         "--nodelist names 3 nodes, of which a job has all, and 1 GPU does not "
         "go evenly on them; -g 3 would work"},
        {"n[1-3]", 4, 0, 0, false,
         "--nodelist names 3 nodes, of which a job has all, and 4 GPUs do not "
         "go evenly on them; -g 6 would work"},
    };
    struct site *s = *state;

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        uint32_t nodes = v[i].nodes;
        bool done = true, some = false;
        int status = narrow_nodelist (&s->c, v[i].list, v[i].gpus, &nodes,
                                      &done, &s->err);

        if (status != (v[i].why ? RV_EINVAL : RV_OK) || done != v[i].done
            || nodes != v[i].nodes_then)
            fail_msg ("%s: status %d, done %d, %u nodes", v[i].list, status,
                      done, nodes);
        if (v[i].why)
            assert_string_equal (s->err.text, v[i].why);
        for (int n = 0; n < NODES; n++) {
            some = some || s->c.node[n].left_out;
            s->c.node[n].left_out = false;
        }
        assert_int_equal (some, v[i].done);
    }
}

static void all_of_the_list (void **state)
{
    struct site *s = *state;
    bool done;

    s->req.nodes = 0;
    assert_int_equal (narrow_nodelist (&s->c, "n[3-4]", s->req.gpus,
                                       &s->req.nodes, &done, NULL),
                      RV_OK);
    assert_int_equal (plan (s)->plan.nodes, 2);
    assert_int_equal (plan (s)->plan.gpus_per_node, 2);
    assert_string_equal (plan (s)->plan.type, "v100");
    assert_int_equal (plan (s)->start_s, NOW);
}

static void inside_a_reservation (void **state)
{
    struct site *s = *state;

    reserve (s, "night");
    assert_false (narrow_reservation (&s->c, "day"));
    assert_true (narrow_reservation (&s->c, "night"));
    /* not before it, and only on its node */
    assert_string_equal (plan (s)->plan.type, "a100");
    assert_int_equal (plan (s)->start_s, NOW + 600);
    s->req.time_s = 5400;
    assert_int_equal (plan (s)->start_s, NOW + 600);
    /* not beyond it */
    s->req.time_s = 5401;
    assert_int_equal (plan (s)->known, PLANS_NEVER);
    /* whoever waits for other nodes is not in the way, one inside is */
    s->req.time_s = 1800;
    waits (s, "a100");
    waits (s, "a100");
    assert_int_equal (plan (s)->start_s, NOW + 600);
    waits (s, "a100")->resv = strdup ("night");
    s->c.job[2].time_s = 3600;
    assert_int_equal (plan (s)->start_s, NOW + 4200);
}

static void outside_a_reservation (void **state)
{
    struct site *s = *state;

    reserve (s, NULL);
    assert_false (narrow_reservation (&s->c, "night"));
    s->req.type = "a100";
    waits (s, "a100")->resv = strdup ("night");
    assert_int_equal (plan (s)->start_s, NOW);
    waits (s, "a100");
    assert_int_equal (plan (s)->start_s, NOW + 6000);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (excluded, setup, teardown),
        cmocka_unit_test_setup_teardown (others_use_what_is_left_out, setup,
                                         teardown),
        cmocka_unit_test_setup_teardown (listed, setup, teardown),
        cmocka_unit_test_setup_teardown (all_of_the_list, setup, teardown),
        cmocka_unit_test_setup_teardown (inside_a_reservation, setup, teardown),
        cmocka_unit_test_setup_teardown (outside_a_reservation, setup,
                                         teardown),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
