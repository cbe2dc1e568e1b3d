/* SPDX-License-Identifier: Apache-2.0
 * accounting.c - a database and a slurmdbd for one sandbox */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/accounting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"
#include "sandbox/site.h"

#define REGISTER_MS 30000

static int find (const char *name, const char *package, char **ret,
                 struct rv_error *err)
{
    *ret = proc_find (name);
    return *ret ? RV_OK
                : error_set (err, RV_ENOTFOUND,
                             "%s is not installed (Debian: apt install %s)",
                             name, package);
}

int accounting_check (struct rv_error *err)
{
    static const char *const need[][2] = {
        {"mariadbd", "mariadb-server-core"},
        {"slurmdbd", "slurmdbd"},
        {"sacctmgr", "slurm-client"},
    };
    int rc = RV_OK;

    for (size_t i = 0; !rc && i < sizeof (need) / sizeof (need[0]); i++) {
        char *path;

        if (!(rc = find (need[i][0], need[i][1], &path, err)))
            free (path);
    }
    if (!rc && !site_has_plugin ("accounting_storage_mysql.so"))
        rc = error_set (err, RV_ENOTFOUND,
                        "Slurm's accounting_storage_mysql.so is not installed "
                        "(Debian: apt install slurm-wlm-mysql-plugin)");
    return rc;
}

int accounting_daemon (const struct sandbox *sb)
{
    return sb->nodes + 2; /* munged, slurmctld, the nodes */
}

int accounting_port (const struct sandbox *sb)
{
    return sb->port[sb->nodes + 1];
}

/* Small and forgetful: no crash must be survived, and the defaults write
 * hundreds of megabytes. The plain words come before what needs the folder. */
static int add_database (struct sandbox *sb, const char *program,
                         const char *user, struct rv_error *err)
{
    char data[96], sock[96], pid[96], init[96], as[96];
    const char *argv[] = {program,
                          "--no-defaults",
                          "--skip-networking",
                          "--skip-grant-tables",
                          "--skip-log-bin",
                          "--skip-name-resolve",
                          "--innodb-buffer-pool-size=24M",
                          "--innodb-log-file-size=4M",
                          "--innodb-flush-log-at-trx-commit=0",
                          "--innodb-flush-method=nosync",
                          "--innodb-doublewrite=0",
                          "--innodb-data-file-path=ibdata1:1M:autoextend",
                          "--innodb-temp-data-file-path=ibtmp1:1M:autoextend",
                          as,
                          data,
                          sock,
                          pid,
                          init,
                          NULL};

    snprintf (as, sizeof (as), "--user=%s", user);
    snprintf (data, sizeof (data), "--datadir=%s/db", sb->dir);
    snprintf (sock, sizeof (sock), "--socket=%s/" ACCOUNTING_SOCKET, sb->dir);
    snprintf (pid, sizeof (pid), "--pid-file=%s/mariadb.pid", sb->dir);
    snprintf (init, sizeof (init), "--init-file=%s/mariadb.sql", sb->dir);
    return sandbox_add (sb, "mariadb", argv, err);
}

int accounting_add (struct sandbox *sb, const char *user, struct rv_error *err)
{
    const char *dbd[] = {NULL, "-D", NULL};
    char *mariadbd = NULL, *slurmdbd = NULL;
    int rc = find ("mariadbd", "mariadb-server-core", &mariadbd, err);

    if (!rc)
        rc = find ("slurmdbd", "slurmdbd", &slurmdbd, err);
    dbd[0] = slurmdbd;
    if (!rc)
        rc = add_database (sb, mariadbd, user, err);
    if (!rc)
        rc = sandbox_add (sb, "slurmdbd", dbd, err);
    free (mariadbd);
    free (slurmdbd);
    return rc;
}

char *accounting_conf (const struct sandbox *sb, const char *user)
{
    char *text;

    if (asprintf (&text,
                  "# Written by rv sandbox; every `up` writes it anew.\n"
                  "AuthType=auth/munge\n"
                  "AuthInfo=socket=%s/munge.socket\n"
                  "CommunicationParameters=NoInAddrAny\n"
                  "DbdHost=localhost\n"
                  "DbdAddr=127.0.0.1\n"
                  "DbdPort=%d\n"
                  "SlurmUser=%s\n"
                  "LogFile=%s/log/slurmdbd.log\n"
                  "PidFile=%s/slurmdbd.pid\n"
                  "StorageType=accounting_storage/mysql\n"
                  "StorageHost=localhost\n"
                  "StorageUser=%s\n"
                  "StorageLoc=slurm\n",
                  sb->dir, accounting_port (sb), user, sb->dir, sb->dir, user)
        < 0)
        return NULL;
    return text;
}

int accounting_tables (char **ret, struct rv_error *err)
{
    /* Debian 12's and 13's; the server's packages bring them. */
    static const char *const path[] = {
        "/usr/share/mysql/mysql_system_tables.sql",
        "/usr/share/mariadb/mariadb_system_tables.sql",
        "/usr/share/mysql/mariadb_system_tables.sql",
    };
    char *text;

    for (size_t i = 0; i < sizeof (path) / sizeof (path[0]); i++) {
        if (access (path[i], R_OK))
            continue;
        if (fsio_read (path[i], (size_t)4 << 20, &text, NULL, err))
            return RV_EIO;
        /* slurmdbd makes its own where it finds none, but libmariadb 11.8.9
         * takes no result on a handle whose first connection was refused. */
        if (asprintf (ret,
                      "create database if not exists slurm;\n"
                      "create database if not exists mysql;\n"
                      "use mysql;\n"
                      "%s",
                      text)
            < 0)
            *ret = NULL;
        free (text);
        return *ret ? RV_OK : error_set (err, RV_ENOMEM, "out of memory");
    }
    return error_set (err, RV_ENOTFOUND,
                      "MariaDB's mysql_system_tables.sql is not installed "
                      "(Debian: apt install mariadb-server-core)");
}

static int sacctmgr (char *const *argv, char *const *env, struct rv_error *err)
{
    struct proc_opts opts = {.env = env, .deadline_ms = REGISTER_MS};
    struct proc_result result;
    int rc = proc_run (argv, &opts, &result, err);

    if (rc)
        return rc;
    if (result.status)
        rc = error_set (err, RV_EIO, "sacctmgr: %.*s",
                        (int)strcspn (result.err, "\n"), result.err);
    proc_result_fini (&result);
    return rc;
}

int accounting_register (const struct sandbox *sb, const char *user,
                         char *const *env, struct rv_error *err)
{
    char *name = (char *)sb->cluster, *who = (char *)user;
    char *const words[][9] = {
        {"sacctmgr", "-i", "-Q", "add", "cluster", name, NULL},
        {"sacctmgr", "-i", "-Q", "add", "account", ACCOUNTING_ACCOUNT, NULL},
        {"sacctmgr", "-i", "-Q", "add", "user", who,
         "account=" ACCOUNTING_ACCOUNT, "defaultaccount=" ACCOUNTING_ACCOUNT,
         NULL},
    };
    int rc = RV_OK;

    for (size_t i = 0; !rc && i < sizeof (words) / sizeof (words[0]); i++)
        rc = sacctmgr (words[i], env, err);
    return rc;
}
