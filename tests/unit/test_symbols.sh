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

check_undefined() { # FILE REGEX
    local others
    others=$(undefined "$1" | grep -Ev "$2")
    if [ -n "$others" ]; then
        fault "${1##*/} needs libc and $2 alone" "$others"
    else
        result ok "${1##*/} needs libc and $2 alone"
    fi
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

san='^(lib(asan|ubsan|tsan)|libclang_rt)'

check_plugin() {
    local so=$1
    check_exports "$so" \
        '^(plugin_(name|type|version)|spank_plugin_version|slurm_spank_[a-z_]+)$' \
        plugin_version spank_plugin_version slurm_spank_init \
        slurm_spank_init_post_opt slurm_spank_local_user_init \
        slurm_spank_task_init
    check_undefined "$so" '^(spank|slurm)_|^__(asan|ubsan|sanitizer)'
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
