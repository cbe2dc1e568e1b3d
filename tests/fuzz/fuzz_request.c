/* SPDX-License-Identifier: Apache-2.0
 * fuzz_request.c - a GPU request, and after its line the nodes' gres text */
#include <strings.h>

#include "fuzz.h"
#include "plan/gres.h"
#include "plan/rank_env.h"
#include "plan/request.h"

/* A request that is met asks for no more than the nodes have. */
static void check_met (const struct gpu_request *req, const char *gres)
{
    struct gres_list list;

    FUZZ_CHECK (gres_parse (gres, &list, NULL) == 0);
    FUZZ_CHECK (req->count / 3 <= gres_count (&list, req->type));
    gres_fini (&list);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct rv_error err = {0};
    struct gpu_request req = {.count = 0};
    char *text = fuzz_text (data, size), *gres;
    const char *names[] = {"gpus", text, "partition"}, *near;

    gres = strchr (text, '\n');
    if (gres)
        *gres++ = '\0';
    else
        gres = text + strlen (text);
    if (request_parse_gpu (text, &req, &err) == 0) {
        struct node_offer offer = {.gres = gres, .nodes = 3};
        int rc = request_check_gpu (&req, &offer, 1, &err);

        FUZZ_CHECK (req.count > 0);
        FUZZ_CHECK (rc == 0 || rc == RV_EINVAL || rc == RV_ENOTFOUND);
        if (rc == 0)
            check_met (&req, gres);
        else
            FUZZ_CHECK (err.text[0]);
    } else {
        FUZZ_CHECK (err.code == RV_EINVAL && err.text[0] && req.count == 0);
    }
    near = name_nearest (text, names, 3);
    FUZZ_CHECK (near == text || strlen (text) >= 64 || !*text
                || (near && strcasecmp (near, text) == 0));
    name_nearest (gres, names, 3);
    FUZZ_CHECK (rank_env_visible (text) >= 0);
    free (text);
    return 0;
}
