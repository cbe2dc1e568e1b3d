/* SPDX-License-Identifier: Apache-2.0
 * main.c - rv-train: read the command line, train, give the exit status */
#include "config.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/version.h"
#include "check_cmd.h"
#include "ckpt_cmd.h"
#include "ckpt_report.h"
#include "export_cmd.h"
#include "generate_cmd.h"
#include "grpo.h"
#include "plot.h"
#include "probe_cmd.h"
#include "refserver.h"
#include "run.h"
#include "tokenize_cmd.h"

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_SETTINGS = 2,
    EXIT_FILES = 3,
    EXIT_PEERS = 4,
    EXIT_STOPPED = 75, /* EX_TEMPFAIL of sysexits.h: go on later */
};

static const char usage[] =
    "Usage: rv-train [--check] FILE [section.key=value...]\n"
    "       rv-train check [OPTION...] FILE [section.key=value...]\n"
    "       rv-train ckpt list|show|verify [--json] PATH\n"
    "       rv-train ckpt prune --keep N [--json] DIR\n"
    "       rv-train tokenize [OPTION...] OUT FILE...\n"
    "       rv-train export [OPTION...] CHECKPOINT DIR\n"
    "       rv-train generate [OPTION...] MODEL PROMPT...\n"
    "       rv-train plot [OPTION...] METRICS...\n"
    "       rv-train probe [--json]\n"
    "       rv-train refserver [OPTION...] MODEL\n"
    "       rv-train --help | --version\n"
    "Train a language model on text, as FILE says (rv-train(1)).\n"
    "\n"
    "  FILE                INI file; its name has a '.' or a '/'\n"
    "  section.key=value   replaces what the file says\n"
    "  --check             read and check the settings, train nothing\n"
    "  check               memory and time of a run that is not begun\n"
    "  ckpt                list, show, verify or remove checkpoints\n"
    "  tokenize            text to a file of tokens\n"
    "  export              a checkpoint to a Hugging Face directory\n"
    "  generate            continue texts with a model directory or "
    "checkpoint\n"
    "  plot                curves of files of metrics, here or as SVG\n"
    "  probe               try copies between each two GPUs with patterns\n"
    "  refserver           say over HTTP how likely tokens are\n"
    "  --help              this text\n"
    "  --version           version, and what it was built for\n"
    "\n"
    "Exit status: 0 done, 2 wrong settings, 3 a file, 4 another rank,\n"
    "75 stopped on request with a checkpoint written, 1 anything else.\n";

static volatile sig_atomic_t stop_wanted;

static void want_stop (int signo)
{
    (void)signo;
    stop_wanted = 1;
}

/* SIGUSR1 is what a job's time limit is announced with; SIGTERM ends it. */
static void catch_signals (void)
{
    struct sigaction act = {.sa_handler = want_stop, .sa_flags = SA_RESTART};

    sigemptyset (&act.sa_mask);
    sigaction (SIGTERM, &act, NULL);
    sigaction (SIGUSR1, &act, NULL);
    act.sa_handler = SIG_IGN; /* a file at its limit is an error of write (2) */
    sigaction (SIGXFSZ, &act, NULL);
}

static int exit_status (train_status_t status)
{
    switch (status) {
    case TRAIN_OK:
        return EXIT_OK;
    case TRAIN_EINVAL:
        return EXIT_SETTINGS;
    case TRAIN_EIO:
    case TRAIN_EFORMAT:
    case TRAIN_ECORRUPT:
    case TRAIN_ENOTFOUND:
        return EXIT_FILES;
    case TRAIN_EPEER:
    case TRAIN_EMISMATCH:
    case TRAIN_ETIMEDOUT:
        return EXIT_PEERS;
    default:
        return EXIT_FAILED;
    }
}

static int fail (struct who who, const char *verb, const char *object,
                 const train_error_t *err)
{
    char text[RUN_WHO];

    run_who (who.rank, who.size, text);
    fprintf (stderr, "rv-train%s: cannot %s %s: %s\n", text, verb, object,
             err->text);
    return exit_status (err->code);
}

/* Messages of settings begin with the file or the override. */
static int fail_settings (const struct rv_error *e)
{
    fprintf (stderr, "rv-train: cannot read the settings: %s\n", e->text);
    return exit_status ((train_status_t)e->code);
}

static int train (const char *file, char *const *overrides, size_t n,
                  bool check)
{
    struct settings set;
    struct rv_error e = {0};
    train_error_t err = {0};
    struct who who;
    bool stopped = false;
    int rc;

    if (settings_read (&set, file, overrides, n, &e) != RV_OK) {
        settings_fini (&set);
        return fail_settings (&e);
    }
    if (check) {
        printf ("%s: good\n", file);
        rc = EXIT_OK;
    } else {
        catch_signals ();
        rc = exit_status (
            set.task == TASK_GRPO
                ? run_grpo (&set, &stop_wanted, &who, &stopped, &err)
                : run_training (&set, &stop_wanted, &who, &stopped, &err));
        if (rc != EXIT_OK)
            rc = fail (who, "train as", file, &err);
        else if (stopped)
            rc = EXIT_STOPPED;
    }
    settings_fini (&set);
    return rc;
}

