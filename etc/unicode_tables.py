#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unicode_tables.py - write libtrain/unicode_class.inc and unicode_nfc.inc from
Python's unicodedata: python3 etc/unicode_tables.py libtrain"""
import sys
import unicodedata as u

HEAD = ("/* SPDX-License-Identifier: Apache-2.0\n * {} - {}\n"
        " * Made by etc/unicode_tables.py of Unicode {}; do not edit. */\n"
        "/* clang-format off */\n")


def kind(c):
    x = u.category(c)
    if x[0] in 'LN':
        return x[0]
    # White_Space of PropList.txt; isspace has four separators more
    if c.isspace() and c not in '\x1c\x1d\x1e\x1f':
        return 'S'
    return None


def ranges(of):
    out, first, last = [], 0, None
    for i in range(0x110000 + 1):
        v = of(chr(i)) if i < 0x110000 and not 0xd800 <= i < 0xe000 else None
        if v != last:
            if last:
                out.append((first, i - 1, last))
            first, last = i, v
    return out


def write(path, what, lists):
    name = path.rsplit('/', 1)[-1]
    with open(path, 'w') as f:
        f.write(HEAD.format(name, what, u.unidata_version))
        for head, rows in lists:
            f.write(f'static const {head} = {{\n')
            for i in range(0, len(rows), 6):
                f.write(' '.join(rows[i:i + 6]) + '\n')
            f.write('};\n')
        f.write('/* clang-format on */\n')


def main():
    out = sys.argv[1]
    names = {'L': 'UNICODE_LETTER', 'N': 'UNICODE_NUMBER', 'S': 'UNICODE_SPACE'}
    write(f'{out}/unicode_class.inc', 'letters, numbers and white space',
          [('struct unicode_range class_ranges[]',
            [f'{{{a},{b},{names[k]}}},' for a, b, k in ranges(kind)])])
    parts, pairs = [], []
    for i in range(0x110000):
        d = u.decomposition(chr(i))
        if not d or d[0] == '<' or 0xac00 <= i < 0xd7a4:
            continue
        d = [int(x, 16) for x in d.split()] + [0]
        back = d[1] and u.normalize('NFC', chr(d[0]) + chr(d[1])) == chr(i)
        parts.append(f'{{{i},{d[0]},{d[1]}}},')
        if back:
            pairs.append((d[1], d[0], i))
    write(f'{out}/unicode_nfc.inc', 'canonical parts and combining classes',
          [('struct unicode_parts canonical[]', parts),
           ('struct unicode_pair pairs[]',
            [f'{{{b},{a},{c}}},' for b, a, c in sorted(pairs)]),
           ('struct unicode_range combining[]',
            [f'{{{a},{b},{k}}},' for a, b, k in
             ranges(lambda c: u.combining(c) or None)])])


main()
