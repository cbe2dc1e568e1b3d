/* SPDX-License-Identifier: Apache-2.0
 * test_run_defaults.c - command line before the user's rv.conf before the
 * site's, for Slurm's own options */
#ifdef HAVE_CONFIG_H
#include "config.h" /* _GNU_SOURCE: memfd_create */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "run_defaults.h"

/* Text as a file to read. */
static int file (const char *text)
{
    int fd = memfd_create ("rv.conf", MFD_CLOEXEC);

    assert_true (fd >= 0);
    assert_int_equal (write (fd, text, strlen (text)), (ssize_t)strlen (text));
    assert_int_equal (lseek (fd, 0, SEEK_SET), 0);
    return fd;
}

static void read_conf (struct site_conf *conf, const char *site,
                       const char *user)
{
    struct rv_error err = {0};
    int a = file (site), b = file (user);

    site_conf_init (conf);
    if (site_conf_read_site (conf, a, "site", &err) != RV_OK
        || site_conf_read_user (conf, b, "user", &err) != RV_OK)
        fail_msg ("%s", err.text);
    close (a);
    close (b);
}

/* "option=value<from" of each, blanks between; malloc'ed. */
static char *told (const struct run_defaults *d, const struct run_opts *opts)
{
    json_t *list = run_defaults_json (d, opts), *o;
    char *text = calloc (1, 4096);
    size_t i, at = 0;

    assert_non_null (text);
    json_array_foreach (list, i, o)
    {
        const char *value = json_string_value (json_object_get (o, "value"));

        at += (size_t)snprintf (
            text + at, 4096 - at, "%s%s%s%s<%c", i ? " " : "",
            json_string_value (json_object_get (o, "option")), value ? "=" : "",
            value ? value : "",
            json_string_value (json_object_get (o, "from"))[0]);
    }
    json_decref (list);
    return text;
}

static const struct {
    const char *site, *user;
    const char *argv[8];
    const char *want; /* c, u, s: who said it */
} good[] = {
    {"", "", {"run", "x"}, ""},
    {"account = lab\nqos = q\npartition = p1 , p2\n",
     "",
     {"run", "x"},
     "partition=p1,p2<s account=lab<s qos=q<s"},
    {"account = lab\nqos = q\n",
     "qos = mine\n",
     {"run", "-A", "a", "x"},
     "account=a<c qos=mine<u"},
    {"reservation = r\nexclude = n1, n[2, 3]\nmail_type = END , FAIL\n",
     "reservation = own\nmail_user = me\n",
     {"run", "-x", "n9", "x"},
     "reservation=own<u mail-type=END,FAIL<s mail-user=me<u exclude=n9<c"},
    {"constraint = ib\nnodelist = n[1 , 2]\n",
     "",
     {"run", "x"},
     "constraint=ib<s nodelist=n[1,2]<s"},
    {"constraint = ib\n", "", {"run", "-C", "hdr", "x"}, "constraint=hdr<c"},
    {"exclusive = on\n", "", {"run", "x"}, "exclusive<s"},
    {"exclusive = on\n", "exclusive = off\n", {"run", "x"}, ""},
    {"exclusive = on\n",
     "exclusive = user\n",
     {"run", "x"},
     "exclusive=user<u"},
    {"exclusive = on\n",
     "",
     {"run", "--exclusive=user", "x"},
     "exclusive=user<c"},
    {"reservation = r\nqos = q\n", "reservation =\nqos =\n", {"run", "x"}, ""},
    {"dependency = singleton\n", "", {"run", "x"}, "dependency=singleton<s"},
    {"slurm = --nice=1  --comment=a -H\n",
     "",
     {"run", "--slurm=--nice=7", "x"},
     "slurm=--comment=a<s slurm=-H<s slurm=--nice=7<c"},
    {"slurm = --nice=1\n",
     "slurm = --nicety\n",
     {"run", "--slurm=--nice=7", "x"},
     "slurm=--nicety<u slurm=--nice=7<c"},
    {"container_image = i.sqsh\ncontainer_mounts = /a:/a, /b\n"
     "container_mount_home = off\n",
     "container_writable = on\n",
     {"run", "x"},
     "container-image=i.sqsh<s container-mounts=/a:/a,/b<s "
     "no-container-mount-home<s container-writable<u"},
    {"container_mount_home = off\n",
     "",
     {"run", "--container-mount-home", "x"},
     "container-mount-home<c"},
};

