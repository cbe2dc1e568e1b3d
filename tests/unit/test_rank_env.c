/* SPDX-License-Identifier: Apache-2.0
 * test_rank_env.c - variables of a rank: fresh, inherited, second call */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "plan/rank_env.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

/* An environment of its own; set fails at the n-th call where asked. */
struct env {
    char name[32][40], value[32][192];
    size_t n;
    int fail_at, calls;
};

static const char *env_get (void *arg, const char *name)
{
    struct env *env = arg;

    for (size_t i = 0; i < env->n; i++) {
        if (strcmp (env->name[i], name) == 0)
            return env->value[i];
    }
    return NULL;
}

static int env_set (void *arg, const char *name, const char *value)
{
    struct env *env = arg;
    size_t i = 0;

    if (++env->calls == env->fail_at)
        return 42;
    while (i < env->n && strcmp (env->name[i], name) != 0)
        i++;
    if (!value) {
        if (i < env->n && i != --env->n) {
            memcpy (env->name[i], env->name[env->n], sizeof (env->name[i]));
            memcpy (env->value[i], env->value[env->n], sizeof (env->value[i]));
        }
        return 0;
    }
    assert_true (i < LENGTH (env->name));
    snprintf (env->name[i], sizeof (env->name[i]), "%s", name);
    snprintf (env->value[i], sizeof (env->value[i]), "%s", value);
    if (i == env->n)
        env->n++;
    return 0;
}

/* "A=1 B=2+3" into an environment; + is a space in a value. */
static void fill (struct env *env, const char *text)
{
    char copy[1024], *save = NULL;

    memset (env, 0, sizeof (*env));
    snprintf (copy, sizeof (copy), "%s", text);
    for (char *p = strtok_r (copy, " ", &save); p;
         p = strtok_r (NULL, " ", &save)) {
        char *eq = strchr (p, '=');

        *eq = '\0';
        for (char *c = eq + 1; *c; c++)
            if (*c == '+')
                *c = ' ';
        env_set (env, p, eq + 1);
    }
    env->calls = 0;
}

/* [env] is exactly what [want] says, in any order. */
static void assert_env (struct env *env, const char *want)
{
    struct env w;

    fill (&w, want);
    for (size_t i = 0; i < w.n; i++) {
        const char *got = env_get (env, w.name[i]);

        if (!got || strcmp (got, w.value[i]) != 0)
            fail_msg ("%s is %s, not %s", w.name[i], got ? got : "unset",
                      w.value[i]);
    }
    for (size_t i = 0; i < env->n; i++) {
        if (!env_get (&w, env->name[i]))
            fail_msg ("%s=%s was not expected", env->name[i], env->value[i]);
    }
}

static const struct rank_env_in base = {
    .job_id = 12,
    .step_id = 3,
    .rank = 5,
    .world_size = 8,
    .local_rank = 1,
    .local_size = 4,
    .node_rank = 1,
    .cpus = 16,
};

/* RV_SET of this rank with what else is ours */
#define SET(more) " RV_SET=RANK=5" more " "
#define OMP4      "+OMP_NUM_THREADS=4"
#define T600      "+RV_NCCL_TIMEOUT=600"

#define MASTER "MASTER_ADDR=10.0.0.1 MASTER_PORT=20001 "

#define RANKS                                                                  \
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 NODE_RANK=1 "         \
    "GROUP_RANK=1 RV_STEP=12.3 "

