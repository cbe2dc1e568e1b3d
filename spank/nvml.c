/* SPDX-License-Identifier: Apache-2.0
 * nvml.c - load the driver's management library */
#include "config.h"

#include "nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* POSIX has dlsym give functions as void *, which C does not. */
void nvml_find (void *lib, const char *name, void *ret_function)
{
    void *symbol = dlsym (lib, name);

    memcpy (ret_function, &symbol, sizeof (symbol));
}

int nvml_open (const char *path, void **ret_lib, struct rv_error *err)
{
    const char *name = path ? path : "libnvidia-ml.so.1";
    struct stat st;

    if (path && (path[0] != '/' || stat (path, &st)))
        return error_set (err, RV_ENOTFOUND, "%s: %s", path,
                          path[0] != '/' ? "is no absolute path"
                                         : strerror (errno));
    if (path
        && ((st.st_mode & 022) || (st.st_uid != 0 && st.st_uid != geteuid ())))
        return error_set (err, RV_EINVAL, "%s: others may write it", path);
    *ret_lib = dlopen (name, RTLD_NOW | RTLD_LOCAL);
    if (!*ret_lib)
        return error_set (err, RV_ENOTFOUND, "%s", dlerror ());
    return RV_OK;
}
