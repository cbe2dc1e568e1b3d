#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - compare with independent implementations (PyTorch, numpy, the Python
# packages safetensors and tokenizers). Every *_torch.py and *_check.py here is
# run; each ends in "N passed, N failed, N skipped". Last line: the sum.
# They get the build folder as their one argument.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${top_builddir:-$here/../../build}
venv=$build/venv
passed=0 failed=0 skipped=0

without () # without REASON - the hardware or package is not there
{
    echo "interop: $1" >&2
    case ,${RV_REQUIRE:-}, in
        *,interop,*) echo "0 passed, 1 failed, 0 skipped"; exit 1 ;;
        *) echo "0 passed, 0 failed, 1 skipped"; exit 0 ;;
    esac
}

[ -x /usr/bin/python3 ] || without "no /usr/bin/python3 (Debian: python3)"
/usr/bin/python3 -c 'import torch, numpy' 2>/dev/null \
    || without "python3 has no torch or numpy (Debian: python3-torch python3-numpy)"
if ! "$venv/bin/python3" -c 'import safetensors, tokenizers' 2>/dev/null; then
    { /usr/bin/python3 -m venv --system-site-packages "$venv" \
        && timeout 600 "$venv/bin/pip" install -q --disable-pip-version-check safetensors tokenizers; } >&2 \
        || without "the Python packages safetensors and tokenizers cannot be installed into $venv"
fi
for script in "$here"/*_torch.py "$here"/*_check.py; do
    [ -e "$script" ] || continue
    echo "# $(basename "$script")"
    out=$(nice bash "$here/../../etc/build-aux/deadline" 900 "$venv/bin/python3" "$script" "$build" 2>&1)
    rc=$?
    echo "$out"
    read -r p f s < <(echo "$out" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' | tail -n 1)
    if [ -z "${p:-}" ] || { [ $rc != 0 ] && [ "$f" = 0 ]; }; then
        echo "# $(basename "$script") ended with status $rc and no sum of its own"
        p=0 f=1 s=0
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    unset p f s
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