static int usage_error (const char *format, const char *word)
{
    fprintf (stderr, "rv-train: ");
    fprintf (stderr, "cannot understand '%s': %s\n", word, format);
    return EXIT_SETTINGS;
}

static int probe (int argc, char **argv)
{
    bool as_json = argc == 3 && strcmp (argv[2], "--json") == 0, good;
    train_error_t err = {0};
    struct who who = {0};
    train_status_t status;

    if (argc > 2 && !as_json)
        return usage_error ("probe takes --json alone", argv[2]);
    status = probe_cmd (as_json, &good, &err);
    if (status != TRAIN_OK)
        return fail (who, "probe", "the GPUs", &err);
    return good ? EXIT_OK : EXIT_FAILED;
}

static int ckpt (int argc, char **argv)
{
    train_error_t err = {0};
    struct who who = {0};
    bool untold = false;

    if (ckpt_cmd (argc - 2, argv + 2, &untold, &err) == TRAIN_OK)
        return EXIT_OK;
    if (untold)
        ckpt_report_error (exit_status (err.code), err.text);
    return fail (who, "look at", "checkpoints", &err);
}

/* Commands that fail with "cannot [verb] [object]: ...". */
static const struct verb {
    const char *name;
    train_status_t (*run) (int argc, char **argv, train_error_t *err);
    int skip; /* words in front of what it is given; 1: its name goes along */
    const char *verb, *object;
} verbs[] = {
    {"check", check_cmd, 2, "check", "the run"},
    {"export", export_cmd, 2, "export", "a checkpoint"},
    {"generate", generate_cmd, 1, "generate", "text"},
    {"plot", plot_cmd, 1, "plot", "metrics"},
    {"refserver", refserver_cmd, 1, "serve", "a model"},
    {"tokenize", tokenize_cmd, 2, "tokenize", "text"},
};

static int run_verb (const struct verb *v, int argc, char **argv)
{
    train_error_t err = {0};

    if (v->run (argc - v->skip, argv + v->skip, &err) == TRAIN_OK)
        return EXIT_OK;
    return fail ((struct who){0}, v->verb, v->object, &err);
}

/* Is argv[1] a command? Then its exit status goes to [ret]. */
static bool command (int argc, char **argv, int *ret)
{
    if (strcmp (argv[1], "probe") == 0) {
        *ret = probe (argc, argv);
        return true;
    }
    if (strcmp (argv[1], "ckpt") == 0) {
        *ret = ckpt (argc, argv);
        return true;
    }
    for (size_t i = 0; i < sizeof (verbs) / sizeof (*verbs); i++)
        if (strcmp (argv[1], verbs[i].name) == 0) {
            *ret = run_verb (&verbs[i], argc, argv);
            return true;
        }
    return false;
}

/* FILE [section.key=value...], from argv[at] on. */
static int take_file (int argc, char **argv, int at, bool check)
{
    if (argv[at][0] == '-')
        return usage_error ("there is no such option; --help lists them",
                            argv[at]);
    if (!strpbrk (argv[at], "./"))
        return usage_error (
            "a file's name has a '.' or a '/', and the "
            "commands are check, ckpt, tokenize, export, generate, plot, "
            "probe, refserver",
            argv[at]);
    for (int i = at + 1; i < argc; i++)
        if (!strchr (argv[i], '='))
            return usage_error ("expected section.key=value", argv[i]);
    return train (argv[at], argv + at + 1, (size_t)(argc - at - 1), check);
}

static int take_line (int argc, char **argv)
{
    bool check = argc > 1 && strcmp (argv[1], "--check") == 0;
    int at = check ? 2 : 1, rc;

    if (at >= argc) {
        fputs (usage, stderr);
        return EXIT_SETTINGS;
    }
    if (strcmp (argv[at], "--help") == 0 || strcmp (argv[at], "-h") == 0) {
        fputs (usage, stdout);
        return EXIT_OK;
    }
    if (strcmp (argv[at], "--version") == 0) {
        puts (RV_VERSION_LINE ("rv-train"));
        return EXIT_OK;
    }
    if (!check && command (argc, argv, &rc))
        return rc;
    return take_file (argc, argv, at, check);
}

/* Arrays that come and go with a cycle are to leave nothing behind: glibc would keep
 * what is freed of up to 32 MiB for smaller ones, which then lie in its midst.
 * mallopt(3). */
static void give_back_arrays (void)
{
    (void)mallopt (M_MMAP_THRESHOLD, 1 << 20);
}

int main (int argc, char **argv)
{
    int rc;

    give_back_arrays ();
    rc = take_line (argc, argv);

    /* A full disk behind stdout must not look like success. */
    if (fflush (stdout) != 0 && rc == EXIT_OK) {
        fprintf (stderr, "rv-train: cannot write to stdout: %s\n",
                 strerror (errno));
        rc = EXIT_FAILED;
    }
    return rc;
}
