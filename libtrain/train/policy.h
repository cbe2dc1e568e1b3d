/* SPDX-License-Identifier: Apache-2.0
 * train/policy.h - a decoder as a policy: log-probabilities of what was said,
 * and the gradient of any function of them.
 *
 * The two calls are one pass: forward, then, when the caller knows from the
 * log-probabilities what the loss's gradient over them is (train/grpo.h), the
 * backward. (The score-function gradient of Williams 1992, REINFORCE, is that
 * with dlogp = -advantage.) One thread. */
#ifndef TRAIN_POLICY_H
#define TRAIN_POLICY_H

#include <stdint.h>

#include <train/decoder.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* train_decoder_logps - log softmax (logits / temperature) of each target.
 *   ret_logp      (B,T) host, written: nats; 0 where there is no target
 *   ret_entropy   (B,T) host, written likewise: of that softmax; NULL = not
 *                 wanted
 *   tokens, targets   (B,T) as of train_decoder_forward: targets[b,t] is said
 *                 behind tokens[b,..t]; -1 = none. On the host they are borrowed
 *                 until the backward, or until the next pass
 *   temperature   > 0, that of the sampling
 * TRAIN_EINVAL, TRAIN_ENOMEM, TRAIN_EDEVICE, as the decoder's passes. */
train_status_t train_decoder_logps (float *ret_logp, float *ret_entropy,
                                    train_decoder_t *decoder,
                                    const int32_t *tokens,
                                    const int32_t *targets, int B, int T,
                                    double temperature, train_error_t *err);

/* train_decoder_policy_backward - the backward of the last train_decoder_logps.
 *   dlogp   (B,T) host: d loss / d logp; what is where there is no target is
 *           not read
 * Gradients are ADDED to the gradient arena: zero it once a step. TRAIN_ESTATE:
 * another pass has been made since, or none yet. */
train_status_t train_decoder_policy_backward (train_decoder_t *decoder,
                                              const float *dlogp,
                                              train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