static void fresh (void **state)
{
    struct rank_env_in in = base;
    struct env env;

    fill (&env, "");
    assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
    assert_env (&env,
                RANKS "OMP_NUM_THREADS=4 RV_NCCL_TIMEOUT=600" SET (OMP4 T600));

    fill (&env, "");
    in.master_addr = "10.0.0.1";
    in.master_port = 20375;
    in.one_device = true;
    in.cpus = 3;
    assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
    assert_env (
        &env, "RANK=5 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 "
              "NODE_RANK=1 GROUP_RANK=1 RV_STEP=12.3 OMP_NUM_THREADS=1 "
              "MASTER_ADDR=10.0.0.1 MASTER_PORT=20375 RV_NCCL_TIMEOUT=600" SET (
                  "+OMP_NUM_THREADS=1" T600));

    fill (&env, "");
    in = (struct rank_env_in){.job_id = UINT32_MAX, .step_id = UINT32_MAX - 4};
    assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
    assert_env (&env, "RANK=0 WORLD_SIZE=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=0 "
                      "NODE_RANK=0 GROUP_RANK=0 RV_STEP=4294967295.4294967291 "
                      "RV_NCCL_TIMEOUT=600 RV_SET=RANK=0" T600);
    (void)state;
}

/* What stands before, and what must stand after. */
static const struct {
    const char *before, *after;
} inherits[] = {
    /* the user's own values stay */
    {"RANK=0 OMP_NUM_THREADS=7 MASTER_PORT=29500",
     "RANK=0 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 NODE_RANK=1 "
     "GROUP_RANK=1 RV_STEP=12.3 OMP_NUM_THREADS=7 MASTER_PORT=29500 "
     "MASTER_ADDR=10.0.0.1 RV_NCCL_TIMEOUT=600" SET (T600)},
    /* those of another step go, of another job too */
    {"RV_STEP=12.2 RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "
     "NODE_RANK=0 GROUP_RANK=0 MASTER_ADDR=old MASTER_PORT=1 "
     "OMP_NUM_THREADS=7 RV_BOOT=pmix",
     RANKS "OMP_NUM_THREADS=7 " MASTER "RV_NCCL_TIMEOUT=600" SET (T600)},
    {"RV_STEP=11.3 RANK=0",
     RANKS "OMP_NUM_THREADS=4 " MASTER "RV_NCCL_TIMEOUT=600" SET (OMP4 T600)},
    /* threads that were ours are counted anew; the deadline is the job's */
    {"RV_STEP=12.2 OMP_NUM_THREADS=7 RV_NCCL_TIMEOUT=90 "
     "DEEPSPEED_TIMEOUT=2 "
     "RV_SET=RANK=0+OMP_NUM_THREADS=7+RV_NCCL_TIMEOUT=90+"
     "DEEPSPEED_TIMEOUT=2",
     RANKS "OMP_NUM_THREADS=4 " MASTER
           "RV_NCCL_TIMEOUT=90 DEEPSPEED_TIMEOUT=2" SET (
               OMP4 "+DEEPSPEED_TIMEOUT=2+RV_NCCL_TIMEOUT=90")},
    {"RV_STEP=1.2 OMP_NUM_THREADS=7 RV_NCCL_TIMEOUT=90 "
     "DEEPSPEED_TIMEOUT=2 "
     "RV_SET=RANK=0+OMP_NUM_THREADS=7+RV_NCCL_TIMEOUT=90+"
     "DEEPSPEED_TIMEOUT=2",
     RANKS "OMP_NUM_THREADS=4 " MASTER "RV_NCCL_TIMEOUT=600" SET (OMP4 T600)},
    /* ... and not what the user has changed since */
    {"RV_STEP=1.2 OMP_NUM_THREADS=7 DEEPSPEED_TIMEOUT=20 "
     "RV_SET=RANK=0+OMP_NUM_THREADS=77+DEEPSPEED_TIMEOUT=2",
     RANKS "OMP_NUM_THREADS=7 " MASTER
           "RV_NCCL_TIMEOUT=600 DEEPSPEED_TIMEOUT=20" SET (T600)},
    /* the same step: what stands stays, what is missing comes */
    {"RV_STEP=12.3 RANK=77 MASTER_ADDR=mine MASTER_PORT=29500",
     "RANK=77 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 NODE_RANK=1 "
     "GROUP_RANK=1 RV_STEP=12.3 OMP_NUM_THREADS=4 MASTER_ADDR=mine "
     "MASTER_PORT=29500 RV_NCCL_TIMEOUT=600" SET (OMP4 T600)},
    {"RV_STEP=12.3 RANK=77 OMP_NUM_THREADS=9 "
     "RV_SET=RANK=5+OMP_NUM_THREADS=9",
     "RANK=77 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 NODE_RANK=1 "
     "GROUP_RANK=1 RV_STEP=12.3 OMP_NUM_THREADS=9 " MASTER
     "RV_NCCL_TIMEOUT=600" SET ("+OMP_NUM_THREADS=9" T600)},
    /* the same step, another rank's: a container's doing */
    {"RV_STEP=12.3 RANK=4 LOCAL_RANK=0 OMP_NUM_THREADS=3 MASTER_ADDR=mine "
     "RV_SET=RANK=4+OMP_NUM_THREADS=3",
     RANKS "OMP_NUM_THREADS=4 MASTER_ADDR=mine MASTER_PORT=20001 "
           "RV_NCCL_TIMEOUT=600" SET (OMP4 T600)},
    {"RV_STEP=12.3 RANK=55 RV_SET=RANK=55",
     RANKS "OMP_NUM_THREADS=4 " MASTER "RV_NCCL_TIMEOUT=600" SET (OMP4 T600)},
    /* but the formula's pair, 20000 + 31*12 + 3, gives way */
    {"RV_STEP=12.3 MASTER_ADDR=n1 MASTER_PORT=20375",
     RANKS "OMP_NUM_THREADS=4 " MASTER "RV_NCCL_TIMEOUT=600" SET (OMP4 T600)},
};

