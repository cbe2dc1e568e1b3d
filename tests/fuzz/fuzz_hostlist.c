/* SPDX-License-Identifier: Apache-2.0
 * fuzz_hostlist.c - node lists: hosts that are expanded are hosts again */
#include "fuzz.h"
#include "plan/hostlist.h"

/* A host stands for itself when it is read once more. */
static void check_host (const char *host)
{
    struct hostlist one;

    FUZZ_CHECK (*host && strlen (host) <= 255);
    FUZZ_CHECK (hostlist_parse (host, &one, NULL) == 0);
    FUZZ_CHECK (one.n == 1 && strcmp (one.host[0], host) == 0);
    hostlist_fini (&one);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct rv_error err = {0};
    struct hostlist list;
    char *text = fuzz_text (data, size);

    if (hostlist_parse (text, &list, &err) == 0) {
        FUZZ_CHECK (list.n > 0 && list.n <= HOSTLIST_MAX);
        for (size_t i = 0; i < list.n; i += 1 + list.n / 64)
            check_host (list.host[i]);
    } else {
        FUZZ_CHECK (err.code == RV_EINVAL && err.text[0]);
        FUZZ_CHECK (list.n == 0 && !list.host);
    }
    hostlist_fini (&list);
    free (text);
    return 0;
}
