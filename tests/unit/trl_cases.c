/* SPDX-License-Identifier: Apache-2.0
 * trl_cases.c - read cases that TRL's own code, or PyTorch's derivatives of the
 * formulas, was given, and do the same */
#include "trl_cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <train/grpo.h>
#include <train/safetensors.h>

#include "kernels/kernels.h"

enum { LOSS, KL, LOW, HIGH, GRAD }; /* places of a case's tensor */

/* Theirs is double, ours keeps float32 log-probs and gives a float32 gradient:
 * the last bits of log-probs up to 20, through exp. */
#define CLOSE 2e-6

struct run {
    train_safetensors_t *file;
    void (*said) (void *arg, const char *name, const char *why);
    void *arg;
    int cases;
    double low, high, cap;
    int64_t longest;
    int32_t end;
    char why[256]; /* the first of a case */
};

static void differ (struct run *r, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

static void differ (struct run *r, const char *fmt, ...)
{
    va_list ap;

    if (r->why[0])
        return;
    va_start (ap, fmt);
    vsnprintf (r->why, sizeof (r->why), fmt, ap);
    va_end (ap);
}

static void end_case (struct run *r, const char *name)
{
    r->cases++;
    r->said (r->arg, name, r->why[0] ? r->why : NULL);
    r->why[0] = '\0';
}

static const train_st_entry_t *entry (struct run *r, const char *set,
                                      const char *name)
{
    const train_st_entry_t *e;
    char full[200];

    snprintf (full, sizeof (full), "%s%s", set, name);
    if (!(e = train_safetensors_find (r->file, full))) {
        fprintf (stderr, "trl_cases: there is no tensor '%s'\n", full);
        exit (2);
    }
    return e;
}

/* The bytes of a tensor, aligned; free it. */
static void *copy_of (struct run *r, const char *set, const char *name)
{
    const train_st_entry_t *e = entry (r, set, name);
    void *copy = malloc (e->bytes + 1);

    if (!copy)
        exit (2);
    memcpy (copy, e->data, e->bytes);
    return copy;
}

static void close_to (struct run *r, const char *what, double ours,
                      double theirs, double scale)
{
    double bound = CLOSE * (scale > fabs (theirs) ? scale : fabs (theirs));

    if (!(fabs (ours - theirs) <= bound))
        differ (r, "%s is %.9g, theirs %.9g", what, ours, theirs);
}

static double number (const json_t *c, const char *key, double otherwise)
{
    const json_t *v = json_object_get (c, key);

    return json_is_number (v) ? json_number_value (v) : otherwise;
}

static bool is_on (const json_t *c, const char *key)
{
    return json_is_true (json_object_get (c, key));
}

static train_grpo_options_t options_of (const struct run *r, const json_t *c)
{
    train_grpo_options_t o = {.size = sizeof (o)};

    o.kind = (train_grpo_kind_t)number (c, "kind", 0);
    o.sequence_ratio = is_on (c, "sequence");
    o.low = r->low;
    o.high = r->high;
    o.cap = r->cap;
    o.delta = number (c, "delta", 0);
    o.dual = number (c, "dual", 0);
    o.kl = (train_grpo_kl_t)number (c, "kl", 0);
    o.kl_gradient = is_on (c, "kl_gradient");
    o.tau_positive = 1;
    o.tau_negative = 1.05;
    o.beta = number (c, "beta", 0);
    o.correct = (train_grpo_correct_t)number (c, "correct", 0);
    o.least = number (c, "least", 0);
    o.most = number (c, "most", 0);
    o.off_policy_mask = !json_is_null (json_object_get (c, "off_policy"));
    o.off_policy = number (c, "off_policy", 0);
    return o;
}

/* Inputs of a case, and what is made of them. */
struct batch {
    int64_t B, T, V;
    float *logits, *old, *ref, *sampled, *adv, *logp, *grad;
    int32_t *ids;
    uint8_t *mask;
    double inv_t;
};

static void read_batch (struct run *r, const json_t *c, struct batch *b)
{
    char set[16];
    const train_st_entry_t *e;

    snprintf (set, sizeof (set), "set%d.", (int)number (c, "set", 0));
    e = entry (r, set, "logits");
    b->B = e->shape[0];
    b->T = e->shape[1];
    b->V = e->shape[2];
    b->logits = copy_of (r, set, "logits");
    b->old = copy_of (r, set, "old");
    b->ref = copy_of (r, set, "ref");
    b->sampled = copy_of (r, set, "sampled");
    b->adv = copy_of (r, set, "adv");
    b->ids = copy_of (r, set, "ids");
    b->mask = copy_of (r, set, "mask");
    b->logp = calloc ((size_t)(b->B * b->T), sizeof (float));
    b->grad = calloc ((size_t)(b->B * b->T), sizeof (float));
    b->inv_t = 1 / number (c, "temperature", 1);
    if (!b->logp || !b->grad)
        exit (2);
    kern_logprob_f32_host (b->logits, b->logp, NULL, b->ids, NULL,
                           (size_t)(b->B * b->T), (size_t)b->V, b->inv_t, NULL);
}

static void free_batch (struct batch *b)
{
    free (b->logits);
    free (b->old);
    free (b->ref);
    free (b->sampled);
    free (b->adv);
    free (b->ids);
    free (b->mask);
    free (b->logp);
    free (b->grad);
}

static train_grpo_whole_t whole_of (const struct run *r, const json_t *c,
                                    const struct batch *b)
{
    train_grpo_whole_t w = {.size = sizeof (w), .longest = r->longest};

    w.rows = b->B;
    for (int64_t i = 0; i < b->B * b->T; i++)
        w.tokens += b->mask[i];
    (void)c;
    return w;
}

/* Micro-batch [part] of [parts]; its losses and gradient. */
static train_status_t part_loss (const train_grpo_options_t *o,
                                 const train_grpo_whole_t *whole,
                                 const json_t *c, struct batch *b, int64_t part,
                                 int64_t parts, train_grpo_report_t *ret,
                                 train_error_t *err)
{
    int64_t rows = b->B / parts, at = part * rows * b->T;
    train_grpo_whole_t w = *whole;
    train_grpo_batch_t batch = {
        .size = sizeof (batch),
        .B = rows,
        .T = b->T,
        .logp = b->logp + at,
        .old = is_on (c, "old") ? b->old + at : NULL,
        .ref = b->ref + at,
        .sampled = is_on (c, "sampled") ? b->sampled + at : NULL,
        .adv = b->adv + part * rows,
        .mask = b->mask + at,
    };

    /* What grpo.h says of TRL's bnpo. */
    if (o->kind == TRAIN_GRPO_BNPO && parts > 1) {
        w.tokens = 0;
        for (int64_t i = 0; i < rows * b->T; i++)
            w.tokens += batch.mask[i];
        w.tokens *= parts;
    }
    return train_grpo_loss (o, &w, &batch, b->grad + at, ret, err);
}

static void compare_dlogits (struct run *r, const char *name, struct batch *b)
{
    size_t n = (size_t)(b->B * b->T * b->V);
    double *theirs;

    theirs = copy_of (r, name, ".dlogits");
    kern_logprob_f32_host (b->logits, b->logp, NULL, b->ids, b->grad,
                           (size_t)(b->B * b->T), (size_t)b->V, b->inv_t, NULL);
    for (size_t i = 0; i < n; i++)
        close_to (r, "a gradient over logits", (double)b->logits[i], theirs[i],
                  1);
    free (theirs);
}

static void compare_loss (struct run *r, const json_t *c, const char *name,
                          struct batch *b, const train_grpo_report_t *sum)
{
    double *theirs = copy_of (r, "", name);
    double tokens = sum->tokens > 0 ? (double)sum->tokens : 1;

    close_to (r, "the loss", sum->loss, theirs[LOSS], 1);
    if (!isnan (theirs[KL]))
        close_to (r, "kl", sum->kl_sum / tokens, theirs[KL], 1);
    if (!isnan (theirs[LOW]))
        close_to (r, "clipped low", (double)sum->clipped_low / tokens,
                  theirs[LOW], 1);
    if (!isnan (theirs[HIGH]))
        close_to (r, "clipped high", (double)sum->clipped_high / tokens,
                  theirs[HIGH], 1);
    for (int64_t i = 0; i < b->B * b->T; i++)
        close_to (r, "a gradient", (double)b->grad[i], theirs[GRAD + i], 0.1);
    if (number (c, "temperature", 1) > 1)
        compare_dlogits (r, name, b);
    free (theirs);
}

static void loss_case (struct run *r, const json_t *c, const char *name,
                       const train_grpo_options_t *o)
{
    struct batch b = {0};
    train_grpo_report_t sum = {0};
    train_error_t err = {0};
    train_grpo_whole_t whole;
    int64_t parts = (int64_t)number (c, "micro", 1);

    read_batch (r, c, &b);
    whole = whole_of (r, c, &b);
    for (int64_t part = 0; part < parts; part++) {
        train_grpo_report_t one = {.size = sizeof (one)};

        if (part_loss (o, &whole, c, &b, part, parts, &one, &err) != TRAIN_OK)
            differ (r, "%s", err.text);
        sum.loss += one.loss;
        sum.kl_sum += one.kl_sum;
        sum.tokens += one.tokens;
        sum.clipped_low += one.clipped_low;
        sum.clipped_high += one.clipped_high;
    }
    compare_loss (r, c, name, &b, &sum);
    free_batch (&b);
    end_case (r, name);
}

/* TRL's grpo with a ratio of sequences is what is called GSPO: as the kind of
 * that name too. */
static void loss_cases (struct run *r, const json_t *cases)
{
    size_t i;
    json_t *c;

    json_array_foreach (cases, i, c)
    {
        const char *name = json_string_value (json_object_get (c, "name"));
        train_grpo_options_t o = options_of (r, c);

        loss_case (r, c, name, &o);
        if (o.kind != TRAIN_GRPO || !o.sequence_ratio)
            continue;
        o.kind = TRAIN_GRPO_GSPO;
        o.sequence_ratio = false;
        loss_case (r, c, name, &o);
    }
}

static int word (const json_t *c, const char *key, const char *const *words)
{
    const char *text = json_string_value (json_object_get (c, key));
    int i = 0;

    while (words[i] && strcmp (words[i], text ? text : "") != 0)
        i++;
    return i;
}

static int64_t scored (const float *rewards, int64_t rows, int64_t n)
{
    int64_t count = 0;

    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < n; k++)
            if (!isnan (rewards[i * n + k])) {
                count++;
                break;
            }
    return count;
}

