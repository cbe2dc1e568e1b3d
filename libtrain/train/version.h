/* SPDX-License-Identifier: Apache-2.0
 * train/version.h - which libtrain this is, and what it was built for. */
#ifndef TRAIN_VERSION_H
#define TRAIN_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

/* train_version - "0.1.0". Static. */
const char *train_version (void);

/* train_built_for - "CUDA 13.0, NCCL 2.28.9"; "no CUDA, no NCCL" without.
 * Says nothing about this machine: the same library runs without a GPU.
 * Static. */
const char *train_built_for (void);

#ifdef __cplusplus
}
#endif
#endif
