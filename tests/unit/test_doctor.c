/* SPDX-License-Identifier: Apache-2.0
 * test_doctor.c - what rv doctor makes of what it found */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "doctor/doctor.h"
#include "plan/fsio.h"
#include "version.h"

#define EXEC RV_VERSION_LINE ("rv-exec")

static void releases (void **state)
{
    (void)state;
    assert_true (doctor_same_release ("22.05.8", "22.05.8"));
    assert_true (doctor_same_release ("22.05.8", "22.05.11"));
    assert_true (doctor_same_release ("22.05", "22.05.0-rc1"));
    assert_true (doctor_same_release ("22.05.8", "22.05-pre1"));
    assert_false (doctor_same_release ("22.05.8", "22.5.8"));
    assert_false (doctor_same_release ("22.05.8", "22.051"));
    assert_false (doctor_same_release ("22.05.8", "23.02.1"));
    assert_false (doctor_same_release ("none", "none"));
    assert_false (doctor_same_release ("22.", "22."));
    assert_false (doctor_same_release ("22.05", ""));
}

/* A site of nodes n1 and n2, both idle. */
static struct doctor_site *site_new (void)
{
    struct doctor_site *site = calloc (1, sizeof (*site));

    assert_non_null (site);
    site->n_nodes = 2;
    site->node = calloc (2, sizeof (*site->node));
    assert_non_null (site->node);
    for (size_t i = 0; i < 2; i++)
        site->node[i] = (struct doctor_node){
            .name = strdup (i ? "n2" : "n1"),
            .slurm = strdup (RV_SLURM_VERSION),
            .slurm_state = "idle",
            .idle = true,
            .picked = true,
            .state = DOCTOR_UNKNOWN,
        };
    return site;
}

static void site_free (struct doctor_site *site)
{
    doctor_site_fini (site);
    free (site);
}

static void take (struct doctor_site *site, const char *line)
{
    char *copy = strdup (line);

    assert_non_null (copy);
    doctor_take (site, copy);
    free (copy);
}

static void takes_its_lines_alone (void **state)
{
    static const char *const others[] = {
        "",
        "rv-doctor",
        "rv-doctor\tn1\t0.1.0\trw",
        "rv-doctor\tn3\t0.1.0\trw\t" EXEC,
        "rv-doctors\tn1\t0.1.0\trw\t" EXEC,
        "welcome\tto\tthis\tfine\tcluster",
    };
    struct doctor_site *site = site_new ();

    (void)state;
    for (size_t i = 0; i < sizeof (others) / sizeof (others[0]); i++)
        take (site, others[i]);
    assert_false (site->node[0].answered || site->node[1].answered);
    take (site, "rv-doctor\tn2\t\tr\t");
    assert_false (site->node[0].answered);
    assert_true (site->node[1].answered);
    assert_string_equal (site->node[1].plugin, "");
    assert_string_equal (site->node[1].rv_exec, "");
    assert_true (site->node[1].dir_seen && !site->node[1].dir_usable);
    /* The first answer counts. */
    take (site, "rv-doctor\tn2\t9\trw\tx");
    assert_string_equal (site->node[1].plugin, "");
    site_free (site);
}

static const struct {
    const char *line; /* NULL = none came */
    bool plugin_here;
    enum doctor_state state;
    const char *text; /* stands in the node's */
} verdicts[] = {
    {"rv-doctor\tn1\t" PACKAGE_VERSION "\trw\t" EXEC, true, DOCTOR_OK,
     "plugin " PACKAGE_VERSION},
    {"rv-doctor\tn1\t" PACKAGE_VERSION "\trw\t" EXEC, false, DOCTOR_OK, ""},
    {"rv-doctor\tn1\t\trw\t" EXEC, false, DOCTOR_OK, "no plugin, as here"},
    {"rv-doctor\tn1\t\trw\t" EXEC, true, DOCTOR_FAIL,
     "the plugin is not loaded there"},
    {"rv-doctor\tn1\t0.0.1\trw\t" EXEC, true, DOCTOR_FAIL, "another version"},
    {"rv-doctor\tn1\t" PACKAGE_VERSION "\trw\t", true, DOCTOR_FAIL,
     "rv-exec does not run there"},
    {"rv-doctor\tn1\t" PACKAGE_VERSION "\trw\trv-exec 0.0.1 (x)", true,
     DOCTOR_FAIL, "rv-exec there is of another build"},
    {"rv-doctor\tn1\t" PACKAGE_VERSION "\tnone\t" EXEC, true, DOCTOR_FAIL,
     "not the one that is seen here"},
    {"rv-doctor\tn1\t" PACKAGE_VERSION "\tr\t" EXEC, true, DOCTOR_FAIL,
     "cannot be written there"},
    {"rv-doctor\tn1\t\tnone\t", true, DOCTOR_FAIL,
     "missing; rv-exec does not run there; the state folder"},
    {NULL, true, DOCTOR_UNKNOWN, "in no partition that is up"},
};

