/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_each.c - texts that ranks with made-up GPUs write while units come
 * one by one: those of one device, bit for bit, though ranks have not equally
 * many; a rank that fails or ends; steps between
 *
 * The streams run when they are asked, so a wait that is missing shows. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/generate.h>

#include "fake_decoder.h"
#include "fake_nccl.h"
#include "fsdp_run.h"
#include "libtrain/decoder_impl.h"
#include "libtrain/fsdp_impl.h"
#include "libtrain/group_impl.h"

enum { TEXTS = 9, NEW = 7 };

static const struct fake_orders no_orders = {.rank = -1};

/* Of all texts: what one device adds. */
struct written {
    int32_t ids[TEXTS * NEW];
    int n[TEXTS];
    float logp[TEXTS * NEW];
};
static struct written want_of;

static train_status_t write_texts (train_decoder_t *m, int first, int n,
                                   struct written *ret, train_error_t *err)
{
    static const int32_t said[TEXTS + 2] = {5, 3, 1, 8, 2, 30, 7, 11, 6, 4, 9};
    static const int32_t stop[] = {4, 17, 21, 29};
    const int32_t *prompts[TEXTS];
    int len[TEXTS];
    const train_generate_options_t o = {
        .size = sizeof (o),
        .max_new = NEW,
        .temperature = 1.5,
        .seed = 11,
        .first = first,
        .at_once = 2,
        .stop = stop,
        .n_stop = 4,
        .ret_logp = ret->logp + (size_t)first * NEW,
    };

    for (int b = 0; b < n; b++) {
        prompts[b] = said + first + b;
        len[b] = 1 + (first + b) % 3;
    }
    if (n == 0)
        return TRAIN_OK;
    return train_generate (ret->ids + (size_t)first * NEW, ret->n + first, m,
                           prompts, len, n, &o, err);
}

static char *whole; /* its weights */

static void one_device (const train_decoder_config_t *like)
{
    train_decoder_config_t c = *like;
    train_decoder_t *m = NULL;

    c.device = (DLDevice){kDLCPU, 0};
    assert_int_equal (train_decoder_create (&c, &m, NULL), TRAIN_OK);
    train_decoder_init (m, 7);
    assert_int_equal (write_texts (m, 0, TEXTS, &want_of, NULL), TRAIN_OK);
    whole = malloc (m->numel * m->kern->elem_size);
    assert_non_null (whole);
    memcpy (whole, m->weights.t.data, m->numel * m->kern->elem_size);
    train_decoder_destroy (m);
}

/* What this rank has to write: the last rank the most, the first of three
 * nothing. */
static void share (const train_group_t *group, int *first, int *n)
{
    int size = train_group_size (group), rank = train_group_rank (group);
    int sum = size * (size + 1) / 2 - (size > 2);
    int before = rank * (rank + 1) / 2 - (size > 2 && rank > 0);
    int mine = rank + 1 - (size > 2 && rank == 0);

    *first = TEXTS * before / sum;
    *n = TEXTS * (before + mine) / sum - *first;
}

/* Engine, hooks and texts of a rank. */
struct writer {
    struct rank r;
    train_group_t *host;
    struct decoder_hooks was, engine;
    struct decoder_together together;
};

static void go_each (struct writer *w)
{
    struct decoder_hooks hooks;

    w->was = w->r.decoder->hooks;
    w->engine = fake_decoder.engine;
    fsdp_each_hooks (w->r.fsdp, &hooks, &w->together);
    decoder_set_hooks (w->r.decoder, &hooks);
    decoder_set_together (w->r.decoder, &w->together);
    fake_decoder_hook (w->r.decoder);
}

static void go_back (struct writer *w)
{
    decoder_set_together (w->r.decoder, NULL);
    decoder_set_hooks (w->r.decoder, &w->was);
    fake_decoder.engine = w->engine;
}

/* How rank 1 ends its texts: not at all, by an error between passes, in one, or
 * for good. */
enum { WELL, BEFORE, WITHIN, DEAD };
static int how;
static int visits_left;
static struct decoder_hooks beneath;

static train_status_t fail_within (void *arg, size_t unit, bool backward,
                                   train_error_t *err)
{
    return visits_left-- <= 0 ? TRAIN_ENONFINITE
                              : beneath.before (arg, unit, backward, err);
}