static void inherited (void **state)
{
    for (size_t i = 0; i < LENGTH (inherits); i++) {
        struct rank_env_in in = base;
        struct env env;

        in.master_addr = "10.0.0.1";
        in.master_port = 20001;
        fill (&env, inherits[i].before);
        assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
        assert_env (&env, inherits[i].after);
        assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
        assert_env (&env, inherits[i].after);
    }
    (void)state;
}

static void master_not_given (void **state)
{
    struct env env;

    fill (&env, "RV_STEP=1.1 MASTER_ADDR=old MASTER_PORT=1");
    assert_int_equal (rank_env (&base, env_get, env_set, &env), 0);
    assert_string_equal (env_get (&env, "MASTER_ADDR"), "old");
    assert_string_equal (env_get (&env, "MASTER_PORT"), "1");
    (void)state;
}

static void timeouts (void **state)
{
    static const struct {
        int64_t t;
        const char *before, *after, *set;
    } v[] = {
        {0, "", "RV_NCCL_TIMEOUT=600", T600},
        {0, "RV_NCCL_TIMEOUT=90", "RV_NCCL_TIMEOUT=90", ""},
        {0, "NCCL_TIMEOUT=90", "NCCL_TIMEOUT=90", ""},
        {90, "",
         "RV_NCCL_TIMEOUT=90 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480 "
         "DEEPSPEED_TIMEOUT=2",
         "+RV_NCCL_TIMEOUT=90+TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480"
         "+DEEPSPEED_TIMEOUT=2"},
        {1800, "RV_NCCL_TIMEOUT=90",
         "RV_NCCL_TIMEOUT=1800 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800 "
         "DEEPSPEED_TIMEOUT=30",
         "+RV_NCCL_TIMEOUT=1800+TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800"
         "+DEEPSPEED_TIMEOUT=30"},
        {1801, "DEEPSPEED_TIMEOUT=5 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1",
         "RV_NCCL_TIMEOUT=1801 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1 "
         "DEEPSPEED_TIMEOUT=5",
         "+RV_NCCL_TIMEOUT=1801"},
        {1, "",
         "RV_NCCL_TIMEOUT=1 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480 "
         "DEEPSPEED_TIMEOUT=1",
         "+RV_NCCL_TIMEOUT=1+TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480"
         "+DEEPSPEED_TIMEOUT=1"},
        /* an outer step's gives way, all three of it */
        {600,
         "RV_STEP=12.1 RV_NCCL_TIMEOUT=1800 DEEPSPEED_TIMEOUT=30 "
         "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800 RV_SET=RANK=0"
         "+TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800+DEEPSPEED_TIMEOUT=30",
         "RV_NCCL_TIMEOUT=600 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600 "
         "DEEPSPEED_TIMEOUT=10",
         "+RV_NCCL_TIMEOUT=600+TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600"
         "+DEEPSPEED_TIMEOUT=10"},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rank_env_in in = base;
        struct env env;
        char want[1024];

        in.nccl_timeout_s = v[i].t;
        fill (&env, v[i].before);
        assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
        snprintf (want, sizeof (want),
                  RANKS "OMP_NUM_THREADS=4 %s RV_SET=RANK=5" OMP4 "%s",
                  v[i].after, v[i].set);
        assert_env (&env, want);
    }
    (void)state;
}

