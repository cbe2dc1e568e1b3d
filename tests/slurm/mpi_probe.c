/* SPDX-License-Identifier: Apache-2.0
 * mpi_probe.c - an MPI program for the suites on a cluster
 *
 * usage: mpi_probe hello | exit RANK CODE | signal RANK NUMBER
 * hello sums the ranks and finalizes; with the others one rank says "ends" and
 * does, without MPI_Finalize, while the rest waits for it, and for ever where MPI
 * returns from that with an error, as Open MPI 5 does: by default it then aborts
 * by itself, before or after anybody else. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main (int argc, char **argv)
{
    int rank, size, sum = 0, value;

    if (argc < 2 || MPI_Init (&argc, &argv) != MPI_SUCCESS)
        return 64;
    MPI_Comm_rank (MPI_COMM_WORLD, &rank);
    MPI_Comm_size (MPI_COMM_WORLD, &size);
    MPI_Allreduce (&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!strcmp (argv[1], "hello"))
        printf ("rank %d of %d sum %d\n", rank, size, sum);
    else if (argc == 4 && rank == (int)strtol (argv[2], NULL, 10)) {
        value = (int)strtol (argv[3], NULL, 10);
        printf ("ends\n");
        fflush (stdout);
        if (!strcmp (argv[1], "exit"))
            _Exit (value);
        raise (value);
    } else {
        MPI_Comm_set_errhandler (MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (MPI_Barrier (MPI_COMM_WORLD) != MPI_SUCCESS)
            for (;;)
                pause ();
    }
    return MPI_Finalize ();
}
