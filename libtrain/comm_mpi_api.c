/* SPDX-License-Identifier: Apache-2.0
 * comm_mpi_api.c - open MPI at run time, begin it and end it */
#include "config.h"

#include "comm_mpi.h"

#include "err.h"
#include "join.h"

#if HAVE_MPI
#include <mpi.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAG 7

#define MPI_CALLS(X)                                                           \
    X (Comm_create_group)                                                      \
    X (Comm_free)                                                              \
    X (Comm_group)                                                             \
    X (Comm_rank)                                                              \
    X (Comm_set_errhandler)                                                    \
    X (Comm_size)                                                              \
    X (Error_string)                                                           \
    X (Finalize)                                                               \
    X (Finalized)                                                              \
    X (Group_free)                                                             \
    X (Group_incl)                                                             \
    X (Iallgatherv)                                                            \
    X (Ialltoallv)                                                             \
    X (Ibcast)                                                                 \
    X (Igatherv)                                                               \
    X (Init_thread)                                                            \
    X (Initialized)                                                            \
    X (Iprobe)                                                                 \
    X (Irecv)                                                                  \
    X (Iscatter)                                                               \
    X (Isend)                                                                  \
    X (Query_thread)                                                           \
    X (Test)

/* MPI as it was found. */
static struct {
#define FIELD(name) __typeof__ (MPI_##name) *name;
    MPI_CALLS (FIELD)
#undef FIELD
    MPI_Comm world;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;
} real;

static train_error_t why_not; /* code TRAIN_OK: [real] is good */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static pid_t began; /* the process in which MPI began here; 0: in none */
static bool kept;

static mpi_handle_t of_comm (MPI_Comm comm)
{
    mpi_handle_t handle = 0;

    memcpy (&handle, &comm, sizeof (comm));
    return handle;
}

static MPI_Comm comm_of (mpi_handle_t handle)
{
    MPI_Comm comm;

    memcpy (&comm, &handle, sizeof (comm));
    return comm;
}

_Static_assert(sizeof (MPI_Comm) <= sizeof (mpi_handle_t), "handle");
_Static_assert(sizeof (MPI_Request) <= sizeof (mpi_handle_t), "handle");

static int began_as (int rc, MPI_Request request, mpi_handle_t *req)
{
    memcpy (req, &request, sizeof (request));
    return rc;
}

static int op_all_to_all (const char *in, const int *n_in, const int *at_in,
                          char *out, const int *n_out, const int *at_out,
                          mpi_handle_t comm, mpi_handle_t *req)
{
    MPI_Request r;
    int rc = real.Ialltoallv (in, n_in, at_in, real.byte, out, n_out, at_out,
                              real.byte, comm_of (comm), &r);

    return began_as (rc, r, req);
}

static int op_all_gather (const char *in, int n, char *out, const int *n_out,
                          const int *at_out, mpi_handle_t comm,
                          mpi_handle_t *req)
{
    MPI_Request r;
    int rc = real.Iallgatherv (in, n, real.byte, out, n_out, at_out, real.byte,
                               comm_of (comm), &r);

    return began_as (rc, r, req);
}

static int op_gather (const char *in, int n, char *out, const int *n_out,
                      const int *at_out, int root, mpi_handle_t comm,
                      mpi_handle_t *req)
{
    MPI_Request r;
    int rc = real.Igatherv (in, n, real.byte, out, n_out, at_out, real.byte,
                            root, comm_of (comm), &r);

    return began_as (rc, r, req);
}

static int op_scatter (const char *in, char *out, int n, int root,
                       mpi_handle_t comm, mpi_handle_t *req)
{
    MPI_Request r;
    int rc = real.Iscatter (in, n, real.byte, out, n, real.byte, root,
                            comm_of (comm), &r);

    return began_as (rc, r, req);
}

static int op_broadcast (char *both, int n, int root, mpi_handle_t comm,
                         mpi_handle_t *req)
{
    MPI_Request r;
    int rc = real.Ibcast (both, n, real.byte, root, comm_of (comm), &r);

    return began_as (rc, r, req);
}

static int op_send (const char *in, int n, int to, mpi_handle_t comm,
                    mpi_handle_t *req)
{
    MPI_Request r;
    int rc = real.Isend (in, n, real.byte, to, TAG, comm_of (comm), &r);

    return began_as (rc, r, req);
}

static int op_recv (char *out, int n, int from, mpi_handle_t comm,
                    mpi_handle_t *req)
{
    MPI_Request r;
    int rc = real.Irecv (out, n, real.byte, from, TAG, comm_of (comm), &r);

    return began_as (rc, r, req);
}

