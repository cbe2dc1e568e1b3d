/* SPDX-License-Identifier: Apache-2.0
 * waiting.c - why a job waits, in words, and when it should start */
#include "plan/waiting.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The longer of two beginnings first. */
static const struct {
    const char *reason; /* or how it begins */
    const char *words;
} known[] = {
    {"Priority", "jobs before it are served first"},
    {"Resources", "what it asks for is in use"},
    {"None", "Slurm has not looked at it yet"},
    {"BeginTime", "it is not to start before its time"},
    {"DependencyNeverSatisfied", "a job it depends on did not end as asked"},
    {"Dependency", "a job it depends on has not ended"},
    {"JobHeldUser", "held by its user; 'scontrol release' lets it go"},
    {"JobHeldAdmin", "held by an administrator"},
    {"JobArrayTaskLimit", "as many tasks of its array run as may at once"},
    {"ReqNodeNotAvail", "a node it needs is down, drained or reserved"},
    {"Reservation", "its reservation has not begun"},
    {"Licenses", "a license it needs is in use"},
    {"PartitionNodeLimit", "the partition does not allow that many nodes"},
    {"PartitionTimeLimit", "the partition does not allow that long"},
    {"PartitionDown", "the partition is down"},
    {"PartitionInactive", "the partition is inactive"},
    {"PartitionConfig", "the partition does not allow it as asked"},
    {"BadConstraints", "no node is as it asks for"},
    {"NodeDown", "a node it needs is down"},
    {"JobLaunchFailure", "it could not be started and is held"},
    {"launch_failed", "it could not be started and is held"},
    {"InvalidAccount", "its account is not valid"},
    {"InvalidQOS", "its QOS is not valid"},
    {"AccountNotAllowed", "the partition does not allow its account"},
    {"QOSNotAllowed", "its QOS is not allowed there"},
    {"AssocGrp", "its account has as much as it may"},
    {"AssocMax", "its account or user has as much as allowed"},
    {"Assoc", "a limit of its account is reached"},
    {"QOSMaxJobsPerUser", "as many jobs of this user run as its QOS allows"},
    {"QOS", "a limit of its QOS is reached"},
    {"MaxJobsPerAccount", "a limit of its account is reached"},
    {"Cleaning", "its last start is still being cleared away"},
    {"Prolog", "its nodes are being made ready"},
    {"FrontEndDown", "no front end is up"},
    {"BurstBuffer", "its burst buffer is being made ready"},
    {"DeadLine", "it can no longer end before its deadline"},
};

static const char *words_of (const char *reason)
{
    for (size_t i = 0; i < sizeof (known) / sizeof (known[0]); i++)
        if (!strncmp (reason, known[i].reason, strlen (known[i].reason)))
            return known[i].words;
    return NULL;
}

static bool is_begin (const struct waiting *w)
{
    return w->reason && !strcmp (w->reason, "BeginTime");
}

int64_t waiting_start (const struct waiting *w, int64_t now)
{
    int64_t at = w->expected_at;

    if ((at || is_begin (w)) && at < w->begins_at)
        at = w->begins_at;
    return at < now ? 0 : at;
}

static void put_clock (int64_t at, bool seconds, char *buf, size_t size)
{
    time_t t = (time_t)at;
    struct tm tm;

    buf[0] = '\0';
    if (localtime_r (&t, &tm))
        strftime (buf, size, seconds ? "%H:%M:%S" : "%H:%M", &tm);
}

void waiting_why (const struct waiting *w, char *buf, size_t size)
{
    const char *reason = w->reason ? w->reason : "";
    const char *words = words_of (reason);
    char when[16];

    if (w->put_back && is_begin (w) && w->begins_at) {
        put_clock (w->begins_at, true, when, sizeof (when));
        snprintf (buf, size, "put back, Slurm holds it until %s (BeginTime)",
                  when);
    } else if (words)
        snprintf (buf, size, "%s (%s)", words, reason);
    else
        snprintf (buf, size, "%s", reason);
}

/* "in 3 h 10 min"; what is within a minute is a minute. */
static void put_distance (int64_t seconds, char *buf, size_t size)
{
    long long minutes = (seconds + 59) / 60;

    minutes = minutes > 0 ? minutes : 1;
    if (minutes < 60)
        snprintf (buf, size, "in %lld min", minutes);
    else if (minutes < 24 * 60)
        snprintf (buf, size, "in %lld h %lld min", minutes / 60, minutes % 60);
    else
        snprintf (buf, size, "in %lld d %lld h", minutes / (24 * 60),
                  minutes / 60 % 24);
}

void waiting_text (const struct waiting *w, int64_t now, char *buf, size_t size)
{
    int64_t at = waiting_start (w, now);
    char when[16], distance[32];
    size_t used;

    waiting_why (w, buf, size);
    /* Until when it is held has been said. */
    if (!at || (w->put_back && is_begin (w) && at == w->begins_at))
        return;
    used = strlen (buf);
    put_clock (at, false, when, sizeof (when));
    put_distance (at - now, distance, sizeof (distance));
    snprintf (buf + used, size - used, "%sexpected at %s, %s", used ? "; " : "",
              when, distance);
}
