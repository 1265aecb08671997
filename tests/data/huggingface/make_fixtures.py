"""Tokenizers for the tests of tokenizer.json, and comparison with Hugging Face's `tokenizers`.

Needs `pip install tokenizers==0.23.3`.

  make_fixtures.py                     trains the small tokenizers of this folder on the repository's text and writes what
                                       `tokenizers` makes of a few thousand strings (cases.jsonl of each)
  make_fixtures.py --compare PLAIT     encodes --count random strings (100,000 unless told) with each tokenizer, by `tokenizers`
                                       and by `plait data encode --json-lines`; exit status 1 if any differs
"""
import argparse
import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
CASES = 700
CASE_CHARACTERS = 16
VOCAB = 1000

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(pattern):
    """As Llama 3 and Qwen have it: their pattern first, then bytes."""
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def empty_tokenizer(name):
    model = models.BPE(ignore_merges=name == "llama3")
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif name == "llama3":
        tokenizer.pre_tokenizer = byte_level(LLAMA3)
    elif name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = byte_level(QWEN2)
    return tokenizer


def add_tokens(name, tokenizer):
    if name == "gpt2":
        # Every property of an added token, in a tokenizer that is otherwise plain.
        tokenizer.add_tokens([AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True),
                              AddedToken("<both>", lstrip=True, rstrip=True), AddedToken("word", single_word=True),
                              AddedToken("<|", normalized=False)])
    elif name == "llama3":
        tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", special=True) for name in
                                      ("begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id")])
        begin = tokenizer.token_to_id("<|begin_of_text|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                          special_tokens=[("<|begin_of_text|>", begin)])])
    elif name == "qwen2":
        tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", normalized=False, special=True) for name in
                                      ("endoftext", "im_start", "im_end")])
        tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("caf\u00e9", normalized=True)])


def texts():
    for pattern in ("src/**/*.h", "docs/*.md", "src/core/*.cpp"):
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_text()
    yield "Grüße, naïve café, Ελληνικά, русский текст, 你好，世界。 こんにちは 안녕하세요 हिन्दी العربية 🙂👍🏽👩‍👩‍👧 ½ ² ①" * 20