/* TRL's share is of all completions, ours of those that count, and one that is
 * alone in its group has no spread, of which TRL says nothing. */
static double spread_differs (const train_grpo_advantage_options_t *o,
                              const float *rewards, int64_t n,
                              const uint8_t *flat)
{
    double more = 0;

    for (int64_t i = 0; i < n; i += o->group) {
        int64_t count = scored (rewards + i * o->rewards, o->group, o->rewards);

        for (int64_t k = i; k < i + o->group; k++)
            if (flat[k] && !scored (rewards + k * o->rewards, 1, o->rewards))
                more--;
        if (count == 1 && o->scale != TRAIN_GRPO_SCALE_BATCH
            && o->combine == TRAIN_GRPO_SUM_THEN_NORMALIZE)
            more++;
    }
    return more;
}

static void reward_case (struct run *r, const json_t *c, const char *name)
{
    static const char *const scales[] = {"group", "batch", "none", NULL};
    static const char *const ways[] = {"sum_then_normalize",
                                       "normalize_then_sum", NULL};
    static const char *const bases[] = {"", "others", NULL};
    const train_st_entry_t *e = entry (r, "", "rewards");
    float *rewards = copy_of (r, "", "rewards"), adv[64];
    double *theirs = copy_of (r, name, ".adv"), weights[8], zero = 0;
    uint8_t *flat = copy_of (r, name, ".zero");
    train_grpo_advantage_options_t o = {.size = sizeof (o)};
    train_grpo_advantage_report_t report = {.size = sizeof (report)};
    train_error_t err = {0};
    int64_t n = e->shape[0];

    o.group = (int64_t)number (c, "group", 0);
    o.rewards = e->shape[1];
    for (int64_t i = 0; i < o.rewards; i++)
        weights[i] = json_number_value (
            json_array_get (json_object_get (c, "weights"), (size_t)i));
    o.weights = weights;
    o.scale = (train_grpo_scale_t)word (c, "scale", scales);
    o.base = (train_grpo_base_t)word (c, "base", bases);
    o.combine = (train_grpo_combine_t)word (c, "combine", ways);
    if (n > 64
        || train_grpo_advantages (&o, rewards, NULL, n, adv, &report, &err)
               != TRAIN_OK)
        differ (r, "%s", err.text);
    for (int64_t i = 0; i < n && !r->why[0]; i++) {
        close_to (r, "an advantage", (double)adv[i], theirs[i], 1);
        zero += flat[i];
    }
    close_to (r, "completions without spread",
              report.zero_spread * (double)report.counted,
              zero + spread_differs (&o, rewards, n, flat), 1);
    free (flat);
    free (theirs);
    free (rewards);
    end_case (r, name);
}

