/* SPDX-License-Identifier: Apache-2.0
 * test_conf.c - INI files: every type, every refusal, with file and line */
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

#include "plan/conf.h"
#include "plan/fsio.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

struct target {
    char *name, *note, *list, *path;
    bool flag;
    int64_t n, any, wait_ms, size, time_s;
    double lr;
    int device;
    char log[512]; /* what the sink saw */
};

#define AT(field) offsetof (struct target, field)
static const struct conf_key keys[] = {
    {"model", "name", CONF_STRING, AT (name), 0, 0, NULL},
    {"model", "dim", CONF_INT, AT (n), 1, 64, NULL},
    {"model", "any", CONF_INT, AT (any), 0, 0, NULL},
    {"model", "tie", CONF_BOOL, AT (flag), 0, 0, NULL},
    {"optim", "lr", CONF_DOUBLE, AT (lr), 0, 1, NULL},
    {"optim", "device", CONF_CHOICE, AT (device), 0, 0, "auto,cpu,cuda"},
    {"optim", "wait", CONF_DURATION, AT (wait_ms), 0, 0, NULL},
    {"optim", "size", CONF_SIZE, AT (size), 0, 0, NULL},
    {"optim", "time", CONF_TIME, AT (time_s), 0, 0, NULL},
    {"optim", "note", CONF_STRING, AT (note), 0, 0, NULL},
    {"lists", "list", CONF_LIST, AT (list), 0, 0, NULL},
    {"lists", "path", CONF_PATH, AT (path), 0, 0, NULL},
    {"lists", "wait", CONF_DURATION, AT (wait_ms), 1, 60000, NULL},
    {"gpu *", "cost", CONF_DOUBLE, 0, 0, 1000, NULL},
    {"gpu *", "gres", CONF_STRING, 0, 0, 0, NULL},
    {"env", "*", CONF_STRING, 0, 0, 0, NULL},
};

static int sink (void *arg, const char *section, const char *section_arg,
                 const char *key, const char *value, struct rv_error *err)
{
    struct target *t = arg;
    size_t n = strlen (t->log);

    if (strcmp (value, "refuse") == 0)
        return error_set (err, RV_ESTATE, "the sink says no");
    if (strcmp (value, "silent") == 0)
        return RV_EIO;
    snprintf (t->log + n, sizeof (t->log) - n, "<%s|%s|%s|%s>", section,
              section_arg, key, value);
    return 0;
}

static int read_bytes (const char *text, size_t len, struct target *t,
                       struct rv_error *err)
{
    int fd = memfd_create ("conf", MFD_CLOEXEC), rc;

    assert_true (fd >= 0);
    assert_int_equal (write (fd, text, len), len);
    assert_int_equal (lseek (fd, 0, SEEK_SET), 0);
    rc = conf_read_fd (fd, "f.ini", keys, LENGTH (keys), t, sink, t, err);
    close (fd);
    return rc;
}

static int read_text (const char *text, struct target *t, struct rv_error *err)
{
    return read_bytes (text, strlen (text), t, err);
}

static void done (struct target *t)
{
    conf_free_strings (keys, LENGTH (keys), t);
    assert_null (t->name);
    assert_null (t->note);
    assert_null (t->list);
    assert_null (t->path);
}

static void bad_arguments (void **state)
{
    struct target t = {0};
    struct rv_error err = {0};
    char **items = NULL;
    int fd = -1;

    assert_int_equal (conf_read (NULL, keys, 1, &t, NULL, NULL, &err),
                      RV_EINVAL);
    assert_int_equal (conf_read_fd (-1, "f", keys, 1, &t, NULL, NULL, &err),
                      RV_EINVAL);
    assert_int_equal (conf_read_fd (0, NULL, keys, 1, &t, NULL, NULL, &err),
                      RV_EINVAL);
    assert_int_equal (conf_read_fd (0, "f", NULL, 1, &t, NULL, NULL, &err),
                      RV_EINVAL);
    assert_int_equal (conf_read_fd (0, "f", keys, 1, NULL, NULL, NULL, &err),
                      RV_EINVAL);
    assert_int_equal (conf_set (NULL, keys, 1, &t, NULL, NULL, &err),
                      RV_EINVAL);
    assert_int_equal (conf_open_trusted (NULL, &fd, &err), RV_EINVAL);
    assert_int_equal (conf_open_trusted ("/", NULL, &err), RV_EINVAL);
    assert_int_equal (conf_split (NULL, &items, NULL, &err), RV_EINVAL);
    assert_int_equal (conf_split ("a", NULL, NULL, &err), RV_EINVAL);
    conf_split_free (NULL);
    conf_free_strings (NULL, 1, &t);
    conf_free_strings (keys, 1, NULL);

    assert_int_equal (
        conf_read ("/nonexistent/rv.conf", keys, 1, &t, NULL, NULL, &err),
        RV_ENOTFOUND);
    assert_non_null (strstr (err.text, "/nonexistent/rv.conf: "));
    assert_int_equal (conf_read ("/", keys, 1, &t, NULL, NULL, &err), RV_EIO);
    (void)state;
}

