#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_job_header.sh - rv/job.h in C and C++ programs of others, and all of its
# calls in rv_job(3)
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$(cd "${top_builddir:?}" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0 bad=0

result() { # text, status
    n=$((n + 1))
    [ "$2" = 0 ] && echo "ok $n - $1" && return
    echo "not ok $n - $1"
    bad=1
}

# Every call once, alone: rank 0 of 1.
cat >"$dir/all.c" <<'Y'
#include <rv/job.h>

#include <stdio.h>
#include <string.h>

int main (int argc, char **argv)
{
    rv_job_options_t opts;
    rv_job_t *job = NULL;
    rv_job_error_t err;
    char buf[1024];
    uint16_t port;
    size_t len;
    int fd;

    (void)argv;
    memset (&opts, 0, sizeof (opts));
    opts.size = sizeof (opts);
    opts.boot = "single";
    if (rv_job_init (&opts, &job, &err) != RV_JOB_OK
        || rv_job_put (job, "k", "v", 2, &err) != RV_JOB_OK
        || rv_job_fence (job, 0, &err) != RV_JOB_OK
        || rv_job_barrier (job, 1000, &err) != RV_JOB_OK
        || rv_job_get (job, 0, "k", buf, sizeof (buf), &len, &err) != RV_JOB_OK
        || rv_job_address (job, buf, sizeof (buf), &err) != RV_JOB_OK
        || rv_job_reserve_port (job, &port, &fd, &err) != RV_JOB_OK)
        return 1;
    printf ("%u/%u %u/%u %u/%u %s%s %d\n", rv_job_rank (job),
            rv_job_size (job), rv_job_local_rank (job),
            rv_job_local_size (job), rv_job_node (job), rv_job_nodes (job),
            rv_job_boot (job), rv_job_boot_note (job),
            rv_job_id (job) == 0 && rv_job_step (job) == 0
                && rv_job_timeout_ms (job) == 600000);
    fflush (stdout);
    if (argc > 1)
        rv_job_abort (job, 7, NULL);
    rv_job_finalize (job);
    return 0;
}
Y
cp "$dir/all.c" "$dir/all.cc"
unset "${!SLURM_@}" "${!PMIX_@}" "${!RV_@}" NCCL_TIMEOUT
extra=()
if ${NM:-nm} -D "$build/.libs/librvjob.so" | grep -q __asan_; then
    extra=(-fsanitize=address -fsanitize=undefined)
fi

check() { # text, compiler and its language options
    local text=$1 rc
    shift
    "$@" -pedantic -Wall -Wextra -Werror ${extra[@]+"${extra[@]}"} \
        -I"$top/launcher" -o "$dir/all" -L"$build/.libs" -lrvjob \
        -Wl,-rpath,"$build/.libs"
    result "$text: builds" $?
    [ "$("$dir/all")" = "0/1 0/1 0/1 single 1" ]
    result "$text: runs alone" $?
    "$dir/all" end >/dev/null
    rc=$?
    [ "$rc" = 7 ]
    result "$text: abort ends it with its code" $?
}

read -r -a cc <<<"${CC:-cc}"
check "C99" "${cc[@]}" -std=c99 "$dir/all.c"
for cxx in "${CXX:-}" g++ clang++ c++ ''; do
    [ -n "$cxx" ] && command -v "${cxx%% *}" >/dev/null && break
done
if [ -n "$cxx" ]; then
    read -r -a cxx <<<"$cxx"
    check "C++11" "${cxx[@]}" -std=c++11 "$dir/all.cc"
    check "C++17" "${cxx[@]}" -std=c++17 "$dir/all.cc"
else
    echo "# no C++ compiler here"
fi

calls=$(grep -o '\brv_job_[a-z_]* (' "$top/launcher/rv/job.h" \
    | sed 's/ (//' | sort -u)
missing=$(for call in $calls; do
    grep -q "^\.BI \".*$call (" "$top/launcher/job/rv_job.3" \
        && grep -q "^\.BR $call ()" "$top/launcher/job/rv_job.3" \
        || echo "$call"
done)
[ -n "$calls" ] && [ -z "$missing" ]
result "rv_job(3) describes each call${missing:+, not: $missing}" $?
echo "1..$n"
exit $bad
