/* SPDX-License-Identifier: Apache-2.0
 * tokens.h - what readers and writers of token files share. Inside libtrain
 * only; the public side is train/tokens.h. */
#ifndef TRAIN_TOKENS_INTERNAL_H
#define TRAIN_TOKENS_INTERNAL_H

#include <train/tokens.h>

#define TOKENS_MAGIC       "RVTOKENS"
#define TOKENS_MAGIC_BYTES 8

#endif