static void reward_cases (struct run *r, const json_t *cases)
{
    size_t i;
    json_t *c;

    json_array_foreach (cases, i, c)
        reward_case (r, c, json_string_value (json_object_get (c, "name")));
}

static void mask_case (struct run *r, bool drop, const char *name)
{
    const train_st_entry_t *e = entry (r, "mask.", "ids");
    int32_t *ids = copy_of (r, "mask.", "ids");
    int32_t *lengths = copy_of (r, "mask.", "lengths");
    uint8_t *theirs = copy_of (r, "mask.", name), ours[256] = {0};
    int64_t B = e->shape[0], T = e->shape[1], n[64];
    train_error_t err = {0};

    for (int64_t i = 0; i < B && i < 64; i++)
        n[i] = lengths[i];
    if (B > 64 || B * T > 256
        || train_grpo_mask (ids, n, B, T, &r->end, 1, drop, ours, NULL, &err)
               != TRAIN_OK)
        differ (r, "%s", err.text);
    else if (memcmp (ours, theirs, (size_t)(B * T)) != 0)
        differ (r, "the mask is another");
    free (theirs);
    free (lengths);
    free (ids);
    end_case (r, drop ? "truncated completions dropped" : "completions kept");
}

static double meta_number (struct run *r, const char *key)
{
    const char *text = train_safetensors_meta (r->file, key);

    return text ? strtod (text, NULL) : NAN;
}

int trl_cases (const char *path,
               void (*said) (void *arg, const char *name, const char *why),
               void *arg)
{
    struct run r = {.said = said, .arg = arg};
    train_error_t err = {0};
    json_t *losses, *rewards;
    const char *text;

    if (train_safetensors_open (path, &r.file, &err) != TRAIN_OK) {
        fprintf (stderr, "trl_cases: %s\n", err.text);
        return -1;
    }
    r.low = meta_number (&r, "low");
    r.high = meta_number (&r, "high");
    r.cap = meta_number (&r, "cap");
    r.longest = (int64_t)meta_number (&r, "longest");
    r.end = (int32_t)meta_number (&r, "end");
    text = train_safetensors_meta (r.file, "cases");
    losses = text ? json_loads (text, 0, NULL) : NULL;
    text = train_safetensors_meta (r.file, "rewards");
    rewards = text ? json_loads (text, 0, NULL) : NULL;
    loss_cases (&r, losses);
    reward_cases (&r, rewards);
    mask_case (&r, false, "kept");
    mask_case (&r, true, "dropped");
    json_decref (losses);
    json_decref (rewards);
    train_safetensors_close (r.file);
    return r.cases;
}
