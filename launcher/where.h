/* SPDX-License-Identifier: Apache-2.0
 * where.h - find rv's own programs and the plugin.
 *
 * They lie beside the running program (a build folder), else in the folders
 * compiled in. No environment variable changes that. */
#ifndef RV_WHERE_H
#define RV_WHERE_H

#include "plan/error.h"

/* where_self - the folder of the running program, absolute, links resolved,
 * malloc'ed. RV_EIO when /proc is not mounted. */
int where_self (char **ret_dir, struct rv_error *err);

/* where_program - absolute path of [name] ("rv-exec"), malloc'ed.
 * RV_ENOTFOUND names both places. */
int where_program (const char *name, char **ret_path, struct rv_error *err);

/* where_plugin - absolute path of spank_rv.so, links resolved, malloc'ed.
 * RV_ENOTFOUND names both places. */
int where_plugin (char **ret_path, struct rv_error *err);

#endif
