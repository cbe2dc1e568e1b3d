/* SPDX-License-Identifier: Apache-2.0
 * check_cmd.c - rv-train check: what a run will hold and how long it will take,
 * by arithmetic, before it waits in a queue
 *
 * Bytes are those of the run's own layouts (mem_table.h). Of the time only
 * operations and bytes are arithmetic; the rates are stated. */
#include "config.h"

#include "check_cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <jansson.h>

#include "check_impl.h"
#include "cmd_options.h"
#include "device.h"
#include "libtrain/err.h"
#include "model_dir.h"
#include "open_data.h"

#define RANKS_MAX 65536

static train_status_t read_number (const char *name, const char *text,
                                   double most, double *ret, train_error_t *err)
{
    char *end;

    *ret = strtod (text, &end);
    if (*text && !*end && *ret > 0 && *ret <= most)
        return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL,
                    "%s '%s': a number above 0 works, up to "
                    "%g",
                    name, text, most);
}

static train_status_t read_option (struct check *c, const char *name,
                                   const char *value, train_error_t *err)
{
    double x;

    if (strcmp (name, "--device") == 0)
        return check_device_find (value, &c->device, err);
    if (strcmp (name, "--tflops") == 0)
        return read_number (name, value, 1e6, &c->tflops, err);
    if (strcmp (name, "--ranks") != 0)
        return err_set (err, TRAIN_EINVAL,
                        "'%s' is no option: --ranks N, --device NAME, "
                        "--tflops N, --rewards and --json are",
                        name);
    TRY (read_number (name, value, RANKS_MAX, &x, err));
    c->ranks = (int)x;
    return x == c->ranks
               ? TRAIN_OK
               : err_set (err, TRAIN_EINVAL,
                          "--ranks '%s': a whole number works", value);
}

static train_status_t read_settings (struct check *c, char *const *overrides,
                                     int n, train_error_t *err)
{
    struct rv_error e = {0};

    for (int i = 0; i < n; i++)
        if (!strchr (overrides[i], '='))
            return err_set (err, TRAIN_EINVAL,
                            "'%s': expected section.key=value behind the file",
                            overrides[i]);
    if (settings_read (&c->set, c->file, overrides, (size_t)n, &e) != RV_OK)
        return err_from (err, &e);
    return TRAIN_OK;
}

/* NULL: it is none. */
static bool *flag_of (struct check *c, const char *name)
{
    return strcmp (name, "--json") == 0      ? &c->json
           : strcmp (name, "--rewards") == 0 ? &c->rewards
                                             : NULL;
}

/* Would a run that begins here take a GPU? */
static bool is_of_gpu (const struct settings *set)
{
    return set->device == DEVICE_CUDA
           || (set->device == DEVICE_AUTO && !device_host_alone (set)
               && cmd_on_gpu (-1));
}

static train_status_t read_args (struct check *c, int argc, char *const *argv,
                                 train_error_t *err)
{
    int at = 0;

    for (; at < argc && argv[at][0] == '-'; at++) {
        bool *set = flag_of (c, argv[at]);

        if (set) {
            *set = true;
            continue;
        }
        if (at + 1 == argc)
            return err_set (err, TRAIN_EINVAL, "'%s' lacks its value",
                            argv[at]);
        TRY (read_option (c, argv[at], argv[at + 1], err));
        at++;
    }
    if (at == argc)
        return err_set (err, TRAIN_EINVAL, "it takes a file of settings");
    c->file = argv[at];
    TRY (read_settings (c, argv + at + 1, argc - at - 1, err));
    if (c->rewards && c->set.task != TASK_GRPO)
        return err_set (err, TRAIN_EINVAL, "--rewards is of task = grpo alone");
    if (!c->device)
        return check_device_find (is_of_gpu (&c->set) ? "h200" : "cpu",
                                  &c->device, err);
    return TRAIN_OK;
}

static void add (struct check *c, const char *what, size_t bytes)
{
    if (bytes > 0 && c->n < CHECK_ROWS)
        c->row[c->n++] = (struct mem_row){what, "-", bytes, false, false};
}

/* What the process has now, its libraries among it. */
static size_t own_bytes (void)
{
    struct rusage use;

    return getrusage (RUSAGE_SELF, &use) < 0 ? 0 : (size_t)use.ru_maxrss * 1024;
}

/* Its passes have [data] micro_batch rows, whatever a step's come to. */
static train_status_t add_eval (struct check *c,
                                const train_decoder_config_t *model,
                                const train_trainer_options_t *options,
                                train_error_t *err)
{
    size_t more = 0;

    if (c->set.eval.every == 0 || c->set.micro_batch == 0)
        return TRAIN_OK;
    TRY (mem_eval (model, c->device->sm_90a, options, c->ranks,
                   (int)c->set.micro_batch, (int)c->set.seq,
                   train_data_is_documents (c->data), &more, err));
    add (c, "activations: of evaluations, more", more);
    return TRAIN_OK;
}

