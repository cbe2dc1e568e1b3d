/* SPDX-License-Identifier: Apache-2.0
 * test_devices.c - a task's own device: lists, gres.conf, minors, names */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "spank/devlist.h"
#include "spank/gpuids.h"
#include "spank/gresfile.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void lists (void **state)
{
    char item[DEVLIST_NAME_MAX], longest[DEVLIST_NAME_MAX + 1];

    (void)state;
    assert_int_equal (devlist_count (NULL), 0);
    assert_int_equal (devlist_count (""), 0);
    assert_int_equal (devlist_count ("NoDevFiles"), 0);
    assert_int_equal (devlist_count ("0"), 1);
    assert_int_equal (devlist_count ("MIG-a,GPU-b,3"), 3);
    assert_false (devlist_item (NULL, 0, item));
    assert_false (devlist_item ("0", 1, item));
    assert_false (devlist_item ("0,,1", 1, item));
    memset (longest, 'x', sizeof (longest) - 1);
    longest[DEVLIST_NAME_MAX] = '\0';
    assert_false (devlist_item (longest, 0, item));
    assert_true (devlist_item ("MIG-a,GPU-b,3", 1, item));
    assert_string_equal (item, "GPU-b");
    assert_true (devlist_item ("MIG-a,GPU-b,3", 2, item));
    assert_int_equal (devlist_index (item), 3);
    assert_int_equal (devlist_index (""), -1);
    assert_int_equal (devlist_index ("-1"), -1);
    assert_int_equal (devlist_index ("1x"), -1);
    assert_int_equal (devlist_index ("1234567"), -1);
    assert_int_equal (devlist_index ("MIG-1"), -1);
}

static const struct {
    struct devlist_task t;
    const char *name; /* NULL: refused, and [says] stands in the text */
    int index;
    const char *says;
} own[] = {
    /* all of the step's are visible, and count the node's */
    {{"1,2", "1,2", 2, "n1", 5, 1, 2, false, false}, "2", 2, NULL},
    {{"1,2", "1,2", 2, "n1", 4, 0, 2, true, false}, "1", 1, NULL},
    /* confined: they count the step's */
    {{"0,1", "1,2", 2, "n1", 5, 1, 2, true, true}, "1", 2, NULL},
    {{"0,1", "1,2", 2, "n1", 4, 0, 2, true, false}, "0", 1, NULL},
    /* bound, with what Slurm 22.05 says then */
    {{"2", "2", 2, "n1", 5, 1, 2, true, false}, "2", 2, NULL},
    {{"2", "1,2", 2, "n1", 5, 1, 2, true, false}, "2", 2, NULL},
    {{"1", "1,2", 2, "n1", 5, 1, 2, true, true}, "1", 2, NULL},
    /* AutoDetect: as Slurm with NVML writes them, kept as they are */
    {{"MIG-4f1f6a5e-6d9c-5b0a-8d8a-3e7b1e1d2c3f,"
      "MIG-9c2f3d1a-0b7e-5c4d-9a6b-1f2e3d4c5b6a",
      "0,1", 2, "n1", 1, 1, 2, true, false},
     "MIG-9c2f3d1a-0b7e-5c4d-9a6b-1f2e3d4c5b6a",
     -1,
     NULL},
    {{"MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/2", "3", 0, "n1", 0, 0, 1,
      true, true},
     "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/2",
     -1,
     NULL},
    {{"GPU-a,GPU-b", NULL, 0, "n1", 1, 1, 2, false, false}, "GPU-b", -1, NULL},
    /* more devices than tasks */
    {{"0,1,2", "0,1,2", 3, "n1", 1, 1, 2, true, false}, "1", 1, NULL},
    {{NULL, NULL, 0, "n2", 3, 0, 2, true, false},
     NULL,
     0,
     "rank 3 on n2 sees no MIG slice, and the step's 2 tasks there need one "
     "each"},
    {{"", "", 4, "n2", 3, 0, 1, false, false},
     NULL,
     0,
     "rank 3 on n2 sees no GPU, and the step's 1 task there"},
    {{NULL, "0,1", 2, "n2", 3, 0, 2, false, false},
     NULL,
     0,
     "rank 3 on n2 sees none of the 2 GPUs (0,1) that the step has there for 2 "
     "tasks; leave out --gpu-bind"},
    {{"0,1", "0,1", 2, "n1", 0, 0, 3, false, false},
     NULL,
     0,
     "n1 has 3 tasks of this step for 2 GPUs (0,1), one each is needed; start "
     "at most 2 there"},
    {{"0", "0", 2, "n1", 0, 0, 3, true, false},
     NULL,
     0,
     "n1 has 3 tasks of this step for 2 MIG slices"},
    {{"0,1", "0,1", 4, "n1", 0, 0, 2, true, false},
     NULL,
     0,
     "rank 0 on n1 was bound to 2 MIG slices (0,1), and CUDA uses one"},
    {{"0,,1", "0,1,2", 3, "n1", 1, 1, 3, true, false},
     NULL,
     0,
     "has no device number 1"},
};