/* A launcher's processes share the CPUs: ours gives way, the user's stays. */
static void threads_anew (void **state)
{
    struct rank_env_in in = base;
    struct env env;

    in.renew_threads = true;
    fill (&env, "RV_STEP=12.3 OMP_NUM_THREADS=16 "
                "RV_SET=RANK=5+OMP_NUM_THREADS=16");
    assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
    assert_string_equal (env_get (&env, "OMP_NUM_THREADS"), "4");
    fill (&env, "RV_STEP=12.3 OMP_NUM_THREADS=16 RV_SET=RANK=5");
    assert_int_equal (rank_env (&in, env_get, env_set, &env), 0);
    assert_string_equal (env_get (&env, "OMP_NUM_THREADS"), "16");
    (void)state;
}

/* The first failure ends the call, and the mark of the step is not there. */
static void set_fails (void **state)
{
    struct rank_env_in in = base;
    struct env env;
    int last;

    in.master_addr = "a";
    in.master_port = 1;
    fill (&env, "");
    rank_env (&in, env_get, env_set, &env);
    last = env.calls;
    assert_int_equal (last, 12);
    for (int i = 1; i <= last; i++) {
        fill (&env, "");
        env.fail_at = i;
        assert_int_equal (rank_env (&in, env_get, env_set, &env), 42);
        assert_int_equal (env.calls, i);
        assert_null (env_get (&env, "RV_STEP"));
    }
    (void)state;
}

static void formula_port (void **state)
{
    static const uint32_t v[][3] = {
        {0, 0, 20000},
        {12, 3, 20375},
        {387, 3, 20000},
        {386, 33, 31999},
        {UINT32_MAX, UINT32_MAX, 21440},
    };

    for (size_t i = 0; i < LENGTH (v); i++)
        assert_int_equal (rank_env_formula_port (v[i][0], v[i][1]), v[i][2]);
    (void)state;
}

static void visible (void **state)
{
    static const struct {
        const char *text;
        int want;
    } v[] = {
        {NULL, -1},
        {"", 0},
        {"NoDevFiles", 0},
        {"nodevfiles", 0},
        {"-1", 0},
        {"0", 1},
        {"3,1", 2},
        {"0,1,2,3,4,5,6,7", 8},
        {"MIG-aaaa,GPU-bbbb", 2},
        {"MIG-GPU-1/2/3", 1},
        {"0,-1,1", 1},
        {"0,,1", 1},
        {",0", 0},
        {"0,", 1},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        if (rank_env_visible (v[i].text) != v[i].want)
            fail_msg ("'%s' gave %d", v[i].text, rank_env_visible (v[i].text));
    }
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (fresh),
        cmocka_unit_test (inherited),
        cmocka_unit_test (master_not_given),
        cmocka_unit_test (timeouts),
        cmocka_unit_test (threads_anew),
        cmocka_unit_test (set_fails),
        cmocka_unit_test (formula_port),
        cmocka_unit_test (visible),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
