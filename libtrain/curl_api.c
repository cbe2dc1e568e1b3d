/* SPDX-License-Identifier: Apache-2.0
 * curl_api.c - open libcurl at run time */
#include "config.h"

#if HAVE_CURL

#include "curl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "err.h"

static struct curl_api found;
static train_error_t why_not; /* code TRAIN_OK: [found] is good */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *find_all (void *library)
{
    static const struct {
        const char *name;
        void *to;
    } list[] = {
        {"curl_easy_init", &found.init},
        {"curl_easy_cleanup", &found.cleanup},
        {"curl_easy_perform", &found.perform},
        {"curl_easy_strerror", &found.strerror},
        {"curl_easy_setopt", &found.setopt},
        {"curl_easy_getinfo", &found.getinfo},
        {"curl_slist_append", &found.slist_append},
        {"curl_slist_free_all", &found.slist_free_all},
    };

    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        void *symbol = dlsym (library, list[i].name);

        if (!symbol)
            return list[i].name;
        memcpy (list[i].to, &symbol, sizeof (symbol));
    }
    return NULL;
}

static void find_library (void)
{
    void *library = dlopen (RV_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *missing = library ? find_all (library) : NULL, *why;
    __typeof__ (curl_global_init) *global_init;
    void *symbol = library ? dlsym (library, "curl_global_init") : NULL;

    if (!library) {
        why = dlerror ();
        err_set (&why_not, TRAIN_ENOTSUP,
                 "cannot open " RV_CURL_LIBRARY
                 ": %s; LD_LIBRARY_PATH may name its folder",
                 why ? why : "no reason given");
        return;
    }
    if (missing || !symbol) {
        err_set (&why_not, TRAIN_ENOTSUP, RV_CURL_LIBRARY " has no %s",
                 missing ? missing : "curl_global_init");
        return;
    }
    memcpy (&global_init, &symbol, sizeof (symbol));
    if (global_init (CURL_GLOBAL_DEFAULT) != CURLE_OK)
        err_set (&why_not, TRAIN_ENOTSUP, RV_CURL_LIBRARY " does not begin");
}

train_status_t curl_find (const struct curl_api **ret_api, train_error_t *err)
{
    pthread_once (&once, find_library);
    if (why_not.code != TRAIN_OK)
        return err_set (err, why_not.code, "%s", why_not.text);
    *ret_api = &found;
    return TRAIN_OK;
}

#endif
