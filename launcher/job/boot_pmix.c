/* SPDX-License-Identifier: Apache-2.0
 * boot_pmix.c - boot by the PMIx server of the step, through libpmix.so.2
 *
 * The library is opened at run time. PMIX_TIMEOUT covers only local ranks and
 * PMIx_Init knows no deadline at all, so every call that talks to the server
 * runs under deadline_call; after a timeout the handle is broken and the
 * argument block belongs to the thread that is still in the call.
 *
 * A fence spreads one blob a rank as keys "rv.EPOCH.N": pieces of at most
 * PIECE bytes, the first begins with the length of all. Every rank puts the
 * first piece even when it has nothing, so a get never waits for a key that
 * does not come. The fence always collects: without, a client that leaves
 * right after it takes its values along. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_impl.h"

#ifdef HAVE_PMIX
#include <dlfcn.h>
#include <pmix.h>
#include <pthread.h>
#include <stdatomic.h>

#define PIECE        3000
#define BROKEN_MS    500 /* a fence that hangs makes the finalize hang */
#define FINALIZE_MS  5000
#define LIBPMIX      "libpmix.so.2"
#define SLURM_NSPACE "slurm.pmix."

struct lib {
    void *handle;
    pmix_status_t (*init) (pmix_proc_t *, pmix_info_t[], size_t);
    pmix_status_t (*finalize) (const pmix_info_t[], size_t);
    pmix_status_t (*abort) (int, const char[], pmix_proc_t[], size_t);
    pmix_status_t (*put) (pmix_scope_t, const char[], pmix_value_t *);
    pmix_status_t (*commit) (void);
    pmix_status_t (*fence) (const pmix_proc_t[], size_t, const pmix_info_t[],
                            size_t);
    pmix_status_t (*get) (const pmix_proc_t *, const char[],
                          const pmix_info_t[], size_t, pmix_value_t **);
    const char *(*error_string) (pmix_status_t);
};

struct priv {
    struct lib lib;
    pmix_proc_t self;
    uint32_t first; /* of its epochs: another's keys stay while MPI has PMIx */
};

/* One foreign call: everything it reads and writes. */
struct call {
    struct lib lib;
    pmix_proc_t proc;
    char key[64];
    pmix_value_t *value; /* of a get */
    unsigned char *blob; /* of a fence: 4 bytes of length, the values */
    size_t len;
    uint32_t epoch;
    int code; /* of an abort */
    char text[256];
};

static bool load (struct lib *lib, rv_job_error_t *err)
{
    struct {
        const char *name;
        void *slot;
    } sym[] = {
        {"PMIx_Init", &lib->init},
        {"PMIx_Finalize", &lib->finalize},
        {"PMIx_Abort", &lib->abort},
        {"PMIx_Put", &lib->put},
        {"PMIx_Commit", &lib->commit},
        {"PMIx_Fence", &lib->fence},
        {"PMIx_Get", &lib->get},
        {"PMIx_Error_string", &lib->error_string},
    };

    /* Its components look symbols up in the global scope. Never closed: the
     * library leaves threads and handlers behind. */
    lib->handle = dlopen (LIBPMIX, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!lib->handle) {
        job_error (err, RV_JOB_ENOTSUP, "%s", dlerror ());
        return false;
    }
    for (size_t i = 0; i < sizeof (sym) / sizeof (sym[0]); i++) {
        void *p = dlsym (lib->handle, sym[i].name);

        if (!p) {
            job_error (err, RV_JOB_ENOTSUP, "%s has no %s", LIBPMIX,
                       sym[i].name);
            dlclose (lib->handle);
            return false;
        }
        *(void **)sym[i].slot = p; /* as dlopen(3) does */
    }
    return true;
}