static void own_device (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (own); i++) {
        struct devlist_own ret = {"untouched", 77};
        struct rv_error err = {0};
        int rc = devlist_own (&own[i].t, &ret, &err);

        if ((rc == RV_OK) != (own[i].name != NULL))
            fail_msg ("case %zu: %s", i, err.text);
        if (own[i].name) {
            assert_string_equal (ret.name, own[i].name);
            assert_int_equal (ret.index, own[i].index);
        } else if (!strstr (err.text, own[i].says)) {
            fail_msg ("case %zu: '%s'", i, err.text);
        }
    }
}

static void enough (void **state)
{
    struct devlist_task t = {NULL, NULL, 2, "n1", 0, 0, 8, false, false};

    (void)state;
    assert_int_equal (devlist_check (&t, NULL), RV_OK);
    t.visible = "0,1";
    assert_int_equal (devlist_check (&t, NULL), RV_EINVAL);
    t.local_size = 2;
    assert_int_equal (devlist_check (&t, NULL), RV_OK);
    t.visible = "0";
    assert_int_equal (devlist_check (&t, NULL), RV_OK);
}

static const char gres_conf[] =
    "# all nodes\n"
    "NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1] # two\n"
    "NodeName=n3 Name=gpu File=/dev/nvidia7\n"
    "nodename=n1,n9 name=gpu Type=1g.10gb "
    "MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap[336-337]\n"
    "NodeName=n1 Name=mps Count=100\n"
    "Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia2,"
    "/dev/nvidia-caps/nvidia-cap345,/dev/nvidia-caps/nvidia-cap346\r\n"
    "NodeName=n1 Name=gpu File=/x/gpu0";

static void gres_files (void **state)
{
    struct gres_devices d;

    (void)state;
    gresfile_read (gres_conf, "n1", &d);
    assert_int_equal (d.n, 5);
    assert_int_equal (d.dev[0].card, 0);
    assert_int_equal (d.dev[1].card, 1);
    assert_int_equal (d.dev[1].cap[0], -1);
    assert_int_equal (d.dev[2].card, 2);
    assert_int_equal (d.dev[2].cap[0], 336);
    assert_int_equal (d.dev[2].cap[1], 337);
    assert_int_equal (d.dev[3].cap[1], 346);
    assert_int_equal (d.dev[4].card, -1);
    assert_false (d.detected);
    gresfile_read (gres_conf, "n3", &d);
    assert_int_equal (d.n, 2);
    assert_int_equal (d.dev[0].card, 7);
    gresfile_read (gres_conf, "n4", &d);
    assert_int_equal (d.n, 1);
    gresfile_read ("AutoDetect=nvml\nName=gpu Type=a100\n", "n1", &d);
    assert_int_equal (d.n, 0);
    assert_true (d.detected);
    gresfile_read ("AutoDetect=off\n", "n1", &d);
    assert_false (d.detected);
    /* A line that cannot be read would shift all that follow. */
    gresfile_read ("Name=gpu File=/dev/nvidia0\n"
                   "Name=gpu File=/dev/nvidia[1-\n",
                   "n1", &d);
    assert_int_equal (d.n, 0);
    gresfile_read ("Name=gpu File=/dev[0-1]/nvidia0\n", "n1", &d);
    assert_int_equal (d.n, 0);
    gresfile_read ("Name=gpu File=/dev/nvidia0\n"
                   "NodeName=n[1- Name=gpu File=/dev/nvidia1\n",
                   "n1", &d);
    assert_int_equal (d.n, 0);
    gresfile_read ("", "n1", &d);
    assert_int_equal (d.n, 0);
}

