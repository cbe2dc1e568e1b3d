/* SPDX-License-Identifier: Apache-2.0
 * curl_api.h - libcurl as it was found at run time. Inside libtrain only; needs
 * config.h, and HAVE_CURL. */
#ifndef TRAIN_CURL_API_H
#define TRAIN_CURL_API_H

#include <curl/curl.h>

#include <train/status.h>

struct curl_api {
    __typeof__ (curl_easy_init) *init;
    __typeof__ (curl_easy_cleanup) *cleanup;
    __typeof__ (curl_easy_perform) *perform;
    __typeof__ (curl_easy_strerror) *strerror;
    CURLcode (*setopt) (CURL *, CURLoption, ...);
    CURLcode (*getinfo) (CURL *, CURLINFO, ...);
    __typeof__ (curl_slist_append) *slist_append;
    __typeof__ (curl_slist_free_all) *slist_free_all;
};

/* curl_find - open libcurl once; any thread. TRAIN_ENOTSUP: it cannot be
 * opened, or lacks something, which is named. */
train_status_t curl_find (const struct curl_api **ret_api, train_error_t *err);

#endif
