#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# style.sh - what a reviewer should not have to look for: formatting, shell
# errors, banned functions, first lines. Last line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0

result ()
{
    if [ -z "$2" ]; then
        passed=$((passed + 1))
        echo "ok - $1"
    else
        failed=$((failed + 1))
        printf 'not ok - %s\n%s\n' "$1" "$(echo "$2" | head -n 20)"
    fi
}

mapfile -t c_files < <(find spank launcher libtrain kernels tests -name '*.[ch]' -o -name '*.cu' -o -name '*.inc' | sort)
mapfile -t sh_files < <({ grep -rlE --exclude-dir=seeds '^#!/bin/(ba)?sh' etc tests .ci 2>/dev/null; find tests -name '*.bash'; } | grep -vE '^etc/build-aux/(config|install|ltmain|missing|depcomp|compile|test-driver|tap-driver|ar-lib)' | sort -u)

# Pinned: another clang-format formats otherwise.
version=$(clang-format --version 2>/dev/null | sed -nE 's/.*version ([0-9]+)\..*/\1/p')
if [ "$version" = 14 ]; then
    result "clang-format 14" "$(clang-format --style=file:etc/clang-format --dry-run --Werror "${c_files[@]}" 2>&1 | grep -E 'error:' | sed 's/: error: .*//' )"
else
    result "clang-format 14" "clang-format is '${version:-missing}', not 14 (Debian 12: clang-format)"
fi
if command -v shellcheck >/dev/null; then
    result "shellcheck" "$(shellcheck -S warning -x "${sh_files[@]}" 2>&1)"
else
    result "shellcheck" "shellcheck is missing"
fi
mapfile -t pages < <(find spank launcher libtrain -name '*.[1-8]' | sort)
if command -v mandoc >/dev/null; then
    result "man pages" "$(mandoc -Tlint -W warning "${pages[@]}" 2>&1)"
else
    result "man pages" "mandoc is missing"
fi
result "banned functions" "$(grep -nE '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|system|popen|tmpnam|mktemp|alloca) \(' "${c_files[@]}")"
result "SPDX first" "$(comm -23 <(printf '%s\n' "${c_files[@]}" "${sh_files[@]}" | sort) \
    <(awk 'FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { print FILENAME; nextfile } FNR == 2 { nextfile }' "${c_files[@]}" "${sh_files[@]}" | sort))"
result "scripts say who runs them" "$(find etc tests .ci -name '*.sh' -not -path 'etc/build-aux/*' -exec sh -c 'head -n 1 "$1" | grep -qE "^#!/bin/(ba)?sh" || echo "$1"' sh {} \;)"
# In a folder that all may write, root would write where another's link points.
result "no names in /tmp that others can guess" "$(grep -nE '>+ *"?/tmp/' "${sh_files[@]}")"
result "no tabs, no trailing space in C" "$(grep -nP '\t|[ ]+$' "${c_files[@]}")"
result "no file past 600 lines" "$(wc -l "${c_files[@]}" | awk '$2 != "total" && $1 > 600')"
result "libplan is pure" "$(grep -nE '#include <(slurm/|pmix|cuda|mpi)' launcher/plan/*.[ch])"
result "kernels know no libtrain" "$(grep -nE '#include [<\"](train|libtrain)' kernels/*.[ch] 2>/dev/null)"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
