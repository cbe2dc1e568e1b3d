#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# reward.py - a reward's program (rv-train-grpo(5), [reward NAME]): lines of JSON in,
# a line out to each. Here: 1 for the answer itself, 0.2 for any number.
#
#   [reward answer]
#   kind = program
#   program = python3 reward.py
import json
import sys

for line in sys.stdin:
    q = json.loads(line)  # id, prompt, completion and the row's fields
    text = q["completion"].strip()
    if "answer" not in q:
        reward = None  # nothing to say of it
    elif text == str(q["answer"]):
        reward = 1.0
    else:
        reward = 0.2 if text.lstrip("-").isdecimal() else 0.0
    print(json.dumps({"id": q["id"], "reward": reward}), flush=True)
