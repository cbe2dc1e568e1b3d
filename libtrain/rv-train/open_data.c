/* SPDX-License-Identifier: Apache-2.0
 * open_data.c - open what [data] names, and hold it against the model */
#include "open_data.h"

#include "libtrain/err.h"
#include "model_dir.h"
#include "sft.h"

train_status_t open_data (const struct settings *set,
                          const train_decoder_config_t *model, bool say,
                          train_data_t **ret_data, train_error_t *err)
{
    train_data_options_t options = settings_data (set);
    bool rows = set->task == TASK_SFT;
    train_status_t status = rows ? sft_open (set, "data", options.files,
                                             options.held, say, ret_data, err)
                                 : train_data_open (&options, ret_data, err);
    char where[256];
    int64_t need;

    if (status != TRAIN_OK && !rows)
        return err_prefix (
            err, status, "%s",
            settings_where (set, "data", "files", where, sizeof (where)));
    if (status != TRAIN_OK)
        return status;
    need = train_data_vocab (*ret_data);
    return model_fits (set, model, need,
                       rows || (need <= 256 && train_data_end (*ret_data) < 0),
                       err);
}
