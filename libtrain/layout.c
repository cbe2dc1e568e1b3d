/* SPDX-License-Identifier: Apache-2.0
 * layout.c - which rank is on which node */
#include "layout.h"

#include <stdlib.h>

#include "err.h"

/* (key, rank), to find the ranks of a key in n log n. */
struct keyed {
    int32_t key;
    int rank;
};

static int by_key (const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

static train_status_t check_node (const struct keyed *first, int count,
                                  const struct layout_in *in,
                                  train_error_t *err)
{
    for (int i = 0; i < count; i++) {
        int rank = first[i].rank;

        if (in[rank].local_size != count)
            return err_set (err, TRAIN_EMISMATCH,
                            "rank %d says its node has %d ranks, but %d came "
                            "from there; set NODE_RANK where the ranks of a "
                            "node do not follow each other",
                            rank, in[rank].local_size, count);
    }
    return TRAIN_OK;
}

train_status_t layout_nodes (const struct layout_in *in, int size,
                             int *ret_node_of, int *ret_nodes,
                             train_error_t *err)
{
    struct keyed *list = malloc ((size_t)size * sizeof (*list));
    train_status_t status = TRAIN_OK;
    int nodes = 0;

    if (!list)
        return err_set (err, TRAIN_ENOMEM, "no memory for %d ranks", size);
    for (int r = 0; r < size; r++)
        list[r] = (struct keyed){in[r].key, r};
    qsort (list, (size_t)size, sizeof (*list), by_key);
    for (int i = 0, n; i < size && status == TRAIN_OK; i += n) {
        for (n = 1; i + n < size && list[i + n].key == list[i].key; n++)
            ;
        status = check_node (list + i, n, in, err);
        for (int j = 0; j < n; j++)
            ret_node_of[list[i + j].rank] = list[i].rank; /* its lowest rank */
    }
    free (list);
    if (status != TRAIN_OK)
        return status;
    for (int r = 0; r < size; r++)
        ret_node_of[r] =
            ret_node_of[r] == r ? nodes++ : ret_node_of[ret_node_of[r]];
    *ret_nodes = nodes;
    return TRAIN_OK;
}

void layout_local (const int *node_of, int size, int rank, int *ret_local_rank,
                   int *ret_local_size)
{
    int local_rank = 0, local_size = 0;

    for (int r = 0; r < size; r++) {
        if (node_of[r] != node_of[rank])
            continue;
        local_rank += r < rank;
        local_size++;
    }
    *ret_local_rank = local_rank;
    *ret_local_size = local_size;
}

int layout_runs (const int *node_of, int size, struct layout_run **ret_runs)
{
    struct layout_run *runs = malloc ((size_t)size * sizeof (*runs));
    int n = 0;

    for (int r = 0; runs && r < size; r++) {
        if (n > 0 && runs[n - 1].node == node_of[r])
            runs[n - 1].count++;
        else
            runs[n++] = (struct layout_run){node_of[r], r, 1};
    }
    *ret_runs = runs;
    return n;
}