/* Passes without kernels, which would wait for a gather as none does. */
static train_status_t visit_only (struct fsdp *f, bool ends, train_error_t *err)
{
    train_status_t status = fsdp_each_meet (f, 3, err);

    for (size_t i = 0; i < 3 * f->n_visits && status == TRAIN_OK; i++) {
        size_t unit = f->visits[i % f->n_visits];

        if (ends && i == (size_t)visits_left)
            raise (SIGKILL);
        status = fsdp_each_before (f, unit, err);
        if (status == TRAIN_OK)
            status = fsdp_each_after (f, unit, err);
    }
    return status == TRAIN_OK ? fsdp_settle (f, err) : status;
}

static train_status_t write_own (struct writer *w, struct written *ret,
                                 train_error_t *err)
{
    int first, n, rank = train_group_rank (w->r.group);
    train_status_t status;

    share (w->r.group, &first, &n);
    status = fsdp_each (w->r.fsdp, w->host, NULL, NULL, err);
    if (status != TRAIN_OK)
        return status;
    go_each (w);
    if (how == WITHIN && rank == 1) {
        struct decoder_hooks hooks = beneath = w->r.decoder->hooks;

        hooks.before = fail_within;
        decoder_set_hooks (w->r.decoder, &hooks);
    }
    status = how == BEFORE && rank == 1 ? TRAIN_ENONFINITE
             : how == DEAD              ? visit_only (w->r.fsdp, rank == 1, err)
                           : write_texts (w->r.decoder, first, n, ret, err);
    status = fsdp_each_end (w->r.fsdp, status, err);
    go_back (w);
    for (int b = first; b < first + n && status == TRAIN_OK; b++) {
        size_t at = (size_t)b * NEW, all = (size_t)ret->n[b];

        if (ret->n[b] != want_of.n[b]
            || memcmp (ret->ids + at, want_of.ids + at, all * 4) != 0
            || memcmp (ret->logp + at, want_of.logp + at, all * 4) != 0)
            return TRAIN_ECORRUPT;
    }
    return status;
}

/* Every unit is where it is said to be, and goes. */
static train_status_t look_at_all (struct writer *w, train_error_t *err)
{
    train_decoder_t *m = w->r.decoder;
    size_t E = m->kern->elem_size;
    train_status_t status = fsdp_all (w->r.fsdp, w->host, err);

    for (size_t u = 0; u < decoder_n_units (m) && status == TRAIN_OK; u++)
        if (memcmp (m->places[u].weights, whole + m->units[u].first * E,
                    m->units[u].count * E)
                != 0
            || (uintptr_t)m->places[0].weights % 64 != 0)
            status = TRAIN_ECORRUPT;
    if (status == TRAIN_OK
        && (w->r.fsdp->all == NULL) != (fsdp_all_bytes (w->r.fsdp) == 0))
        status = TRAIN_ECORRUPT;
    fsdp_all_end (w->r.fsdp);
    if (status == TRAIN_OK && m->places[1].weights)
        status = TRAIN_ECORRUPT;
    return status;
}

static void engine_hooks (struct rank *r)
{
    fake_decoder_hook (r->decoder);
}

static void body (struct job *job, int rank, train_group_t *group)
{
    const train_group_options_t o = {.size = sizeof (o), .backend = "host"};
    struct seen *seen = &job->shared->seen[rank];
    struct writer w = {.r = {.group = group}};
    struct written *own = calloc (1, sizeof (*own));
    double got[2] = {0};
    int64_t start_ms;

    seen->status = train_group_create (&o, &w.host, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = open_rank (&w.r, &seen->err);
    if (seen->status == TRAIN_OK)
        one_device (&w.r.decoder->config);
    start_ms = now_ms ();
    for (int i = 0; i < 2 && seen->status == TRAIN_OK; i++) {
        seen->status = write_own (&w, own, &seen->err);
        if (seen->status == TRAIN_OK)
            seen->status = look_at_all (&w, &seen->err);
    }
    seen->ms = now_ms () - start_ms;
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++) {
        seen->status = rank_step (&w.r, s, got, &seen->err);
        if (seen->status == TRAIN_OK && !near (got[0], run.want[s], run.bound))
            note (job, rank, "another loss", 0, s, 0);
    }
    if (how == WITHIN && rank == 1 && seen->status == TRAIN_ENONFINITE)
        snprintf (seen->err.text, sizeof (seen->err.text),
                  "another rank failed, it says");
    free (own);
    free (whole);
    close_rank (&w.r);
    train_group_destroy (w.host);
}

