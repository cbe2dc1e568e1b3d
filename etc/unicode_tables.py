#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unicode_tables.py - write libtrain/unicode_class.inc and unicode_nfc.inc from
the unicodedata of Python 3.11: python3 etc/unicode_tables.py libtrain

What Hugging Face's tokenizers (0.23) take for a letter or a number is Unicode
16's, and their normal form C is Unicode 9's; models were trained by them."""
import sys
import unicodedata as u

# Letters and numbers that came between Unicode 14.0 and 16.0.
NEW = (
    (0x1c89, 0x1c8a, 'L'), (0xa7cb, 0xa7cd, 'L'), (0xa7da, 0xa7dc, 'L'),
    (0x105c0, 0x105f3, 'L'), (0x10d40, 0x10d49, 'N'), (0x10d4a, 0x10d65, 'L'),
    (0x10d6f, 0x10d85, 'L'), (0x10ec2, 0x10ec4, 'L'), (0x1123f, 0x11240, 'L'),
    (0x11380, 0x11389, 'L'), (0x1138b, 0x1138b, 'L'), (0x1138e, 0x1138e, 'L'),
    (0x11390, 0x113b5, 'L'), (0x113b7, 0x113b7, 'L'), (0x113d1, 0x113d1, 'L'),
    (0x113d3, 0x113d3, 'L'), (0x116d0, 0x116e3, 'N'), (0x11bc0, 0x11be0, 'L'),
    (0x11bf0, 0x11bf9, 'N'), (0x11f02, 0x11f02, 'L'), (0x11f04, 0x11f10, 'L'),
    (0x11f12, 0x11f33, 'L'), (0x11f50, 0x11f59, 'N'), (0x1342f, 0x1342f, 'L'),
    (0x13441, 0x13446, 'L'), (0x13460, 0x143fa, 'L'), (0x16100, 0x1611d, 'L'),
    (0x16130, 0x16139, 'N'), (0x16d40, 0x16d6c, 'L'), (0x16d70, 0x16d79, 'N'),
    (0x18cff, 0x18cff, 'L'), (0x1b132, 0x1b132, 'L'), (0x1b155, 0x1b155, 'L'),
    (0x1ccf0, 0x1ccf9, 'N'), (0x1d2c0, 0x1d2d3, 'N'), (0x1df25, 0x1df2a, 'L'),
    (0x1e030, 0x1e06d, 'L'), (0x1e4d0, 0x1e4eb, 'L'), (0x1e4f0, 0x1e4f9, 'N'),
    (0x1e5d0, 0x1e5ed, 'L'), (0x1e5f0, 0x1e5f0, 'L'), (0x1e5f1, 0x1e5fa, 'N'),
    (0x2b739, 0x2b739, 'L'), (0x2ebf0, 0x2ee5d, 'L'), (0x31350, 0x323af, 'L'),
)
# Combining characters that came between Unicode 9.0 and 14.0, and what then has
# canonical parts: all stand alone.
LATE = (
    (0x7fd, 0x7fd), (0x898, 0x89f), (0x8ca, 0x8d3), (0x9fe, 0x9fe), (0xc3c, 0xc3c),
    (0xd3b, 0xd3c), (0xeba, 0xeba), (0x1715, 0x1715), (0x1abf, 0x1ace),
    (0x1df6, 0x1dfa), (0xa82c, 0xa82c), (0x10d24, 0x10d27), (0x10eab, 0x10eac),
    (0x10f46, 0x10f50), (0x10f82, 0x10f85), (0x11070, 0x11070), (0x1133b, 0x1133b),
    (0x1145e, 0x1145e), (0x11839, 0x1183a), (0x1193d, 0x1193e), (0x11943, 0x11943),
    (0x119e0, 0x119e0), (0x11a34, 0x11a34), (0x11a47, 0x11a47), (0x11a99, 0x11a99),
    (0x11d42, 0x11d42), (0x11d44, 0x11d45), (0x11d97, 0x11d97), (0x16ff0, 0x16ff1),
    (0x1e130, 0x1e136), (0x1e2ae, 0x1e2ae), (0x1e2ec, 0x1e2ef),
)
LATE_PARTS = (0x11938,)

HEAD = ("/* SPDX-License-Identifier: Apache-2.0\n * {} - {}\n"
        " * Made by etc/unicode_tables.py of Unicode {}{}; do not edit. */\n"
        "/* clang-format off */\n")


def kind(c):
    x = u.category(c)
    if x[0] in 'LN':
        return x[0]
    for first, last, k in NEW:
        if first <= ord(c) <= last:
            return k
    # White_Space of PropList.txt; isspace has four separators more
    if c.isspace() and c not in '\x1c\x1d\x1e\x1f':
        return 'S'
    return None


def combining(c):
    if any(first <= ord(c) <= last for first, last in LATE):
        return None
    return u.combining(c) or None


def ranges(of):
    out, first, last = [], 0, None
    for i in range(0x110000 + 1):
        v = of(chr(i)) if i < 0x110000 and not 0xd800 <= i < 0xe000 else None
        if v != last:
            if last:
                out.append((first, i - 1, last))
            first, last = i, v
    return out


def write(path, what, but, lists):
    name = path.rsplit('/', 1)[-1]
    with open(path, 'w') as f:
        f.write(HEAD.format(name, what, u.unidata_version, but))
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
          ' and those of 16.0',
          [('struct unicode_range class_ranges[]',
            [f'{{{a},{b},{names[k]}}},' for a, b, k in ranges(kind)])])
    parts, pairs = [], []
    for i in range(0x110000):
        d = u.decomposition(chr(i))
        if not d or d[0] == '<' or 0xac00 <= i < 0xd7a4 \
                or i in LATE_PARTS:
            continue
        d = [int(x, 16) for x in d.split()] + [0]
        back = d[1] and u.normalize('NFC', chr(d[0]) + chr(d[1])) == chr(i)
        parts.append(f'{{{i},{d[0]},{d[1]}}},')
        if back:
            pairs.append((d[1], d[0], i))
    write(f'{out}/unicode_nfc.inc', 'canonical parts and combining classes',
          ' less what came after 9.0',
          [('struct unicode_parts canonical[]', parts),
           ('struct unicode_pair pairs[]',
            [f'{{{b},{a},{c}}},' for b, a, c in sorted(pairs)]),
           ('struct unicode_range combining[]',
            [f'{{{a},{b},{k}}},' for a, b, k in
             ranges(combining)])])


main()
