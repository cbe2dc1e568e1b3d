/* SPDX-License-Identifier: Apache-2.0
 * probe_json.c - what a probe found, as JSON */
#include <string.h>

#include "err.h"
#include "probe.h"

#define SCHEMA "train.probe/1"

static const char *const verdict_name[] = {"unknown", "good", "no way", "wrong",
                                           "slow"};
static const char *const way_name[PROBE_WAYS] = {"driver", "peer", "kernel"};

static json_t *pair_json (const struct probe_pair *pair, int dst, int src)
{
    return json_pack (
        "{s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f}", "dst", dst, "src",
        src, "verdict", verdict_name[pair->verdict], "way", way_name[pair->way],
        "bytes", (json_int_t)pair->bytes, "offset_bytes",
        (json_int_t)pair->offset, "expected", (json_int_t)pair->expected, "got",
        (json_int_t)pair->got, "peer_gb_per_s", pair->peer_gb_s,
        "staged_gb_per_s", pair->staged_gb_s);
}

json_t *probe_to_json (const struct probe_pair *pair, int n,
                       const char *const *id)
{
    json_t *gpus = json_array (), *pairs = json_array ();

    for (int i = 0; i < n; i++)
        json_array_append_new (gpus, json_string (id[i]));
    for (int dst = 0; dst < n; dst++)
        for (int src = 0; src < n; src++)
            if (dst != src)
                json_array_append_new (
                    pairs, pair_json (&pair[dst * n + src], dst, src));
    return json_pack ("{s:s, s:o, s:o}", "schema", SCHEMA, "gpus", gpus,
                      "pairs", pairs);
}

/* The index of a word in a list; -1. */
static int find (const char *const *list, int n, const char *word)
{
    for (int i = 0; i < n; i++)
        if (strcmp (list[i], word) == 0)
            return i;
    return -1;
}

static bool read_pair (const json_t *json, int n, struct probe_pair *ret)
{
    json_int_t bytes, offset, expected, got;
    const char *verdict, *way;
    struct probe_pair pair;
    int dst, src, v, w;

    if (json_unpack ((json_t *)json,
                     "{s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:F, s:F}",
                     "dst", &dst, "src", &src, "verdict", &verdict, "way", &way,
                     "bytes", &bytes, "offset_bytes", &offset, "expected",
                     &expected, "got", &got, "peer_gb_per_s", &pair.peer_gb_s,
                     "staged_gb_per_s", &pair.staged_gb_s))
        return false;
    v = find (verdict_name, PROBE_SLOW + 1, verdict);
    w = find (way_name, PROBE_WAYS, way);
    if (dst < 0 || dst >= n || src < 0 || src >= n || dst == src || v < 0
        || w < 0)
        return false;
    pair.verdict = (enum probe_verdict)v;
    pair.way = (enum probe_way)w;
    pair.bytes = (uint64_t)bytes;
    pair.offset = (uint64_t)offset;
    pair.expected = (uint32_t)expected;
    pair.got = (uint32_t)got;
    ret[dst * n + src] = pair;
    return true;
}

static bool same_gpus (const json_t *json, int n, const char *const *id)
{
    const json_t *gpus = json_object_get (json, "gpus");

    if (json_array_size (gpus) != (size_t)n)
        return false;
    for (int i = 0; i < n; i++) {
        const char *text = json_string_value (json_array_get (gpus, (size_t)i));

        if (!text || strcmp (text, id[i]) != 0)
            return false;
    }
    return true;
}

train_status_t probe_from_json (const json_t *json, int n,
                                const char *const *id, struct probe_pair *ret,
                                train_error_t *err)
{
    const json_t *pairs = json_object_get (json, "pairs");
    const char *schema = json_string_value (json_object_get (json, "schema"));
    size_t count = json_array_size (pairs);

    if (!schema || strcmp (schema, SCHEMA) != 0
        || count != (size_t)n * (size_t)(n - 1))
        return err_set (err, TRAIN_EFORMAT, "no findings of a probe");
    if (!same_gpus (json, n, id))
        return err_set (err, TRAIN_EFORMAT, "the findings are of other GPUs");
    for (int i = 0; i < n * n; i++)
        ret[i] = (struct probe_pair){
            .verdict = i % (n + 1) == 0 ? PROBE_GOOD : PROBE_UNKNOWN};
    for (size_t i = 0; i < count; i++)
        if (!read_pair (json_array_get (pairs, i), n, ret))
            return err_set (err, TRAIN_EFORMAT, "pair %zu is malformed", i);
    return TRAIN_OK;
}
