/* SPDX-License-Identifier: Apache-2.0
 * test_worktree.c - what git tracks, and a copy of it that edits do not reach
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <fcntl.h>
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

#include "own_dir.h"
#include "plan/fsio.h"
#include "proc.h"
#include "worktree.h"

static char repo[96], copy[96];

static void put (const char *name, const char *text, const char *mode)
{
    put_file (repo, name, text, mode);
}

static void expect (const char *name, const char *text)
{
    expect_file (copy, name, text);
}

static void git_in (const char *folder, char *const words[])
{
    const struct proc_opts opts = {.dir = folder};
    struct proc_result r;
    struct rv_error err;

    if (proc_run (words, &opts, &r, &err) != RV_OK)
        fail_msg ("%s", err.text);
    if (r.status)
        fail_msg ("git: %s", r.err);
    proc_result_fini (&r);
}

#define GIT(dir, ...)                                                          \
    git_in (dir, (char *const[]){(char *)"git", __VA_ARGS__, NULL})

static int setup (void **state)
{
    (void)state;
    if (make_dir (NULL))
        return -1;
    snprintf (repo, sizeof (repo), "%s/re po", dir);
    snprintf (copy, sizeof (copy), "%s/copy", dir);
    setenv ("GIT_CONFIG_GLOBAL", "/dev/null", 1);
    setenv ("GIT_CEILING_DIRECTORIES", "/tmp", 1);
    unsetenv ("GIT_DIR");
    unsetenv ("GIT_WORK_TREE");
    unsetenv ("GIT_INDEX_FILE");
    for (int i = 0; i < 2; i++) {
        setenv (i ? "GIT_AUTHOR_NAME" : "GIT_COMMITTER_NAME", "a", 1);
        setenv (i ? "GIT_AUTHOR_EMAIL" : "GIT_COMMITTER_EMAIL", "a", 1);
    }
    put ("train.py", "one", "we");
    put ("src/run.sh", "run", "we");
    put ("src/new\nline", "n", "we");
    put ("src/\xc3\xa9\xff", "bytes", "we");
    put (".gitignore", "*.o\n", "we");
    put ("gone", "gone", "we");
    put ("was/file", "f", "we");
    put ("ignored.o", "o", "we");
    return chdir (repo);
}

static int teardown (void **state)
{
    (void)state;
    if (chdir ("/"))
        return -1;
    return fsio_remove_tree (dir, NULL) != RV_OK;
}

static void commit (void)
{
    GIT (repo, "init", "-q", ".");
    assert_int_equal (chmod ("src/run.sh", 0755), 0);
    assert_int_equal (symlink ("src/run.sh", "link"), 0);
    GIT (repo, "add", "-A");
    GIT (repo, "commit", "-q", "-m", "x");
}

static void copied (struct worktree *t)
{
    struct rv_error err = {0};

    if (worktree_find (t, &err) != RV_OK
        || worktree_copy (t, copy, &err) != RV_OK)
        fail_msg ("%s", err.text);
}

static void no_tree (void **state)
{
    struct worktree t;
    struct rv_error err = {0};

    (void)state;
    assert_int_equal (worktree_find (&t, &err), RV_ESTATE);
    assert_non_null (strstr (err.text, "not a git repository"));
    GIT (repo, "init", "-q", "--bare", "bare");
    assert_int_equal (chdir ("bare"), 0);
    assert_int_equal (worktree_find (&t, &err), RV_ESTATE);
    assert_non_null (strstr (err.text, "work tree"));
    setenv ("PATH", "/nowhere", 1);
    assert_int_equal (worktree_find (&t, &err), RV_ENOTFOUND);
    setenv ("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
    worktree_fini (NULL);
}

/* A repository without a commit has no HEAD, but an index. */
static void no_commit (void **state)
{
    struct worktree t;

    (void)state;
    GIT (repo, "init", "-q", ".");
    GIT (repo, "add", "train.py");
    copied (&t);
    assert_null (t.commit);
    assert_int_equal (t.files, 1);
    expect ("train.py", "one");
    worktree_fini (&t);
}

