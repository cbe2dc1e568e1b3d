/* SPDX-License-Identifier: Apache-2.0
 * test_sandbox_folder.c - the folder of a sandbox and its control groups: who
 * may have them, and what many at once see */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "sandbox/cgroup.h"
#include "sandbox/folder.h"
#include "sandbox/state.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static char tmp[] = "/tmp/rv-test-sb-XXXXXX";
static char dir[SANDBOX_MAX_DIR + 1];

static int setup (void **state)
{
    (void)state;
    if (!mkdtemp (tmp))
        return 1;
    snprintf (dir, sizeof (dir), "%s/s", tmp);
    return 0;
}

static int teardown (void **state)
{
    (void)state;
    return fsio_remove_tree (tmp, NULL);
}

/* ---- folder ---- */

static void folder_names (void **state)
{
    char ret[SANDBOX_MAX_DIR + 1] = "untouched", longer[200];
    static const char *const bad[] = {"",
                                      "/",
                                      ".",
                                      "..",
                                      "/tmp/..",
                                      "/tmp/a b",
                                      "/tmp/a%n",
                                      "/tmp/a#b",
                                      "/tmp/a\"",
                                      "/tmp/a\nb",
                                      "/no-such-parent/x"};

    for (size_t i = 0; i < LENGTH (bad); i++) {
        struct rv_error err = {0};

        assert_int_not_equal (folder_resolve (bad[i], ret, &err), RV_OK);
        assert_true (err.text[0] != '\0');
        assert_string_equal (ret, "untouched");
    }
    snprintf (longer, sizeof (longer), "/tmp/%0100d", 1);
    assert_int_equal (folder_resolve (longer, ret, NULL), RV_EINVAL);
    assert_int_equal (folder_resolve ("/tmp/../tmp/x//", ret, NULL), RV_OK);
    assert_string_equal (ret, "/tmp/x");
    assert_int_equal (chdir (tmp), 0);
    assert_int_equal (folder_resolve ("x", ret, NULL), RV_OK);
    assert_memory_equal (ret, tmp, strlen (tmp));
    assert_string_equal (ret + strlen (tmp), "/x");
    assert_int_equal (chdir ("/"), 0);
    setenv ("XDG_RUNTIME_DIR", tmp, 1);
    assert_int_equal (folder_resolve (NULL, ret, NULL), RV_OK);
    assert_memory_equal (ret, tmp, strlen (tmp));
    unsetenv ("XDG_RUNTIME_DIR");
    assert_int_equal (folder_resolve (NULL, ret, NULL), RV_OK);
    assert_memory_equal (ret, "/tmp/rv-sandbox-", 16);
    (void)state;
}

static void folder_of_others_is_refused (void **state)
{
    char *file = fsio_join (dir, "precious"), link[128];
    struct stat st;
    int fd;

    assert_int_equal (folder_lock (dir, 0, &fd, NULL), RV_ENOTFOUND);
    assert_int_equal (mkdir (dir, 0755), 0);
    assert_int_equal (fsio_write (file, "x", 1, 0600, NULL), RV_OK);
    assert_int_equal (folder_lock (dir, 1, &fd, NULL), RV_EINVAL);
    assert_int_equal (folder_lock (dir, 0, &fd, NULL), RV_EINVAL);
    assert_int_equal (folder_check (dir, NULL, NULL), RV_EINVAL);
    assert_int_equal (stat (file, &st), 0);
    /* A link is not the folder. */
    snprintf (link, sizeof (link), "%s/l", tmp);
    unlink (file);
    assert_int_equal (symlink (dir, link), 0);
    assert_int_equal (folder_lock (link, 1, &fd, NULL), RV_EINVAL);
    unlink (link);
    /* An empty folder becomes ours and ours alone. */
    assert_int_equal (folder_check (dir, NULL, NULL), RV_ENOTFOUND);
    assert_int_equal (folder_lock (dir, 1, &fd, NULL), RV_OK);
    assert_int_equal (stat (dir, &st), 0);
    assert_int_equal (st.st_mode & 07777, 0700);
    assert_int_equal (folder_remove (dir, NULL), RV_OK);
    assert_int_equal (stat (dir, &st), -1);
    close (fd);
    free (file);
    (void)state;
}

