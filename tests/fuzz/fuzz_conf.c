/* SPDX-License-Identifier: Apache-2.0
 * fuzz_conf.c - INI files: rv.conf of site and user, and overrides */
#include "config.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "plan/conf.h"
#include "plan/site_conf.h"

struct target {
    char *text;
    int64_t n;
    double x;
    int choice;
};

static const struct conf_key keys[] = {
    {"a", "text", CONF_STRING, offsetof (struct target, text), 0, 0, NULL},
    {"a", "n", CONF_INT, offsetof (struct target, n), -5, 5, NULL},
    {"b *", "x", CONF_DOUBLE, offsetof (struct target, x), 0, 1, NULL},
    {"b", "x", CONF_DOUBLE, offsetof (struct target, x), 0, 1, NULL},
    {"b", "c", CONF_CHOICE, offsetof (struct target, choice), 0, 0, "x,yy"},
};
#define N_KEYS (sizeof (keys) / sizeof (keys[0]))

static int sink (void *arg, const char *section, const char *section_arg,
                 const char *key, const char *value, struct rv_error *err)
{
    (void)arg;
    (void)err;
    FUZZ_CHECK (*section && *section_arg && *key && value);
    return 0;
}

static void overrides (const char *text)
{
    struct target t = {.x = 0.5};
    struct rv_error err = {0};
    int rc = conf_set (text, keys, N_KEYS, &t, sink, NULL, &err);

    FUZZ_CHECK (rc == 0 || (rc == RV_EINVAL && err.text[0]));
    FUZZ_CHECK (t.n >= -5 && t.n <= 5 && t.x >= 0 && t.x <= 1);
    FUZZ_CHECK (t.choice == 0 || t.choice == 1);
    conf_free_strings (keys, N_KEYS, &t);
}

/* Each error says where: "f:LINE: " or, for the file as a whole, "f: ". */
static void check_error (int rc, const struct rv_error *err)
{
    FUZZ_CHECK (rc == 0 || err->code == rc);
    FUZZ_CHECK (rc == 0 || strncmp (err->text, "f:", 2) == 0);
    FUZZ_CHECK (!strchr (err->text, '\n'));
}

static void check_conf (const struct site_conf *conf)
{
    FUZZ_CHECK (conf->gpus >= -1 && site_conf_fanout (conf) >= 1
                && site_conf_fanout (conf) <= 16);
    for (size_t i = 0; i < conf->n_gpu; i++)
        FUZZ_CHECK (site_conf_gpu (conf, conf->gpu[i].type) == &conf->gpu[i]);
    for (size_t i = 0; i < conf->n_mig; i++)
        FUZZ_CHECK (site_conf_mig (conf, conf->mig[i].profile)
                    == &conf->mig[i]);
    for (size_t i = 0; i < conf->n_env; i++)
        FUZZ_CHECK (conf->env[i].name[0] && conf->env[i].value);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct rv_error err = {0};
    struct site_conf conf;
    int fd = memfd_create ("conf", MFD_CLOEXEC), rc;
    char *text;

    FUZZ_CHECK (fd >= 0 && write (fd, data, size) == (ssize_t)size);
    lseek (fd, 0, SEEK_SET);
    site_conf_init (&conf);
    rc = site_conf_read_site (&conf, fd, "f", &err);
    check_error (rc, &err);
    if (rc == 0)
        check_conf (&conf);
    lseek (fd, 0, SEEK_SET);
    rc = site_conf_read_user (&conf, fd, "f", &err);
    check_error (rc, &err);
    if (rc == 0)
        check_conf (&conf);
    site_conf_fini (&conf);
    close (fd);

    text = fuzz_text (data, size);
    overrides (text);
    free (text);
    return 0;
}