static int op_test (mpi_handle_t *req, bool *ret_done)
{
    MPI_Request r;
    int done = 0, rc;

    memcpy (&r, req, sizeof (r));
    rc = real.Test (&r, &done, MPI_STATUS_IGNORE);
    *ret_done = done != 0;
    return began_as (rc, r, req);
}

static void op_progress (mpi_handle_t comm)
{
    int there;

    (void)real.Iprobe (MPI_ANY_SOURCE, TAG + 1, comm_of (comm), &there,
                       MPI_STATUS_IGNORE);
}

static int op_where (int *rank, int *size)
{
    int rc = real.Comm_rank (real.world, rank);

    return rc == MPI_SUCCESS ? real.Comm_size (real.world, size) : rc;
}

static int op_make (const int *ranks, int n, int tag, mpi_handle_t *ret_comm)
{
    MPI_Group all, some;
    MPI_Comm comm;
    int rc = real.Comm_group (real.world, &all);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = real.Group_incl (all, n, ranks, &some);
    real.Group_free (&all);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = real.Comm_create_group (real.world, some, tag, &comm);
    real.Group_free (&some);
    if (rc != MPI_SUCCESS)
        return rc;
    *ret_comm = of_comm (comm);
    return real.Comm_set_errhandler (comm, real.errors_return);
}

static void op_drop (mpi_handle_t comm)
{
    MPI_Comm c = comm_of (comm);

    (void)real.Comm_free (&c);
}

static void op_error_text (int code, char *text, size_t size)
{
    char all[MPI_MAX_ERROR_STRING + 1] = "";
    int len = 0;

    if (real.Error_string (code, all, &len) != MPI_SUCCESS)
        all[0] = '\0';
    all[strcspn (all, "\n")] = '\0';
    snprintf (text, size, "%s", all[0] ? all : "no reason given");
}

static const struct mpi_api found = {
    .all_to_all = op_all_to_all,
    .all_gather = op_all_gather,
    .gather = op_gather,
    .scatter = op_scatter,
    .broadcast = op_broadcast,
    .send = op_send,
    .recv = op_recv,
    .test = op_test,
    .progress = op_progress,
    .where = op_where,
    .make = op_make,
    .drop = op_drop,
    .error_text = op_error_text,
};

/* Predefined handles are addresses of Open MPI's data, and numbers in others.
 * A program that is linked with Open MPI may have taken that data into itself
 * (a copy relocation), so the library is not asked alone. */
static bool find_constants (const char **missing)
{
#ifdef OPEN_MPI
    const struct {
        const char *name;
        void *to;
    } list[] = {
        {"ompi_mpi_comm_world", &real.world},
        {"ompi_mpi_byte", &real.byte},
        {"ompi_mpi_errors_return", &real.errors_return},
    };

    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        void *symbol = dlsym (RTLD_DEFAULT, list[i].name);

        if (!symbol) {
            *missing = list[i].name;
            return false;
        }
        memcpy (list[i].to, &symbol, sizeof (symbol));
    }
#else
    (void)missing;
    real.world = MPI_COMM_WORLD;
    real.byte = MPI_BYTE;
    real.errors_return = MPI_ERRORS_RETURN;
#endif
    return true;
}

static bool find_all (void *library, const char **missing)
{
    const struct {
        const char *name;
        void *to;
    } list[] = {
#define ROW(name) {"MPI_" #name, &real.name},
        MPI_CALLS (ROW)
#undef ROW
    };

    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        void *symbol = dlsym (library, list[i].name);

        if (!symbol) {
            *missing = list[i].name;
            return false;
        }
        memcpy (list[i].to, &symbol, sizeof (symbol));
    }
    return find_constants (missing);
}

/* RTLD_GLOBAL: Open MPI's own plugins look for its symbols. A program that is
 * linked with another MPI would have two of them. */
