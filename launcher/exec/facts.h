/* SPDX-License-Identifier: Apache-2.0
 * facts.h - what must be equal on all ranks before they start, and where they
 * differ.
 *
 * A fact is a name (differ.h), a value that is compared and a text that is
 * shown. Ranks exchange a digest first; only where digests differ do they
 * exchange the facts. */
#ifndef RV_EXEC_FACTS_H
#define RV_EXEC_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/command.h"
#include "plan/error.h"

struct fact {
    char *name, *value;
    char *show; /* NULL: the value */
};

struct facts {
    struct fact *v; /* (n) by name, no name twice */
    size_t n;
};

/* facts_add - copy a fact in. [show] may be NULL. Returns 0, -1 without
 * memory. */
int facts_add (struct facts *f, const char *name, const char *value,
               const char *show);

/* facts_add_env - all variables that differ_compares names.
 *   env   NULL-terminated "NAME=value" */
int facts_add_env (struct facts *f, char *const *env);

/* facts_digest - of names and values, not of what is shown. */
uint64_t facts_digest (const struct facts *f);

/* facts_pack - as bytes: name, value and show, each with a NUL.
 *   ret   malloc'ed
 * facts_unpack checks lengths: a peer sent it. RV_EFORMAT, RV_ENOMEM. */
int facts_pack (const struct facts *f, char **ret, size_t *ret_len);
int facts_unpack (const char *buf, size_t len, struct facts *ret,
                  struct rv_error *err);

/* facts_compare - one line that names the ranks and both values of the first
 * fact that differs and may not, and the names of further ones.
 *   of      (n) by rank
 *   allow   list of names (differ.h), or NULL
 *   buf     (size) written where true is returned
 * A fact that a rank has not is "unset" there. */
bool facts_compare (const struct facts *of, uint32_t n, const char *allow,
                    char *buf, size_t size);

void facts_fini (struct facts *f);

/* program_files - the files whose content makes the program: what argv[0]
 * resolves to, and the script that a python, a shell or a tool is given, where
 * that is a file.
 *   ret   two paths, "" = none; ret[0] is "" when nothing is found */
struct program_files {
    char path[2][4096];
};
void program_files (const struct command *cmd, char *const *argv,
                    struct program_files *ret);

/* program_identity - of the files as this node names them: device, inode, size
 * and time of change. Two ranks of a node with one identity run one program
 * and need not both read it. 0 = not all of them can be looked at. */
uint64_t program_identity (const struct program_files *f);

/* program_hash - XXH3 of the files' content. RV_ENOTFOUND, RV_EIO. */
int program_hash (const struct program_files *f, uint64_t *ret,
                  struct rv_error *err);

/* driver_version - of the NVIDIA driver, from [path] (what
 * /proc/driver/nvidia/version says); "none" when it is not there. */
#define DRIVER_PATH "/proc/driver/nvidia/version"
void driver_version (const char *path, char *buf, size_t size);

/* nccl_find - the libnccl.so.2 that the loader would pick for a program
 * without a search path of its own: LD_PRELOAD, LD_LIBRARY_PATH, the cache, the
 * usual folders. Nothing is loaded or run.
 *   get       getenv(3), or a test's
 *   cache     "/etc/ld.so.cache"
 *   path      (size) written: the file, links resolved
 *   version   (version_size) written: "2.28.9", from the file's name, else
 *             from the text "NCCL version" in its constants; "?" when neither
 *             tells
 * Returns false when there is none. */
#define LOADER_CACHE "/etc/ld.so.cache"
typedef char *(*nccl_get_f) (const char *name);
bool nccl_find (nccl_get_f get, const char *cache, char *path, size_t size,
                char *version, size_t version_size);

#endif
