/* SPDX-License-Identifier: Apache-2.0
 * check_grpo.c - what rv-train check foresees of a run that learns from rewards
 *
 * Completions are taken to be as long as they may be, and prompts as the longest:
 * a run whose texts end earlier holds less, and is faster. */
#include "config.h"

#include "check_impl.h"

#include <string.h>

#include "libtrain/err.h"
#include "libtrain/mem_grpo.h"
#include "libtrain/token_file.h"

static train_status_t read_token (const struct settings *set,
                                  train_error_t *err)
{
    char token[TOKEN_MOST + 1], where[256];
    train_status_t status;

    if (!set->grpo.token_file)
        return TRAIN_OK;
    status = token_file_read (set->grpo.token_file, token, err);
    explicit_bzero (token, sizeof (token));
    return status == TRAIN_OK
               ? TRAIN_OK
               : err_prefix (err, status, "%s",
                             settings_where (set, "reference", "token_file",
                                             where, sizeof (where)));
}

static train_status_t read_rows (struct check *c, struct grpo_judge *judge,
                                 struct grpo_rows **rows,
                                 struct grpo_rows **held, train_error_t *err)
{
    const struct settings *set = &c->set;
    struct check_prompts *p = &c->prompts;
    size_t row;

    TRY (read_token (set, err));
    TRY (grpo_judge_look (judge, set, err));
    TRY (grpo_rows_open (rows, judge, "data", set->files, err));
    if (set->eval.every > 0)
        TRY (grpo_rows_open (held, judge, "eval", set->eval.files, err));
    TRY (grpo_rows_fit (*rows, *held, &c->model, c->dir, true, err));
    TRY (check_rewards (c, judge, *rows, err));
    p->count = train_prompts_count (grpo_rows_prompts (*rows));
    p->longest = (int)grpo_rows_longest (*rows, &row);
    if (!*held)
        return TRAIN_OK;
    p->held = train_prompts_count (grpo_rows_prompts (*held));
    if (set->eval.samples > 0 && (size_t)set->eval.samples < p->held)
        p->held = (size_t)set->eval.samples;
    p->held_longest = (int)grpo_rows_longest (*held, &row);
    return TRAIN_OK;
}

train_status_t check_grpo_read (struct check *c, train_error_t *err)
{
    struct grpo_judge judge = {0};
    struct grpo_rows *rows = NULL, *held = NULL;
    train_status_t status = read_rows (c, &judge, &rows, &held, err);

    grpo_rows_close (held);
    grpo_rows_close (rows);
    grpo_judge_close (&judge);
    return status;
}

static struct mem_grpo how_of (const struct check *c,
                               const train_grpo_trainer_options_t *o)
{
    struct mem_grpo g = {.opts = o,
                         .world = c->ranks,
                         .prompt = c->prompts.longest,
                         .held_prompt = c->prompts.held_longest,
                         .held = (int)c->prompts.held,
                         .offload = c->set.grpo.ref_offload};

    switch (settings_grpo_reference (&c->set, c->model.lora.rank > 0, c->ranks,
                                     &g.parts)) {
    case REFERENCE_BASE:
        g.which = MEM_REFERENCE_BASE;
        break;
    case REFERENCE_COPY:
        g.which = MEM_REFERENCE_COPY;
        break;
    case REFERENCE_UNITS:
        g.which = MEM_REFERENCE_UNITS;
        break;
    default:
        g.which = MEM_REFERENCE_NONE;
    }
    return g;
}

/* Has the device the room for the rows, and its libraries beside them? */
static bool fits (const struct check *c)
{
    size_t sum = c->device->gpu ? CHECK_CUDA_BYTES : 0;

    for (size_t i = 0; i < c->n; i++)
        sum += c->row[i].host ? 0 : c->row[i].bytes;
    return c->device->bytes == 0 || sum <= c->device->bytes;
}

/* gather = auto takes units where the whole policy has no room (grpo_alone.c). */
train_status_t check_grpo_table (struct check *c, train_error_t *err)
{
    train_grpo_trainer_options_t o = settings_grpo_options (&c->set);
    struct mem_grpo how = how_of (c, &o);
    train_decoder_config_t model = c->model;

    o.rewards = (int)c->set.rewards.n;
    if (c->device->gpu)
        model.device = (DLDevice){kDLCUDA, 0};
    c->by_units = o.gather == TRAIN_GRPO_GATHER_UNIT;
    TRY (mem_grpo (&model, c->device->sm_90a, &how, c->row, &c->n, err));
    if (o.gather != TRAIN_GRPO_GATHER_AUTO
        || o.trainer.strategy != TRAIN_FULL_SHARD || fits (c))
        return TRAIN_OK;
    o.gather = TRAIN_GRPO_GATHER_UNIT;
    c->by_units = true;
    return mem_grpo (&model, c->device->sm_90a, &how, c->row, &c->n, err);
}

/* Of a cycle: its steps, its completions, and tokens of one in training. */
struct cycle {
    double steps, texts;
    int T;
};

