/* SPDX-License-Identifier: Apache-2.0
 * test_site_conf.c - rv.conf of site and user, alone and on top of each other */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/fanout.h"
#include "plan/fsio.h"
#include "plan/site_conf.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

typedef int (*read_f) (struct site_conf *, int, const char *,
                       struct rv_error *);

static int read_text (read_f read, struct site_conf *conf, const char *text,
                      struct rv_error *err)
{
    int fd = memfd_create ("rv.conf", MFD_CLOEXEC), rc;

    assert_true (fd >= 0);
    assert_int_equal (write (fd, text, strlen (text)), strlen (text));
    assert_int_equal (lseek (fd, 0, SEEK_SET), 0);
    rc = read (conf, fd, "rv.conf", err);
    close (fd);
    return rc;
}

static void bad_arguments (void **state)
{
    struct site_conf conf;
    struct rv_error err = {0};

    site_conf_init (&conf);
    assert_int_equal (site_conf_read_site (NULL, 0, "f", &err), RV_EINVAL);
    assert_int_equal (site_conf_read_user (NULL, 0, "f", &err), RV_EINVAL);
    assert_int_equal (site_conf_read_site (&conf, -1, "f", &err), RV_EINVAL);
    assert_int_equal (site_conf_read_user (&conf, 0, NULL, &err), RV_EINVAL);
    assert_int_equal (site_conf_state_dir (&conf, NULL, &err), RV_EINVAL);
    assert_int_equal (site_conf_load (&conf, NULL, NULL, &err), 0);
    assert_int_equal (site_conf_load (&conf, "/nonexistent", "/", &err),
                      RV_EIO);
    assert_null (site_conf_gpu (NULL, "a"));
    assert_null (site_conf_gpu (&conf, NULL));
    assert_null (site_conf_mig (NULL, "a"));
    assert_null (site_conf_mig (&conf, NULL));
    site_conf_fini (NULL);
    site_conf_fini (&conf);
    (void)state;
}

static const char site_text[] = "[defaults]\n"
                                "account = lab\n"
                                "gpus = 2\n"
                                "time = 2:59:00\n"
                                "mem = 32G\n"
                                "partition = gpu, long\n"
                                "state_dir = ~/rv-state\n"
                                "fanout = on\n"
                                "nccl_timeout = 20m\n"
                                "[gpu a100]\n"
                                "gres = gpu:a100\n"
                                "partition = gpu\n"
                                "constraint = ib&nvlink\n"
                                "vram = 80G\n"
                                "cost = 14.5\n"
                                "max_per_job = 8\n"
                                "max_per_user = 16\n"
                                "mem_per_gpu = 100G\n"
                                "cpus_per_gpu = 12\n"
                                "alias = big, A100-80\n"
                                "[gpu rtx3090]\n"
                                "vram = 24G\n"
                                "[mig 1g.10gb]\n"
                                "gres = gpu:1g.10gb\n"
                                "partition = mig\n"
                                "vram = 10G\n"
                                "cost = 0\n"
                                "max_per_job = 1\n"
                                "[env]\n"
                                "NCCL_SOCKET_IFNAME = ib0\n"
                                "A = 1\n"
                                "[differ]\n"
                                "allow = driver, nccl\n";

static void nothing_said (void **state)
{
    struct site_conf conf;

    site_conf_init (&conf);
    assert_int_equal (read_text (site_conf_read_site, &conf, "", NULL), 0);
    assert_null (conf.account);
    assert_null (conf.differ);
    assert_int_equal (conf.gpus, -1);
    assert_int_equal (conf.time_s, 0);
    assert_int_equal (conf.mem_bytes, -1);
    assert_int_equal (site_conf_fanout (&conf), FANOUT_DEFAULT);
    assert_int_equal (conf.nccl_timeout_ms, -1);
    assert_int_equal (conf.n_gpu + conf.n_mig + conf.n_env, 0);
    site_conf_fini (&conf);
    (void)state;
}