static void confined (void **state)
{
    (void)state;
    assert_false (gresfile_confined (""));
    assert_false (gresfile_confined ("#ConstrainDevices=yes\n"));
    assert_false (gresfile_confined ("ConstrainDevices=no\n"));
    assert_true (gresfile_confined ("A=b\nconstraindevices=YES # all"));
}

static const char minors[] = "config 1\n"
                             "monitor 2\n"
                             "gpu0/gi7/access 66\n"
                             "gpu0/gi7/ci0/access 67\n"
                             "gpu1/gi8/ci1/access 212\n"
                             "gpu1/gi8/ci1/accessx 213\n"
                             "gpu1/gi9/ci0/access 214 5\n"
                             "gpu1/gi-9/ci0/access 215\n";

static void minor_numbers (void **state)
{
    struct mig_place p = {77, 77, 77};

    (void)state;
    assert_false (gresfile_minor (minors, 1, &p));
    assert_false (gresfile_minor (minors, 213, &p));
    assert_false (gresfile_minor (minors, 214, &p));
    assert_false (gresfile_minor (minors, 215, &p));
    assert_false (gresfile_minor ("", 66, &p));
    assert_int_equal (p.card, 77);
    assert_true (gresfile_minor (minors, 66, &p));
    assert_int_equal (p.gi, 7);
    assert_int_equal (p.ci, -1);
    assert_true (gresfile_minor (minors, 212, &p));
    assert_int_equal (p.card, 1);
    assert_int_equal (p.gi, 8);
    assert_int_equal (p.ci, 1);
}

static void cards (void **state)
{
    char uuid[DEVLIST_NAME_MAX];
    int minor = 77;

    (void)state;
    assert_false (gresfile_card ("", &minor, uuid));
    assert_false (gresfile_card ("GPU UUID: \t GPU-a\n", &minor, uuid));
    assert_false (
        gresfile_card ("Device Minor: 1\nGPU UUID: a\n", &minor, uuid));
    assert_int_equal (minor, 77);
    assert_true (gresfile_card ("Model: \t\t NVIDIA A100\n"
                                "GPU UUID: \t GPU-8932f937\n"
                                "Device Minor: \t 3\n",
                                &minor, uuid));
    assert_int_equal (minor, 3);
    assert_string_equal (uuid, "GPU-8932f937");
}

static void answers (void **state)
{
    static struct gpuids ids;
    static const char good[] = "driver\nslice 1\nslice x\nslice 999\nid 0 A\n"
                               "id 1 MIG-old\nid 1 MIG-new\nid 2\nid 3 a,b\n"
                               "id 256 x\nid -1 x\nfrob\ndone\nid 4 cut";

    (void)state;
    gpuids_parse ("", 0, &ids);
    assert_int_equal (ids.state, GPUIDS_NONE);
    gpuids_parse (good, sizeof (good) - 1, &ids);
    assert_int_equal (ids.state, GPUIDS_KNOWN);
    assert_string_equal (ids.name[0], "A");
    assert_string_equal (ids.name[1], "MIG-new");
    assert_string_equal (ids.name[2], "");
    assert_string_equal (ids.name[3], "");
    assert_string_equal (ids.name[4], "");
    assert_true (ids.slice[1]);
    assert_false (ids.confined);
    gpuids_parse ("driver\n", 7, &ids);
    assert_int_equal (ids.state, GPUIDS_FAILED);
    gpuids_parse ("confined\ndriver\nwhy it is\ndone\n", 31, &ids);
    assert_int_equal (ids.state, GPUIDS_FAILED);
    assert_string_equal (ids.why, "it is");
    assert_true (ids.confined);
}

/* A node that has none of it: nothing is known, and nothing fails. */
static void nothing_there (void **state)
{
    static struct gpuids ids;
    const struct gpuids_where where = {
        .nvml = NULL,
        .conf_dir = "/no/such",
        .driver = "/no/such",
        .node = "n1",
    };

    (void)state;
    gpuids_read (&where, &ids);
    /* A machine with a driver has NVML where the loader finds it. */
    if (ids.state == GPUIDS_NONE)
        assert_string_equal (ids.name[0], "");
    assert_false (ids.confined);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (lists),         cmocka_unit_test (own_device),
        cmocka_unit_test (enough),        cmocka_unit_test (gres_files),
        cmocka_unit_test (confined),      cmocka_unit_test (minor_numbers),
        cmocka_unit_test (cards),         cmocka_unit_test (answers),
        cmocka_unit_test (nothing_there),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