static void every_type (void **state)
{
    struct target t = {.name = strdup ("default"), .any = 7};
    struct rv_error err = {0};

    if (read_text ("\xef\xbb\xbf; a comment\n"
                   "# another ; with a semicolon\n"
                   "\n"
                   "[model]\r\n"
                   "name = two words # not a comment;nor this\r\n"
                   "dim=64\n"
                   "  tie : on\n"
                   "[optim]  \n"
                   "\tlr = 3.5e-4\n"
                   "device = cuda\n"
                   "wait = 1.5h\n"
                   "size = 16G\n"
                   "time = 2:59:00\n"
                   "note =\n"
                   "[lists]\n"
                   "list = a , b,\tc\n"
                   "path = ~/x\n"
                   "[gpu a100]\n"
                   "cost = 12.5\n"
                   "gres = gpu:a100\n"
                   "[gpu  1g.10gb]\n"
                   "cost = 1\n"
                   "[env]\n"
                   "A_B = c=d:e, \"f\"\n"
                   "[model]\n"
                   "any = -9223372036854775808",
                   &t, &err)
        != 0)
        fail_msg ("%s", err.text);
    assert_string_equal (t.name, "two words # not a comment;nor this");
    assert_string_equal (t.note, "");
    assert_int_equal (t.n, 64);
    assert_true (t.any == INT64_MIN);
    assert_true (t.flag);
    assert_true (t.lr == 3.5e-4);
    assert_string_equal (t.list, "a,b,c");
    assert_string_equal (t.path, "~/x");
    assert_int_equal (t.device, 2);
    assert_int_equal (t.wait_ms, 5400000);
    assert_true (t.size == 16LL << 30);
    assert_int_equal (t.time_s, 10740);
    assert_string_equal (t.log, "<gpu|a100|cost|12.5><gpu|a100|gres|gpu:a100>"
                                "<gpu|1g.10gb|cost|1><env||A_B|c=d:e, \"f\">");
    done (&t);
    (void)state;
}