/* The one place where a PMIx status becomes ours. */
static rv_job_status_t pmix_error (const struct lib *lib, const char *what,
                                   int rc, rv_job_error_t *err)
{
    rv_job_status_t code = RV_JOB_EIO;

    if (rc == PMIX_ERR_UNREACH)
        code = RV_JOB_ENOTSUP;
    else if (rc == PMIX_ERR_TIMEOUT)
        code = RV_JOB_ETIMEDOUT;
    else if (rc == PMIX_ERR_LOST_CONNECTION || rc == PMIX_ERR_PROC_ABORTED)
        code = RV_JOB_EPEER;
    else if (rc == PMIX_ERR_NOT_FOUND)
        code = RV_JOB_ENOTFOUND;
    return job_error (err, code, "%s: %s (%d)", what, lib->error_string (rc),
                      rc);
}

static struct call *call_create (const struct lib *lib, const pmix_proc_t *proc)
{
    struct call *c = calloc (1, sizeof (*c));

    if (c) {
        c->lib = *lib;
        if (proc)
            c->proc = *proc;
    }
    return c;
}

static void value_free (pmix_value_t *v)
{
    if (!v)
        return;
    if (v->type == PMIX_BYTE_OBJECT)
        free (v->data.bo.bytes);
    else if (v->type == PMIX_STRING)
        free (v->data.string);
    free (v);
}

static void call_destroy (struct call *c)
{
    value_free (c->value);
    free (c->blob);
    free (c);
}

static void call_undo (void *arg, int result)
{
    (void)result;
    call_destroy (arg);
}

static int do_init (void *arg)
{
    struct call *c = arg;

    return c->lib.init (&c->proc, NULL, 0);
}

static void init_undo (void *arg, int result)
{
    struct call *c = arg;

    if (result == PMIX_SUCCESS)
        c->lib.finalize (NULL, 0);
    call_destroy (c);
}

static int do_finalize (void *arg)
{
    return ((struct call *)arg)->lib.finalize (NULL, 0);
}

static int do_get (void *arg)
{
    struct call *c = arg;

    return c->lib.get (&c->proc, c->key, NULL, 0, &c->value);
}

static int do_abort (void *arg)
{
    struct call *c = arg;

    return c->lib.abort (c->code, c->text, NULL, 0);
}

static void piece_key (char *key, size_t size, uint32_t epoch, size_t n)
{
    snprintf (key, size, "rv.%u.%zu", epoch, n);
}

static int do_fence (void *arg)
{
    struct call *c = arg;
    pmix_info_t collect;
    pmix_value_t value;
    size_t at = 0, n = 0;
    int rc;

    do {
        memset (&value, 0, sizeof (value));
        value.type = PMIX_BYTE_OBJECT;
        value.data.bo.bytes = (char *)c->blob + at;
        value.data.bo.size = c->len - at < PIECE ? c->len - at : PIECE;
        piece_key (c->key, sizeof (c->key), c->epoch, n++);
        if ((rc = c->lib.put (PMIX_GLOBAL, c->key, &value)))
            return rc;
        at += value.data.bo.size;
    } while (at < c->len);
    if ((rc = c->lib.commit ()))
        return rc;
    memset (&collect, 0, sizeof (collect));
    snprintf (collect.key, sizeof (collect.key), "%s", PMIX_COLLECT_DATA);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    return c->lib.fence (NULL, 0, &collect, 1);
}

static rv_job_status_t get_value (const struct lib *lib,
                                  const pmix_proc_t *proc, const char *key,
                                  int64_t end_ms, pmix_value_t **ret,
                                  rv_job_error_t *err)
{
    struct call *c = call_create (lib, proc);
    rv_job_status_t status;
    int rc = 0;

    if (!c)
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    snprintf (c->key, sizeof (c->key), "%s", key);
    status = deadline_call (do_get, call_undo, c, end_ms, &rc);
    if (status == RV_JOB_ETIMEDOUT)
        return job_error (err, status, "PMIx_Get of %s: no answer in time",
                          key);
    if (!status && rc)
        status = pmix_error (lib, key, rc, err);
    else if (!status) {
        *ret = c->value;
        c->value = NULL;
    } else
        job_error (err, status, "out of memory");
    call_destroy (c);
    return status;
}

