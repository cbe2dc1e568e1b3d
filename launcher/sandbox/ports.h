/* SPDX-License-Identifier: Apache-2.0
 * ports.h - free TCP ports on loopback, kept until a daemon has them. */
#ifndef RV_SANDBOX_PORTS_H
#define RV_SANDBOX_PORTS_H

#include <stdbool.h>

#include "plan/error.h"

enum { PORTS_FIRST = 10240, PORTS_LAST = 19999 };

/* ports_reserve - bind [n] different ports of PORTS_FIRST..PORTS_LAST (below
 * the kernel's own range and below those that jobs use for MASTER_PORT).
 *   fd, port   (n) written; close fd[] after the daemons listen
 * Nobody else can bind such a port, but a program that sets SO_REUSEADDR, as
 * Slurm's daemons do, can bind and listen on it while it is reserved.
 * RV_EIO when there are not that many. */
int ports_reserve (int n, int *fd, int *port, struct rv_error *err);

/* ports_listening - does somebody accept connections on 127.0.0.1:[port]? */
bool ports_listening (int port);

#endif