static void site_file (void **state)
{
    struct site_conf conf;
    struct rv_error err = {0};
    const struct site_gpu *gpu;
    const struct site_mig *mig;

    site_conf_init (&conf);
    if (read_text (site_conf_read_site, &conf, site_text, &err) != 0)
        fail_msg ("%s", err.text);
    assert_string_equal (conf.account, "lab");
    assert_null (conf.qos);
    assert_int_equal (conf.gpus, 2);
    assert_int_equal (conf.time_s, 10740);
    assert_true (conf.mem_bytes == 32LL << 30);
    assert_string_equal (conf.partition, "gpu,long");
    assert_string_equal (conf.state_dir, "~/rv-state");
    assert_int_equal (site_conf_fanout (&conf), FANOUT_ON);
    assert_int_equal (conf.nccl_timeout_ms, 1200000);
    assert_string_equal (conf.differ, "driver,nccl");
    assert_int_equal (conf.n_env, 2);
    assert_string_equal (conf.env[0].name, "NCCL_SOCKET_IFNAME");
    assert_string_equal (conf.env[0].value, "ib0");

    assert_int_equal (conf.n_gpu, 2);
    gpu = site_conf_gpu (&conf, "A100");
    assert_ptr_equal (gpu, &conf.gpu[0]);
    assert_ptr_equal (site_conf_gpu (&conf, "a100-80"), gpu);
    assert_ptr_equal (site_conf_gpu (&conf, "BIG"), gpu);
    assert_null (site_conf_gpu (&conf, "h100"));
    assert_string_equal (gpu->gres, "gpu:a100");
    assert_string_equal (gpu->constraint, "ib&nvlink");
    assert_true (gpu->vram_bytes == 80LL << 30);
    assert_true (gpu->cost == 14.5);
    assert_int_equal (gpu->max_per_job, 8);
    assert_int_equal (gpu->max_per_user, 16);
    assert_true (gpu->mem_per_gpu_bytes == 100LL << 30);
    assert_int_equal (gpu->cpus_per_gpu, 12);
    gpu = site_conf_gpu (&conf, "rtx3090");
    assert_true (gpu->cost == -1);
    assert_int_equal (gpu->max_per_job, -1);
    assert_null (gpu->gres);

    mig = site_conf_mig (&conf, "1G.10GB");
    assert_ptr_equal (mig, &conf.mig[0]);
    assert_true (mig->cost == 0);
    assert_int_equal (mig->max_per_job, 1);
    assert_null (site_conf_mig (&conf, "2g.20gb"));
    site_conf_fini (&conf);
    assert_int_equal (conf.n_gpu, 0);
    (void)state;
}