static rv_job_status_t get_number (const struct priv *p, bool of_job,
                                   const char *key, int64_t end_ms,
                                   uint32_t *ret, rv_job_error_t *err)
{
    pmix_proc_t proc = p->self;
    pmix_value_t *v = NULL;
    rv_job_status_t status;

    if (of_job)
        proc.rank = PMIX_RANK_WILDCARD;
    if ((status = get_value (&p->lib, &proc, key, end_ms, &v, err)))
        return status;
    if (v->type == PMIX_UINT32)
        *ret = v->data.uint32;
    else if (v->type == PMIX_UINT16)
        *ret = v->data.uint16;
    else
        status = job_error (err, RV_JOB_EFORMAT, "%s has type %d", key,
                            (int)v->type);
    value_free (v);
    return status;
}

/* Where this process is. */
static struct layout {
    pmix_proc_t self;
    uint32_t local_rank, local_size, nodes, node;
} known; /* local_size 0: nothing yet */

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint boots; /* that went well; the same on all ranks */

/* The server of Open MPI 4's mpirun tells a process that connects for the
 * second time no more what is its own, so the first answer is kept. */
static rv_job_status_t layout (const struct priv *p, int64_t end_ms,
                               struct layout *ret, rv_job_error_t *err)
{
    struct layout at = {.self = p->self};
    rv_job_status_t status = RV_JOB_OK;

    pthread_mutex_lock (&known_lock);
    if ((known.local_size == 0 || known.self.rank != p->self.rank
         || strcmp (known.self.nspace, p->self.nspace))
        && !(status = get_number (p, false, PMIX_LOCAL_RANK, end_ms,
                                  &at.local_rank, err))
        && !(status = get_number (p, true, PMIX_LOCAL_SIZE, end_ms,
                                  &at.local_size, err))
        && !(status =
                 get_number (p, true, PMIX_NUM_NODES, end_ms, &at.nodes, err))
        && !(status =
                 get_number (p, false, PMIX_NODEID, end_ms, &at.node, err)))
        known = at;
    *ret = known;
    pthread_mutex_unlock (&known_lock);
    return status;
}

/* Where Slurm's variables tell the layout they are right in all releases;
 * PMIX_NODEID is 0 everywhere before 25.05. Others' launchers have the keys. */
static rv_job_status_t facts (struct rv_job *job, const struct priv *p,
                              int64_t end_ms, rv_job_error_t *err)
{
    rv_job_status_t status;
    struct layout at;
    uint32_t size = 0;

    if ((status = get_number (p, true, PMIX_JOB_SIZE, end_ms, &size, err)))
        return status;
    status = job_step_facts (job, err);
    if (status && status != RV_JOB_ENOTSUP)
        return status;
    if (!status && (job->rank != p->self.rank || job->size != size))
        return job_error (err, RV_JOB_EMISMATCH,
                          "PMIx says rank %u of %u, Slurm rank %u of %u",
                          p->self.rank, size, job->rank, job->size);
    if (!status)
        return RV_JOB_OK;
    if ((status = layout (p, end_ms, &at, err)))
        return status;
    job->rank = p->self.rank;
    job->size = size;
    job->local_rank = at.local_rank;
    job->local_size = at.local_size;
    job->nodes = at.nodes;
    job->node = at.node;
    return RV_JOB_OK;
}

/* Is there a server, and is it this step's? A job that was submitted from
 * inside a step inherits the variables of that step's server. */
