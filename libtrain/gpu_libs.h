/* SPDX-License-Identifier: Apache-2.0
 * gpu_libs.h - which libraries make a decoder's products and attention on a
 * GPU. Inside libtrain only. */
#ifndef TRAIN_GPU_LIBS_H
#define TRAIN_GPU_LIBS_H

#include <stddef.h>

/* gpu_libs - "cuBLASLt 130100, cuDNN 91900"; "no cuDNN" where one cannot be
 * opened.
 *   text   (size) written, cut if need be; "" where libtrain was built without
 *          CUDA */
void gpu_libs (char *text, size_t size);

#endif
