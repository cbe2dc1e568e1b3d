/* SPDX-License-Identifier: Apache-2.0
 * sandbox.h - a private, real Slurm on this machine, under one folder. */
#ifndef RV_SANDBOX_H
#define RV_SANDBOX_H

#include "cmd.h"

extern const struct cmd cmd_sandbox;

/* sandbox_use - point this process and its children at a running sandbox:
 * SLURM_CONF, and PATH with rv's own folder first.
 *   dir   its folder; NULL for the default one
 * RV_ENOTFOUND when no sandbox is up there, RV_EIO. */
int sandbox_use (const char *dir, struct rv_error *err);

#endif
