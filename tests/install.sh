#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# install.sh - `make install` into an empty prefix gives a usable package: every
# promised file, symbols under their prefixes alone, README's samples that
# compile by pkg-config and run, and an uninstall that leaves nothing.
# Last line: N passed, N failed, N skipped.
set -u
src=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
prefix=$work/prefix
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check () # check NAME CMD... - CMD succeeds
{
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "ok - $name"
    else
        failed=$((failed + 1))
        printf 'not ok - %s\n%s\n' "$name" "$(echo "$out" | head -n 20)"
    fi
}

there () { test -e "$prefix/$1"; }
prints () { local want=$1; shift; "$@" 2>&1 | grep -qE -- "$want"; }
exports_only () # exports_only LIB REGEX - and at least one such symbol
{
    local all
    all=$(nm -D --defined-only "$1" | awk '$2 ~ /[TDBRV]/ {print $3}' | sed 's/@.*//')
    ! echo "$all" | grep -vE "$2" && echo "$all" | grep -qE "$2"
}

# The configured prefix is compiled in; a staged prefix would not find itself,
# so the package is configured for the prefix it is tested in.
mkdir -p "$work/build"
cd "$work/build" || exit 1
# shellcheck disable=SC2086 # words, as etc/quickstart takes them
"$src/configure" -C ${CONFIGURE_FLAGS:-} --prefix="$prefix" --sysconfdir="$prefix/etc" >configure.log 2>&1 \
    || { tail -n 20 configure.log; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
check "make" make -s -j"$(nproc)"
check "make install" make -s install
for f in bin/rv bin/rv-exec bin/rv-train lib/slurm/spank_rv.so lib/librvjob.so.0 \
    lib/libtrain.so.0 include/rv/job.h include/train.h include/train/group.h \
    lib/pkgconfig/rvjob.pc lib/pkgconfig/train.pc share/man/man1/rv.1 share/man/man1/rv-run.1 share/man/man1/rv-env.1 share/man/man1/rv-up.1 \
    share/man/man1/rv-train.1 share/man/man8/rv-spank.8 \
    share/man/man5/rv.conf.5 etc/rv/rv.conf share/doc/rv/plugstack.conf.example; do
    check "installs $f" there "$f"
done
check "plugin exports its hooks alone" exports_only "$prefix/lib/slurm/spank_rv.so" '^(plugin_|spank_plugin|slurm_spank_)'
check "librvjob exports rv_job_ alone" exports_only "$prefix/lib/librvjob.so" '^rv_job_'
check "libtrain exports train_ alone" exports_only "$prefix/lib/libtrain.so" '^train_'
for p in rv rv-exec rv-train; do
    check "$p --version" prints '^rv.* 0\.' "$prefix/bin/$p" --version
    for o in --version --help; do
        check "$p $o fails on a full disk" bash -c "! '$prefix/bin/$p' $o >/dev/full"
        check "and says why" bash -c "'$prefix/bin/$p' $o 2>&1 >/dev/full | grep -q '^rv.*: cannot write to stdout: '"
    done
done
check "an rv.conf that is there survives install" bash -c \
    "mkdir -p '$prefix/etc/rv' && echo '# mine' >'$prefix/etc/rv/rv.conf' && make -s install && grep -qx '# mine' '$prefix/etc/rv/rv.conf'"

# An optional part asked for in a folder that lacks it must not come from the
# system instead; one that lies there is taken from there.
asks () # asks WANTED-LINE CONFIGURE... - configure's words, by the cache of the build
{
    local want=$1 out
    shift
    mkdir -p "$work/asks" && cd "$work/asks" || return
    grep -vE 'ac_cv_(env|path|header|lib|search)_' "$work/build/config.cache" >config.cache
    out=$("$src/configure" -C "$@" 2>&1)
    echo "$out" | grep -qE -- "$want" || { echo "$out" | tail -n 20; false; }
}
none=$work/none there=$work/there arch=$(gcc -print-multiarch)
mkdir -p "$none/include" "$none/lib" "$there/include" "$there/lib"
for p in slurm pmix cuda nccl mpi cblas; do
    check "--with-$p=DIR that lacks it is an error" asks "^configure: error: --with-$p=$none" "--with-$p=$none"
done
ln -s /usr/include/slurm "$there/include/slurm"
check "--with-slurm=DIR without the library is an error" asks "^configure: error: --with-slurm=$there: no library" "--with-slurm=$there"
ln -s "/usr/lib/$arch/libslurm.so" "$there/lib/libslurm.so"
check "--with-slurm=DIR takes what lies there" asks '^  slurm +yes \(' "--with-slurm=$there" --without-cuda

# README's C samples: each ```c block is a whole program; the word after names
# its pkg-config modules ("```c rvjob", "```c train").
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
awk -v dir="$work" '/^```c /{n++; mods = $2; file = dir "/sample" n ".c"; print mods > (dir "/sample" n ".mods"); on = 1; next}
    /^```/{on = 0} on {print > file}' "$src/README.md"
samples=0
for c in "$work"/sample*.c; do
    [ -e "$c" ] || continue
    samples=$((samples + 1))
    # shellcheck disable=SC2046
    check "README sample $samples compiles" ${CC:-cc} -Wall -Wextra -Werror -o "${c%.c}" "$c" $(pkg-config --cflags --libs $(cat "${c%.c}.mods"))
    check "README sample $samples runs alone" timeout 30 "${c%.c}"
done
check "README has samples" test "$samples" -ge 2
# The installed examples of libtrain, each with what it needs to run alone.
for example in "verified_copy" "collective_deadline" "read_safetensors $src/tests/golden/hf-llama.safetensors"; do
    name=${example%% *}
    # shellcheck disable=SC2046
    check "example $name compiles" ${CC:-cc} -Wall -Wextra -Werror -o "$work/$name" "$prefix/share/doc/rv/examples/$name.c" $(pkg-config --cflags --libs train) -lm
    # shellcheck disable=SC2086
    check "example $name runs alone" timeout 30 "$work"/$example
done
check "make uninstall" make -s uninstall
check "uninstall leaves what an administrator wrote, alone" \
    bash -c "find '$prefix' ! -type d | grep -vx '$prefix/etc/rv/rv.conf' | grep . && exit 1; test -e '$prefix/etc/rv/rv.conf'"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
