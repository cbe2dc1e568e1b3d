/* SPDX-License-Identifier: Apache-2.0
 * scaler.h - what the trainer asks of the loss scale beyond train/scaler.h.
 * Inside libtrain only. */
#ifndef TRAIN_SCALER_IMPL_H
#define TRAIN_SCALER_IMPL_H

#include <train/scaler.h>

/* scaler_found - in place of train_scaler_unscale, for gradients that are
 * divided where they are used: [found] is the same on all ranks. */
void scaler_found (train_scaler_t *scaler, bool found);

#endif