static const char *const refused[][2] = {
    {"dim = 1\n", "f.ini:1: a key before the first [section]"},
    {"[model]\n\ndmi = 1\n",
     "f.ini:3: unknown key 'dmi' in [model]; nearest is 'dim'"},
    {"[model]\nlr = 1\n",
     "f.ini:2: unknown key 'lr' in [model]; it is a key of [optim]"},
    {"[model]\ncost = 1\n",
     "f.ini:2: unknown key 'cost' in [model]; it is a key of [gpu NAME]"},
    {"[model]\nzzzzz = 1\n", "f.ini:2: unknown key 'zzzzz' in [model]; its "
                             "keys are name, dim, any, "
                             "tie"},
    {"[model]\n= 1\n",
     "f.ini:2: unknown key '' in [model]; its keys are name, dim, any, "
     "tie"},
    {"[modle]\n", "f.ini:1: unknown section [modle]; nearest is [model]"},
    {"[ model ]\n", "f.ini:1: unknown section [ model ]; nearest is "
                    "[model]"},
    {"[gpu]\n", "f.ini:1: unknown section [gpu]; nearest is [gpu NAME]"},
    {"[gpu ]\n", "f.ini:1: unknown section [gpu ]; nearest is [gpu NAME]"},
    {"[model x]\n", "f.ini:1: unknown section [model x]; nearest is "
                    "[model]"},
    {"[gpu.a100]\n",
     "f.ini:1: unknown section [gpu.a100]; a name stands behind "
     "a blank: [gpu a100]"},
    {"[]\n", "f.ini:1: unknown section []"},
    {"[zzzzzzzz]\n", "f.ini:1: unknown section [zzzzzzzz]"},
    {"[model\ndim = 1\n", "f.ini:1: expected [section] or key = value"},
    {"[model] dim = 1\n",
     "f.ini:1: text behind ']'; put it on a line of its own"},
    {"[gpu aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n",
     "f.ini:1: a section's name of more than 49 bytes"},
    {"[model]\ndim\n", "f.ini:2: expected [section] or key = value"},
    {"[model]\nnonsense\ndim = 0\n",
     "f.ini:2: expected [section] or key = value"},
    {"[model]\ndim = 1\n  2\n", "f.ini:3: expected [section] or key = value"},
    {"[model]\ndim = 1\n  dim = 2\n", "f.ini:3: 'dim' stands twice in [model]"},
    {"[model]\ndim = 1\n[optim]\n[model]\ndim = 1\n",
     "f.ini:5: 'dim' stands twice in [model]"},
    {"[gpu a]\ncost = 1\n[gpu b]\ncost = 1\n[gpu  a]\ncost = 1\n",
     "f.ini:6: 'cost' stands twice in [gpu a]"},
    {"[env]\nA = 1\nA = 1\n", "f.ini:3: 'A' stands twice in [env]"},
    {"[model]\nname = a ;b\n",
     "f.ini:2: a value would end before ' ;'; put comments on lines of "
     "their own"},
    {"[model]\nname = ;b\n",
     "f.ini:2: a value would end before ' ;'; put comments on lines of "
     "their own"},
    {"[model]\ndim = 0\n", "f.ini:2: dim: '0' is not from 1 to 64"},
    {"[model]\ndim = 65\n", "f.ini:2: dim: '65' is not from 1 to 64"},
    {"[model]\ndim = 1.5\n", "f.ini:2: dim: '1.5' is not a whole number"},
    {"[model]\ndim =\n", "f.ini:2: dim: '' is not a whole number"},
    {"[model]\ndim = 0x10\n", "f.ini:2: dim: '0x10' is not a whole number"},
    {"[model]\nany = 9223372036854775808\n",
     "f.ini:2: any: '9223372036854775808' is too large"},
    {"[model]\ntie = yes\n", "f.ini:2: tie: 'yes' is not on or off"},
    {"[optim]\nlr = 1.1\n", "f.ini:2: lr: '1.1' is not from 0 to 1"},
    {"[optim]\nlr = nan\n", "f.ini:2: lr: 'nan' is not a number"},
    {"[optim]\nlr = 1e\n", "f.ini:2: lr: '1e' is not a number"},
    {"[optim]\nlr = 1e999\n", "f.ini:2: lr: '1e999' is not from 0 to 1"},
    {"[optim]\nlr = -\n", "f.ini:2: lr: '-' is not a number"},
    {"[optim]\ndevice = gpu\n",
     "f.ini:2: device: 'gpu' is not one of auto,cpu,cuda"},
    {"[optim]\ndevice = auto,cpu\n",
     "f.ini:2: device: 'auto,cpu' is not one of auto,cpu,cuda"},
    {"[optim]\ndevice = \n", "f.ini:2: device: '' is not one of auto,cpu,cuda"},
    {"[optim]\nwait = 90\n",
     "f.ini:2: wait: duration '90' has no unit; write 500ms, 90s, 30m, 2h, "
     "1.5h or 3d"},
    {"[optim]\nsize = 16GB\n",
     "f.ini:2: size: '16GB' is not a size; write 16G"},
    {"[lists]\nlist = a,,b\n", "f.ini:2: list: list 'a,,b' has an empty item"},
    {"[lists]\npath = x/y\n",
     "f.ini:2: path: 'x/y' is not a path that begins with / or ~/"},
    {"[lists]\nwait = 0s\n", "f.ini:2: wait: '0s' is too small"},
    {"[lists]\nwait = 61s\n", "f.ini:2: wait: '61s' is too large"},
    {"[gpu a]\ncost = x\n", "f.ini:2: cost: 'x' is not a number"},
    {"[env]\nA = refuse\n", "f.ini:2: the sink says no"},
    {"[env]\nA = silent\n", "f.ini:2: 'A' was not taken"},
};

static void refuses (void **state)
{
    for (size_t i = 0; i < LENGTH (refused); i++) {
        struct target t = {0};
        struct rv_error err = {.text = "stale"};

        if (read_text (refused[i][0], &t, &err) == 0)
            fail_msg ("taken: %s", refused[i][0]);
        assert_string_equal (err.text, refused[i][1]);
        done (&t);
        assert_int_not_equal (read_text (refused[i][0], &t, NULL), 0);
        done (&t);
    }
    (void)state;
}