def make(name):
    tokenizer = empty_tokenizer(name)
    special = [AddedToken("<|endoftext|>", special=True, normalized=True)] if name == "gpt2" else []
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=special, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts(), trainer)
    add_tokens(name, tokenizer)
    document = json.loads(tokenizer.to_str())
    if name == "gpt2":
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]  # the older form
    (FOLDER / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")


def assigned():
    """Characters that every version of the libraries knows: those of Unicode 14 (as Python 3.11 has it)."""
    if unicodedata.unidata_version < "14":
        sys.exit("needs Python 3.11 or later, for Unicode 14")
    known = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    return [chr(c) for c in known if unicodedata.category(chr(c)) != "Cn" or c & 0xfffe == 0xfffe]


class Fuzz:
    def __init__(self, seed):
        self.random = random.Random(seed)
        everything = assigned()
        by_kind = {}
        for c in everything:
            by_kind.setdefault(unicodedata.category(c), []).append(c)
        # Each kind of character as often as any other, however few it has.
        self.kinds = list(by_kind.values())
        self.marks = by_kind["Mn"]
        self.composed = [c for c in everything if unicodedata.normalize("NFD", c) != c]
        self.words = " ".join(texts()).split(" ")
        self.added = ["<|endoftext|>", "<left>", "<right>", "<both>", "word", "<|", "<|begin_of_text|>", "<|end_of_text|>",
                      "<|eot_id|>", "<|im_start|>", "<tool_call>", "caf\u00e9", "cafe\u0301"]
        self.spaces = " \n\t\r\v\f\u00a0\u0085\u2003\u2028\u180e\u3000\u200b"
        self.endings = ["'s", "'S", "'t", "'re", "'VE", "'m", "'ll", "'d", "'\u017f", "\u2019s", "'", "''"]

    def piece(self):
        r = self.random
        pick = r.randrange(12)
        if pick == 0:
            return r.choice(self.spaces) * r.choice((1, 1, 1, 2, 3, 9))
        if pick == 1:
            return "".join(r.choice(self.spaces[:4]) for _ in range(r.randrange(1, 6)))
        if pick == 2:
            return "".join(r.choice("0123456789\u0663\u00bd\u2460") for _ in range(r.randrange(1, 9)))
        if pick == 3:
            return r.choice(self.endings)
        if pick == 4:
            return r.choice("aeinouAcg\u0391\u05d0") + "".join(r.choice(self.marks) for _ in range(r.randrange(1, 5)))
        if pick == 5:
            return unicodedata.normalize(r.choice(("NFD", "NFC")), "".join(r.choice(self.composed) for _ in range(3)))
        if pick == 6:
            return "".join(chr(r.randrange(0x4e00, 0x9fa5)) for _ in range(r.randrange(1, 5)))
        if pick == 7:
            return r.choice(("\U0001f642", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f"))
        if pick == 8:
            return r.choice(self.added)
        if pick == 9:
            return "".join(r.choice(r.choice(self.kinds)) for _ in range(r.randrange(1, 6)))
        if pick == 10:
            # Broken bytes, as Python reads them: cut characters, lone surrogates, overlong forms.
            broken = bytearray(r.choice(self.words).encode() + r.choice((b"\xed\xa0\x80", b"\xc0\xaf", b"\xff", b"\xf4\x90\x80")) +
                               r.choice(r.choice(self.kinds)).encode(errors="surrogatepass"))
            del broken[r.randrange(len(broken))]
            return bytes(broken)
        return " ".join(r.choice(self.words) for _ in range(r.randrange(1, 5)))

    def string(self):
        """Text, and the bytes that plait gets: they differ where the bytes are broken."""
        pieces = [self.piece() for _ in range(self.random.randrange(1, 9))]
        raw = b"".join(p if isinstance(p, bytes) else p.encode(errors="surrogatepass") for p in pieces)
        return raw.decode(errors="replace"), raw


def ids_of(tokenizer, text, special=False):
    return tokenizer.encode(text, add_special_tokens=special).ids


def write_cases(name):
    tokenizer = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
    fuzz = Fuzz(name)
    with (FOLDER / f"{name}.cases.jsonl").open("w") as file:
        for n in range(CASES):
            text = fuzz.string()[0] if n else ""
            start = fuzz.random.randrange(max(1, len(text) - CASE_CHARACTERS))
            text = text[start:start + CASE_CHARACTERS]
            file.write(json.dumps([text, ids_of(tokenizer, text)], ensure_ascii=False, separators=(",", ":")) + "\n")


def compare(plait, name, count, seed):
    tokenizer = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
    fuzz = Fuzz(f"{seed} {name}")
    strings = [fuzz.string() for _ in range(count)]
    lines = b"".join(json_string(raw) + b"\n" for _, raw in strings)
    wrong = 0
    for special in (False, True):
        command = [plait, "data", "encode", "--json-lines", "--tokenizer", FOLDER / f"{name}.json"]
        run = subprocess.run(command + ["--add-special-tokens"] * special, input=lines, stdout=subprocess.PIPE, check=True)
        results = run.stdout.splitlines()
        if len(results) != count:
            sys.exit(f"{name}: {len(results)} lines of {count}")
        for (text, _), result in zip(strings, results):
            right = ids_of(tokenizer, text, special)
            if json.loads(result) != right:
                wrong += 1
                if wrong <= 5:
                    print(f"{name}: {text!r}: plait {result.decode()}, tokenizers {right}", file=sys.stderr)
    print(f"{name}: {count} strings, with and without special tokens: {wrong} differ")
    return wrong


def json_string(raw):
    """A JSON string of bytes that need not be UTF-8."""
    escaped = bytearray(b'"')
    for byte in raw:
        escaped += b"\\u%04x" % byte if byte < 0x20 or byte in b'"\\' else bytes([byte])
    return bytes(escaped + b'"')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", metavar="PLAIT")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", default="1")
    arguments = parser.parse_args()
    names = ("gpt2", "llama3", "qwen2")
    if arguments.compare:
        print(f"tokenizers {tokenizers.__version__}")
        sys.exit(1 if sum([compare(arguments.compare, name, arguments.count, arguments.seed) for name in names]) else 0)
    for name in names:
        make(name)
        write_cases(name)


main()
