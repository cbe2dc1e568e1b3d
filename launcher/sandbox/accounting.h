/* SPDX-License-Identifier: Apache-2.0
 * accounting.h - a database and a slurmdbd for one sandbox.
 *
 * The database is a mariadbd without network and without passwords, whose only
 * door is a socket in the sandbox folder, which is its user's alone. No service
 * of the machine is touched. Sources: mariadbd(8), slurmdbd.conf(5). */
#ifndef RV_SANDBOX_ACCOUNTING_H
#define RV_SANDBOX_ACCOUNTING_H

#include "plan/error.h"
#include "sandbox/state.h"

/* Where libmariadb looks for "localhost", from the daemons' environment. */
#define ACCOUNTING_SOCKET     "mariadb.socket"
#define ACCOUNTING_SOCKET_ENV "MYSQL_UNIX_PORT"
#define ACCOUNTING_ACCOUNT    "main"

/* accounting_check - are the programs here? RV_ENOTFOUND names the package. */
int accounting_check (struct rv_error *err);

/* accounting_add - append both daemons to [sb], the database first.
 *   user   name of the user that they run as
 * RV_ENOTFOUND, RV_ENOMEM. */
int accounting_add (struct sandbox *sb, const char *user, struct rv_error *err);

/* accounting_daemon - index of the database's daemon; slurmdbd is the next. */
int accounting_daemon (const struct sandbox *sb);

/* accounting_port - of slurmdbd. */
int accounting_port (const struct sandbox *sb);

/* accounting_conf - slurmdbd.conf, malloc'ed; NULL when out of memory. Pure. */
char *accounting_conf (const struct sandbox *sb, const char *user);

/* accounting_tables - the statements that make the system's tables, malloc'ed.
 * RV_ENOTFOUND where the server has none. */
int accounting_tables (char **ret, struct rv_error *err);

/* accounting_register - the cluster, an account and its user; needs slurmdbd,
 * not slurmctld.
 *   env   of the daemons. RV_EIO with sacctmgr's words. */
int accounting_register (const struct sandbox *sb, const char *user,
                         char *const *env, struct rv_error *err);

#endif