static void to_gpu (struct rank *r)
{
    assert_int_equal (
        fake_decoder_move (r->decoder, r->group->where.device, NULL), 0);
}

static void run_on (const char *layout)
{
    fake_open (&no_orders);
    run_ranks (layout, body, "nccl");
    fake_close ();
}

static void test_same (void **state)
{
    (void)state;
    how = WELL;
    for (int i = 0; i < 10; i++) {
        if (i % 5 == 0)
            prepare (i ? TRAIN_BF16 : TRAIN_F32, !i, 1, i ? 1e-3 : 1e-5);
        run.opts =
            opts_of (i == 4 || i == 7 ? TRAIN_SHARD_GRAD_OP : TRAIN_FULL_SHARD,
                     i % 5 == 3 ? 500 : 0, i % 3, false);
        run_on (worlds[i % 4]);
    }
}

static void test_rank_fails (void **state)
{
    (void)state;
    prepare (TRAIN_F32, true, 1, 1e-5);
    run.opts = opts_of (TRAIN_FULL_SHARD, 0, 1, false);
    for (int i = 0; i < 6; i++) {
        struct job job = {.layout = i % 2 ? "aba" : "aa",
                          .body = body,
                          .backend = "nccl",
                          .timeout_ms = 30000};

        how = i == 0 ? BEFORE : i < 4 ? WITHIN : DEAD;
        visits_left = i == 1 ? 0 : i * 3;
        fake_open (&no_orders);
        run_job (&job);
        for (int r = 0; r < job.size; r++) {
            const struct seen *s = &job.shared->seen[r];

            if (r == 1 && how != WITHIN)
                continue;
            if (how == DEAD ? s->status != TRAIN_EPEER
                            : s->status != TRAIN_ENONFINITE)
                fail_msg ("case %d, rank %d: %d %s", i, r, s->status,
                          s->err.text);
            assert_non_null (strstr (s->err.text, how == DEAD
                                                      ? "rank 1 ended"
                                                      : "another rank failed"));
            assert_true (s->ms < 10000);
        }
        free_job (&job);
        fake_close ();
    }
}

/* A pass that no meeting announced, and one out of turn. */
static void test_out_of_turn (void **state)
{
    train_group_t *group = NULL;
    struct rank r = {0};

    (void)state;
    unsetenv ("RANK");
    setenv ("RV_BOOT", "single", 1);
    run.to_gpu = NULL;
    run.hook = NULL;
    prepare (TRAIN_F32, true, 1, 1e-5);
    run.opts = opts_of (TRAIN_FULL_SHARD, 0, 1, false);
    assert_int_equal (train_group_create (NULL, &group, NULL), TRAIN_OK);
    r.group = group;
    assert_int_equal (open_rank (&r, NULL), TRAIN_OK);
    assert_int_equal (fsdp_each_before (r.fsdp, 0, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_each (r.fsdp, group, NULL, NULL, NULL), TRAIN_OK);
    assert_int_equal (fsdp_each (r.fsdp, group, NULL, NULL, NULL),
                      TRAIN_ESTATE);
    assert_int_equal (fsdp_each_before (r.fsdp, 0, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_each_meet (r.fsdp, 2, NULL), TRAIN_OK);
    assert_int_equal (fsdp_each_before (r.fsdp, 1, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_each_before (r.fsdp, 0, NULL), TRAIN_OK);
    assert_int_equal (fsdp_each_after (r.fsdp, 1, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_each_end (r.fsdp, TRAIN_OK, NULL), TRAIN_OK);
    assert_int_equal ((int)fsdp_held (r.fsdp).weights, 0);
    assert_int_equal (fsdp_each_end (r.fsdp, TRAIN_OK, NULL), TRAIN_OK);
    close_rank (&r);
    train_group_destroy (group);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_same),
        cmocka_unit_test (test_rank_fails),
        cmocka_unit_test (test_out_of_turn),
    };

    run.to_gpu = to_gpu;
    run.hook = engine_hooks;
    return cmocka_run_group_tests (tests, NULL, NULL);
}