static void find_library (void)
{
    const char *missing = NULL, *why;
    void *library = dlopen (RV_MPI_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    void *programs = dlsym (RTLD_DEFAULT, "MPI_Init_thread");

    if (!library) {
        why = dlerror ();
        err_set (&why_not, TRAIN_ENOTSUP,
                 "backend mpi: cannot open " RV_MPI_LIBRARY
                 ": %s; LD_LIBRARY_PATH may name its folder",
                 why ? why : "no reason given");
    } else if (!find_all (library, &missing)) {
        err_set (&why_not, TRAIN_ENOTSUP,
                 "backend mpi: " RV_MPI_LIBRARY
                 " has no %s; the MPI that libtrain was built with has",
                 missing);
    } else if (programs && programs != dlsym (library, "MPI_Init_thread")) {
        err_set (&why_not, TRAIN_ENOTSUP,
                 "backend mpi: the program is linked with another MPI than "
                 "libtrain was built with (" RV_MPI_LIBRARY
                 "); both need the same");
    }
}

/* MPI_Init of a process that nothing started either makes it a world of its
 * own, or ends it. */
static bool is_started (void)
{
    static const char *const signs[] = {"PMIX_NAMESPACE", "PMI_RANK", "PMI_FD",
                                        "PMI_PORT", "OMPI_COMM_WORLD_SIZE"};

    for (size_t i = 0; i < sizeof (signs) / sizeof (*signs); i++) {
        if (getenv (signs[i]))
            return true;
    }
    return false;
}

static train_status_t check_level (int level, train_error_t *err)
{
    if (level >= MPI_THREAD_MULTIPLE)
        return TRAIN_OK;
    return err_set (err, TRAIN_ENOTSUP,
                    "backend mpi: MPI has begun at thread level %d, it needs "
                    "MPI_THREAD_MULTIPLE (%d); the program's MPI_Init_thread "
                    "may ask for it, or leave MPI to the group",
                    level, MPI_THREAD_MULTIPLE);
}

train_status_t mpi_find (const struct mpi_api **ret_api, train_error_t *err)
{
    int begun = 0, ended = 0, level = MPI_THREAD_MULTIPLE;

    pthread_once (&once, find_library);
    if (why_not.code != TRAIN_OK)
        return err_set (err, why_not.code, "%s", why_not.text);
    real.Initialized (&begun);
    real.Finalized (&ended);
    if (ended)
        return err_set (err, TRAIN_ESTATE,
                        "backend mpi: MPI has ended in this process, which "
                        "cannot begin it again; MPI_Finalize comes last");
    if (!begun && !is_started ())
        return err_set (err, TRAIN_ENOTSUP,
                        "backend mpi: MPI did not start this program; start it "
                        "with mpirun or srun --mpi=pmix, or use backend host");
    if (begun)
        real.Query_thread (&level);
    TRY (check_level (level, err));
    *ret_api = &found;
    return TRAIN_OK;
}

/* A child that was forked has no MPI. */
static void end_mpi (void)
{
    int ended = 0;

    if (began != getpid () || kept)
        return;
    real.Finalized (&ended);
    if (!ended)
        real.Finalize ();
}

/* The shared memory of PMIx before 5 ("ds12", "ds21") tells a process that ended
 * PMIx and begins it again no more what its local rank is, on which MPI_Init of
 * Open MPI 4 ends the process. */
static bool would_end (void)
{
    const char *stores = getenv ("PMIX_GDS_MODULE");

    return join_ended_pmix () && stores && strncmp (stores, "ds", 2) == 0;
}

static train_status_t begin (train_error_t *err)
{
    int begun = 0, level = 0, rc;
    char text[160];

    real.Initialized (&begun);
    if (begun)
        return TRAIN_OK;
    if (would_end ())
        return err_set (err, TRAIN_ESTATE,
                        "backend mpi: with this PMIx MPI begins before other "
                        "groups of a process only; make this group first, or "
                        "call MPI_Init_thread first");
    rc = real.Init_thread (NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (rc != MPI_SUCCESS) {
        op_error_text (rc, text, sizeof (text));
        return err_set (err, TRAIN_EDEVICE,
                        "backend mpi: MPI did not begin: %s", text);
    }
    began = getpid ();
    atexit (end_mpi);
    return check_level (level, err);
}

train_status_t mpi_begin (train_error_t *err)
{
    train_status_t status;

    pthread_mutex_lock (&beginning);
    status = begin (err);
    pthread_mutex_unlock (&beginning);
    return status;
}

void mpi_keep (void)
{
    kept = true;
}

#else

train_status_t mpi_find (const struct mpi_api **ret_api, train_error_t *err)
{
    *ret_api = NULL;
    return err_set (err, TRAIN_ENOTSUP,
                    "backend mpi: this libtrain was built without MPI; "
                    "./configure --with-mpi where mpicc is (Debian: "
                    "libopenmpi-dev) builds it in");
}

train_status_t mpi_begin (train_error_t *err)
{
    const struct mpi_api *api;

    return mpi_find (&api, err);
}

void mpi_keep (void)
{
}

#endif