static rv_job_status_t probe (rv_job_error_t *err)
{
    const char *nspace = getenv ("PMIX_NAMESPACE");
    char here[64];
    uint32_t job_id, step_id;

    if (!nspace || !getenv ("PMIX_RANK"))
        return job_error (err, RV_JOB_ENOTSUP,
                          "no PMIx in this step (srun --mpi=pmix gives it)");
    if (strncmp (nspace, SLURM_NSPACE, strlen (SLURM_NSPACE)))
        return RV_JOB_OK;
    job_ids (&job_id, &step_id);
    snprintf (here, sizeof (here), SLURM_NSPACE "%u.%u", job_id, step_id);
    if (!getenv ("SLURM_STEP_ID") || strcmp (nspace, here))
        return job_error (err, RV_JOB_ENOTSUP,
                          "PMIX_NAMESPACE=%s was inherited from another step",
                          nspace);
    return RV_JOB_OK;
}

static void finalize (const struct lib *lib, int64_t within_ms)
{
    struct call *c = call_create (lib, NULL);
    int rc;

    if (c
        && deadline_call (do_finalize, call_undo, c, job_now_ms () + within_ms,
                          &rc)
               != RV_JOB_ETIMEDOUT)
        call_destroy (c);
    deadline_end ();
}

static rv_job_status_t connect_server (struct priv *p, int64_t end_ms,
                                       rv_job_error_t *err)
{
    struct call *c = call_create (&p->lib, NULL);
    rv_job_status_t status;
    int rc = 0;

    if (!c)
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    status = deadline_call (do_init, init_undo, c, end_ms, &rc);
    if (status == RV_JOB_ETIMEDOUT)
        return job_error (err, status,
                          "PMIx_Init: the server did not answer in time");
    if (status)
        job_error (err, status, "out of memory");
    else if (rc)
        status = pmix_error (&p->lib, "PMIx_Init", rc, err);
    else
        p->self = c->proc;
    call_destroy (c);
    return status;
}

/* A server that does not let us in, or knows nothing of its job, serves nobody;
 * a security plugin that a container has not is the usual reason
 * (openpmix/openpmix#3645, #3839). Contradictions stay errors. */
static rv_job_status_t refusal (rv_job_status_t status, bool asked)
{
    bool fatal = status == RV_JOB_EMISMATCH || status == RV_JOB_EFORMAT
                 || status == RV_JOB_ENOMEM;

    if (asked)
        return status == RV_JOB_ENOTFOUND ? RV_JOB_EIO : status;
    return fatal || status == RV_JOB_ETIMEDOUT ? status : RV_JOB_ENOTSUP;
}

static rv_job_status_t op_open (struct rv_job *job, bool asked, int64_t end_ms,
                                rv_job_error_t *err)
{
    struct priv *p;
    rv_job_status_t status = probe (err);

    if (status)
        return status;
    if (!(p = calloc (1, sizeof (*p))))
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    if (!load (&p->lib, err)) {
        free (p);
        return RV_JOB_ENOTSUP;
    }
    if ((status = connect_server (p, end_ms, err))) {
        deadline_end ();
        free (p);
        return refusal (status, asked);
    }
    if ((status = facts (job, p, end_ms, err))) {
        finalize (&p->lib, FINALIZE_MS);
        free (p);
        return refusal (status, asked);
    }
    p->first = boots++ << 16;
    job->priv = p;
    return RV_JOB_OK;
}

static rv_job_status_t op_fence (struct rv_job *job, uint32_t epoch,
                                 const void *blob, size_t len, int64_t end_ms,
                                 rv_job_error_t *err)
{
    struct priv *p = job->priv;
    struct call *c = call_create (&p->lib, NULL);
    rv_job_status_t status;
    int rc = 0;

    if (!c || !(c->blob = malloc (len + 4))) {
        free (c);
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    }
    for (int i = 0; i < 4; i++)
        c->blob[i] = (unsigned char)(len >> 8 * i);
    if (len)
        memcpy (c->blob + 4, blob, len);
    c->len = len + 4;
    c->epoch = p->first + epoch;
    status = deadline_call (do_fence, call_undo, c, end_ms, &rc);
    if (status == RV_JOB_ETIMEDOUT)
        return job_error (err, status,
                          "PMIx_Fence: not all %u ranks came in time",
                          job->size);
    if (status)
        job_error (err, status, "out of memory");
    else if (rc) {
        status = pmix_error (&p->lib, "PMIx_Fence", rc, err);
        if (status == RV_JOB_ENOTSUP || status == RV_JOB_ENOTFOUND)
            status = job_error (err, RV_JOB_EPEER, "PMIx_Fence: %s",
                                p->lib.error_string (rc));
    }
    call_destroy (c);
    return status;
}