static train_status_t fill_arrays (struct check *c, train_error_t *err)
{
    train_decoder_config_t model = c->model;
    train_trainer_options_t options = settings_trainer (&c->set);

    if (c->set.task == TASK_GRPO)
        return check_grpo_table (c, err);
    if (c->device->gpu)
        model.device = (DLDevice){kDLCUDA, 0};
    TRY (mem_table (&model, c->device->sm_90a, &options, c->ranks,
                    (int)c->set.seq, train_data_is_documents (c->data), c->row,
                    &c->n, err));
    return add_eval (c, &model, &options, err);
}

static train_status_t fill_table (struct check *c, train_error_t *err)
{
    train_trainer_options_t options = settings_trainer (&c->set);

    TRY (fill_arrays (c, err));
    if (c->device->gpu)
        return TRAIN_OK;
    if (c->data && train_data_vocab (c->data) <= 256
        && train_data_end (c->data) < 0)
        add (c, "text", (size_t)train_data_bytes (c->data));
    add (c, "communication buffers", mem_comm (c->ranks));
    if (c->set.ckpt_dir && c->set.ckpt_every > 0
        && c->set.ckpt_every < c->set.steps)
        add (c, "copy for a checkpoint",
             mem_saved (&c->model, &options, c->ranks));
    add (c, "the program and its libraries", c->own);
    return TRAIN_OK;
}

/* Of a GPU alone, beside its arrays: on the host they are among the rows. */
static size_t library_bytes (const struct check *c)
{
    return c->device->gpu ? CHECK_CUDA_BYTES : 0;
}

/* Of the device, or with [host] beside it in the host's memory. */
static size_t all_bytes (const struct check *c, bool host)
{
    size_t sum = 0;

    for (size_t i = 0; i < c->n; i++)
        sum += c->row[i].host == host ? c->row[i].bytes : 0;
    return sum;
}

/* How often a step gathers each weight: in passes forth and back, or once. */
static int gathers (const struct check *c)
{
    const train_trainer_options_t o = settings_trainer (&c->set);
    int most = (o.batch + c->ranks - 1) / c->ranks;
    int pass = mem_pass (&o, c->ranks);

    return o.strategy == TRAIN_FULL_SHARD ? 2 * ((most + pass - 1) / pass) : 1;
}

static struct check_forecast foresee (const struct check *c)
{
    const train_decoder_config_t *model = &c->model;
    double tokens = (double)c->set.batch * (double)c->set.seq;
    struct check_forecast f = {.tflops = c->tflops, .basis = "as told"};
    const struct check_step step = {
        .seq = (int)c->set.seq,
        .ranks = c->ranks,
        .tokens = tokens,
        .offload = c->set.offload,
        .passes = 1,
        .offload_weights = c->set.offload_weights,
        .gathers = gathers (c),
    };

    if (c->set.task == TASK_GRPO)
        return check_grpo_foresee (c);
    f.flop = check_flop (model, (int)c->set.seq) * tokens;
    if (c->tflops > 0) {
        f.step_s = f.flop / (f.tflops * 1e12 * c->ranks);
    } else {
        f.step_s = check_seconds (c->device, model, &step);
        f.tflops = f.flop / f.step_s / 1e12 / c->ranks;
        f.basis = c->device->basis;
    }
    f.epochs = (double)c->set.steps * (double)c->set.batch
               / (double)train_data_n_samples (c->data);
    return f;
}

static void say_duration (double s)
{
    if (s < 10)
        printf ("%.3g s", s);
    else if (s < 120)
        printf ("%.1f s", s);
    else if (s < 7200)
        printf ("%.0f min", s / 60);
    else
        printf ("%.1f h", s / 3600);
}

static void say_rows (const struct check *c, bool host)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->row[i].host == host)
            printf ("  %-36s %-5s %16zu bytes\n", c->row[i].what,
                    c->row[i].dtype, c->row[i].bytes);
}

static void say_memory (const struct check *c)
{
    size_t sum = all_bytes (c, false), library = library_bytes (c);

    printf ("a rank of %d on %s holds:\n", c->ranks, c->device->name);
    say_rows (c, false);
    printf ("  %-36s %-5s %16zu bytes (%.2f GiB%s)\n", "all", "", sum,
            (double)sum / (1 << 30),
            c->device->bytes > 0 && sum + library > c->device->bytes
                ? ", more than it has"
                : "");
    if (library > 0)
        printf ("  %-36s %-5s %16zu bytes, thereabouts\n",
                "beside it CUDA and its libraries", "-", library);
    if (all_bytes (c, true) == 0)
        return;
    printf ("and of the host's memory:\n");
    say_rows (c, true);
}

static void say_part (const char *what, double s)
{
    printf ("  %-36s ", what);
    say_duration (s);
    putchar ('\n');
}

static void say_rewards (const struct check *c)
{
    if (!c->said)
        return;
    printf ("rewards of the first prompt, its answer as the completion:\n");
    for (size_t k = 0; k < c->set.rewards.n; k++) {
        if (isnan (c->said[k].reward))
            printf ("  %-36s none", c->set.rewards.list[k].name);
        else
            printf ("  %-36s %g", c->set.rewards.list[k].name,
                    c->said[k].reward);
        printf (", after ");
        say_duration (c->said[k].seconds);
        putchar ('\n');
    }
}