static void as_it_stands (void **state)
{
    struct worktree t;
    struct stat a, b;
    char path[300], target[40] = "";

    (void)state;
    commit ();
    put ("train.py", "two", "we"); /* not added, and in the copy all the same */
    put ("untracked", "u", "we");
    assert_int_equal (unlink ("gone"), 0);
    assert_int_equal (chdir ("src"), 0);
    copied (&t);
    assert_string_equal (t.top, repo);
    assert_string_equal (t.prefix, "src");
    assert_int_equal (strlen (t.commit), 40);
    assert_int_equal (t.files, 6);
    assert_int_equal (t.missing, 1);
    assert_int_equal (t.untracked, 1);
    assert_string_equal (t.first_untracked, "untracked");
    expect ("train.py", "two");
    expect ("src/new\nline", "n");
    expect ("src/\xc3\xa9\xff", "bytes");
    expect ("gone", NULL);
    expect ("untracked", NULL);
    expect ("ignored.o", NULL);
    expect (".git/HEAD", NULL);
    snprintf (path, sizeof (path), "%s/src/run.sh", copy);
    assert_int_equal (stat ("run.sh", &a), 0);
    assert_int_equal (stat (path, &b), 0);
    assert_int_equal (a.st_mode, b.st_mode);
    assert_int_equal (a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
    assert_int_equal (b.st_nlink, 1);
    snprintf (path, sizeof (path), "%s/link", copy);
    assert_int_equal (readlink (path, target, sizeof (target) - 1), 10);
    assert_string_equal (target, "src/run.sh");
    worktree_fini (&t);
}

/* In place, by >>, by rename, and the other way round. */
static void edits_do_not_reach (void **state)
{
    struct worktree t;

    (void)state;
    commit ();
    copied (&t);
    put ("train.py", "+", "ae");
    put ("src/run.sh", "x", "r+e");
    put ("tmp", "renamed", "we");
    assert_int_equal (rename ("tmp", "gone"), 0);
    expect ("train.py", "one");
    expect ("src/run.sh", "run");
    expect ("gone", "gone");
    snprintf (repo, sizeof (repo), "%s", copy);
    put ("train.py", "job", "r+e");
    snprintf (copy, sizeof (copy), "%s/re po", dir);
    expect ("train.py", "one+");
    worktree_fini (&t);
}

/* A folder that became a link is not what git tracks, nor is what it leads to.
 */
static void no_way_out (void **state)
{
    struct worktree t;
    char path[300];

    (void)state;
    commit ();
    snprintf (path, sizeof (path), "%s/away", dir);
    assert_int_equal (rename ("was", path), 0);
    assert_int_equal (symlink (path, "was"), 0);
    assert_int_equal (unlink ("gone"), 0);
    assert_int_equal (mkfifo ("gone", 0600), 0);
    assert_int_equal (unlink ("link"), 0);
    snprintf (path, sizeof (path), "%s/train.py", repo);
    assert_int_equal (symlink (path, "link"), 0);
    copied (&t);
    expect ("was/file", NULL);
    assert_int_equal (t.missing, 1);
    assert_int_equal (t.leading_back, 1);
    worktree_fini (&t);
}

static void unmerged (void **state)
{
    struct worktree t;

    (void)state;
    commit ();
    GIT (repo, "checkout", "-q", "-b", "b");
    put ("train.py", "b", "we");
    GIT (repo, "commit", "-qam", "b");
    GIT (repo, "checkout", "-q", "-");
    put ("train.py", "a", "we");
    GIT (repo, "commit", "-qam", "a");
    GIT (repo, "checkout", "-q", "HEAD");
    {
        char *words[] = {"git", "merge", "-q", "b", NULL};
        struct proc_result r;

        assert_int_equal (proc_run (words, NULL, &r, NULL), RV_OK);
        assert_int_not_equal (r.status, 0);
        proc_result_fini (&r);
    }
    copied (&t);
    assert_int_equal (t.files, 7);
    worktree_fini (&t);
}

static void submodules (void **state)
{
    struct worktree t;
    char other[200];

    (void)state;
    commit ();
    snprintf (other, sizeof (other), "%s/other", dir);
    GIT (dir, "clone", "-q", repo, other);
    for (int i = 0; i < 2; i++)
        GIT (repo, "-c", "protocol.file.allow=always", "submodule", "-q", "add",
             other, i ? "lib/b" : "lib/a");
    GIT (repo, "submodule", "-q", "deinit", "-f", "lib/b");
    put ("lib/a/train.py", "inner", "we");
    copied (&t);
    expect ("lib/a/train.py", "inner");
    expect ("lib/a/src/run.sh", "run");
    snprintf (other, sizeof (other), "%s/lib/b", copy);
    assert_int_equal (access (other, F_OK), 0);
    assert_true (worktree_has (&t, "lib/a/train.py"));
    worktree_fini (&t);
}

static void sparse (void **state)
{
    struct worktree t;

    (void)state;
    commit ();
    GIT (repo, "sparse-checkout", "set", "--cone", "--sparse-index", "src");
    copied (&t);
    expect ("src/run.sh", "run");
    expect ("was/file", NULL);
    assert_int_equal (t.missing, 1);
    worktree_fini (&t);
}

static void has (void **state)
{
    static const struct {
        const char *path;
        bool has;
    } v[] = {
        {"run.sh", true},
        {"./run.sh", true},
        {"../train.py", true},
        {".", true},
        {"..", true},
        {"../src", true},
        {"../untracked", false},
        {"run", false},
        {"../..", false},
        {"../../x", false},
        {"/etc", false},
        {"../sr", false},
        {"../was//file/", true},
        {"new\nline", true},
    };
    struct worktree t;

    (void)state;
    commit ();
    assert_int_equal (chdir ("src"), 0);
    assert_int_equal (worktree_find (&t, NULL), RV_OK);
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        if (worktree_has (&t, v[i].path) != v[i].has)
            fail_msg ("%s", v[i].path);
    worktree_fini (&t);
}

static void cannot_copy (void **state)
{
    struct worktree t;
    struct rv_error err = {0};

    (void)state;
    commit ();
    assert_int_equal (worktree_find (&t, NULL), RV_OK);
    assert_int_not_equal (worktree_copy (&t, "/proc/nowhere", &err), RV_OK);
    assert_non_null (strstr (err.text, "/proc/nowhere"));
    worktree_fini (&t);
}

#define CASE(f) cmocka_unit_test_setup_teardown (f, setup, teardown)

int main (void)
{
    const struct CMUnitTest tests[] = {
        CASE (no_tree),     CASE (no_commit), CASE (as_it_stands),
        CASE (no_way_out),  CASE (unmerged),  CASE (edits_do_not_reach),
        CASE (submodules),  CASE (sparse),    CASE (has),
        CASE (cannot_copy),
    };

    cmocka_set_message_output (CM_OUTPUT_TAP);
    return cmocka_run_group_tests (tests, NULL, NULL);
}