static void lock_waits_and_sees_removal (void **state)
{
    int fd, other, status;
    struct stat st;
    pid_t pid;

    assert_int_equal (folder_lock (dir, 1, &fd, NULL), RV_OK);
    if (!(pid = fork ())) {
        close (fd);
        /* The holder removes the folder: a creator makes it anew. */
        _exit (folder_lock (dir, 1, &other, NULL) != RV_OK);
    }
    usleep (30000);
    assert_int_equal (waitpid (pid, &status, WNOHANG), 0);
    assert_int_equal (folder_remove (dir, NULL), RV_OK);
    close (fd);
    assert_int_equal (waitpid (pid, &status, 0), pid);
    assert_int_equal (status, 0);
    assert_int_equal (stat (dir, &st), 0);
    assert_int_equal (folder_lock (dir, 0, &fd, NULL), RV_OK);
    assert_int_equal (folder_remove (dir, NULL), RV_OK);
    close (fd);
    (void)state;
}

/* A mark that has not got its word makes no sandbox of another's folder. */
static void a_mark_alone_is_no_claim (void **state)
{
    char *file = fsio_join (dir, "precious"), *mark;
    struct stat st;
    bool busy = true;
    int fd;

    mark = fsio_join (dir, SANDBOX_MARK);
    assert_int_equal (mkdir (dir, 0755), 0);
    assert_int_equal (fsio_write (file, "x", 1, 0600, NULL), RV_OK);
    assert_int_equal (fsio_write (mark, "", 0, 0600, NULL), RV_OK);
    assert_int_equal (folder_check (dir, &busy, NULL), RV_EINVAL);
    assert_int_equal (folder_lock (dir, 0, &fd, NULL), RV_EINVAL);
    assert_int_equal (folder_lock (dir, 1, &fd, NULL), RV_EINVAL);
    assert_int_equal (stat (mark, &st), -1);
    assert_int_equal (stat (file, &st), 0);
    assert_int_equal (st.st_size, 1);
    assert_int_equal (stat (dir, &st), 0);
    assert_int_equal (st.st_mode & 07777, 0755);
    /* Alone it is what a killed `up` left, or one that begins: no sandbox
     * yet, and for `down` to remove. */
    assert_int_equal (unlink (file), 0);
    assert_int_equal (fsio_write (mark, "", 0, 0600, NULL), RV_OK);
    assert_int_equal (folder_check (dir, &busy, NULL), RV_ENOTFOUND);
    assert_false (busy);
    assert_int_equal (folder_lock (dir, 0, &fd, NULL), RV_OK);
    assert_int_equal (folder_check (dir, &busy, NULL), RV_OK);
    assert_true (busy);
    assert_int_equal (folder_remove (dir, NULL), RV_OK);
    close (fd);
    /* A FIFO in its place holds nobody. */
    assert_int_equal (mkdir (dir, 0755), 0);
    assert_int_equal (mkfifo (mark, 0600), 0);
    assert_int_equal (folder_check (dir, NULL, NULL), RV_EINVAL);
    assert_int_equal (folder_lock (dir, 1, &fd, NULL), RV_EINVAL);
    assert_int_equal (unlink (mark), 0);
    assert_int_equal (rmdir (dir), 0);
    free (mark);
    free (file);
    (void)state;
}

/* One of many that take the folder, fill it and leave or remove it. */
static void contend (int k, int rounds)
{
    char *file = fsio_join (dir, "file");
    int fd, rc;

    for (int i = 0; i < rounds; i++) {
        bool up = (i + k) % 3 != 2; /* else `down` */
        struct rv_error err = {0};

        if ((rc = folder_lock (dir, up, &fd, &err))) {
            if (!up && rc == RV_ENOTFOUND)
                continue;
            fprintf (stderr, "%s: %s\n", up ? "up" : "down", err.text);
            _exit (1);
        }
        /* With the lock nobody else's file may come or go. */
        if (up
            && ((unlink (file) && errno != ENOENT)
                || fsio_write (file, "x", 1, 0600, &err)
                || access (file, F_OK)))
            _exit (2);
        if (!up && folder_remove (dir, &err)) {
            fprintf (stderr, "remove: %s\n", err.text);
            _exit (3);
        }
        close (fd);
    }
    free (file);
    _exit (0);
}

/* And one that only looks: never is the folder another's, or unreadable. */
static void watch (int rounds)
{
    for (int i = 0; i < rounds; i++) {
        struct rv_error err = {0};
        bool busy;
        int rc = folder_check (dir, &busy, &err);

        if (rc && rc != RV_ENOTFOUND) {
            fprintf (stderr, "look: %s\n", err.text);
            _exit (4);
        }
    }
    _exit (0);
}

