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

static int load (const char *path, struct nvml *ret, struct rv_error *err)
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
    ret->lib = dlopen (name, RTLD_NOW | RTLD_LOCAL);
    if (!ret->lib)
        return error_set (err, RV_ENOTFOUND, "%s", dlerror ());
    return RV_OK;
}

int nvml_open (const char *path, struct nvml *ret, struct rv_error *err)
{
    int (*init) (void), (*count) (unsigned *);
    int rc = load (path, ret, err);

    if (rc)
        return rc;
    nvml_find (ret->lib, "nvmlInit_v2", &init);
    nvml_find (ret->lib, "nvmlDeviceGetCount_v2", &count);
    nvml_find (ret->lib, "nvmlErrorString", &ret->error);
    nvml_find (ret->lib, "nvmlDeviceGetHandleByIndex_v2", &ret->handle);
    nvml_find (ret->lib, "nvmlDeviceGetMinorNumber", &ret->minor);
    if (!init || !count || !ret->error || !ret->handle)
        return error_set (err, RV_EIO, "%s: is no NVML",
                          path ? path : "libnvidia-ml.so.1");
    rc = init ();
    if (rc == 0)
        rc = count (&ret->n);
    return rc ? error_set (err, RV_EIO, "NVML: %s", ret->error (rc)) : RV_OK;
}