static void judges (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (verdicts) / sizeof (verdicts[0]); i++) {
        struct doctor_site *site = site_new ();
        struct doctor_node *node = &site->node[0];

        if (verdicts[i].line)
            take (site, verdicts[i].line);
        doctor_judge (node, verdicts[i].plugin_here);
        if (node->state != verdicts[i].state
            || !strstr (node->text, verdicts[i].text))
            fail_msg ("case %zu: state %d, '%s'", i, node->state, node->text);
        site_free (site);
    }
}

/* Slurm's gres against what the driver has; n2 has one that is well. */
static const struct {
    int64_t gres;
    const char *gpus; /* as the node says; "" = it was not asked */
    bool driver_on_n2;
    enum doctor_state state;
    const char *text;
} cards[] = {
    {4, "2", true, DOCTOR_FAIL, "gres says 4 GPUs, NVML 2"},
    {4, "0", false, DOCTOR_FAIL, "gres says 4 GPUs, NVML 0"},
    {4, "4", true, DOCTOR_OK, "4 GPUs by gres and by NVML"},
    {2, "4", true, DOCTOR_WARN, "gres says 2 GPUs, NVML 4"},
    {0, "1", true, DOCTOR_WARN, "gres says 0 GPUs, NVML 1"},
    {0, "none", true, DOCTOR_OK, "are there"},
    {4, "none", true, DOCTOR_FAIL, "gres says 4 GPUs, and there is no driver"},
    {4, "none", false, DOCTOR_OK, "gres says 4 GPUs, and there is no driver"},
    {4, "bad", false, DOCTOR_FAIL, "NVML there hangs or fails, and gres"},
    {0, "bad", true, DOCTOR_OK, "are there"},
    {4, "", true, DOCTOR_OK, "are there"},
    {-1, "2", true, DOCTOR_OK, "are there"}, /* slices beside whole ones */
};

static void compares_gpus (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (cards) / sizeof (cards[0]); i++) {
        struct doctor_site *site = site_new ();
        struct doctor_node *node = &site->node[0];
        char line[200];

        snprintf (line, sizeof (line), "rv-doctor\tn1\t%s\trw\t%s%s%s",
                  PACKAGE_VERSION, EXEC, *cards[i].gpus ? "\t" : "",
                  cards[i].gpus);
        take (site, line);
        snprintf (line, sizeof (line), "rv-doctor\tn2\t%s\trw\t%s\t%s",
                  PACKAGE_VERSION, EXEC, cards[i].driver_on_n2 ? "8" : "none");
        take (site, line);
        node->gpus_slurm = cards[i].gres;
        site->node[1].gpus_slurm = cards[i].driver_on_n2 ? 8 : 0;
        for (size_t k = 0; k < 2; k++)
            doctor_judge (&site->node[k], true);
        doctor_compare (site);
        if (node->state != cards[i].state
            || !strstr (node->text, cards[i].text))
            fail_msg ("case %zu: state %d, '%s'", i, node->state, node->text);
        assert_int_equal (site->node[1].state, DOCTOR_OK);
        site_free (site);
    }
}

static void judges_without_an_answer (void **state)
{
    struct doctor_site *site = site_new ();

    (void)state;
    site->node[0].idle = false;
    site->node[0].slurm_state = "allocated";
    doctor_judge (&site->node[0], true);
    assert_int_equal (site->node[0].state, DOCTOR_UNKNOWN);
    assert_string_equal (site->node[0].text, "not asked: it is allocated");
    free (site->node[1].slurm);
    site->node[1].slurm = strdup ("19.05.1");
    doctor_judge (&site->node[1], true);
    assert_int_equal (site->node[1].state, DOCTOR_FAIL);
    assert_non_null (strstr (site->node[1].text, "Slurm 19.05.1"));
    site_free (site);
}

static void picks (void **state)
{
    struct doctor_site *site = site_new ();
    struct rv_error err = {0};

    (void)state;
    assert_int_equal (doctor_pick (site, "n[1", &err), RV_EINVAL);
    assert_int_equal (doctor_pick (site, "n[1-3]", &err), RV_ENOTFOUND);
    assert_non_null (strstr (err.text, "'n3'"));
    assert_int_equal (doctor_pick (site, "n2", &err), RV_OK);
    assert_true (!site->node[0].picked && site->node[1].picked);
    assert_int_equal (doctor_pick (site, NULL, &err), RV_OK);
    assert_true (site->node[0].picked && site->node[1].picked);
    site_free (site);
}