static void many_at_once_never_misjudge (void **state)
{
    int rounds = getenv ("RV_TEST_LONG") ? 4000 : 200, status, fd;
    pid_t pid[8];

    for (int k = 0; k < 8; k++)
        if (!(pid[k] = fork ())) {
            if (k < 6)
                contend (k, rounds);
            watch (rounds * 20);
        }
    for (int k = 0; k < 8; k++) {
        assert_int_equal (waitpid (pid[k], &status, 0), pid[k]);
        assert_int_equal (status, 0);
    }
    if (!folder_lock (dir, 0, &fd, NULL)) {
        assert_int_equal (folder_remove (dir, NULL), RV_OK);
        close (fd);
    }
    (void)state;
}

/* ---- control groups ---- */

static void cgroup_mounts (void **state)
{
    static const char info[] =
        "25 30 0:23 / /sys rw - sysfs sysfs rw\n"
        "32 31 0:29 / /cg/two rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
        "33 31 0:30 / /cg/memory\\040x rw,memory - cgroup cgroup rw,memory2\n"
        "34 31 0:31 / /cg/cpu,cpuacct rw shared:1 master:2 - cgroup none "
        "rw,cpu,cpuacct\n"
        "35 31 0:32 /docker/1 /cg/a\\040b\\134c rw - cgroup cgroup "
        "rw,memory\n"
        "36 31 0:33 / /cg/late rw - cgroup cgroup rw,memory,freezer";
    static const struct {
        const char *controller, *point;
    } v[] = {
        {"memory", "/cg/a b\\c"},
        {"cpu", "/cg/cpu,cpuacct"},
        {"cpuacct", "/cg/cpu,cpuacct"},
        {"freezer", "/cg/late"},
        {"devices", NULL},
        {"mem", NULL},
        {"cpu,cpuacct", NULL},
        {"", NULL},
    };
    char point[64];

    for (size_t i = 0; i < LENGTH (v); i++) {
        bool found =
            cgroup_mount_of (info, v[i].controller, point, sizeof (point));

        assert_int_equal (found, v[i].point != NULL);
        if (found)
            assert_string_equal (point, v[i].point);
    }
    assert_false (cgroup_mount_of (info, "freezer", point, 8));
    assert_true (cgroup_mount_of (info, "freezer", point, 9));
    assert_false (cgroup_mount_of ("", "memory", point, sizeof (point)));
    assert_false (cgroup_mount_of ("x - cgroup y", "memory", point, 64));
    assert_false (
        cgroup_mount_of (" - cgroup y rw,memory", "memory", point, 64));
    (void)state;
}

/* A link to something else, or under another name, is not followed: nothing
 * is removed through it. */
static void cgroup_links_of_others (void **state)
{
    static const char *const target[] = {"rv0123abcd", "precious",
                                         "rv0123abcd/../precious"};
    char path[200], text[200];
    struct stat st;

    assert_int_equal (mkdir (dir, 0700), 0);
    snprintf (path, sizeof (path), "%s/cgroup", dir);
    assert_int_equal (mkdir (path, 0700), 0);
    for (size_t i = 0; i < LENGTH (target); i++) {
        snprintf (text, sizeof (text), "%s/%s", tmp, target[i]);
        if (i < 2)
            assert_int_equal (mkdir (text, 0700), 0);
        snprintf (path, sizeof (path), "%s/cgroup/freezer", dir);
        assert_int_equal (symlink (text, path), 0);
        cgroup_thaw (dir);
        assert_int_equal (cgroup_remove (dir, NULL), RV_OK);
        assert_int_equal (stat (text, &st), 0);
        assert_int_equal (unlink (path), 0);
    }
    assert_int_equal (cgroup_remove ("/nonexistent", NULL), RV_OK);
    assert_int_equal (fsio_remove_tree (dir, NULL), RV_OK);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (folder_names),
        cmocka_unit_test (folder_of_others_is_refused),
        cmocka_unit_test (lock_waits_and_sees_removal),
        cmocka_unit_test (a_mark_alone_is_no_claim),
        cmocka_unit_test (many_at_once_never_misjudge),
        cmocka_unit_test (cgroup_mounts),
        cmocka_unit_test (cgroup_links_of_others),
    };

    return cmocka_run_group_tests (tests, setup, teardown);
}
