/* SPDX-License-Identifier: Apache-2.0
 * probe.h - do peer copies between the GPUs of this process give the right
 * bytes? Inside libtrain only.
 *
 * Peer copies that a driver offers have delivered zeros, stale pages and other
 * GPUs' bytes (pytorch/pytorch#13803, #70048, #87363, #157398;
 * CAPS-UMU/FIDESlib#28), most often behind an IOMMU. So before the first one
 * each ordered pair is tried with patterned data. probe_pairs does it in this
 * process and leaves contexts on all devices behind; probe_load has a child
 * do it, once a boot. */
#ifndef TRAIN_PROBE_H
#define TRAIN_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <train/copy.h>

#include "backend.h"

enum probe_verdict {
    PROBE_UNKNOWN = 0,
    PROBE_GOOD,
    PROBE_NO_WAY, /* the driver offers none */
    PROBE_WRONG,  /* bytes differed */
    PROBE_SLOW,   /* no gain over the way through the host */
};

/* Ways that bytes go, in the order in which they are tried. */
enum probe_way {
    PROBE_DRIVER = 0, /* a peer copy before peer access is on */
    PROBE_PEER = 1,   /* the same after */
    PROBE_KERNEL = 2, /* a kernel of [dst] reads memory of [src] */
    PROBE_WAYS
};

/* One ordered pair. */
struct probe_pair {
    enum probe_verdict verdict;
    enum probe_way way; /* of the first wrong byte */
    uint64_t bytes;     /* of the copy that was wrong, */
    uint64_t offset;    /* the first wrong word in it, a multiple of 4, */
    uint32_t expected, got;
    double peer_gb_s, staged_gb_s; /* both ways at once; 0: not measured */
};

struct probe_options {
    uint64_t most_bytes; /* of the largest copy; the least is 4 */
    double least_gb_s;   /* below it, or below the way through the host, a
                            pair is slow; 0: not judged by time */
};
extern const struct probe_options probe_default;

/* probe_pairs - try all pairs, both directions of two GPUs at once.
 *   ret   (n * n) written: that of [src] to [dst] at dst * n + src; those of a
 *         GPU with itself are PROBE_GOOD
 * TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t probe_pairs (const struct backend_ops *ops, int n,
                            const struct probe_options *opts,
                            struct probe_pair *ret, train_error_t *err);

/* probe_word - what word [index] of the pattern of a pair is. Zeros, what was
 * there before (0xa5), another pair's and another place's all differ. */
uint32_t probe_word (int dst, int src, uint64_t index);

/* probe_text - one line on a pair that is not good; "" for one that is. */
void probe_text (const struct probe_pair *pair, int dst, int src, char *text,
                 size_t size);

/* probe_to_json, probe_from_json - [n] GPUs with these names.
 *   id    (n) texts; from_json refuses (TRAIN_EFORMAT) what is of others
 *   ret   (n * n) written on success */
json_t *probe_to_json (const struct probe_pair *pair, int n,
                       const char *const *id);
train_status_t probe_from_json (const json_t *json, int n,
                                const char *const *id, struct probe_pair *ret,
                                train_error_t *err);

/* How long the child of probe_load may take; for tests. */
extern int64_t probe_child_ms;

/* probe_load - the pairs of this process's GPUs: what a process of this boot,
 * driver and list of GPUs has found, else what a child finds now.
 *   program   that probes, as `PROGRAM probe --json`; NULL = rv-train beside
 *             this program, else where it is installed
 *   dir       of the findings; NULL = ${XDG_CACHE_HOME:-~/.cache}/rv
 *   ret       (n * n) written in any case; PROBE_UNKNOWN where it fails
 *   note      (size) why what was found is not kept; "" = it is
 * One process of a node runs the child, the others wait for it. A child that
 * does not end within a minute is killed, and all pairs are PROBE_NO_WAY.
 * TRAIN_ENOTFOUND (no program), TRAIN_EIO, TRAIN_ETIMEDOUT, TRAIN_EFORMAT. */
train_status_t probe_load (const struct backend_ops *ops, int n,
                           const char *program, const char *dir,
                           struct probe_pair *ret, char *note, size_t size,
                           train_error_t *err);

/* probe_key - what findings hold for: a boot, a driver, these GPUs by [ids] of so
 * many bytes, and this version; each is its line, or "". Pure. */
uint64_t probe_key (const char *boot, const char *driver, const void *ids,
                    size_t bytes);

#endif