/* The longest line that inih takes whole, and one byte more. */
static void line_length (void **state)
{
    char text[400], want[200];

    for (int indent = 0; indent < 4; indent += 3) {
        struct target t = {0};
        struct rv_error err = {0};

        snprintf (want, sizeof (want), "%0191d", 7);
        snprintf (text, sizeof (text), "[model]\n%*sname = %s", indent, "",
                  want);
        if (read_text (text, &t, &err) != 0)
            fail_msg ("%s", err.text);
        assert_string_equal (t.name, want);
        snprintf (text + strlen (text), 2, "7");
        assert_int_equal (read_text (text, &t, &err), RV_EINVAL);
        assert_string_equal (err.text,
                             "f.ini:2: a line of more than 198 bytes");
        done (&t);
    }
    (void)state;
}

static void nul_and_size (void **state)
{
    static const char nul[] = "[model]\nname = a\0b\n";
    struct target t = {0};
    struct rv_error err = {0};
    size_t n = 1024 * 1024;
    char *big = malloc (n + 1);

    assert_int_equal (read_bytes (nul, sizeof (nul) - 1, &t, &err), RV_EINVAL);
    assert_string_equal (err.text, "f.ini:2: a NUL byte");
    memset (big, '\n', n + 1);
    assert_int_equal (read_bytes (big, n, &t, &err), 0);
    assert_int_equal (read_bytes (big, n + 1, &t, &err), RV_EFORMAT);
    free (big);
    done (&t);
    (void)state;
}

static void overrides (void **state)
{
    static const char *const bad[][2] = {
        {"model.dim", "model.dim: expected section.key=value"},
        {"dim=3", "dim=3: expected section.key=value"},
        {".dim=3", ".dim=3: expected section.key=value"},
        {"model.=3", "model.=3: expected section.key=value"},
        {"model.dmi=3",
         "model.dmi=3: unknown key 'dmi' in [model]; nearest is 'dim'"},
        {"mdoel.dim=3",
         "mdoel.dim=3: unknown section [mdoel]; nearest is [model]"},
        {"model.dim=0", "model.dim=0: dim: '0' is not from 1 to 64"},
    };
    struct target t = {0};
    struct rv_error err = {0};

    assert_int_equal (read_text ("[model]\ndim = 1\nname = a\n", &t, &err), 0);
    assert_int_equal (
        conf_set ("model.dim=3", keys, LENGTH (keys), &t, sink, &t, &err), 0);
    assert_int_equal (conf_set ("model.name=a ; b = c", keys, LENGTH (keys), &t,
                                sink, &t, NULL),
                      0);
    assert_int_equal (conf_set ("gpu 1g.10gb.cost=2", keys, LENGTH (keys), &t,
                                sink, &t, NULL),
                      0);
    assert_int_equal (t.n, 3);
    assert_string_equal (t.name, "a ; b = c");
    assert_string_equal (t.log, "<gpu|1g.10gb|cost|2>");
    for (size_t i = 0; i < LENGTH (bad); i++) {
        assert_int_equal (
            conf_set (bad[i][0], keys, LENGTH (keys), &t, sink, &t, &err),
            RV_EINVAL);
        assert_string_equal (err.text, bad[i][1]);
    }
    assert_int_equal (t.n, 3);
    done (&t);
    (void)state;
}

static void no_sink (void **state)
{
    struct target t = {0};
    struct rv_error err = {0};

    assert_int_equal (
        conf_set ("env.A=1", keys, LENGTH (keys), &t, NULL, NULL, &err),
        RV_EINVAL);
    assert_string_equal (err.text, "env.A=1: no place for 'A'");
    (void)state;
}

