/* SPDX-License-Identifier: Apache-2.0
 * collective_deadline.c - an all-reduce that ends: with a result, or with an
 * error that names the rank which did not come; then the others go on.
 *   cc collective_deadline.c $(pkg-config --cflags --libs train)
 *   rv run -n 4 ./a.out        or with RANK, WORLD_SIZE and the like set
 * "./a.out late" lets the last rank leave before the second call. */
#include <stdio.h>
#include <string.h>
#include <train.h>

static train_status_t add_up (train_group_t *group, train_error_t *err)
{
    const int64_t shape[] = {1};
    float x = 1.0f + (float)train_group_rank (group);
    train_tensor_t t;
    train_status_t status =
        train_tensor_view (&t, &x, TRAIN_F32, 1, shape, err);

    if (status == TRAIN_OK)
        status = train_all_reduce (group, &t.t, TRAIN_SUM, err);
    if (status == TRAIN_OK)
        printf ("rank %d of %d: %g\n", train_group_rank (group),
                train_group_size (group), (double)x);
    return status;
}

static train_status_t work (train_group_t **group, int late, train_error_t *err)
{
    train_status_t status = add_up (*group, err);
    train_group_t *left = NULL;

    if (status != TRAIN_OK)
        return status;
    if (late && train_group_rank (*group) == train_group_size (*group) - 1)
        return TRAIN_OK; /* leaves the others waiting */
    status = add_up (*group, err);
    if (status != TRAIN_EPEER && status != TRAIN_ETIMEDOUT)
        return status;
    fprintf (stderr, "collective_deadline: %s\n", err->text);
    status = train_group_survivors (*group, 0, NULL, &left, err);
    if (status != TRAIN_OK)
        return status;
    train_group_destroy (*group);
    *group = left;
    return add_up (*group, err);
}

int main (int argc, char **argv)
{
    train_group_options_t opts = {
        .size = sizeof (opts), .backend = "host", .timeout_ms = 10000};
    train_group_t *group = NULL;
    train_error_t err;
    train_status_t status = train_group_create (&opts, &group, &err);

    if (status == TRAIN_OK)
        status = work (&group, argc > 1 && !strcmp (argv[1], "late"), &err);
    train_group_destroy (group);
    if (status != TRAIN_OK)
        fprintf (stderr, "collective_deadline: %s\n", err.text);
    return status == TRAIN_OK ? 0 : 1;
}