static rv_job_status_t op_fetch (struct rv_job *job, uint32_t epoch,
                                 uint32_t rank, void **ret_blob,
                                 size_t *ret_len, rv_job_error_t *err)
{
    const struct priv *p = job->priv;
    int64_t end_ms = job_now_ms () + JOB_FETCH_MS;
    pmix_proc_t proc = p->self;
    struct blob_in in = {.rank = rank};
    rv_job_status_t status = RV_JOB_OK;

    proc.rank = rank;
    for (size_t n = 0; !status && (n == 0 || in.at < in.len); n++) {
        char key[32];
        pmix_value_t *v = NULL;
        bool bytes;

        piece_key (key, sizeof (key), p->first + epoch, n);
        if ((status = get_value (&p->lib, &proc, key, end_ms, &v, err)))
            break;
        bytes = v->type == PMIX_BYTE_OBJECT;
        status = blob_add (&in, bytes ? v->data.bo.bytes : NULL,
                           bytes ? v->data.bo.size : 0, err);
        value_free (v);
    }
    if (status) {
        free (in.blob);
        return status;
    }
    *ret_blob = in.blob;
    *ret_len = in.len;
    return RV_JOB_OK;
}

static void op_abort (struct rv_job *job, int code, const char *text)
{
    struct priv *p = job->priv;
    struct call *c = call_create (&p->lib, NULL);
    int rc;

    if (!c)
        return;
    c->code = code;
    snprintf (c->text, sizeof (c->text), "%s", text ? text : "aborted");
    (void)deadline_call (do_abort, NULL, c, job_now_ms () + JOB_ABORT_MS, &rc);
}

static void op_close (struct rv_job *job)
{
    struct priv *p = job->priv;

    if (!p)
        return;
    finalize (&p->lib, job->broken ? BROKEN_MS : FINALIZE_MS);
    free (p);
    job->priv = NULL;
}

#else /* !HAVE_PMIX: the headers were not there when this was built */

static rv_job_status_t op_open (struct rv_job *job, bool asked, int64_t end_ms,
                                rv_job_error_t *err)
{
    (void)job;
    (void)asked;
    (void)end_ms;
    return job_error (err, RV_JOB_ENOTSUP,
                      "built without PMIx (configure --with-pmix)");
}

static rv_job_status_t op_fence (struct rv_job *job, uint32_t epoch,
                                 const void *blob, size_t len, int64_t end_ms,
                                 rv_job_error_t *err)
{
    (void)job;
    (void)epoch;
    (void)blob;
    (void)len;
    (void)end_ms;
    return job_error (err, RV_JOB_ENOTSUP, "built without PMIx");
}

static rv_job_status_t op_fetch (struct rv_job *job, uint32_t epoch,
                                 uint32_t rank, void **ret_blob,
                                 size_t *ret_len, rv_job_error_t *err)
{
    (void)job;
    (void)epoch;
    (void)rank;
    (void)ret_blob;
    (void)ret_len;
    return job_error (err, RV_JOB_ENOTSUP, "built without PMIx");
}

static void op_close (struct rv_job *job)
{
    (void)job;
}

#define op_abort NULL
#endif

const struct boot_ops boot_pmix = {
    .name = "pmix",
    .open = op_open,
    .fence = op_fence,
    .fetch = op_fetch,
    .abort = op_abort,
    .close = op_close,
};
