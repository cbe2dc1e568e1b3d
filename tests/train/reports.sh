#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# reports.sh - public bug reports about training: which test shows that each
# cannot happen here, and that the test is still there
: "${top_srcdir:?}"
set -u
n=0

# report | what went wrong | file below tests | a function of it, or a test's name
while IFS='|' read -r report wrong file test; do
    n=$((n + 1))
    if grep -qF -- "$test" "$top_srcdir/tests/$file"; then
        echo "ok $n - $report: $wrong"
    else
        echo "not ok $n - $report: '$test' is not in tests/$file"
    fi
done <<'EOF'
facebookresearch/fairscale#180|an Inf on one shard: that rank skips, the others hang (scaler)|unit/test_scaler.c|cmocka_unit_test (test_ranks)
facebookresearch/fairscale#180|the same without a scaler: all ranks skip|unit/test_trainer_watch.c|cmocka_unit_test (test_one_rank_bad)
pytorch/pytorch#115710|what one rank found is read before it has come|unit/test_scaler.c|cmocka_unit_test (test_ranks)
pytorch/pytorch#72548|each rank clips by its local norm|train/shard.sh|the losses are those of one rank within 1e-12
pytorch/pytorch#170862|the same|train/shard.sh|the losses are those of one rank within 1e-12
pytorch/torchtitan#766|the same|train/shard.sh|the losses are those of one rank within 1e-12
ByteDance-Seed/VeOmni#184|the norm is summed over replicas too|unit/test_fsdp.c|cmocka_unit_test (test_combinations)
pytorch, _fsdp_collectives.py|an average of one rank is not the value|unit/test_group_reports.c|.test_func = test_avg_of_one
huggingface/accelerate#3971|the optimizer's count of steps is not loaded|unit/test_trainer.c|cmocka_unit_test (test_resume)
pytorch/pytorch#124546|names follow the wrapping, another one cannot load|train/shard.sh|four go on
Haian-Jin/LVSM#19|a step left out without an update: unscaled twice|unit/test_scaler.c|cmocka_unit_test (test_order)
EleutherAI/gpt-neox#291|the scale stays at its minimum for ever|unit/test_scaler.c|cmocka_unit_test (test_floor)
ymcui/Chinese-LLaMA-Alpaca#534|the same|unit/test_scaler.c|cmocka_unit_test (test_floor)
pytorch/pytorch#144657|an asynchronous save has later values|unit/test_ckpt_pieces.c|cmocka_unit_test (test_snapshot)
pytorch/pytorch#140044|a reduce buffer is taken again while its collective runs|unit/test_fsdp_gpu.c|cmocka_unit_test (test_float)
pytorch/pytorch#180900|the same|unit/test_fsdp_gpu.c|cmocka_unit_test (test_float)
pytorch/pytorch#135156|a state on a device that cannot be: an obscure error later|unit/test_ckpt_device.c|cmocka_unit_test_setup_teardown (test_other_devices
NVIDIA/Megatron-LM#2288|pinned memory is filled again before the writer has read it|unit/test_ckpt_device.c|cmocka_unit_test_setup_teardown (test_pieces
lanl/hippynn#12|a generator's state follows the weights to another device|gpu/rv_train.sh|the host goes on with what bf16 wrote on the GPU
pytorch/ignite#2076|the same|gpu/rv_train.sh|the host goes on with what bf16 wrote on the GPU
NVIDIA/nvidia-resiliency-ext#376|weights of one step, state of another|unit/test_ckpt.c|cmocka_unit_test (test_mixed)
Lightning-AI/pytorch-lightning#20953|the same|unit/test_ckpt.c|cmocka_unit_test (test_mixed)
pytorch/pytorch#96309|a generator's state is not saved: draws are functions of seed and place|unit/test_trainer.c|cmocka_unit_test (test_resume)
vllm-project/speculators#1026|a run resumed within an epoch sees other samples|train/resume.sh|same bits again
facebookresearch/optimizers#149|a rank without gradients leaves out a collective|unit/test_group_reports.c|.test_func = test_joins
facebookresearch/optimizers#149|the same in a step of each strategy|unit/test_fsdp.c|run.uneven
huggingface/trl#6369|tokens of completions that were cut off count in the denominator alone|unit/test_grpo_loop.c|cmocka_unit_test (test_cut)
huggingface/trl#3248|all masked: 0 over 0 (the loss)|unit/test_grpo.c|cmocka_unit_test (test_all_masked)
verl-project/verl#785|the same, of a whole step|unit/test_grpo_loop.c|cmocka_unit_test (test_nothing)
ruc-datalab/DeepAnalyze#116|a group of one has no deviation|unit/test_grpo.c|cmocka_unit_test (test_advantages_refused)
OpenRLHF/OpenRLHF#1239|a completion without tokens shifts the baseline|unit/test_grpo.c|cmocka_unit_test (test_left_out)
huggingface/trl#3029|log-probabilities without the temperature|unit/test_policy.c|cmocka_unit_test (test_values)
huggingface/trl#3029|who samples and who trains have two temperatures|unit/test_grpo_loop.c|cmocka_unit_test (test_temperature)
allenai/open-instruct#535|the KL is no part of the masked mean|unit/test_grpo.c|cmocka_unit_test (test_differences)
allenai/open-instruct#535|k1 has no slope|unit/test_grpo.c|cmocka_unit_test (test_kl_gradient)
verl-project/verl#7321|the mean over tokens hangs on how rows are cut|unit/test_grpo.c|cmocka_unit_test (test_splits)
verl-project/verl#2857|the same, by ranks|train/grpo.sh|four ranks on two nodes, in small passes
huggingface/trl#2703|a loss of 0 is taken for no gradient|unit/test_grpo.c|cmocka_unit_test (test_on_policy)
OpenRLHF/OpenRLHF#773|without a KL a reference is asked for|unit/test_grpo.c|nor is that needed
facebookresearch/optimizers#149|ranks without a completion leave out a collective|unit/test_grpo_loop.c|cmocka_unit_test (test_few)
karpathy/llm.c: clip|a norm that is NaN updates the weights|unit/test_trainer.c|cmocka_unit_test (test_skips)
karpathy/llm.c: loss|-log of a probability that is 0 is Inf|unit/test_loss_optim.c|cmocka_unit_test (test_huge)
karpathy/llm.c: ZeRO|nothing is sharded where the ranks do not divide|train/shard.sh|Three ranks do not divide
karpathy/llm.c: rounding|chance hangs on the launch, not on the element|unit/test_mixed.c|cmocka_unit_test (test_random)
EOF
echo "1..$n"
