/* SPDX-License-Identifier: Apache-2.0
 * version.h - the version line that every program prints.
 *
 * Needs config.h included before. "rv 0.1.0 (slurm 22.05.8, pmix 4.2.2,
 * cuda 13.0, nccl 2.28.9)"; what was left out at configure time is "none". */
#ifndef RV_VERSION_H
#define RV_VERSION_H

#define RV_VERSION_LINE(program)                                               \
    program " " PACKAGE_VERSION " (slurm " RV_SLURM_VERSION                    \
            ", pmix " RV_PMIX_VERSION ", cuda " RV_CUDA_VERSION                \
            ", nccl " RV_NCCL_VERSION ")"

#endif
