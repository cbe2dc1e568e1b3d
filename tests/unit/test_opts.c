/* SPDX-License-Identifier: Apache-2.0
 * test_opts.c - options of programs built against an older or a newer header */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <train.h>

#include "opts.h"

struct small {
    size_t size;
    int a;
};
struct now {
    size_t size;
    int a, b;
    const char *c;
};
struct later {
    struct now now;
    int d[4];
};

static void sizes (void **state)
{
    struct later later = {.now = {sizeof (later), 1, 2, "x"}};
    struct small small = {sizeof (small), 7};
    struct now now = {sizeof (now), 3, 4, "y"}, got;
    train_error_t err = {0};

    (void)state;
    memset (&got, 0xff, sizeof (got));
    assert_int_equal (opts_read (&got, sizeof (got), NULL, "t", &err),
                      TRAIN_OK);
    assert_true (got.size == sizeof (got) && !got.a && !got.b && !got.c);
    assert_int_equal (opts_read (&got, sizeof (got), &now, "t", &err),
                      TRAIN_OK);
    assert_true (got.a == 3 && got.b == 4 && got.c[0] == 'y');
    small.size = offsetof (struct small, a) + sizeof (int);
    assert_int_equal (opts_read (&got, sizeof (got), &small, "t", &err),
                      TRAIN_OK);
    assert_true (got.size == sizeof (got) && got.a == 7 && !got.b && !got.c);
    assert_int_equal (opts_read (&got, sizeof (got), &later, "t", &err),
                      TRAIN_OK);
    assert_true (got.size == sizeof (got) && got.a == 1 && got.c[0] == 'x');
    later.d[3] = 1;
    assert_int_equal (opts_read (&got, sizeof (got), &later, "t", &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "t: options of"));
    for (now.size = 0; now.size < sizeof (size_t); now.size++)
        assert_int_equal (opts_read (&got, sizeof (got), &now, "t", &err),
                          TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "sizeof"));
}

/* Each call with [opts]: the status; what was made is ended. */
static train_status_t make_group (const void *opts, train_error_t *err)
{
    train_group_t *group = NULL;
    train_status_t status = train_group_create (opts, &group, err);

    train_group_destroy (group);
    return status;
}

static train_status_t make_copier (const void *opts, train_error_t *err)
{
    train_copier_t *copier = NULL;
    train_status_t status = train_copier_create (opts, &copier, err);

    train_copier_destroy (copier);
    return status;
}

static train_status_t copy_once (const void *opts, train_error_t *err)
{
    train_copier_options_t o = {.size = sizeof (o), .device = "host"};
    train_copier_t *copier = NULL;
    train_tensor_t a, b;
    train_status_t status;
    int32_t x = 5, y = 0;

    if ((status = train_copier_create (&o, &copier, err)) != TRAIN_OK)
        return status;
    train_tensor_view (&a, &x, TRAIN_I32, 0, NULL, NULL);
    train_tensor_view (&b, &y, TRAIN_I32, 0, NULL, NULL);
    status = train_copy (copier, &b.t, NULL, &a.t, NULL, opts, NULL, err);
    assert_int_equal (y, status == TRAIN_OK ? 5 : 0);
    train_copier_destroy (copier);
    return status;
}

static train_status_t make_frames (const void *opts, train_error_t *err)
{
    train_frames_t *frames = NULL;
    train_status_t status;
    int fd[2];

    assert_int_equal (socketpair (AF_UNIX, SOCK_STREAM, 0, fd), 0);
    status = train_frames_open (fd[0], opts, &frames, err);
    train_frames_close (frames);
    close (fd[0]);
    close (fd[1]);
    return status;
}

static train_status_t make_adamw (const void *opts, train_error_t *err)
{
    train_adamw_t *adamw = NULL;
    train_status_t status =
        train_adamw_create (opts, TRAIN_F32, 8, NULL, 0, &adamw, err);

    train_adamw_destroy (adamw);
    return status;
}

static train_status_t check_schedule (const void *opts, train_error_t *err)
{
    return train_schedule_check (opts, err);
}

/* A group of before it had a device and a stream; for the others all of today
 * but the last byte, which is padding or zero. */
static void public_structs (void **state)
{
    static train_group_options_t group = {.backend = "self", .name = "old"};
    static train_copier_options_t copier = {.device = "host"};
    static train_copy_options_t copy = {.verify = TRAIN_VERIFY_FULL};
    static train_frames_options_t frames = {.peer = "me"};
    static train_adamw_options_t adamw = {.eps = 1e-8};
    static train_schedule_t schedule = {.lr = 1, .steps = 9};
    static const struct {
        const char *name;
        train_status_t (*call) (const void *opts, train_error_t *err);
        const void *now;
        size_t full, old;
    } all[] = {
        {"group", make_group, &group, sizeof (group),
         offsetof (train_group_options_t, device)},
        {"copier", make_copier, &copier, sizeof (copier),
         offsetof (train_copier_options_t, trace)},
        {"copy", copy_once, &copy, sizeof (copy),
         offsetof (train_copy_options_t, count_nonfinite)},
        {"frames", make_frames, &frames, sizeof (frames), sizeof (frames) - 1},
        {"adamw", make_adamw, &adamw, sizeof (adamw), sizeof (adamw) - 1},
        {"schedule", check_schedule, &schedule, sizeof (schedule),
         sizeof (schedule) - 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) {
        size_t sizes[] = {all[i].old, all[i].full, all[i].full + 16};
        char *bytes = calloc (1, all[i].full + 16);
        train_error_t err = {0};

        memcpy (bytes, all[i].now, all[i].full);
        for (size_t k = 0; k < 3; k++) {
            memcpy (bytes, &sizes[k], sizeof (size_t));
            /* not read past its size */
            memset (bytes + sizes[k], k == 0 ? 0x81 : 0,
                    all[i].full + 16 - sizes[k]);
            if (k > 0)
                memcpy (bytes + 8, (const char *)all[i].now + 8,
                        all[i].full - 8);
            if (all[i].call (bytes, &err) != TRAIN_OK)
                fail_msg ("%s, %zu bytes: %s", all[i].name, sizes[k], err.text);
        }
        bytes[all[i].full + 15] = 1;
        if (all[i].call (bytes, &err) != TRAIN_EINVAL
            || strncmp (err.text, all[i].name, strlen (all[i].name)) != 0)
            fail_msg ("%s: %s", all[i].name, err.text);
        memset (bytes, 0, sizeof (size_t));
        assert_int_equal (all[i].call (bytes, &err), TRAIN_EINVAL);
        free (bytes);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (sizes),
        cmocka_unit_test (public_structs),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
