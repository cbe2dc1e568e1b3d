/* SPDX-License-Identifier: Apache-2.0
 * train.h - libtrain: everything a program needs to train inside a job. */
#ifndef TRAIN_H
#define TRAIN_H

#include <train/version.h>
#include <train/status.h>
#include <train/tensor.h>
#include <train/copy.h>
#include <train/group.h>
#include <train/graph.h>
#include <train/safetensors.h>
#include <train/frames.h>
#include <train/share.h>
#include <train/shard.h>
#include <train/decoder.h>
#include <train/grpo.h>
#include <train/reference.h>
#include <train/hf.h>
#include <train/generate.h>
#include <train/prompts.h>
#include <train/reward.h>
#include <train/policy.h>
#include <train/scaler.h>
#include <train/schedule.h>
#include <train/tokenizer.h>
#include <train/sampler.h>
#include <train/tokens.h>
#include <train/data.h>
#include <train/optim.h>
#include <train/ckpt_pieces.h>
#include <train/ckpt.h>
#include <train/trainer.h>
#include <train/grpo_trainer.h>
#include <train/watch.h>
#include <train/trace.h>

#endif
