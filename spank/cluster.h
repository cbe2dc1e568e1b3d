/* SPDX-License-Identifier: Apache-2.0
 * cluster.h - what the plugin asks slurmctld, in client processes only.
 *
 * Through the functions of libslurm that srun, sbatch and salloc have loaded
 * themselves. None of them prints; where the controller does not answer, the
 * client says so itself a moment later. */
#ifndef RV_SPANK_CLUSTER_H
#define RV_SPANK_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/request.h"

struct cluster_offers {
    struct node_offer *offer;
    size_t n;
};

/* cluster_offers_load - the distinct gres texts of all nodes.
 *   ret   written on success; free with cluster_offers_fini
 * Returns 0, or -1 when the controller does not answer or memory is out. */
int cluster_offers_load (struct cluster_offers *ret);
void cluster_offers_fini (struct cluster_offers *offers);

/* cluster_cpus_per_gpu - DefCpuPerGPU of a partition, else of the site, else
 * 1, which is what Slurm gives a task.
 *   partition   name, or a list whose first one counts; NULL = the default */
uint32_t cluster_cpus_per_gpu (const char *partition);

/* cluster_mpi_is_pmix - is MpiDefault some pmix? False without an answer. */
bool cluster_mpi_is_pmix (void);

/* cluster_head_addr - the numeric address of the node of a step's rank 0.
 *   buf   (size) written on success; size of at least 64
 * Returns 0, or -1 when it is not known or not fit for other nodes: a name
 * that means loopback here is another machine's own loopback there. */
int cluster_head_addr (uint32_t job_id, uint32_t step_id, char *buf,
                       size_t size);

/* cluster_job_has_gpus - was the job given GPUs? False without an answer. */
bool cluster_job_has_gpus (uint32_t job_id);

#endif
