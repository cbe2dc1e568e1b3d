/* SPDX-License-Identifier: Apache-2.0
 * scale_ask.c - what Slurm's own library takes to answer what rv asks, as an
 * anchor for a bench
 *
 *   scale_ask status|run|ps
 * Makes the calls of `rv status`, `rv run --dry-run` or `rv ps`, and uses
 * nothing of the answers. Status 1 where one fails. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int ask_cluster (int detail)
{
    node_info_msg_t *nodes = NULL;
    partition_info_msg_t *parts = NULL;
    job_info_msg_t *jobs = NULL;
    slurm_conf_t *conf = NULL;
    reserve_info_msg_t *resvs = NULL;

    if (slurm_load_node (0, &nodes, SHOW_ALL | SHOW_DETAIL)
        || slurm_load_partitions (0, &parts, 0)
        || slurm_load_ctl_conf (0, &conf)
        || slurm_load_jobs (0, &jobs,
                            (uint16_t)(SHOW_ALL | (detail ? SHOW_DETAIL : 0))))
        return -1;
    return detail ? slurm_load_reservations (0, &resvs) : 0;
}

static int ask_mine (void)
{
    job_info_msg_t *jobs = NULL;

    return slurm_load_job_user (&jobs, getuid (), SHOW_ALL);
}

int main (int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    int failed;

    slurm_init (NULL);
    failed = slurm_ping (0);
    if (!failed)
        failed = !strcmp (what, "ps") ? ask_mine ()
                                      : ask_cluster (!strcmp (what, "run"));
    if (failed)
        fprintf (stderr, "scale_ask: %s\n", slurm_strerror (errno));
    return failed != 0;
}
