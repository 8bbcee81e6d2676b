"""Holds tokenizers to those of transformers, with files of both."""

import itertools
import json
import random

import pytest
from peers import ROOT, work

import tokenization
from bert.weights import tokenizers
from bert.weights.folder import ModelFolder

TEXTS = ["The old man, and é!", "THE DOOR opens [MASK] 中文 x", "unaffable don't   stop\t..."]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_texts_have_the_same_ids(tmp_path, do_lower_case):
    """With the files that are written here, and with those that transformers makes of them."""
    vocab = (ROOT / "sample/vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(vocab)
    values = tokenizers.tokenizer_config(do_lower_case, 64)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    outputs = tmp_path / "ids.json"
    job = {"kind": "tokenize", "folder": str(tmp_path), "texts": TEXTS, "outputs": str(outputs)}
    work(tmp_path, [job])
    expected = json.loads(outputs.read_text(encoding="utf-8"))
    for path in (tmp_path / "vocab.txt", tmp_path / "ids/tokenizer.json"):
        tokenizer = tokenization.FullTokenizer(str(path), do_lower_case)
        mask = tokenizer.vocab["[MASK]"]
        cls, sep = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
        for text, ids in zip(TEXTS, expected, strict=True):
            parts = [tokenizer.tokenize_to_ids(part) for part in text.split("[MASK]")]
            ours = [*parts[0], *(i for part in parts[1:] for i in (mask, *part))]
            assert [cls, *ours, sep] == ids, text


def random_calls(count):
    rng = random.Random(5)
    words = [*" ".join(TEXTS).split(), "[SEP]", "and[MASK]x", "", "the", "was"]
    calls = []
    for _ in range(count):
        names = ["text", "text_pair"][: rng.randrange(1, 3)]
        texts = {
            n: [" ".join(rng.choices(words, k=rng.randrange(9))) for _ in "123"] for n in names
        }
        cut = rng.choice([True, "longest_first", "only_first", "only_second"][: 2 + len(names)])
        padding = rng.choice([True, "longest", "max_length"])
        calls.append(
            {**texts, "max_length": rng.randrange(5, 16), "truncation": cut, "padding": padding}
        )
    return calls


def test_calls_of_tokenizers_have_the_same_values(tmp_path):
    """Ids, masks and segments, of texts and pairs, cut and padded in every way; and texts again."""
    (tmp_path / "vocab.txt").write_bytes((ROOT / "sample/vocab.txt").read_bytes())
    values = tokenizers.tokenizer_config(True, 64)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    outputs = tmp_path / "calls.out"
    calls = random_calls(400)
    work(
        tmp_path,
        [{"kind": "call", "folder": str(tmp_path), "calls": calls, "outputs": str(outputs)}],
    )
    expected = json.loads(outputs.read_text(encoding="utf-8"))
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    assert 50 < expected.count(None) < 150
    for call, theirs in zip(calls, expected, strict=True):
        texts, pairs = call.pop("text"), call.pop("text_pair", None)
        if theirs is None:
            with pytest.raises(ValueError, match="must fit"):
                tokenizer(texts, pairs, **call)
            continue
        ours = tokenizer(texts, pairs, **call)
        assert {
            "input_ids": ours["input_ids"].tolist(),
            "attention_mask": ours["input_mask"].tolist(),
            "token_type_ids": ours["segment_ids"].tolist(),
            "decoded": [
                tokenizer.decode(row, skip_special_tokens=skip)
                for row in ours["input_ids"]
                for skip in (False, True)
            ],
        } == theirs, (texts, pairs, call)


CONTENTS = ["<e1>", "</e1>", "foo", "Foo", "ab", "abc", "\xc9a", "\u4e2d\u6587", "a b"]
# Of what both decide alike: `tokenizers` has an older Unicode, and no final sigma.
CHARACTERS = (
    "abcABCxy 019\t\n\r\x00\x1f\xa0\xad\u200b\u200d\u2028\u3000\ufeff\ufffd,.;:'\"_-#[]$^`~<>=+|"
    "\xe9\xc9\xf1\xdf\u1e9e\u0130\u0131\u0301\u0323\u0345\u0416\u044f\u03b1\u0391\u4e2d\u6587\uf900"
    "\U00020000\U0002f800\u3042\ud55c\u1e69\u09cb\u2019\u201c\xb7\u24b6\u2163\u203f\u2260"
)
WAYS = list(itertools.product([True, False], [None, True, False], [True, False]))


def random_texts(count):
    rng = random.Random(5)
    parts = [*CONTENTS, *map(str.upper, CONTENTS), "[MASK]", "[SEP]", "[UNK]", *CHARACTERS]
    weights = [4] * (len(parts) - len(CHARACTERS)) + [1] * len(CHARACTERS)
    return ["".join(rng.choices(parts, weights, k=rng.randrange(12))) for _ in range(count)]


def test_random_texts_have_the_same_ids_in_every_way(tmp_path):
    """With all settings of a tokenizer, and added tokens of all attributes."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS, "\u8c48", "\xe9t"]
    tokens += ["##" + token for token in tokens[5:]]
    tokens = [token for token in dict.fromkeys(tokens) if token.split() == [token]]
    texts = random_texts(1000)
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    jobs, folders = [], []
    for number, (lower, strips, chinese) in enumerate(WAYS):
        rng = random.Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        values = tokenizers.tokenizer_config(lower, 64)
        values |= {"strip_accents": strips, "tokenize_chinese_chars": chinese}
        (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
        # Of several that are the same once they are cleaned, `tokenizers` takes any.
        contents = rng.sample([each for each in CONTENTS if each != "Foo"], 5)
        added = [
            {"content": content, **{name: rng.random() < 0.4 for name in names}}
            for content in contents
        ]
        job = {"kind": "tokenize", "folder": str(folder), "texts": texts, "added": added}
        jobs.append({**job, "outputs": str(folder / "ids.json")})
        folders.append(folder)
    work(tmp_path, jobs)
    for folder, (lower, *_) in zip(folders, WAYS, strict=True):
        expected = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
        # What this version of transformers saves.
        saved = ModelFolder(str(folder / "ids"))
        tokenizer = tokenizers.make(saved.find("vocab_file"), lower, saved.tokenizer_options)
        cls, sep = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
        for text, ids in zip(texts, expected, strict=True):
            assert [cls, *tokenizer.tokenize_to_ids(text), sep] == ids, (folder.name, text)
