/* SPDX-License-Identifier: Apache-2.0
 * settings_grpo.c - what [grpo] and [reference] mean, and what they do not go
 * together with */
#include "settings_grpo.h"

#include "libtrain/reference.h"
#include "settings.h"

void settings_grpo_defaults (struct settings_grpo *g)
{
    g->group = 8;
    g->iterations = 1;
    g->steps = 1;
    g->max_new = 256;
    g->temperature = 1;
    g->loss = TRAIN_GRPO_DAPO;
    g->low = 0.2;
    g->off_policy = -1;
    g->shown = 8;
}

static bool given (const struct settings *c, const char *key)
{
    return settings_given (c, "grpo", key);
}

static const char of_clip[] = "is of loss_type = grpo, bnpo, dr_grpo, dapo and "
                              "gspo alone; remove it";
static const char of_clip_low[] =
    "is of losses that clip the ratio on both sides, which cispo and sapo do "
    "not; cispo has cispo_cap";
static const char of_sapo[] = "is of loss_type = sapo alone; remove it";
static const char of_beta[] = "is of beta above 0 alone; remove it";
static const char of_correction[] =
    "is of a correction, and that is off; set it, or remove this";

/* What would change nothing of the run is not taken in silence. */
static int check_idle (const struct settings *c, struct rv_error *err)
{
    const struct settings_grpo *g = &c->grpo;
    bool cap = g->loss == TRAIN_GRPO_CISPO, soft = g->loss == TRAIN_GRPO_SAPO;
    bool clips = !cap && !soft && g->loss != TRAIN_GRPO_CISPO_CLIP;
    bool gdpo = g->combine == TRAIN_GRPO_NORMALIZE_THEN_SUM;
    const struct settings_rule rule[] = {
        {(cap || soft) && given (c, "epsilon"), "grpo", "epsilon", of_clip_low},
        {(cap || soft) && given (c, "epsilon_high"), "grpo", "epsilon_high",
         of_clip_low},
        {!clips && g->delta > 0, "grpo", "delta", of_clip},
        {!clips && g->dual > 0, "grpo", "dual_clip", of_clip},
        {!cap && given (c, "cispo_cap"), "grpo", "cispo_cap",
         "is of loss_type = cispo alone; remove it"},
        {!soft && given (c, "sapo_temperature_pos"), "grpo",
         "sapo_temperature_pos", of_sapo},
        {!soft && given (c, "sapo_temperature_neg"), "grpo",
         "sapo_temperature_neg", of_sapo},
        {g->loss == TRAIN_GRPO_GSPO && given (c, "importance_sampling_level")
             && g->level == 0,
         "grpo", "importance_sampling_level",
         "gspo takes one ratio a completion; loss_type = grpo takes one a "
         "token"},
        {g->beta == 0 && given (c, "kl"), "grpo", "kl", of_beta},
        {g->beta == 0 && g->kl_gradient, "grpo", "kl_gradient", of_beta},
        {g->correct == 0 && given (c, "correction_min"), "grpo",
         "correction_min", of_correction},
        {g->correct == 0 && given (c, "correction_max"), "grpo",
         "correction_max", of_correction},
        {g->old == 1 && g->correct > 0, "grpo", "correction",
         "old_logps = sampler leaves nothing to correct; use old_logps = "
         "again"},
        {gdpo && given (c, "scale_rewards"), "grpo", "scale_rewards",
         "normalize_then_sum scales by group, then by batch; remove it"},
        {gdpo && g->base == TRAIN_GRPO_BASE_OTHERS, "grpo", "baseline",
         "normalize_then_sum takes the mean; remove it"},
    };

    return SETTINGS_RULES (c, rule, err);
}

