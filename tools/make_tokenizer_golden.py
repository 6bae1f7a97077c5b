#!/usr/bin/env python3
"""Makes testdata/text/tokenizer_golden.jsonl and tokenizer_small.json: what PyPI's `tokenizers` gives for fixed texts;
and utf8_golden.jsonl: what Python makes of bytes that are not UTF-8 (errors="replace").

Usage: pip install tokenizers; python3 tools/make_tokenizer_golden.py   (from the root of the source tree)

Two tokenizers: the bundled model's ("mini"), and "small", written here, which has what the bundled one lacks: merges as
pairs and ignore_merges, combining marks inside words (Qwen3.8's pattern), added tokens of every kind. A line holds
`text`, its ids when added tokens are recognised (`ids`), and when text that looks like special ones is not (`plain`).
"""
import json
import random
import tokenizers

MINI = "models/flash-next-mini/tokenizer.json"
SMALL = "testdata/text/tokenizer_small.json"
OUT = "testdata/text/tokenizer_golden.jsonl"
UTF8_OUT = "testdata/text/utf8_golden.jsonl"
QWEN38 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def make_small():
    mini = json.load(open(MINI))
    pairs = [m if isinstance(m, list) else m.split(" ") for m in mini["model"]["merges"]]
    vocab = {}
    for token, _ in sorted(mini["model"]["vocab"].items(), key=lambda item: item[1]):
        if len(token) == 1:
            vocab[token] = len(vocab)
    merges = []
    for left, right in pairs[:300]:
        if left in vocab and right in vocab:
            vocab.setdefault(left + right, len(vocab))
            merges.append([left, right])
    vocab["\u0120zygote"] = len(vocab)  # No merges lead here: only ignore_merges finds it.
    added = []

    def add(content, **flags):
        entry = {"id": len(vocab) + len(added), "content": content, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False, "special": True}
        added.append({**entry, **flags})

    add("<|im_start|>")
    add("<|im_end|>")
    add("<|im_end|>!")  # Longer than another that begins the same.
    add("<left>", lstrip=True)
    add("<right>", rstrip=True)
    add("<both>", lstrip=True, rstrip=True)
    add("word", single_word=True)
    add("caf\u00e9", normalized=True, special=False)
    add("\u212bngstrom", normalized=True, special=False)
    pre = [{"type": "Split", "pattern": {"Regex": QWEN38}, "behavior": "Isolated", "invert": False},
           {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
             "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
             "vocab": vocab, "merges": merges}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
             "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre},
             "post_processor": byte_level, "decoder": byte_level, "model": model}
    json.dump(whole, open(SMALL, "w", encoding="utf-8"), ensure_ascii=False, separators=(",", ":"))


FIXED = [
    "", " ", "  ", "a", "Hello, world!", "I'm you'RE we'Ll it'\u017f", "don't  stop\n\n  now \t\r\n x", "1234567 3.14",
    "\u180e \u180ea\u00a0b\u2003c\u3000d\u0085e\u200bf\ufeffg\u2028h", "e\u0301\u0316 \u00e9 A\u030a \u212b \uac00 \u1100\u1161\u11a8",
    "\u0344\u0f73\u0f73 q\u0323\u0307 q\u0307\u0323", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u4f60\u597d\uff0c\u4e16\u754c \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f", "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|", "<|im_end|>!<|im_end|> !", "a <left> b <right> c <both> d", " \t<both>\n\n<left><right> ", "word words aword word",
    "\u00e9word word\u0301 word_ word- 1word", "caf\u00e9 cafe\u0301 \u00c5ngstrom \u212bngstrom A\u030angstrom", " zygote zygote", "the zygote",
    "a" * 300, " " * 300, "\n" * 50, "ab" * 200, " x" * 100, "\x00\x01\x7f", "def f(x):\n\treturn {x: [1, 2]}  # ok\r\n",
]


def texts(added):
    rng = random.Random(20)
    whole = list(FIXED)

    def part():
        kind = rng.randrange(11)
        if kind < 3:
            return "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 6)))
        if kind == 3:
            return rng.choice(["'s", "'T", "'re", "'LL", "n't"])
        if kind == 4:
            return rng.choice(" \t\n\r\x0b\x0c\x85\xa0\u180e\u2003\u2028\u3000\ufeff") * rng.randrange(1, 4)
        if kind == 5:
            return chr(rng.randrange(0xA0, 0x370))
        if kind == 6:
            return chr(rng.choice([rng.randrange(0x1E00, 0x2000), rng.randrange(0xAC00, 0xD7A4), rng.randrange(0x300, 0x330)]))
        if kind == 7:
            return chr(rng.choice([rng.randrange(0x4E00, 0x9FA6), rng.randrange(0x1F300, 0x1F600)]))
        if kind == 8:
            return rng.choice(added)
        if kind == 9:
            return rng.choice(added)[:rng.randrange(1, 12)]
        return rng.choice([" hello", "world", "function", "  ", "\r\n", " return", " the", str(rng.randrange(10 ** 6))])

    for _ in range(170):
        whole.append("".join(part() for _ in range(rng.randrange(1, 16))))
    return whole


def make_utf8():
    rng = random.Random(4)
    pieces = [b"a", "\u00e9".encode(), "\u20ac".encode(), "\U0001f600".encode(), b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80",
              b"\xf5\x80", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xe0\x80", b"\xf0\x80\x80", b"\x80", b"\xff", b"\xc3",
              b"\xef\xbf\xbd", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf8\x88\x80\x80\x80"]
    cases = [bytes([a, b]) for a in range(0x7E, 0x100, 3) for b in (0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC3)]
    cases += [b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 8))) for _ in range(250)]
    with open(UTF8_OUT, "w", encoding="utf-8") as out:
        for case in cases:
            line = {"hex": case.hex(), "text": case.decode("utf-8", errors="replace")}
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


def main():
    make_small()
    make_utf8()
    with open(OUT, "w", encoding="utf-8") as out:
        for name, path in (("mini", MINI), ("small", SMALL)):
            added = [entry["content"] for entry in json.load(open(path))["added_tokens"]]
            trusted = tokenizers.Tokenizer.from_file(path)
            plain = tokenizers.Tokenizer.from_file(path)
            plain.encode_special_tokens = True
            for text in texts(added):
                line = {"tokenizer": name, "text": text, "ids": trusted.encode(text, add_special_tokens=False).ids}
                if name == "mini":  # In "small" some added tokens are not special: those are recognised all the same.
                    line["plain"] = plain.encode(text, add_special_tokens=False).ids
                out.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n")
    print("tokenizers", tokenizers.__version__)


if __name__ == "__main__":
    main()
