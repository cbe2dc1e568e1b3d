/* SPDX-License-Identifier: Apache-2.0
 * model_reach.c - do texts lie within the positions that a model knows? */
#include "model_dir.h"

#include <inttypes.h>
#include <stdio.h>

#include <train/hf.h>

#include "libtrain/err.h"

int model_positions (const char *dir)
{
    train_hf_model_t model = {.size = sizeof (model)};

    return dir && train_hf_describe (dir, &model, NULL) == TRAIN_OK
               ? model.positions
               : 0;
}

void model_say_reach (const char *dir, const char *what, int64_t tokens)
{
    int positions = model_positions (dir);

    if (positions > 0 && tokens > positions)
        fprintf (stderr,
                 "rv-train: %s makes texts of up to %" PRId64
                 " tokens; the model of %s knows %d positions "
                 "(max_position_embeddings), and is worth little behind them\n",
                 what, tokens, dir, positions);
}

train_status_t model_reach (const struct settings *set, const char *section,
                            const char *dir, int64_t prompt, size_t row,
                            train_error_t *err)
{
    int positions = model_positions (dir);
    char where[256];

    if (positions == 0 || prompt < positions)
        return TRAIN_OK;
    return err_set (
        err, TRAIN_EINVAL,
        "%s: the prompt of row %zu has %" PRId64
        " tokens, and the model of %s %d positions (max_position_embeddings): "
        "none is left to write at; shorter prompts work, or a model of more",
        settings_where (set, section, "files", where, sizeof (where)), row + 1,
        prompt, dir, positions);
}
