#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trl_check.py BUILD [WHEEL] - GRPO beside TRL's own code (trl_cases.py), on
numbers drawn anew each time; last line: N passed, N failed, N skipped."""
import os
import subprocess
import sys
import tempfile
import time

from trl_cases import VERSION, make, wheel, write


def main():
    tool = os.path.join(sys.argv[1], "tests", "interop", "grpo_tool")
    try:
        path = sys.argv[2] if len(sys.argv) > 2 else wheel()
    except subprocess.CalledProcessError:
        print(f"# trl {VERSION} cannot be fetched by pip")
        failed = "interop" in os.environ.get("RV_REQUIRE", "").split(",")
        print(f"0 passed, {int(failed)} failed, {int(not failed)} skipped")
        return failed
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in (1, int(time.time())):
            cases = os.path.join(folder, "cases.safetensors")
            write(cases, *make(path, seed))
            out = subprocess.run([tool, cases], capture_output=True, text=True)
            lines = out.stdout.splitlines()
            bad = [x for x in lines if x.startswith("not ok")]
            for x in bad:
                print(x)
            print(f"# seed {seed}: {len(lines) - len(bad)} of {len(lines)} agree")
            passed += len(lines) - len(bad)
            failed += len(bad) or out.returncode != 0
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
