/* SPDX-License-Identifier: Apache-2.0
 * mhd_api.h - libmicrohttpd as it was found at run time; needs config.h, and
 * HAVE_MICROHTTPD */
#ifndef RV_TRAIN_MHD_API_H
#define RV_TRAIN_MHD_API_H

#include <microhttpd.h>

#include <train/status.h>

#define MHD_CALLS(X)                                                           \
    X (add_response_header)                                                    \
    X (create_response_from_buffer)                                            \
    X (destroy_response)                                                       \
    X (get_connection_info)                                                    \
    X (get_reason_phrase_for)                                                  \
    X (lookup_connection_value)                                                \
    X (queue_response)                                                         \
    X (quiesce_daemon)                                                         \
    X (resume_connection)                                                      \
    X (start_daemon)                                                           \
    X (stop_daemon)                                                            \
    X (suspend_connection)

struct mhd_api {
#define FIELD(name) __typeof__ (MHD_##name) *name;
    MHD_CALLS (FIELD)
#undef FIELD
};

/* mhd_find - open libmicrohttpd. TRAIN_ENOTSUP: it cannot be opened, or lacks
 * something, which is named. Not from several threads. */
train_status_t mhd_find (const struct mhd_api **ret_api, train_error_t *err);

#endif