static void fanout_values (void **state)
{
    static const struct {
        const char *text;
        unsigned jobs; /* 0: refused */
    } v[] = {{"on", FANOUT_ON}, {"off", 1}, {"1", 1},  {"3", 3}, {"16", 16},
             {"17", 0},         {"0", 0},   {"-1", 0}, {"", 0},  {"4x", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct site_conf conf;
        char text[64];
        unsigned jobs = 0;
        int rc;

        site_conf_init (&conf);
        snprintf (text, sizeof (text), "[defaults]\nfanout = %s\n", v[i].text);
        rc = read_text (site_conf_read_user, &conf, text, NULL);
        assert_int_equal (rc != 0, v[i].jobs == 0);
        if (rc == 0)
            assert_int_equal (site_conf_fanout (&conf), v[i].jobs);
        site_conf_fini (&conf);
        /* The option of rv run takes the same. */
        assert_int_equal (fanout_parse (v[i].text, &jobs), v[i].jobs != 0);
        assert_int_equal (jobs, v[i].jobs);
    }
}

static void user_on_top (void **state)
{
    struct site_conf conf;
    struct rv_error err = {0};

    site_conf_init (&conf);
    assert_int_equal (read_text (site_conf_read_site, &conf, site_text, NULL),
                      0);
    if (read_text (site_conf_read_user, &conf,
                   "[defaults]\naccount = mine\nmem = 0\nfanout = off\n"
                   "time = UNLIMITED\n[env]\nA = 2\nB = 3\n"
                   "[differ]\nallow = driver\n",
                   &err)
        != 0)
        fail_msg ("%s", err.text);
    assert_string_equal (conf.account, "mine");
    assert_int_equal (conf.gpus, 2);
    assert_int_equal (conf.mem_bytes, 0);
    assert_int_equal (site_conf_fanout (&conf), 1);
    assert_int_equal (conf.time_s, -1);
    assert_string_equal (conf.differ, "driver");
    assert_int_equal (conf.n_env, 3);
    assert_string_equal (conf.env[1].value, "2");
    assert_string_equal (conf.env[2].name, "B");
    assert_int_equal (conf.n_gpu, 2);
    site_conf_fini (&conf);
    (void)state;
}

static const struct {
    read_f read;
    const char *text, *want;
} refused[] = {
    {site_conf_read_site, "[gpu a100]\nvarm = 1G\n",
     "rv.conf:2: unknown key 'varm' in [gpu]; nearest is 'vram'"},
    {site_conf_read_site, "[gpu]\n",
     "rv.conf:1: unknown section [gpu]; nearest is [gpu NAME]"},
    {site_conf_read_site, "[gpu a:b]\ncost = 1\n",
     "rv.conf:2: [gpu a:b]: no type has that name"},
    {site_conf_read_site, "[gpu no_consume]\ncost = 1\n",
     "rv.conf:2: [gpu no_consume]: no type has that name"},
    {site_conf_read_site, "[mig a100]\ncost = 1\n",
     "rv.conf:2: [mig a100]: not a MIG profile such as 1g.10gb"},
    {site_conf_read_site, "[gpu a]\ncost = 1\n[gpu A]\ncost = 1\n",
     "rv.conf:4: [gpu a] and [gpu A] are the same to Slurm's users; keep "
     "one"},
    {site_conf_read_site, "[gpu a]\ngres = shard:4\n",
     "rv.conf:2: gres: 'shard:4' is not one kind of GPU such as gpu:a100"},
    {site_conf_read_site, "[gpu a]\ngres = gpu:a:b:c\n",
     "rv.conf:2: gres 'gpu:a:b:c' is malformed; expected text such as "
     "gpu:a100:4"},
    {site_conf_read_site, "[gpu a]\nvram = 0\n",
     "rv.conf:2: vram: '0' is too small"},
    {site_conf_read_site, "[gpu a]\ncpus_per_gpu = 0\n",
     "rv.conf:2: cpus_per_gpu: '0' is not from 1 to 1000000"},
    {site_conf_read_site, "[gpu a]\nalias = b\n[gpu b]\ncost = 1\n",
     "rv.conf: alias 'b' of [gpu a] is also a name of [gpu b]"},
    {site_conf_read_site, "[gpu a]\nalias = x\n[gpu b]\nalias = y, X\n",
     "rv.conf: alias 'x' of [gpu a] is also a name of [gpu b]"},
    {site_conf_read_site, "[gpu a]\nalias = A\n",
     "rv.conf: alias 'A' of [gpu a] is also a name of [gpu a]"},
    {site_conf_read_site, "[defaults]\nstate_dir = x\n",
     "rv.conf:2: state_dir: 'x' is not a path that begins with / or ~/"},
    {site_conf_read_site, "[defaults]\nnccl_timeout = 600\n",
     "rv.conf:2: nccl_timeout: duration '600' has no unit; write 500ms, "
     "90s, 30m, 2h, 1.5h or 3d"},
    {site_conf_read_user, "[defaults]\nnccl_timeout = 8d\n",
     "rv.conf:2: nccl_timeout: '8d' is too large"},
    {site_conf_read_user, "[env]\n1A = x\n",
     "rv.conf:2: '1A' is not a variable's name"},
    {site_conf_read_user, "[env]\nA-B = x\n",
     "rv.conf:2: 'A-B' is not a variable's name"},
    {site_conf_read_user, "[gpu a100]\ncost = 0\n",
     "rv.conf:2: [gpu a100] stands in the site's rv.conf alone"},
    {site_conf_read_user, "[mig 1g.10gb]\ncost = 0\n",
     "rv.conf:2: [mig 1g.10gb] stands in the site's rv.conf alone"},
    {site_conf_read_user, "[differ]\nallow = a,\n",
     "rv.conf:2: allow: list 'a,' has an empty item"},
    {site_conf_read_user, "[differ]\nallow = driver, gpus\n",
     "rv.conf: [differ] allow: 'gpus' is nothing that ranks are compared "
     "in; "
     "there are program, driver, nccl, timeout, ranks and variables that "
     "begin with NCCL_ or TORCH_NCCL_"},
};

static void refuses (void **state)
{
    for (size_t i = 0; i < LENGTH (refused); i++) {
        struct site_conf conf;
        struct rv_error err = {0};

        site_conf_init (&conf);
        if (read_text (refused[i].read, &conf, refused[i].text, &err)
            != RV_EINVAL)
            fail_msg ("taken: %s", refused[i].text);
        assert_string_equal (err.text, refused[i].want);
        site_conf_fini (&conf);
    }
    (void)state;
}

static void loads_files (void **state)
{
    char dir[] = "/tmp/rv-test-site-XXXXXX";
    struct site_conf conf;
    char *site, *user, *path;

    assert_non_null (mkdtemp (dir));
    site = fsio_join (dir, "site.conf");
    assert_int_equal (setenv ("XDG_CONFIG_HOME", dir, 1), 0);
    user = site_conf_user_path ();
    path = fsio_join (dir, "rv");
    assert_int_equal (fsio_mkdir_p (path, 0700, NULL), 0);
    free (path);

    site_conf_init (&conf);
    assert_int_equal (site_conf_load (&conf, site, user, NULL), 0);
    assert_int_equal (conf.gpus, -1);
    assert_int_equal (
        fsio_write (site, "[defaults]\ngpus = 1\nqos = q\n", 28, 0644, NULL),
        0);
    assert_int_equal (
        fsio_write (user, "[defaults]\ngpus = 4\n", 20, 0644, NULL), 0);
    assert_int_equal (site_conf_load (&conf, site, user, NULL), 0);
    assert_int_equal (conf.gpus, 4);
    assert_string_equal (conf.qos, "q");
    /* Others may write the user's file if the user likes; not the site's. */
    assert_int_equal (chmod (user, 0666), 0);
    assert_int_equal (site_conf_load (&conf, site, user, NULL), 0);
    assert_int_equal (chmod (site, 0646), 0);
    assert_int_equal (site_conf_load (&conf, site, user, NULL), RV_EINVAL);
    site_conf_fini (&conf);
    assert_int_equal (fsio_remove_tree (dir, NULL), 0);
    free (site);
    free (user);
    (void)state;
}

static void folders (void **state)
{
    static const struct {
        const char *xdg, *home, *said, *state, *user;
    } v[] = {
        {NULL, "/h", NULL, "/h/.local/state/rv", "/h/.config/rv/rv.conf"},
        {"/x", "/h", NULL, "/x/rv", "/x/rv/rv.conf"},
        {"rel", "/h", NULL, "/h/.local/state/rv", "/h/.config/rv/rv.conf"},
        {"", "/h", "~/s", "/h/s", "/h/.config/rv/rv.conf"},
        {"/x", NULL, "/a/b", "/a/b", "/x/rv/rv.conf"},
        {NULL, NULL, NULL, NULL, NULL},
        {NULL, NULL, "~/s", NULL, NULL},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct site_conf conf;
        char *dir = NULL, *user;
        int rc;

        unsetenv ("XDG_CONFIG_HOME");
        unsetenv ("XDG_STATE_HOME");
        unsetenv ("HOME");
        if (v[i].xdg) {
            setenv ("XDG_CONFIG_HOME", v[i].xdg, 1);
            setenv ("XDG_STATE_HOME", v[i].xdg, 1);
        }
        if (v[i].home)
            setenv ("HOME", v[i].home, 1);
        site_conf_init (&conf);
        conf.state_dir = v[i].said ? strdup (v[i].said) : NULL;
        rc = site_conf_state_dir (&conf, &dir, NULL);
        user = site_conf_user_path ();
        assert_int_equal (rc, v[i].state ? 0 : RV_ENOTFOUND);
        if (v[i].state)
            assert_string_equal (dir, v[i].state);
        if (v[i].user)
            assert_string_equal (user, v[i].user);
        else
            assert_null (user);
        free (dir);
        free (user);
        site_conf_fini (&conf);
    }
    assert_non_null (strstr (site_conf_site_path (), "/rv/rv.conf"));
    (void)state;
}

/* The sample that is installed says nothing, and is right as soon as its
 * comment signs are taken away. */
static void sample (void **state)
{
    const char *top = getenv ("top_srcdir");
    char *path = fsio_join (top ? top : ".", "etc/rv.conf"), *text;
    struct rv_error err = {0};
    struct site_conf conf;
    size_t len;

    site_conf_init (&conf);
    if (site_conf_load (&conf, NULL, path, &err) != 0)
        fail_msg ("%s", err.text);
    assert_int_equal (conf.n_gpu + conf.n_mig + conf.n_env, 0);
    assert_int_equal (fsio_read (path, 100000, &text, &len, NULL), 0);
    for (char *p = text; (p = strstr (p, "\n;")); p++)
        p[1] = ' ';
    if (read_text (site_conf_read_site, &conf, text, &err) != 0)
        fail_msg ("%s", err.text);
    assert_true (conf.n_gpu > 0 && conf.n_mig > 0 && conf.n_env > 0);
    assert_true (conf.gpus > 0 && conf.time_s > 0 && conf.differ);
    free (text);
    free (path);
    site_conf_fini (&conf);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments), cmocka_unit_test (nothing_said),
        cmocka_unit_test (site_file),     cmocka_unit_test (user_on_top),
        cmocka_unit_test (fanout_values), cmocka_unit_test (refuses),
        cmocka_unit_test (loads_files),   cmocka_unit_test (folders),
        cmocka_unit_test (sample),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
