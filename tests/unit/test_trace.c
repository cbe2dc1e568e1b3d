/* SPDX-License-Identifier: Apache-2.0
 * test_trace.c - timelines: JSON at all times, a crash included */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <train/copy.h>
#include <train/frames.h>
#include <train/group.h>
#include <train/trace.h>

static char path[64], rank_path[64];

static int set_up (void **state)
{
    int fd;

    (void)state;
    snprintf (path, sizeof (path), "/tmp/test_trace.XXXXXX.json");
    if ((fd = mkstemps (path, 5)) < 0)
        return -1;
    close (fd);
    snprintf (rank_path, sizeof (rank_path), "%.*s-3.json",
              (int)strlen (path) - 5, path);
    unsetenv ("RV_TRACE");
    unsetenv ("RANK");
    unsetenv ("WORLD_SIZE");
    unsetenv ("SLURM_PROCID");
    unsetenv ("SLURM_NTASKS");
    return 0;
}

static int tear_down (void **state)
{
    (void)state;
    train_trace_close (NULL);
    unlink (rank_path);
    return unlink (path);
}

static json_t *load (const char *file)
{
    json_error_t why;
    json_t *list = json_load_file (file, JSON_REJECT_DUPLICATES, &why);

    if (!list)
        fail_msg ("%s: byte %d: %s", file, why.position, why.text);
    assert_true (json_is_array (list));
    return list;
}

/* The [nth] span of that name; NULL if there are fewer. */
static json_t *find (json_t *list, const char *name, int nth)
{
    size_t i;
    json_t *e;

    json_array_foreach (list, i, e)
    {
        const char *ph = json_string_value (json_object_get (e, "ph"));
        const char *is = json_string_value (json_object_get (e, "name"));

        assert_non_null (ph);
        assert_non_null (is);
        if (strcmp (ph, "X") == 0 && strcmp (is, name) == 0 && nth-- == 0)
            return e;
    }
    return NULL;
}

static int64_t number (json_t *e, const char *key)
{
    json_t *value = json_object_get (e, key);

    if (!value)
        value = json_object_get (json_object_get (e, "args"), key);
    assert_true (json_is_integer (value));
    return json_integer_value (value);
}

static void one (const char *name, const char *row)
{
    const train_trace_arg_t args[] = {{"n", 5}, {"low", INT64_MIN}};
    train_span_t span = train_trace_begin ("step", name);

    train_trace_end (&span, row, args, 2);
}

static void test_arguments (void **state)
{
    train_error_t err;

    (void)state;
    assert_int_equal (train_trace_open (path, 3, 3, &err), TRAIN_EINVAL);
    assert_int_equal (train_trace_open (path, -1, 3, &err), TRAIN_EINVAL);
    assert_int_equal (train_trace_open ("/nonexistent/t", 0, 1, &err),
                      TRAIN_EIO);
    assert_non_null (strstr (err.text, "/nonexistent/t"));
    assert_int_equal (train_trace_open (NULL, 0, 1, &err), TRAIN_OK);
    one ("nowhere", NULL);
    assert_int_equal (train_trace_close (&err), TRAIN_OK);
}

static void test_spans (void **state)
{
    train_span_t outer, inner;
    json_t *list, *a, *b;
    train_error_t err;

    (void)state;
    assert_int_equal (train_trace_open (path, 0, 1, &err), TRAIN_OK);
    json_decref (load (path));
    outer = train_trace_begin ("step", "outer");
    inner = train_trace_begin ("step", "inner \"\\\n\x01\xff\xc3\xa9");
    train_trace_end (&inner, "row \"x\"", NULL, 0);
    train_trace_end (&outer, NULL, NULL, 0);
    one ("args", NULL);
    list = load (path); /* while it goes on */
    a = find (list, "outer", 0);
    b = find (list, "inner \"\\\n\x01?\xc3\xa9", 0);
    assert_non_null (a);
    assert_non_null (b);
    assert_true (number (a, "ts") <= number (b, "ts"));
    assert_true (number (a, "ts") + number (a, "dur")
                 >= number (b, "ts") + number (b, "dur"));
    assert_int_not_equal (number (a, "tid"), number (b, "tid"));
    assert_int_equal (number (find (list, "args", 0), "low"), INT64_MIN);
    json_decref (list);
    assert_int_equal (train_trace_close (&err), TRAIN_OK);
    json_decref (load (path));
}

/* One file a rank: by arguments, and by the environment. */
static void test_ranks (void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        json_t *list;

        unlink (rank_path);
        setenv (how == 1 ? "RANK" : "SLURM_PROCID", "3", 1);
        setenv (how == 1 ? "WORLD_SIZE" : "SLURM_NTASKS", "4", 1);
        setenv ("RV_TRACE", path, 1);
        assert_int_equal (train_trace_open (how == 0 ? path : NULL, 3,
                                            how == 0 ? 4 : 0, NULL),
                          TRAIN_OK);
        one ("mine", NULL);
        assert_int_equal (train_trace_close (NULL), TRAIN_OK);
        list = load (rank_path);
        assert_int_equal (number (find (list, "mine", 0), "pid"), 3);
        json_decref (list);
        unsetenv ("RANK");
        unsetenv ("WORLD_SIZE");
        unsetenv ("SLURM_PROCID");
        unsetenv ("SLURM_NTASKS");
        unsetenv ("RV_TRACE");
    }
}

