/* SPDX-License-Identifier: Apache-2.0
 * agree.c - before the program starts: are the ranks alike, where do they meet
 */
#include "config.h"

#include "exec/agree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/facts.h"
#include "exec/log.h"
#include "plan/differ.h"
#include "plan/site_conf.h"

#define HOST_MAX  128
#define MEET_MAX  512
#define PIECE_MAX 3072 /* of rv_job_put */
#define FACTS_MAX 65536

enum verdict {
    GO = 'g',
    STOP = 's',
    TELL = 't', /* digests differ: put the facts */
};

/* What a rank says of itself in the first fence. */
struct self {
    uint32_t node, local_rank;
    uint64_t digest;   /* of the facts but the program */
    uint64_t identity; /* of the program's files on this node; 0 = unknown */
    uint64_t program;  /* its hash; by local rank 0 */
    char host[HOST_MAX];
};

/* What stays with a rank between the fences. */
struct state {
    rv_job_t *job;
    const struct agree_in *in;
    struct facts facts;
    struct program_files files;
    struct self self;
    char allow[1024];    /* rank 0: what may differ */
    struct rv_error why; /* rank 0: of STOP */
};

/* What two processes share when 127.0.0.1 is the same place for both. */
static void host_id (char *buf, size_t size)
{
    char boot[64] = "", net[48] = "";
    int fd = open ("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read (fd, boot, sizeof (boot) - 1);

    if (fd >= 0)
        close (fd);
    if (n > 0)
        boot[strcspn (boot, "\n")] = '\0';
    n = readlink ("/proc/self/ns/net", net, sizeof (net) - 1);
    if (n > 0)
        net[n] = '\0';
    /* Without either nobody can be said to share it. */
    if (boot[0] && net[0])
        snprintf (buf, size, "%s/%s", boot, net);
    else
        snprintf (buf, size, "?%s/%d", log_node (), (int)getpid ());
}

static rv_job_status_t no_memory (rv_job_error_t *err)
{
    snprintf (err->text, sizeof (err->text), "out of memory");
    return err->code = RV_JOB_ENOMEM;
}

static rv_job_status_t nonsense (uint32_t rank, rv_job_error_t *err)
{
    snprintf (err->text, sizeof (err->text), "rank %u says nonsense", rank);
    return err->code = RV_JOB_EFORMAT;
}

/* Everything but the program, which is read on one rank of a node alone. */
static int gather (struct state *s)
{
    char text[4096], version[64], driver[64], show[4200];
    bool found = nccl_find (getenv, LOADER_CACHE, text, sizeof (text), version,
                            sizeof (version));
    struct facts *f = &s->facts;

    driver_version (DRIVER_PATH, driver, sizeof (driver));
    snprintf (show, sizeof (show), "%s (%s)", version, text);
    /* Without a version the name is all there is to compare. */
    if ((found
         && facts_add (f, "nccl", version[0] == '?' ? text : version, show))
        || (!found && facts_add (f, "nccl", "none", NULL))
        || facts_add (f, "driver", driver, NULL) || facts_add_env (f, environ))
        return -1;
    snprintf (text, sizeof (text), "%" PRId64,
              rv_job_timeout_ms (s->job) / 1000);
    snprintf (show, sizeof (show), "%s s", text);
    if (facts_add (f, "timeout", text, show))
        return -1;
    snprintf (text, sizeof (text), "%u", rv_job_size (s->job));
    return facts_add (f, "ranks", text, NULL);
}

static int introduce (struct state *s)
{
    struct self *self = &s->self;

    if (gather (s))
        return -1;
    program_files (s->in->cmd, s->in->argv, &s->files);
    self->node = rv_job_node (s->job);
    self->local_rank = rv_job_local_rank (s->job);
    self->digest = facts_digest (&s->facts);
    self->identity = program_identity (&s->files);
    if (self->local_rank == 0)
        (void)program_hash (&s->files, &self->program, NULL);
    host_id (self->host, sizeof (self->host));
    return 0;
}

static rv_job_status_t put_self (const struct state *s, rv_job_error_t *err)
{
    const struct self *self = &s->self;
    char text[HOST_MAX + 128];
    int n = snprintf (text, sizeof (text),
                      "%u %u %" PRIx64 " %" PRIx64 " %" PRIx64 " %s",
                      self->node, self->local_rank, self->digest,
                      self->identity, self->program, self->host);

    return rv_job_put (s->job, "self", text, (size_t)n, err);
}

static rv_job_status_t get_self (rv_job_t *job, uint32_t rank, struct self *ret,
                                 rv_job_error_t *err)
{
    char text[HOST_MAX + 128 + 1];
    size_t len = 0;
    rv_job_status_t status =
        rv_job_get (job, rank, "self", text, sizeof (text) - 1, &len, err);

    if (status)
        return status;
    text[len] = '\0';
    return sscanf (text,
                   "%" SCNu32 " %" SCNu32 " %" SCNx64 " %" SCNx64 " %" SCNx64
                   " %127s",
                   &ret->node, &ret->local_rank, &ret->digest, &ret->identity,
                   &ret->program, ret->host)
                   == 6
               ? RV_JOB_OK
               : nonsense (rank, err);
}

/* One rank of each node has read the program; the others of the node name the
 * same files.
 *   by   (nodes) NULLs; written: that rank of each node */
static bool alike (const struct self *of, uint32_t n, const struct self **by,
                   uint32_t nodes)
{
    for (uint32_t r = 0; r < n; r++)
        if (of[r].node >= nodes)
            return false;
        else if (of[r].local_rank == 0)
            by[of[r].node] = &of[r];
    for (uint32_t r = 0; r < n; r++) {
        const struct self *reader = by[of[r].node];

        if (of[r].digest != of[0].digest || !reader
            || reader->identity != of[r].identity
            || reader->program != of[0].program)
            return false;
    }
    return true;
}

static bool on_one_host (const struct self *of, uint32_t n)
{
    for (uint32_t r = 1; r < n; r++)
        if (strcmp (of[r].host, of[0].host) != 0)
            return false;
    return true;
}

/* Rank 0: what may differ. rv.conf is read where something does differ. */
static bool read_allow (struct state *s, bool conf_too)
{
    const char *env = getenv ("RV_DIFFER");
    char *user = conf_too ? site_conf_user_path () : NULL;
    struct rv_error why = {0};
    struct site_conf conf;
    bool ok;

    site_conf_init (&conf);
    ok = !differ_check (env, &why);
    if (!ok)
        error_set (&s->why, RV_EINVAL, "RV_DIFFER: %s", why.text);
    else if (conf_too
             && !(ok = !site_conf_load (&conf, site_conf_site_path (), user,
                                        &why)))
        error_set (&s->why, RV_EINVAL,
                   "the ranks differ, and what may differ cannot be read: %s",
                   why.text);
    snprintf (s->allow, sizeof (s->allow), "%s,%s", env ? env : "",
              conf.differ ? conf.differ : "");
    site_conf_fini (&conf);
    free (user);
    return ok;
}

/* Rank 0 reads what all say of themselves. */
static rv_job_status_t judge (struct state *s, enum verdict *ret,
                              bool *ret_one_host, rv_job_error_t *err)
{
    uint32_t n = rv_job_size (s->job);
    uint32_t nodes = rv_job_nodes (s->job);
    struct self *of = calloc (n, sizeof (*of));
    const struct self **by = calloc (nodes, sizeof (*by));
    rv_job_status_t status = of && by ? RV_JOB_OK : no_memory (err);

    for (uint32_t r = 0; !status && r < n; r++)
        status = get_self (s->job, r, &of[r], err);
    if (!status) {
        *ret_one_host = on_one_host (of, n);
        if (s->in->refuse)
            error_set (&s->why, RV_EINVAL, "%s", s->in->refuse);
        *ret = s->in->refuse || !read_allow (s, false) ? STOP
               : alike (of, n, by, nodes)              ? GO
                                                       : TELL;
    }
    free (by);
    free (of);
    return status;
}

/* Rank 0: "VERDICT PORT CAUSEPORT TOKEN ADDRESS". */
static rv_job_status_t offer (struct state *s, struct meeting *m,
                              rv_job_error_t *err)
{
    char text[MEET_MAX], addr[MEET_MAX / 2] = "127.0.0.1";
    enum verdict verdict = GO;
    bool one_host = false;
    rv_job_status_t status = judge (s, &verdict, &one_host, err);
    int n;

    if (status
        || (status = rv_job_reserve_port (s->job, &m->port, &m->port_fd, err)))
        return status;
    if (!one_host
        && (status = rv_job_address (s->job, addr, sizeof (addr), err)))
        return status;
    addr[strcspn (addr, " ")] = '\0';
    cause_listen (&m->cause, rv_job_size (s->job), one_host);
    n = snprintf (text, sizeof (text), "%c %u %u %" PRIu64 " %s", verdict,
                  m->port, m->cause.port, m->cause.token, addr);
    return rv_job_put (s->job, "meet", text, (size_t)n, err);
}

static rv_job_status_t read_offer (rv_job_t *job, struct meeting *m,
                                   enum verdict *ret, rv_job_error_t *err)
{
    char text[MEET_MAX + 1], verdict;
    unsigned port, cause_port;
    size_t len = 0;
    rv_job_status_t status =
        rv_job_get (job, 0, "meet", text, MEET_MAX, &len, err);

    if (status)
        return status;
    text[len] = '\0';
    if (sscanf (text, "%c %5u %5u %" SCNu64 " %63s", &verdict, &port,
                &cause_port, &m->cause.token, m->addr)
            != 5
        || port > UINT16_MAX || cause_port > UINT16_MAX)
        return nonsense (0, err);
    *ret = (enum verdict)verdict;
    m->port = (uint16_t)port;
    m->cause.port = (uint16_t)cause_port;
    return RV_JOB_OK;
}

/* Now every rank reads its program: within a node they named different files,
 * or nodes' differ. */
static int add_program (struct state *s)
{
    char value[32], show[4200];
    struct rv_error why = {0};
    uint64_t hash;

    if (program_hash (&s->files, &hash, &why)) {
        snprintf (show, sizeof (show), "%s: %s", s->in->argv[0], why.text);
        return facts_add (&s->facts, "program", why.text, show);
    }
    snprintf (value, sizeof (value), "%016" PRIx64, hash);
    snprintf (show, sizeof (show), "%s %s", value,
              s->files.path[s->files.path[1][0] ? 1 : 0]);
    return facts_add (&s->facts, "program", value, show);
}

static rv_job_status_t put_facts (struct state *s, rv_job_error_t *err)
{
    rv_job_status_t status = RV_JOB_OK;
    size_t len = 0, at = 0, n = 0;
    char *buf = NULL, key[32];

    if (add_program (s) || facts_pack (&s->facts, &buf, &len))
        return no_memory (err);
    do {
        size_t part = len - at < PIECE_MAX ? len - at : PIECE_MAX;

        snprintf (key, sizeof (key), "facts.%zu", n++);
        status = rv_job_put (s->job, key, buf + at, part, err);
        at += part;
    } while (!status && at < len && at < FACTS_MAX);
    if (!status)
        status = rv_job_put (s->job, "facts", &n, sizeof (n), err);
    free (buf);
    return status;
}

static rv_job_status_t get_facts (rv_job_t *job, uint32_t rank,
                                  struct facts *ret, rv_job_error_t *err)
{
    char *buf = malloc (FACTS_MAX + PIECE_MAX), key[32];
    struct rv_error why = {0};
    size_t n = 0, len = 0, part;
    rv_job_status_t status =
        buf ? rv_job_get (job, rank, "facts", &n, sizeof (n), &part, err)
            : no_memory (err);

    for (size_t i = 0; !status && i < n && len < FACTS_MAX; i++) {
        snprintf (key, sizeof (key), "facts.%zu", i);
        status = rv_job_get (job, rank, key, buf + len, PIECE_MAX, &part, err);
        len += status ? 0 : part;
    }
    if (!status && facts_unpack (buf, len, ret, &why))
        status = nonsense (rank, err);
    free (buf);
    return status;
}

/* Rank 0: do they differ in something that they may not? */
static rv_job_status_t compare (struct state *s, enum verdict *ret,
                                rv_job_error_t *err)
{
    uint32_t n = rv_job_size (s->job);
    struct facts *of = calloc (n, sizeof (*of));
    rv_job_status_t status = of ? RV_JOB_OK : no_memory (err);

    for (uint32_t r = 0; !status && r < n; r++)
        status = get_facts (s->job, r, &of[r], err);
    if (!status)
        *ret = !read_allow (s, true)
                       || facts_compare (of, n, s->allow, s->why.text,
                                         sizeof (s->why.text))
                   ? STOP
                   : GO;
    for (uint32_t r = 0; of && r < n; r++)
        facts_fini (&of[r]);
    free (of);
    return status;
}

/* Fences 3 and 4. */
static rv_job_status_t look_closer (struct state *s, enum verdict *ret,
                                    rv_job_error_t *err)
{
    char word = STOP;
    size_t len;
    rv_job_status_t status = put_facts (s, err);

    if (status || (status = rv_job_fence (s->job, 0, err)))
        return status;
    if (rv_job_rank (s->job) == 0) {
        if ((status = compare (s, ret, err)))
            return status;
        word = (char)*ret;
        if ((status = rv_job_put (s->job, "verdict", &word, 1, err)))
            return status;
    }
    if ((status = rv_job_fence (s->job, 0, err))
        || (status = rv_job_get (s->job, 0, "verdict", &word, 1, &len, err)))
        return status;
    *ret = (enum verdict)word;
    return RV_JOB_OK;
}

/* The first of our own addresses, as rank 0 offers its first. */
static rv_job_status_t fill_addresses (rv_job_t *job, struct meeting *m,
                                       rv_job_error_t *err)
{
    char addr[MEET_MAX / 2] = "127.0.0.1";
    rv_job_status_t status = RV_JOB_OK;

    snprintf (m->cause.addr, sizeof (m->cause.addr), "%s", m->addr);
    if (strcmp (m->addr, addr) != 0)
        status = rv_job_address (job, addr, sizeof (addr), err);
    addr[strcspn (addr, " ")] = '\0';
    snprintf (m->local_addr, sizeof (m->local_addr), "%.63s", addr);
    return status;
}

static rv_job_status_t stop (const struct state *s, rv_job_error_t *err)
{
    snprintf (err->text, sizeof (err->text), "%s", s->why.text);
    return err->code = RV_JOB_EMISMATCH;
}

static rv_job_status_t meet (struct state *s, struct meeting *m,
                             rv_job_error_t *err)
{
    enum verdict verdict = STOP;
    rv_job_status_t status;

    if (introduce (s))
        return no_memory (err);
    if ((status = put_self (s, err)) || (status = rv_job_fence (s->job, 0, err))
        || (rv_job_rank (s->job) == 0 && (status = offer (s, m, err)))
        || (status = rv_job_fence (s->job, 0, err))
        || (status = read_offer (s->job, m, &verdict, err)))
        return status;
    if (verdict == TELL && (status = look_closer (s, &verdict, err)))
        return status;
    return verdict == GO ? fill_addresses (s->job, m, err) : stop (s, err);
}

rv_job_status_t agree (rv_job_t *job, const struct agree_in *in,
                       struct meeting *ret, rv_job_error_t *err)
{
    struct state s = {.job = job, .in = in};
    rv_job_status_t status;

    *ret = (struct meeting){.port_fd = -1};
    cause_init (&ret->cause, rv_job_rank (job));
    status = meet (&s, ret, err);
    facts_fini (&s.facts);
    return status;
}
