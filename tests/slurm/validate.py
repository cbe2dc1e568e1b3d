#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""validate.py SCHEMA_DIR [FILE...] - check JSON documents (or stdin) against
the schema that their "schema" key names: rv.run/1 is SCHEMA_DIR/rv.run-1.json.
"""
import json
import sys

import jsonschema


def check(schema_dir, name, text):
    document = json.loads(text)
    if next(iter(document)) != "schema":
        raise ValueError(f"{name}: the first key is not 'schema'")
    path = f"{schema_dir}/{document['schema'].replace('/', '-')}.json"
    with open(path, encoding="utf-8") as f:
        schema = json.load(f)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(document, schema)


def main():
    schema_dir, files = sys.argv[1], sys.argv[2:]
    for name in files:
        with open(name, encoding="utf-8") as f:
            text = f.read()
        try:
            check(schema_dir, name, text)
        except Exception:
            print(f"{name}: {text}", file=sys.stderr)
            raise
    if not files:
        check(schema_dir, "stdin", sys.stdin.read())


main()