/* Of a run whose task is grpo. */
static int check_task (const struct settings *c, struct rv_error *err)
{
    const struct settings_grpo *g = &c->grpo;
    const struct settings_rule rule[] = {
        {c->rewards.n == 0, "run", "task",
         "grpo needs a reward: [reward NAME] with its kind"},
        {c->batch * g->steps % g->group != 0, "data", "batch",
         "batch times [grpo] steps_per_generation is no multiple of "
         "num_generations"},
        {settings_given (c, "data", "seq"), "data", "seq",
         "is of tasks pretrain and sft alone: grpo cuts no prompt, and [grpo] "
         "max_completion_length bounds what is written; remove it"},
        {g->temperature <= 0, "grpo", "temperature", "is not above 0"},
        {g->low <= 0 || g->low >= 1, "grpo", "epsilon",
         "is not above 0 and below 1"},
        {g->delta > 0 && g->delta <= 1 + (g->high > 0 ? g->high : g->low),
         "grpo", "delta", "is not above 1 + epsilon_high; 0 is none"},
        {g->dual > 0 && g->dual <= 1, "grpo", "dual_clip",
         "is not above 1; 0 is none"},
        {g->least > (g->most > 0 ? g->most : 3), "grpo", "correction_min",
         "is above correction_max"},
        {c->device == DEVICE_CUDA && c->param == FP16, "precision", "param",
         "grpo on a GPU takes fp32 or bf16"},
        {g->gather == TRAIN_GRPO_GATHER_UNIT
             && c->strategy < TRAIN_SHARD_GRAD_OP,
         "grpo", "gather",
         "is of weights that are sharded; [shard] strategy = full does that"},
        {g->url && reference_url (g->url) == 0, "reference", "url",
         "is not http://HOST:PORT"},
        {g->url && g->beta == 0, "reference", "url",
         "is of use with [grpo] beta above 0 alone"},
        {g->ref_shard == REFERENCE_SHARDED && (g->url || g->beta == 0),
         "reference", "shard",
         "is of a reference in this process; [grpo] beta above 0 and no "
         "[reference] url make one"},
        {g->ref_offload && (g->url || g->beta == 0), "reference", "offload",
         "is of a reference in this process; [grpo] beta above 0 and no "
         "[reference] url make one"},
        {g->ref_offload && c->device != DEVICE_CUDA, "reference", "offload",
         "is of a GPU's memory; use off, or [run] device = cuda"},
        {g->token_file && !g->url, "reference", "token_file",
         "needs [reference] url"},
        {c->eval.every > 0 && !c->eval.files, "eval", "files",
         "is not set; name prompts that are not trained on"},
    };

    return SETTINGS_RULES (c, rule, err);
}

int settings_grpo_check (const struct settings *c, struct rv_error *err)
{
    int rc;

    if (c->task != TASK_GRPO)
        return RV_OK;
    rc = check_task (c, err);
    return rc == RV_OK ? check_idle (c, err) : rc;
}

enum settings_reference settings_grpo_reference (const struct settings *c,
                                                 bool adapts, int ranks,
                                                 bool *ret_parts)
{
    const struct settings_grpo *g = &c->grpo;
    bool bare = c->strategy >= TRAIN_SHARD_GRAD_OP;

    *ret_parts = false;
    if (g->beta == 0)
        return REFERENCE_NONE;
    if (g->url)
        return REFERENCE_SERVER;
    if (adapts && !g->ref_offload && g->ref_shard == REFERENCE_AUTO)
        return REFERENCE_BASE;
    *ret_parts =
        ranks > 1
        && (g->ref_shard == REFERENCE_AUTO ? bare
                                           : g->ref_shard == REFERENCE_SHARDED);
    /* the weights beside adapters are read behind the reference: no copy yet */
    return bare || adapts || g->ref_offload || *ret_parts ? REFERENCE_UNITS
                                                          : REFERENCE_COPY;
}

static train_grpo_options_t loss_of (const struct settings_grpo *g)
{
    return (train_grpo_options_t){
        .size = sizeof (train_grpo_options_t),
        .kind = (train_grpo_kind_t)g->loss,
        .sequence_ratio = g->level == 1,
        .low = g->low,
        .high = g->high,
        .cap = g->cap,
        .delta = g->delta,
        .dual = g->dual,
        .tau_positive = g->tau_positive,
        .tau_negative = g->tau_negative,
        .beta = g->beta,
        .kl = (train_grpo_kl_t)g->kl,
        .kl_gradient = g->kl_gradient,
        .correct = (train_grpo_correct_t)g->correct,
        .least = g->least,
        .most = g->most,
        .off_policy_mask = g->off_policy >= 0,
        .off_policy = g->off_policy >= 0 ? g->off_policy : 0,
    };
}

train_grpo_trainer_options_t settings_grpo_options (const struct settings *c)
{
    const struct settings_grpo *g = &c->grpo;

    return (train_grpo_trainer_options_t){
        .size = sizeof (train_grpo_trainer_options_t),
        .trainer = settings_trainer (c),
        .group = (int)g->group,
        .steps = (int)g->steps,
        .iterations = (int)g->iterations,
        .max_new = (int)g->max_new,
        .temperature = g->temperature,
        .top_k = (int)g->top_k,
        .top_p = g->top_p,
        .min_p = g->min_p,
        .repetition = g->repetition,
        .at_once = (int)g->at_once,
        .batch_invariant = g->invariant,
        .drop_cut = g->drop_cut,
        .old_is_sampler = g->old == 1,
        .scale = (train_grpo_scale_t)g->scale,
        .base = (train_grpo_base_t)g->base,
        .combine = (train_grpo_combine_t)g->combine,
        .loss = loss_of (g),
        .seed = (uint64_t)c->seed,
        .shuffle = c->shuffle,
        .mix = g->shuffled,
        .gather = (train_grpo_gather_t)g->gather,
    };
}