static void say (const struct check *c)
{
    struct check_forecast f = foresee (c);

    printf ("%s: good\n", c->file);
    say_memory (c);
    printf ("time: %.3g TFLOP a step at %.3g TFLOP/s a rank (%s): ",
            f.flop / 1e12, f.tflops, f.basis);
    say_duration (f.step_s);
    printf (" a step, ");
    say_duration (f.step_s * (double)c->set.steps);
    printf (" for %" PRId64 " steps, %.2f epochs\n", c->set.steps, f.epochs);
    if (c->set.task != TASK_GRPO)
        return;
    say_part ("writing of completions", f.writing_s);
    say_part ("log-probabilities, old, reference's", f.logps_s);
    say_part ("update", f.update_s);
    printf ("  %-36s not known, and not in the sum\n", "rewards");
    say_rewards (c);
}

static json_t *json_rows (const struct check *c)
{
    json_t *rows = json_array ();

    for (size_t i = 0; i < c->n; i++)
        json_array_append_new (
            rows,
            json_pack ("{s:s, s:s, s:s, s:I}", "what", c->row[i].what, "memory",
                       c->row[i].host ? "host" : "device", "dtype",
                       c->row[i].dtype, "bytes", (json_int_t)c->row[i].bytes));
    return rows;
}

/* null: of another task. */
static json_t *json_phases (const struct check *c,
                            const struct check_forecast *f)
{
    if (c->set.task != TASK_GRPO)
        return json_null ();
    return json_pack ("{s:f, s:n, s:f, s:f}", "rollout_s", f->writing_s,
                      "reward_s", "logps_s", f->logps_s, "update_s",
                      f->update_s);
}

/* Empty: none was asked. */
static json_t *json_rewards (const struct check *c)
{
    json_t *all = json_array ();

    for (size_t k = 0; c->said && k < c->set.rewards.n; k++)
        json_array_append_new (all,
                               json_pack ("{s:s, s:o, s:f}", "name",
                                          c->set.rewards.list[k].name, "reward",
                                          isnan (c->said[k].reward)
                                              ? json_null ()
                                              : json_real (c->said[k].reward),
                                          "reply_s", c->said[k].seconds));
    return all;
}

static train_status_t say_json (const struct check *c, train_error_t *err)
{
    struct check_forecast f = foresee (c);
    train_status_t status = TRAIN_OK;
    json_t *all = json_pack (
        "{s:s, s:s, s:i, s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:s, s:f, s:o, "
        "s:o, s:I, s:f}",
        "schema", "rv.check/1", "file", c->file, "ranks", c->ranks, "device",
        c->device->name, "rows", json_rows (c), "bytes",
        (json_int_t)all_bytes (c, false), "host_bytes",
        (json_int_t)all_bytes (c, true), "library_bytes",
        (json_int_t)library_bytes (c), "flop", f.flop, "tflops", f.tflops,
        "basis", f.basis, "step_s", f.step_s, "phases", json_phases (c, &f),
        "rewards", json_rewards (c), "steps", (json_int_t)c->set.steps,
        "epochs", f.epochs);

    if (!all || json_dumpf (all, stdout, JSON_INDENT (2)) < 0)
        status = err_set (err, TRAIN_ENOMEM, "no memory for the answer");
    else
        putchar ('\n');
    json_decref (all);
    return status;
}

static train_status_t read_data (struct check *c, train_error_t *err)
{
    if (c->set.task == TASK_GRPO)
        return check_grpo_read (c, err);
    TRY (open_data (&c->set, &c->model, true, &c->data, err));
    return train_data_verify (c->data, err);
}

static train_status_t run (struct check *c, int argc, char *const *argv,
                           train_error_t *err)
{
    size_t sum;

    TRY (read_args (c, argc, argv, err));
    TRY (model_choose (&c->set, &c->dir, err));
    TRY (model_describe (&c->set, c->dir, &c->model, err));
    TRY (read_data (c, err));
    TRY (fill_table (c, err));
    sum = all_bytes (c, false) + library_bytes (c);
    if (c->json)
        TRY (say_json (c, err));
    else
        say (c);
    if (c->device->bytes > 0 && sum > c->device->bytes)
        return err_set (err, TRAIN_ENOMEM,
                        "a rank needs %.1f GiB, %s has %.1f; %sa smaller "
                        "data.micro_batch, shard.strategy=full on more ranks, "
                        "shard.offload=on or shard.offload_weights=on needs "
                        "less",
                        (double)sum / (1 << 30), c->device->name,
                        (double)c->device->bytes / (1 << 30),
                        c->set.task == TASK_GRPO ? "a lower grpo.at_once, "
                                                 : "");
    return TRAIN_OK;
}

train_status_t check_cmd (int argc, char **argv, train_error_t *err)
{
    struct check c = {.ranks = 1, .own = own_bytes ()};
    train_status_t status = run (&c, argc, argv, err);

    train_data_close (c.data);
    free (c.dir);
    free (c.said);
    settings_fini (&c.set);
    return status;
}
