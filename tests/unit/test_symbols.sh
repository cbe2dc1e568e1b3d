#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_symbols.sh - libraries export their prefix, and the plugin needs no more
# than libc and the Slurm process that loads it
#
# The build names the libraries that it makes; each of them must be there. A
# build without Slurm has no plugin to look at.
set -u
build=${top_builddir:?}
NM=${NM:-nm}
n=0 bad=0

result() { # ok|not ok, text
    n=$((n + 1))
    echo "$1 $n - $2"
    [ "$1" = ok ] || bad=1
}

fault() { # text, lines
    while read -r line; do echo "# $line"; done <<<"$2"
    result "not ok" "$1"
}

exported() { "$NM" -D --defined-only "$1" | awk '{sub (/@.*/, "", $NF); print $NF}'; }
# Strong ones that libc does not define. A sanitizer takes the version off those
# that it intercepts, so libc itself is asked.
undefined() {
    local libc
    libc=$(ldd "$1" | awk '$1 ~ /^libc\.so/ {print $3}')
    "$NM" -D --undefined-only "$1" | awk '$1 == "U" {print $2}' \
        | grep -v '@.*GLIBC' | sort -u \
        | comm -23 - <(exported "${libc:?}" | sort -u)
}

# check_exports FILE REGEX [MUST...] - all match, and the named ones are there
check_exports() {
    local file=$1 regex=$2 name others
    shift 2
    others=$(exported "$file" | grep -Ev "$regex")
    if [ -n "$others" ]; then
        fault "${file##*/} exports $regex alone" "$others"
    else
        result ok "${file##*/} exports $regex alone"
    fi
    for name; do
        if exported "$file" | grep -qx "$name"; then
            result ok "${file##*/} exports $name"
        else
            result "not ok" "${file##*/} exports $name"
        fi
    done
}

check_needed() { # FILE REGEX
    local others
    others=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' \
        | grep -Ev "$2")
    if [ -n "$others" ]; then
        fault "${1##*/} is linked with libc alone" "$others"
    else
        result ok "${1##*/} is linked with libc alone"
    fi
}

# What the plugin may ask of the process that loads it (NVIDIA/pyxis#95, #150;
# cea-hpc/auks#47: a symbol that is not there stops slurmd or a step). All are of
# slurm.h and spank.h, 22.05 to 24.11. A new one is added after a look at whether
# slurmd, slurmstepd, srun, sbatch and salloc have it.
plugin_may_need="
slurm_error slurm_free_ctl_conf slurm_free_job_info_msg
slurm_free_node_info_msg slurm_free_partition_info_msg
slurm_info slurm_init slurm_init_update_node_msg slurm_job_step_layout_free
slurm_job_step_layout_get slurm_list_iterator_create
slurm_list_iterator_destroy slurm_list_next slurm_load_ctl_conf
slurm_load_job slurm_load_node slurm_load_node_single slurm_load_partitions
slurm_pid2jobid slurm_strerror slurm_update_node
spank_context spank_get_item spank_getenv spank_option_register
spank_setenv spank_strerror spank_unsetenv
"

# check_allowed FILE NAME... - no strong symbol beyond libc's and NAME...
check_allowed() {
    local file=$1 others
    shift
    others=$(undefined "$file" | grep -Ev '^__(asan|ubsan|sanitizer)' | sort -u \
        | comm -23 - <(printf '%s\n' "$@" | sort -u))
    if [ -n "$others" ]; then
        fault "${file##*/} needs what is allowed alone" "$others"
    else
        result ok "${file##*/} needs what is allowed alone"
    fi
}

san='^(lib(asan|ubsan|tsan)|libclang_rt)'

check_plugin() {
    local so=$1
    check_exports "$so" \
        '^(plugin_(name|type|version)|spank_plugin_version|slurm_spank_[a-z_]+)$' \
        plugin_version spank_plugin_version slurm_spank_init \
        slurm_spank_init_post_opt slurm_spank_local_user_init \
        slurm_spank_task_init
    # shellcheck disable=SC2086 # words
    check_allowed "$so" $plugin_may_need
    # libm and the like are glibc too; sanitizers bring them
    check_needed "$so" "^(lib(c|m|dl|rt|pthread)\.so|ld-linux)|$san"
    if [ "$(readlink -f "$build/spank_rv.so")" = "$(readlink -f "$so")" ]; then
        result ok "spank_rv.so at the build root leads to it"
    else
        result "not ok" "spank_rv.so at the build root leads to it"
    fi
}

for la in ${built_libs?}; do
    name=$(basename "$la" .la)
    so=$build/$(dirname "$la")/.libs/$name.so
    if [ ! -e "$so" ]; then
        result "not ok" "$so was built"
        continue
    fi
    case $name in
    spank_rv) check_plugin "$so" ;;
    librvjob) check_exports "$so" '^rv_job_' rv_job_init ;;
    libtrain) check_exports "$so" '^train_' ;;
    *) result "not ok" "$name has a known prefix" ;;
    esac
done
[ "$n" -gt 0 ] || { echo "1..0 # SKIP this build has no library"; exit 0; }
echo "1..$n"
exit $bad
