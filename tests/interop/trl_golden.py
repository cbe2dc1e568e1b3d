#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trl_golden.py OUT [WHEEL] - write tests/golden/trl.safetensors: inputs, and
what TRL's own code (trl_cases.py) makes of them, for tests/unit/test_grpo_trl.
Needs torch >= 2.6; nothing runs it unasked."""
import sys

from trl_cases import make, wheel, write

if __name__ == "__main__":
    write(sys.argv[1], *make(sys.argv[2] if len(sys.argv) > 2 else wheel(), 20261129))
