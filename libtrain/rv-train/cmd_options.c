/* SPDX-License-Identifier: Apache-2.0
 * cmd_options.c - numbers and words behind the options of generate, plot and
 * refserver */
#include "config.h"

#include "cmd_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtrain/backend.h"
#include "libtrain/err.h"

train_status_t cmd_whole (const char *name, const char *text, long least,
                          long most, long *ret, train_error_t *err)
{
    char *end;

    errno = 0;
    *ret = strtol (text, &end, 10);
    if (end == text || *end || errno || *ret < least || *ret > most)
        return err_set (err, TRAIN_EINVAL,
                        "--%s '%s' is not within %ld and %ld", name, text,
                        least, most);
    return TRAIN_OK;
}

static train_status_t choice (const char *name, const char *text,
                              const char *const words[3], int *ret,
                              train_error_t *err)
{
    for (*ret = 0; *ret < 3; (*ret)++)
        if (strcmp (text, words[*ret]) == 0)
            return TRAIN_OK;
    return err_set (err, TRAIN_EINVAL, "--%s '%s' is none of %s, %s, %s", name,
                    text, words[0], words[1], words[2]);
}

train_status_t cmd_dtype (const char *text, train_dtype_t *ret,
                          train_error_t *err)
{
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};
    int i;

    TRY (choice ("dtype", text, words, &i, err));
    *ret = dtype[i];
    return TRAIN_OK;
}

train_status_t cmd_device (const char *text, int *ret, train_error_t *err)
{
    static const char *const words[] = {"auto", "cpu", "cuda"};
    int i;

    TRY (choice ("device", text, words, &i, err));
    *ret = i - 1;
    return TRAIN_OK;
}

bool cmd_on_gpu (int device)
{
    const struct backend_ops *ops;

    if (device >= 0)
        return device == 1;
    return backend_find ("cuda", &ops, NULL) == TRAIN_OK
           && ops->probe (NULL, NULL) == TRAIN_OK;
}

train_status_t cmd_options (int argc, char **argv, const struct option *options,
                            train_status_t (*take) (void *, int, const char *,
                                                    train_error_t *),
                            void *arg, train_error_t *err)
{
    int which;

    optind = 1;
    opterr = 0;
    while ((which = getopt_long (argc, argv, "", options, NULL)) != -1) {
        if (which == '?' || which == ':')
            return err_set (err, TRAIN_EINVAL,
                            "'%s' is no option, or lacks its value; "
                            "rv-train(1) has them",
                            argv[optind - 1]);
        TRY (take (arg, which, optarg, err));
    }
    return TRAIN_OK;
}