/* The path is free before, and the file whole when it gets its name. kill -9 at many moments; rows are new now and then. */
static void test_killed (void **state)
{
    int rounds = getenv ("RV_TEST_LONG") ? 400 : 20;

    (void)state;
    unlink (path);
    for (int i = 0; i < rounds; i++) {
        char temp[96];
        pid_t pid = fork ();
        json_t *list;

        if (pid == 0) {
            char row[16];

            if (train_trace_open (path, 0, 1, NULL) != TRAIN_OK)
                _exit (1);
            for (int k = 0;; k++) {
                snprintf (row, sizeof (row), "row %d", k / 7);
                one ("work", row);
            }
        }
        for (int k = 0; k < 60000 && access (path, F_OK) != 0; k++)
            usleep (1000);
        usleep ((useconds_t)(i * 977 % 20000));
        kill (pid, SIGKILL);
        assert_int_equal (waitpid (pid, NULL, 0), pid);
        list = load (path);
        json_decref (list);
        unlink (path);
        snprintf (temp, sizeof (temp), "%s.%d.tmp", path, (int)pid);
        unlink (temp); /* killed while the file grew */
    }
    close (open (path, O_CREAT | O_WRONLY, 0600));
}

static void *work (void *arg)
{
    for (int i = 0; i < 200; i++)
        one (arg, NULL);
    return NULL;
}

static void test_threads (void **state)
{
    pthread_t thread[4];
    json_t *list;
    pid_t pid;

    (void)state;
    assert_int_equal (train_trace_open (path, 0, 1, NULL), TRAIN_OK);
    for (int i = 0; i < 4; i++)
        pthread_create (&thread[i], NULL, work, "threaded");
    for (int i = 0; i < 4; i++)
        pthread_join (thread[i], NULL);
    if ((pid = fork ()) == 0) {
        one ("a fork's", NULL);
        _exit (0);
    }
    assert_int_equal (waitpid (pid, NULL, 0), pid);
    list = load (path);
    assert_non_null (find (list, "threaded", 799));
    assert_null (find (list, "threaded", 800));
    assert_null (find (list, "a fork's", 0));
    json_decref (list);
    assert_int_equal (train_trace_close (NULL), TRAIN_OK);
}