/* rv.conf against a site of two a100 and seven slices in partition gpu. */
static const struct {
    struct site_conf conf;
    enum doctor_state state;
    const char *text;
} confs[] = {
    {{.n_gpu = 0}, DOCTOR_OK, "0 types, 0 profiles"},
    {{.partition = (char *)"gpu", .type = (char *)"A100"}, DOCTOR_OK, "there"},
    {{.partition = (char *)"gpu, none"},
     DOCTOR_FAIL,
     "[defaults] names no partition that is up: 'none'"},
    {{.type = (char *)"h100"},
     DOCTOR_FAIL,
     "[defaults] asks for a type that no node has: 'h100'"},
    {{.gpu = (struct site_gpu[]){{.type = (char *)"a100"}}, .n_gpu = 1},
     DOCTOR_OK,
     "1 types"},
    {{.type = (char *)"big",
      .gpu = (struct site_gpu[]){{.type = (char *)"big",
                                  .gres = (char *)"gpu:a100",
                                  .partition = (char *)"gpu"}},
      .n_gpu = 1},
     DOCTOR_OK,
     "1 types"},
    {{.gpu = (struct site_gpu[]){{.type = (char *)"h100"}}, .n_gpu = 1},
     DOCTOR_WARN,
     "[gpu h100] asks for a gres that no node has: 'h100'"},
    {{.gpu = (struct site_gpu[]){{.type = (char *)"a100",
                                  .gres = (char *)"gpu",
                                  .partition = (char *)"old"}},
      .n_gpu = 1},
     DOCTOR_WARN,
     "[gpu a100] names no partition that is up: 'old'"},
    {{.mig = (struct site_mig[]){{.profile = (char *)"1g.10gb"},
                                 {.profile = (char *)"2g.20gb",
                                  .gres = (char *)"gpu:2g.20gb"}},
      .n_mig = 2},
     DOCTOR_WARN,
     "rv.conf: [mig 2g.20gb] asks for a gres that no node has"},
};

static void compares_conf (void **state)
{
    struct doctor_site *site = site_new ();
    struct doctor_check check;

    (void)state;
    site->node[0].gres = strdup ("gpu:a100:2(S:0),gpu:1g.10gb:7");
    site->node[1].gres = strdup ("");
    site->part = calloc (1, sizeof (*site->part));
    assert_non_null (site->part);
    site->part[0].name = strdup ("gpu");
    site->n_parts = 1;
    for (size_t i = 0; i < sizeof (confs) / sizeof (confs[0]); i++) {
        doctor_conf (&check, &confs[i].conf, site);
        if (check.state != confs[i].state || !strstr (check.text, confs[i].text)
            || !check.hint != (check.state == DOCTOR_OK))
            fail_msg ("case %zu: state %d, '%s'", i, check.state, check.text);
    }
    site_free (site);
}

static void state_folders (void **state)
{
    char base[] = "/tmp/rv-test-doctor-XXXXXX", *dir, *file;
    struct doctor_check check;
    struct stat st;

    (void)state;
    assert_non_null (mkdtemp (base));
    dir = fsio_join (base, "a/b");
    file = fsio_join (base, "file");
    doctor_state_dir (&check, dir);
    assert_int_equal (check.state, DOCTOR_OK);
    assert_int_equal (stat (dir, &st), 0);
    assert_int_equal (st.st_mode & 0777, 0700);
    assert_int_equal (chmod (dir, 0750), 0);
    doctor_state_dir (&check, dir);
    assert_int_equal (check.state, DOCTOR_FAIL);
    assert_non_null (strstr (check.text, "mode 0750"));
    assert_int_equal (fsio_write (file, "", 0, 0600, NULL), 0);
    doctor_state_dir (&check, file);
    assert_int_equal (check.state, DOCTOR_FAIL);
    assert_non_null (check.hint);
    if (geteuid () != 0) {
        assert_int_equal (chmod (dir, 0500), 0);
        doctor_state_dir (&check, dir);
        assert_int_equal (check.state, DOCTOR_FAIL);
        doctor_state_dir (&check, "/");
        assert_int_equal (check.state, DOCTOR_FAIL);
    }
    assert_int_equal (fsio_remove_tree (base, NULL), 0);
    free (dir);
    free (file);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (releases),
        cmocka_unit_test (takes_its_lines_alone),
        cmocka_unit_test (judges),
        cmocka_unit_test (compares_gpus),
        cmocka_unit_test (judges_without_an_answer),
        cmocka_unit_test (picks),
        cmocka_unit_test (compares_conf),
        cmocka_unit_test (state_folders),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