/* Nothing but a regular file is read, and none of the others waited for. */
static void not_regular (void **state)
{
    char dir[] = "/tmp/rv-test-conf-XXXXXX";
    struct rv_error err = {0};
    struct target t = {0};
    char *path, *link, *fifo;
    const char *bad[3];
    int fd = -1;

    assert_non_null (mkdtemp (dir));
    path = fsio_join (dir, "rv.conf");
    link = fsio_join (dir, "link");
    fifo = fsio_join (dir, "fifo");
    assert_int_equal (mkfifo (fifo, 0600), 0);
    bad[0] = fifo;
    bad[1] = dir;
    bad[2] = "/dev/zero";
    for (size_t i = 0; i < LENGTH (bad); i++) {
        assert_int_equal (conf_open (bad[i], &fd, &err), RV_EIO);
        assert_int_equal (fd, -1);
        assert_non_null (strstr (err.text, "not a regular file"));
        assert_int_equal (
            conf_read (bad[i], keys, LENGTH (keys), &t, NULL, NULL, &err),
            RV_EIO);
    }
    assert_int_equal (conf_open (NULL, &fd, &err), RV_EINVAL);
    assert_int_equal (conf_open (path, &fd, &err), RV_ENOTFOUND);
    /* A link to one is as good as the file. */
    assert_int_equal (fsio_write (path, "", 0, 0644, NULL), 0);
    assert_int_equal (symlink ("rv.conf", link), 0);
    assert_int_equal (conf_open (link, &fd, &err), 0);
    close (fd);
    assert_int_equal (fsio_remove_tree (dir, NULL), 0);
    free (path);
    free (link);
    free (fifo);
    (void)state;
}

static void trusted (void **state)
{
    char dir[] = "/tmp/rv-test-conf-XXXXXX";
    struct rv_error err = {0};
    char *path, *link, *fifo;
    int fd = -1;

    assert_non_null (mkdtemp (dir));
    path = fsio_join (dir, "rv.conf");
    link = fsio_join (dir, "link");
    fifo = fsio_join (dir, "fifo");
    assert_int_equal (conf_open_trusted (path, &fd, &err), RV_ENOTFOUND);
    assert_int_equal (fsio_write (path, "[env]\n", 6, 0644, NULL), 0);
    assert_int_equal (symlink ("rv.conf", link), 0);
    assert_int_equal (mkfifo (fifo, 0600), 0);

    assert_int_equal (conf_open_trusted (link, &fd, &err), RV_EIO);
    assert_non_null (strstr (err.text, "a symbolic link"));
    assert_int_equal (conf_open_trusted (fifo, &fd, &err), RV_EIO);
    assert_int_equal (conf_open_trusted (dir, &fd, &err), RV_EIO);
    assert_int_equal (fd, -1);
    for (unsigned mode = 0644; mode <= 0646; mode += 2) {
        assert_int_equal (chmod (path, mode), 0);
        assert_int_equal (conf_open_trusted (path, &fd, &err),
                          mode == 0644 ? 0 : RV_EINVAL);
    }
    assert_non_null (strstr (err.text, "writable"));
    close (fd);
    assert_int_equal (chmod (path, 0664), 0);
    assert_int_equal (conf_open_trusted (path, &fd, &err), RV_EINVAL);
    if (geteuid () == 0) {
        assert_int_equal (chmod (path, 0600), 0);
        assert_int_equal (chown (path, 65534, 0), 0);
        assert_int_equal (conf_open_trusted (path, &fd, &err), RV_EINVAL);
        assert_non_null (strstr (err.text, "owned by uid 65534"));
    }
    assert_int_equal (fsio_remove_tree (dir, NULL), 0);
    free (path);
    free (link);
    free (fifo);
    (void)state;
}

static void split (void **state)
{
    static const struct {
        const char *text;
        size_t n;
        const char *item[4];
    } v[] = {
        {"", 0, {NULL}},
        {"a", 1, {"a"}},
        {" a b ,c,\td", 3, {"a b", "c", "d"}},
    };
    static const char *const bad[] = {",", "a,", ",a", "a,,b", " ", "a, ,b"};

    for (size_t i = 0; i < LENGTH (v); i++) {
        char **items;
        size_t n;

        assert_int_equal (conf_split (v[i].text, &items, &n, NULL), 0);
        assert_int_equal (n, v[i].n);
        for (size_t k = 0; k < n; k++)
            assert_string_equal (items[k], v[i].item[k]);
        assert_null (items[n]);
        conf_split_free (items);
    }
    for (size_t i = 0; i < LENGTH (bad); i++) {
        char **items = NULL;

        assert_int_equal (conf_split (bad[i], &items, NULL, NULL), RV_EINVAL);
        assert_null (items);
    }
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments), cmocka_unit_test (every_type),
        cmocka_unit_test (refuses),       cmocka_unit_test (line_length),
        cmocka_unit_test (nul_and_size),  cmocka_unit_test (overrides),
        cmocka_unit_test (no_sink),       cmocka_unit_test (not_regular),
        cmocka_unit_test (trusted),       cmocka_unit_test (split),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