/* No room: what is there stays a list, and the end says so. */
static void test_full (void **state)
{
    struct rlimit old, small;
    train_error_t err = {0};

    (void)state;
    signal (SIGXFSZ, SIG_IGN);
    assert_int_equal (getrlimit (RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1000;
    assert_int_equal (train_trace_open (path, 0, 1, NULL), TRAIN_OK);
    setrlimit (RLIMIT_FSIZE, &small);
    for (int i = 0; i < 20; i++)
        one ("more", NULL);
    setrlimit (RLIMIT_FSIZE, &old);
    one ("late", NULL);
    assert_int_equal (train_trace_close (&err), TRAIN_EIO);
    assert_non_null (strstr (err.text, "not written"));
    json_t *list = load (path);
    assert_non_null (find (list, "more", 0));
    assert_null (find (list, "late", 0));
    json_decref (list);
}

#define BIG ((size_t)4 << 20)

static void *receive (void *arg)
{
    train_frames_options_t o = {.size = sizeof (o), .peer = "rank 0"};
    train_safetensors_t *file = NULL;
    train_frames_t *f = NULL;

    assert_int_equal (train_frames_open (*(int *)arg, &o, &f, NULL), TRAIN_OK);
    assert_int_equal (train_frames_recv (f, &file, NULL), TRAIN_OK);
    train_safetensors_close (file);
    train_frames_close (f);
    return NULL;
}

/* What libtrain notes of itself: a copy at both ends, and a frame that is on
 * its way out and in at one time. */
static void test_both_sides (void **state)
{
    train_frames_options_t o = {.size = sizeof (o), .peer = "rank 1"};
    train_copier_options_t c = {
        .size = sizeof (c), .device = "host", .probe = ""};
    char *big = calloc (1, BIG);
    train_st_entry_t e = {.name = "big",
                          .dtype = TRAIN_U8,
                          .ndim = 1,
                          .shape = {BIG},
                          .data = big};
    const int64_t shape[] = {16};
    train_copier_t *copier = NULL;
    train_frames_t *f = NULL;
    train_tensor_t from, to;
    json_t *list, *out, *in;
    char x[16] = {1}, y[16];
    pthread_t thread;
    int pair[2];

    (void)state;
    setenv ("RV_TRACE", path, 1);
    assert_int_equal (train_copier_create (&c, &copier, NULL), TRAIN_OK);
    train_tensor_view (&from, x, TRAIN_U8, 1, shape, NULL);
    train_tensor_view (&to, y, TRAIN_U8, 1, shape, NULL);
    assert_int_equal (
        train_copy (copier, &to.t, NULL, &from.t, NULL, NULL, NULL, NULL),
        TRAIN_OK);
    train_copier_destroy (copier);
    assert_int_equal (socketpair (AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pthread_create (&thread, NULL, receive, &pair[1]);
    assert_int_equal (train_frames_open (pair[0], &o, &f, NULL), TRAIN_OK);
    assert_int_equal (train_frames_send (f, &e, 1, NULL, 0, NULL), TRAIN_OK);
    pthread_join (thread, NULL);
    train_frames_close (f);
    free (big);
    list = load (path);
    out = find (list, "copy local", 0);
    in = find (list, "copy local", 1);
    assert_int_equal (number (out, "bytes"), 16);
    assert_int_not_equal (number (out, "tid"), number (in, "tid"));
    out = find (list, "send", 0);
    in = find (list, "receive", 0);
    assert_int_equal (number (out, "bytes"), number (in, "bytes"));
    assert_true (number (in, "ts") < number (out, "ts") + number (out, "dur"));
    assert_true (number (out, "ts") < number (in, "ts") + number (in, "dur"));
    json_decref (list);
    assert_int_equal (train_trace_close (NULL), TRAIN_OK);
    unsetenv ("RV_TRACE");
}

/* One after the other: does [in] lie within [out] on one row? */
static void expect_nested (json_t *in, json_t *out)
{
    assert_non_null (in);
    assert_non_null (out);
    assert_int_equal (number (in, "tid"), number (out, "tid"));
    assert_true (number (out, "ts") <= number (in, "ts"));
    assert_true (number (out, "ts") + number (out, "dur")
                 >= number (in, "ts") + number (in, "dur"));
}

/* Every call of a group: blocking, asynchronous, of a list, of objects, failed;
 * and a step around some of them. */
static void test_group_calls (void **state)
{
    train_group_options_t o = {
        .size = sizeof (o), .backend = "self", .name = "g"};
    const int64_t shape[] = {10};
    train_group_t *group = NULL;
    train_work_t *work = NULL;
    float x[10] = {1}, y[10];
    train_tensor_t a, b;
    DLTensor *both[] = {&a.t, &b.t};
    json_t *list, *step;

    (void)state;
    setenv ("RV_TRACE", path, 1);
    assert_int_equal (train_group_create (&o, &group, NULL), TRAIN_OK);
    train_tensor_view (&a, x, TRAIN_F32, 1, shape, NULL);
    train_tensor_view (&b, y, TRAIN_F32, 1, shape, NULL);
    assert_int_equal (train_step_begin (group, NULL), TRAIN_OK);
    assert_int_equal (train_all_reduce (group, &a.t, TRAIN_MAX, NULL),
                      TRAIN_OK);
    assert_int_equal (
        train_all_reduce_async (group, &a.t, TRAIN_AVG, &work, NULL), TRAIN_OK);
    assert_int_equal (train_work_wait (work, -1, NULL), TRAIN_OK);
    assert_int_equal (train_step_end (group, NULL), TRAIN_OK);
    assert_int_equal (train_all_reduce_list (group, both, 2, TRAIN_SUM, NULL),
                      TRAIN_OK);
    assert_int_equal (train_broadcast_list (group, both, 2, 0, NULL), TRAIN_OK);
    assert_int_equal (train_all_gather (group, &a.t, &b.t, NULL), TRAIN_OK);
    assert_int_equal (train_barrier (group, NULL), TRAIN_OK);
    train_group_destroy (group);
    assert_int_equal (train_trace_close (NULL), TRAIN_OK);
    unsetenv ("RV_TRACE");
    list = load (path);
    step = find (list, "collectives of a step", 0);
    expect_nested (find (list, "all_reduce max", 0), step);
    expect_nested (find (list, "all_reduce avg", 0), step);
    assert_int_equal (number (step, "calls"), 2);
    assert_int_equal (number (find (list, "all_reduce max", 0), "bytes"), 40);
    assert_int_equal (number (find (list, "all_reduce avg", 0), "ranks"), 1);
    assert_int_equal (number (find (list, "all_reduce_list sum", 0), "bytes"),
                      80);
    assert_non_null (find (list, "broadcast_list", 0));
    assert_non_null (find (list, "all_gather", 0));
    assert_int_equal (number (find (list, "barrier", 0), "status"), 0);
    json_decref (list);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments),  cmocka_unit_test (test_spans),
        cmocka_unit_test (test_ranks),      cmocka_unit_test (test_threads),
        cmocka_unit_test (test_killed),     cmocka_unit_test (test_full),
        cmocka_unit_test (test_both_sides), cmocka_unit_test (test_group_calls),
    };

    return cmocka_run_group_tests_name ("trace", tests, set_up, tear_down);
}
