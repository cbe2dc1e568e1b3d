/* SPDX-License-Identifier: Apache-2.0
 * mhd_api.c - open libmicrohttpd at run time */
#include "config.h"

#if HAVE_MICROHTTPD

#include "mhd_api.h"

#include <dlfcn.h>
#include <string.h>

#include "libtrain/err.h"

train_status_t mhd_find (const struct mhd_api **ret_api, train_error_t *err)
{
    static struct mhd_api found;
    static const struct {
        const char *name;
        void *to;
    } list[] = {
#define ROW(name) {"MHD_" #name, &found.name},
        MHD_CALLS (ROW)
#undef ROW
    };
    void *library = dlopen (RV_MICROHTTPD_LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *why = dlerror ();

        return err_set (err, TRAIN_ENOTSUP,
                        "cannot open " RV_MICROHTTPD_LIBRARY
                        ": %s; LD_LIBRARY_PATH may name its folder",
                        why ? why : "no reason given");
    }
    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        void *symbol = dlsym (library, list[i].name);

        if (!symbol)
            return err_set (err, TRAIN_ENOTSUP,
                            RV_MICROHTTPD_LIBRARY " has no %s", list[i].name);
        memcpy (list[i].to, &symbol, sizeof (symbol));
    }
    *ret_api = &found;
    return TRAIN_OK;
}

#endif
