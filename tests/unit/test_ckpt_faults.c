/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt_faults.c - full disks, lost files, late and killed ranks: the last
 * good checkpoint stays and is found, and the text names the file */
#include "config.h"

#include "ckpt_world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* A full disk for one rank of three, played by a limit on file sizes: rank 0
 * says whose it was, and what was there stays. */
static void test_no_room (void **state)
{
    static struct model m;
    struct rlimit old, low;
    train_error_t err = {0};
    train_ckpt_t *c;

    (void)state;
    fill (&m, 1);
    save_well ("room", 1, &m, 3, LAST);
    assert_int_equal (getrlimit (RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 400; /* of the last rank's alone is more */
    signal (SIGXFSZ, SIG_IGN);
    assert_int_equal (setrlimit (RLIMIT_FSIZE, &low), 0);
    assert_int_equal (save_as ("room", 2, &m, 3, LAST, &err), TRAIN_EIO);
    assert_int_equal (setrlimit (RLIMIT_FSIZE, &old), 0);
    if (!strstr (err.text, "rank 2: ") || !strstr (err.text, ".safetensors"))
        fail_msg ("%s", err.text);
    c = open_latest ("room");
    assert_int_equal (train_ckpt_step (c), 1);
    assert_int_equal (train_ckpt_verify (c, NULL), 0);
    train_ckpt_close (c);
}

/* A rank that never writes is named at the deadline. */
static void test_late_rank (void **state)
{
    static struct model m;
    train_ckpt_options_t o = options ("late", 1);
    struct ckpt_job job = {0};
    train_ckpt_piece_t p = piece (&m, 0, 0, 2, FLAT);
    train_error_t err = {0};

    (void)state;
    o.timeout_s = 0.05;
    assert_int_equal (ckpt_job_init (&job, &p, 1, &o, 0, 2, NULL), 0);
    assert_int_equal (ckpt_dir_begin ("late", 1, &job.temp, NULL), 0);
    assert_int_equal (ckpt_job_run (&job, &err), TRAIN_ETIMEDOUT);
    assert_non_null (strstr (err.text, "rank 1 has not written"));
    assert_int_equal (access ("late/step-00000001", F_OK), -1);
    ckpt_job_fini (&job);
}

static void put_bytes (const char *path, const char *buf, size_t len)
{
    int fd = open (path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_true (fd >= 0);
    assert_int_equal (write (fd, buf, len), len);
    close (fd);
}

/* The damaged one is passed over, the one before is found, and the text names
 * the file. */
static void passed (const char *file, train_status_t status)
{
    train_error_t why = {0}, err = {0};
    char *path = NULL;

    if (train_ckpt_find_good ("hurt", &path, &why, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    if (why.code != status || !strstr (why.text, file))
        fail_msg ("%s: %s", train_status_name (why.code), why.text);
    assert_string_equal (path, "hurt/step-00000001");
    free (path);
}

static void hurt (const char *file)
{
    char path[128], away[160], *whole;
    size_t len;

    snprintf (path, sizeof (path), "hurt/step-00000002/%s", file);
    snprintf (away, sizeof (away), "%s.away", path);
    assert_int_equal (fsio_read (path, 1 << 20, &whole, &len, NULL), 0);
    for (size_t i = 0; i < len; i += 1 + len / 50) {
        whole[i] ^= 4;
        put_bytes (path, whole, len);
        passed (file, strcmp (file, "checkpoint.json") == 0 && i == 0
                          ? TRAIN_EFORMAT
                          : TRAIN_ECORRUPT);
        whole[i] ^= 4;
    }
    put_bytes (path, whole, len - 1);
    passed (file, TRAIN_ECORRUPT);
    put_bytes (path, whole, len);
    assert_int_equal (rename (path, away), 0);
    passed (file, TRAIN_ENOTFOUND);
    assert_int_equal (rename (away, path), 0);
    free (whole);
}

static void test_last_good (void **state)
{
    static struct model m;
    train_error_t why = {0};
    char *path = NULL;

    (void)state;
    fill (&m, 1);
    save_well ("hurt", 1, &m, 2, FLAT);
    save_well ("hurt", 2, &m, 3, FLAT);
    hurt ("model-00002-of-00003.safetensors");
    hurt ("state-00001-of-00003.safetensors");
    hurt ("config.json");
    assert_int_equal (train_ckpt_find_good ("hurt", &path, &why, NULL), 0);
    assert_string_equal (path, "hurt/step-00000002");
    assert_int_equal (why.code, 0);
    free (path);
    assert_int_equal (unlink ("hurt/step-00000002/checkpoint.json"), 0);
    assert_int_equal (unlink ("hurt/step-00000001/config.json"), 0);
    assert_int_equal (train_ckpt_find_good ("hurt", &path, &why, &why),
                      TRAIN_ENOTFOUND);
    assert_non_null (strstr (why.text, "step-00000002"));
}

/* Only complete ones count and go. */
static void test_keep (void **state)
{
    static struct model m;

    (void)state;
    fill (&m, 1);
    save_well ("keep", 1, &m, 1, FLAT);
    assert_int_equal (unlink ("keep/step-00000001/checkpoint.json"), 0);
    for (int step = 2; step <= 5; step++)
        save_well ("keep", step, &m, 2, FLAT);
    assert_int_equal (access ("keep/step-00000001", F_OK), 0);
    assert_int_equal (access ("keep/step-00000002", F_OK), -1);
    assert_int_equal (access ("keep/step-00000003", F_OK), -1);
    assert_int_equal (access ("keep/step-00000004", F_OK), 0);
}

/* Two runs in one folder: the one whose files the other swept says so. */
static void test_two_runs (void **state)
{
    static struct model m;
    train_ckpt_options_t o = options ("both", 1);
    train_ckpt_piece_t p[N_TENSORS];
    struct ckpt_job job = {0};
    train_error_t err = {0};
    char *other = NULL;

    (void)state;
    fill (&m, 1);
    pieces (p, &m, 0, 1, FLAT);
    assert_int_equal (ckpt_job_init (&job, p, N_TENSORS, &o, 0, 1, NULL), 0);
    assert_int_equal (ckpt_dir_begin ("both", 1, &job.temp, NULL), 0);
    assert_int_equal (ckpt_dir_begin ("both", 2, &other, NULL), 0);
    assert_int_equal (ckpt_job_run (&job, &err), TRAIN_EIO);
    assert_string_equal (
        err.text, "both/.tmp-step-00000001 was removed while it was written: "
                  "another run has its checkpoints in both, too; each needs a "
                  "folder of its own");
    assert_int_equal (access (other, F_OK), 0);
    ckpt_job_fini (&job);
    free (other);
}

/* Two processes write as ranks 0 and 1, step after step; one of them, or both,
 * are killed: what is there is whole, of one step, and not older. */
static void write_on (int rank, int64_t from, const int *temp_pipe)
{
    static struct model m;

    close (temp_pipe[rank == 0 ? 0 : 1]);
    for (int64_t step = from;; step++) {
        train_ckpt_options_t o = options ("kill", step);
        struct ckpt_job job = {0};
        train_ckpt_piece_t p[N_TENSORS];
        char name[256] = "";

        o.timeout_s = 0.3;
        fill (&m, (unsigned)step);
        pieces (p, &m, rank, 2, FLAT);
        if (ckpt_job_init (&job, p, N_TENSORS, &o, rank, 2, NULL) != TRAIN_OK)
            _exit (1);
        if (rank == 0 && ckpt_dir_begin ("kill", step, &job.temp, NULL) == 0) {
            snprintf (name, sizeof (name), "%s", job.temp);
            if (write (temp_pipe[1], name, sizeof (name)) != sizeof (name))
                _exit (1);
        } else if (rank == 1
                   && read (temp_pipe[0], name, sizeof (name))
                          == sizeof (name)) {
            job.temp = strdup (name);
        } else {
            _exit (1);
        }
        if (ckpt_job_run (&job, NULL) != TRAIN_OK)
            _exit (1);
        ckpt_job_fini (&job);
    }
}

static void kill_one (int round)
{
    static struct model want;
    const struct timespec pause = {0, 3000000 + round * 1700000L % 41000000};
    train_ckpt_t *c = open_latest ("kill");
    int64_t first = train_ckpt_step (c);
    int fds[2], status;
    pid_t pid[2];

    train_ckpt_close (c);
    assert_int_equal (pipe (fds), 0);
    for (int rank = 0; rank < 2; rank++) {
        assert_true ((pid[rank] = fork ()) >= 0);
        if (pid[rank] == 0)
            write_on (rank, first + 1, fds);
    }
    close (fds[0]);
    close (fds[1]);
    nanosleep (&pause, NULL);
    kill (pid[round % 2], SIGKILL);
    if (round % 3)
        kill (pid[(round + 1) % 2], SIGKILL);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal (waitpid (pid[rank], &status, 0), pid[rank]);
    c = open_latest ("kill");
    assert_true (train_ckpt_step (c) >= first);
    assert_int_equal (train_ckpt_verify (c, NULL), 0);
    fill (&want, (unsigned)train_ckpt_step (c));
    read_as (c, &want, 3, FLAT);
    train_ckpt_close (c);
}

static void test_killed_writers (void **state)
{
    static struct model m;
    const char *many = getenv ("RV_TEST_LONG");
    int rounds = many && strcmp (many, "1") == 0 ? 200 : 10;

    (void)state;
    signal (SIGPIPE, SIG_IGN);
    fill (&m, 1);
    save_well ("kill", 1, &m, 2, FLAT);
    for (int round = 0; round < rounds; round++)
        kill_one (round);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_no_room),
        cmocka_unit_test (test_late_rank),
        cmocka_unit_test (test_last_good),
        cmocka_unit_test (test_keep),
        cmocka_unit_test (test_two_runs),
        cmocka_unit_test (test_killed_writers),
    };

    return cmocka_run_group_tests_name ("ckpt_faults", tests, set_up,
                                        tear_down);
}
