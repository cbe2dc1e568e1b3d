#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_hardening.sh - what was built has what the hardening flags promise
#
# configure takes a flag where compiler and linker know it; each that it took
# must be seen in the files, so that a target with flags of its own cannot lose
# them unnoticed. --disable-hardening leaves nothing to look for.
set -u
build=${top_builddir:?}
n=0 bad=0

check () # TEXT COMMAND... - ok when the command succeeds
{
    local text=$1
    shift
    n=$((n + 1))
    if "$@"; then
        echo "ok $n - $text"
    else
        echo "not ok $n - $text"
        bad=1
    fi
}

# grep -q would leave readelf with a broken pipe, and pipefail is not set.
has () { "$1" "${@:4}" "$2" 2>/dev/null | grep -E "$3" >/dev/null; }
lacks () { ! has "$@"; }
took () { case " $hard_flags " in *" $1"*) ;; *) false ;; esac }

check_file () # NAME FILE
{
    took -fstack-protector && check "$1 guards its stack" \
        has nm "$2" ' U __stack_chk_fail' -D
    took -D_FORTIFY_SOURCE && check "$1 calls checked functions of libc" \
        has nm "$2" ' U __[a-z]+_chk(@|$)' -D
    took -Wl,-z,noexecstack && check "$1 has no executable stack" \
        lacks readelf "$2" 'GNU_STACK.* RWE' -lW
    took -Wl,-z,relro && check "$1 has read-only relocations" \
        has readelf "$2" GNU_RELRO -lW
    check "$1 has no writable code" lacks readelf "$2" 'LOAD.* RWE ' -lW
    check "$1 has no relocation in its text" lacks readelf "$2" TEXTREL -dW
}

check_program () # NAME
{
    local file=$build/$1
    check "$1 was built" test -x "$file"
    check_file "$1" "$file"
    check "$1 has no search path of its own" lacks readelf "$file" 'R(UN)?PATH' -dW
    took -Wl,-z,now && check "$1 binds at once" has readelf "$file" 'FLAGS.* NOW' -dW
    took -pie && check "$1 is position-independent" has readelf "$file" 'FLAGS_1.* PIE' -dW
    took -fcf-protection && [ "$(uname -m)" = x86_64 ] \
        && check "$1 marks where it may be entered" has objdump "$file" endbr64 -d --disassemble=main
}

check_lib () # NAME FILE
{
    check_file "$1" "$2"
    # The plugin has functions that only a client of Slurm can bind.
    if [ "$1" = spank_rv ]; then
        check "$1 binds when a function is called" lacks readelf "$2" 'FLAGS.* NOW' -dW
    else
        took -Wl,-z,now && check "$1 binds at once" has readelf "$2" 'FLAGS.* NOW' -dW
    fi
}

[ -n "${hard_flags// /}" ] || { echo "1..0 # SKIP configured with --disable-hardening"; exit 0; }
# make does not compile again because flags changed.
if [ -n "$(find "$build" -name '*.o' ! -newer "$build/config.status" ! -path '*/fuzz/*' -print -quit)" ]; then
    echo "1..0 # SKIP objects are older than the last configure; make clean"
    exit 0
fi
for p in ${built_programs?}; do check_program "$p"; done
for la in ${built_libs?}; do
    name=$(basename "$la" .la)
    check_lib "$name" "$build/$(dirname "$la")/.libs/$name.so"
done
echo "1..$n"
exit $bad