static int parse (const char *const words[8], char *buf, size_t size,
                  struct run_opts *opts)
{
    static char *argv[9]; /* [opts] points there */
    int argc = 0;

    memset (argv, 0, sizeof (argv));
    for (; argc < 8 && words[argc]; argc++) {
        size_t len = strlen (words[argc]) + 1;

        assert_true (len <= size);
        argv[argc] = memcpy (buf, words[argc], len);
        buf += len;
        size -= len;
    }
    return run_opts_parse (argc, argv, opts, NULL);
}

static void make (const char *site, const char *user, struct site_conf *conf)
{
    char a[512], b[512];

    snprintf (a, sizeof (a), "[defaults]\n%s", site);
    snprintf (b, sizeof (b), "[defaults]\n%s", user);
    read_conf (conf, a, b);
}

static void order (void **state)
{
    for (size_t i = 0; i < sizeof (good) / sizeof (good[0]); i++) {
        struct site_conf conf;
        struct run_opts opts = {0};
        struct run_defaults d;
        struct rv_error err = {0};
        char buf[256], *text;

        make (good[i].site, good[i].user, &conf);
        assert_int_equal (parse (good[i].argv, buf, sizeof (buf), &opts),
                          RV_OK);
        if (run_defaults_apply (&d, &conf, &opts, &err) != RV_OK)
            fail_msg ("row %zu: %s", i, err.text);
        text = told (&d, &opts);
        if (strcmp (text, good[i].want))
            fail_msg ("row %zu: '%s', not '%s'", i, text, good[i].want);
        free (text);
        run_defaults_fini (&d);
        site_conf_fini (&conf);
    }
    (void)state;
}

static const struct {
    const char *site;
    const char *argv[8];
    const char *says;
} bad[] = {
    {"slurm = nice\n", {"run", "x"}, "rv.conf's slurm: --slurm takes one"},
    {"slurm = --nodes=2\n", {"run", "x"}, "rv.conf's slurm: --slurm=--nodes"},
    {"slurm = -Mx\n", {"run", "x"}, "rv.conf's slurm: rv works with one"},
    {"container_writable = yes\n",
     {"run", "x"},
     "rv.conf's container_writable"},
    {"slurm = --chdir=/x\n", {"run", "--snapshot", "x"}, "--snapshot runs in"},
};

static void refused (void **state)
{
    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
        struct site_conf conf;
        struct run_opts opts = {0};
        struct run_defaults d;
        struct rv_error err = {0};
        char buf[256];

        make (bad[i].site, "", &conf);
        assert_int_equal (parse (bad[i].argv, buf, sizeof (buf), &opts), RV_OK);
        assert_int_not_equal (run_defaults_apply (&d, &conf, &opts, &err),
                              RV_OK);
        if (strncmp (err.text, bad[i].says, strlen (bad[i].says)))
            fail_msg ("row %zu: '%s'", i, err.text);
        run_defaults_fini (&d);
        site_conf_fini (&conf);
    }
    run_defaults_fini (NULL);
    (void)state;
}

static void blanks (void **state)
{
    static const char *const argv[8] = {"run", "-p",     "a , b,c",
                                        "-x",  "n1, n2", "x"};
    static const char *const not_one[8] = {"run", "-p", "a b", "x"};
    struct run_opts opts = {0};
    char buf[64];

    assert_int_equal (parse (argv, buf, sizeof (buf), &opts), RV_OK);
    assert_string_equal (opts.partition, "a,b,c");
    assert_string_equal (opts.slurm.opt[0].value, "n1,n2");
    assert_int_equal (parse (not_one, buf, sizeof (buf), &opts), RV_EINVAL);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refused),
        cmocka_unit_test (order),
        cmocka_unit_test (blanks),
    };

    return cmocka_run_group_tests_name ("run_defaults", tests, NULL, NULL);
}
