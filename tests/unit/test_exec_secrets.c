/* SPDX-License-Identifier: Apache-2.0
 * test_exec_secrets.c - when a job's copy of the secrets goes, by what
 * slurmctld says of the job */
#include <errno.h>
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

#include "exec/exec.h"
#include "own_dir.h"
#include "plan/fsio.h"
#include "secrets.h"

#define N(a)    (sizeof (a) / sizeof ((a)[0]))
#define RESTART 1

static int set_up (void **state)
{
    return make_dir (state) || setenv ("PATH", dir, 1) ? -1 : 0;
}

/* A scontrol that says [text] of any job; NULL fails, as slurmctld away does. */
static void scontrol_says (const char *text)
{
    char script[256];

    if (text)
        snprintf (script, sizeof (script), "#!/bin/sh\necho '%s'\n", text);
    else
        snprintf (script, sizeof (script), "#!/bin/sh\nexit 1\n");
    write_file ("scontrol", script, strlen (script), 0700);
}

static bool kept (enum secrets_end how)
{
    char *path = fsio_join (dir, SECRETS_FILE);
    bool is_there;

    write_text (SECRETS_FILE, "A=1\n");
    exec_secrets_forget (dir, 7, RESTART, how);
    is_there = access (path, F_OK) == 0;
    free (path);
    return is_there;
}

static void by_state (void **state)
{
    static const struct {
        const char *says;
        bool failed, told; /* kept */
    } row[] = {
        {"JobId=7 JobState=RUNNING Reason=None Restarts=1 X=", false, true},
        {"JobId=7 JobState=COMPLETING Reason=None Restarts=1 X=", false, false},
        {"JobId=7 JobState=CANCELLED Reason=None Restarts=1 X=", false, false},
        {"JobId=7 JobState=TIMEOUT Reason=None Restarts=1 X=", false, false},
        {"JobId=7 JobState=NODE_FAIL Reason=None Restarts=1 X=", true, true},
        {"JobId=7 JobState=SUSPENDED Reason=None Restarts=1 X=", true, true},
        /* put back: its restarts are counted before its processes hear of it */
        {"JobId=7 JobState=COMPLETING Reason=None Restarts=2 X=", true, true},
        {"JobId=7 JobState=PENDING Reason=None Restarts=2 X=", true, true},
        {"JobId=7 JobState=RUNNING Reason=None Restarts=2 X=", true, true},
        {"JobId=7 JobState=RUNNING Reason=None Restarts=12 X=", true, true},
        {"JobId=7 Restarts=1", true, true},
        {"JobId=7 JobState=COMPLETING", true, true},
        {"", true, true},
        {NULL, true, true},
    };

    (void)state;
    for (size_t i = 0; i < N (row); i++) {
        scontrol_says (row[i].says);
        if (kept (SECRETS_FAILED) != row[i].failed
            || kept (SECRETS_TOLD) != row[i].told)
            fail_msg ("row %zu: %s", i, row[i].says);
        assert_false (kept (SECRETS_DONE)); /* nobody is asked */
    }
}

static void without_scontrol (void **state)
{
    char *path = fsio_join (dir, "scontrol");

    (void)state;
    unlink (path);
    free (path);
    assert_true (kept (SECRETS_FAILED));
    assert_true (kept (SECRETS_TOLD));
    assert_false (kept (SECRETS_DONE));
}

static bool is_there (const char *name)
{
    char *path = fsio_join (dir, name);
    bool ret = access (path, F_OK) == 0;

    free (path);
    return ret;
}

/* A task that begins has its link from the request's copy. */
static void begin_task (const char *task)
{
    char *from = fsio_join (dir, SECRETS_FILE), name[64], *own, *to;

    snprintf (name, sizeof (name), SECRETS_TASKS "/%s", task);
    own = fsio_join (dir, name);
    to = fsio_join (own, SECRETS_FILE);
    assert_int_equal (fsio_mkdir_p (own, 0700, NULL), 0);
    assert_true (!link (from, to) || errno == EEXIST);
    free (to);
    free (own);
    free (from);
}

static void end_task (const char *task, enum secrets_end how)
{
    char name[64], *own;

    snprintf (name, sizeof (name), SECRETS_TASKS "/%s", task);
    own = fsio_join (dir, name);
    setenv ("SLURM_ARRAY_TASK_ID", task, 1);
    exec_secrets_forget (own, 7, RESTART, how);
    unsetenv ("SLURM_ARRAY_TASK_ID");
    free (own);
}

/* The request's copy goes with the last task that ends for good, whichever that
 * is, and not before it has begun. */
static void of_array (void **state)
{
    (void)state;
    setenv ("SLURM_ARRAY_TASK_COUNT", "3", 1);
    write_text (SECRETS_FILE, "A=1\n");
    begin_task ("0");
    begin_task ("5");
    end_task ("5", SECRETS_DONE);
    assert_false (is_there ("array/5/secrets"));
    assert_true (is_there ("array/0/secrets"));
    end_task ("5", SECRETS_DONE); /* put back, and ended again */
    scontrol_says ("JobId=7 JobState=PENDING Reason=None Restarts=2 X=");
    end_task ("0", SECRETS_TOLD); /* it will be put back */
    assert_true (is_there ("array/0/secrets"));
    end_task ("0", SECRETS_DONE);
    assert_true (is_there (SECRETS_FILE));
    begin_task ("10");
    begin_task ("5"); /* one that has ended, put back: it runs nothing */
    assert_true (is_there ("array/10/secrets"));
    end_task ("10", SECRETS_DONE);
    assert_false (is_there (SECRETS_FILE));
    assert_false (is_there ("array/5/secrets"));
    unsetenv ("SLURM_ARRAY_TASK_COUNT");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (by_state),
        cmocka_unit_test (without_scontrol),
        cmocka_unit_test (of_array),
    };

    return cmocka_run_group_tests (tests, set_up, remove_dir);
}