static struct cycle cycle_of (const struct check *c)
{
    const struct settings_grpo *g = &c->set.grpo;

    return (struct cycle){.steps = (double)(g->steps * g->iterations),
                          .texts = (double)(c->set.batch * g->steps),
                          .T = c->prompts.longest + (int)g->max_new - 1};
}

/* Of all weights of a policy that is let go of, once. */
static double gather_of (const struct check *c)
{
    return settings_trainer (&c->set).strategy == TRAIN_FULL_SHARD
               ? check_gather_seconds (c->device, &c->model, c->ranks)
               : 0;
}

static struct check_writing writing_of (const struct check *c)
{
    const struct settings_grpo *g = &c->set.grpo;
    double texts = cycle_of (c).texts / c->ranks;

    return (struct check_writing){
        .texts = texts,
        .prompts = texts / (double)g->group,
        .at_once = g->at_once > 0 ? (double)g->at_once : texts,
        .prompt = c->prompts.longest,
        .more = (int)g->max_new,
        .gather_s = c->by_units ? gather_of (c) : 0,
        .ahead = settings_trainer (&c->set).prefetch > 0,
    };
}

static struct check_step step_of (const struct check *c)
{
    const train_trainer_options_t o = settings_trainer (&c->set);
    double rows = (double)c->set.batch / c->ranks;
    int T = cycle_of (c).T;
    double passes = rows / mem_pass (&o, c->ranks);

    return (struct check_step){
        .seq = T,
        .ranks = c->ranks,
        .tokens = (double)c->set.batch * T,
        .offload = c->set.offload,
        .passes = passes,
        .offload_weights = c->set.offload_weights,
        .gathers = o.strategy == TRAIN_FULL_SHARD ? 2 * passes : 1,
    };
}

/* Forwards of a step's rows without a backward: of the policy where old
 * log-probabilities are made or it is its own reference, and of another that is in
 * this process, in parts or not. */
struct forwards {
    int policy, other;
    bool parts;
};

static struct forwards forwards_of (const struct check *c)
{
    const struct settings_grpo *g = &c->set.grpo;
    bool old = (g->steps > 1 || g->iterations > 1) && g->old == 0;
    struct forwards f = {.policy = old};
    enum settings_reference which = settings_grpo_reference (
        &c->set, c->model.lora.rank > 0, c->ranks, &f.parts);

    f.policy += which == REFERENCE_BASE;
    f.other = which > REFERENCE_BASE;
    return f;
}

/* Tokens of them. */
static double again (const struct check *c)
{
    struct forwards f = forwards_of (c);
    struct cycle y = cycle_of (c);

    return (f.policy + f.other) * y.texts * y.T / y.steps;
}

/* Units of the reference are not brought ahead. */
static double logps_seconds (const struct check *c, double passes)
{
    double s = check_forward_seconds (c->device, &c->model, cycle_of (c).T,
                                      again (c) / c->ranks);
    struct check_writing w = writing_of (c);
    struct forwards f = forwards_of (c);

    s = check_beside (s, f.policy * passes * w.gather_s, w.ahead);
    if (f.other && f.parts)
        s += passes * check_gather_seconds (c->device, &c->model, c->ranks);
    return s;
}

/* Whole weights are gathered before a cycle is written. */
static double writing_seconds (const struct check *c)
{
    struct check_writing w = writing_of (c);

    return check_writing_seconds (c->device, &c->model, &w)
           + (c->by_units ? 0 : gather_of (c));
}

/* Seconds of [flop] at the rate that was told. */
static double told (const struct check *c, double flop)
{
    return flop / (c->tflops * 1e12 * c->ranks);
}

struct check_forecast check_grpo_foresee (const struct check *c)
{
    const train_decoder_config_t *m = &c->model;
    struct check_writing w = writing_of (c);
    struct check_step step = step_of (c);
    struct cycle y = cycle_of (c);
    double flop[] = {check_writing_flop (m, &w) * c->ranks / y.steps,
                     check_forward_flop (m, y.T) * again (c),
                     check_flop (m, y.T) * step.tokens};
    struct check_forecast f = {
        .flop = flop[0] + flop[1] + flop[2],
        .writing_s = writing_seconds (c) / y.steps,
        .logps_s = logps_seconds (c, step.passes),
        .update_s = check_seconds (c->device, m, &step),
        .basis = c->device->basis,
        .epochs = (double)c->set.steps / y.steps * y.texts
                  / (double)(c->set.grpo.group * (int64_t)c->prompts.count),
    };

    if (c->tflops > 0) {
        f.writing_s = told (c, flop[0]);
        f.logps_s = told (c, flop[1]);
        f.update_s = told (c, flop[2]);
        f.basis = "as told";
    }
    f.step_s = f.writing_s + f.logps_s + f.update_s;
    f.tflops = f.flop / f.step_s / 1e12 / c->ranks;
    return f;
}
