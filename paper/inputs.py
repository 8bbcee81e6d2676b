"""The data of the plan: found, and cut to what its recipe allows."""

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.files import fingerprints, owned
from bert.files.durable import replace_files
from bert.files.paths import parse_json, read_file, read_json_object
from paper.recipe import Recipe, Size

# What the sample texts and data lie beside.
ROOT = Path(__file__).parents[1]
GLUE = ("CoLA", "MRPC", "RTE", "SST-2", "STS-B")
# Files without a line of names above.
_WITHOUT_HEADER = ("CoLA",)
_BYTES_PER_TOKEN = 4.3
_TOKENS_PER_WORD = 1.4
_TOKENS_PER_QUESTION = 180
# A model sees this much of a text at most, in positions.
_POSITIONS = 128
# Table 7 is about this many layers.
_LAYERS = 4
# The files of a model that its scores depend on.
_CONFIGS = ("bert_config.json", "config.json")
_VOCABULARIES = ("vocab.txt", "tokenizer.json")
_CASINGS = ("tokenizer_config.json", "task.json")
_WEIGHTS = (".safetensors", ".index", ".h5", ".bin")
_SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings")


@dataclasses.dataclass(frozen=True)
class Part:
    """Files that a command reads as a folder, and how much is in them.

    Attributes:
      name: Such as `data:SST-2`.
      contents: By name, what a file holds, or a path that it is copied from.
      tokens: Of each file, about.
      examples: Of each file, where it has any.
      found: Examples of each that there are, uncut.
      folder: Where the files are, to be read there; None for a part that is written for the runs.
    """

    name: str
    contents: Mapping[str, bytes | str]
    tokens: Mapping[str, float] = dataclasses.field(default_factory=dict)
    examples: Mapping[str, int] = dataclasses.field(default_factory=dict)
    found: Mapping[str, int] = dataclasses.field(default_factory=dict)
    folder: str | None = None

    @property
    def digest(self) -> str:
        """Of what is in the files, and their names."""
        parts = [
            f"{name}:{fingerprints.of_bytes(content)}"
            if isinstance(content, bytes)
            else f"{name}:{fingerprints.of_files([content])}"
            for name, content in sorted(self.contents.items())
        ]
        return fingerprints.of_bytes("\n".join(parts).encode())

    def write(self, output_dir: str, folder: str) -> None:
        """Writes the files into a folder below --output_dir, as far as they are not there."""
        if self.folder is not None:
            return
        for name, content in self.contents.items():
            path = os.path.join(output_dir, folder, name)
            if os.path.exists(path):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            owned.claim(output_dir, f"{folder}/{name}")
            with replace_files([path]) as (file,):
                file.write(content if isinstance(content, bytes) else Path(content).read_bytes())


def spread(items: Sequence[bytes], most: int) -> list[bytes]:
    """Returns so many items at even distances, all where there are no more."""
    count = min(len(items), most)
    return [items[len(items) * place // count] for place in range(count)]


def _sample(name: str, flag: str) -> str:
    """Returns the path of a sample, which is read where the flag is not given.

    Raises:
      ValueError: where there is none, as of a project that was installed.
    """
    path = ROOT / name
    if not path.exists():
        raise ValueError(
            f"`--{flag}` must be given, for the samples lie in a clone of this project alone. "
            f"There is no {str(path)!r}."
        )
    return str(path)


def _require(folder: str, names: Sequence[str], flag: str) -> None:
    for name in names:
        if not os.path.isfile(os.path.join(folder, name)):
            raise ValueError(
                f"`--{flag}` must be a folder with {', '.join(names)}. Received {folder!r}, which "
                f"has no {name!r}."
            )


def _require_some(path: str, count: int, flag: str, what: str) -> None:
    if not count:
        raise ValueError(
            f"`--{flag}` must be a folder whose files all hold {what}. {path!r} has none. Fill it, "
            "or take it away."
        )


def read_glue(folder: str | None, recipe: Recipe) -> dict[str, Part]:
    """Returns by name the tasks of GLUE whose folders are there; without any, the sample's."""
    if folder is None:
        return {"remarks": _read_lines("remarks", _sample("sample/remarks", "glue_dir"), recipe)}
    found = [name for name in GLUE if os.path.isfile(os.path.join(folder, name, "train.tsv"))]
    if not found:
        raise ValueError(
            f"`--glue_dir` must be a folder with one of {', '.join(GLUE)}, each with train.tsv and "
            f"dev.tsv. Received {folder!r}, which has none."
        )
    return {name: _read_lines(name, os.path.join(folder, name), recipe) for name in found}


def _read_lines(name: str, folder: str, recipe: Recipe) -> Part:
    """Returns a task whose files have an example a line."""
    _require(folder, ("train.tsv", "dev.tsv"), "glue_dir")
    contents: dict[str, bytes | str] = {}
    tokens, examples, found = {}, {}, {}
    for split, most in (("train", recipe.glue_examples), ("dev", recipe.held_out)):
        lines = Path(folder, f"{split}.tsv").read_bytes().splitlines(keepends=True)
        head = 0 if name in _WITHOUT_HEADER else 1
        _require_some(
            os.path.join(folder, f"{split}.tsv"), len(lines[head:]), "glue_dir", "examples"
        )
        chosen = spread(lines[head:], most)
        contents[f"{split}.tsv"] = b"".join([*lines[:head], *chosen])
        tokens[split] = sum(map(len, chosen)) / _BYTES_PER_TOKEN
        examples[split], found[split] = len(chosen), len(lines) - head
    return Part(f"data:{name}", contents, tokens, examples, found)


def read_conll(folder: str | None, recipe: Recipe) -> Part:
    """Returns the sentences to tag."""
    folder = folder or _sample("sample/entities", "conll_dir")
    _require(folder, ("train.txt", "dev.txt", "test.txt"), "conll_dir")
    contents: dict[str, bytes | str] = {}
    tokens, examples, found = {}, {}, {}
    limits = {"train": recipe.examples, "dev": recipe.held_out, "test": recipe.held_out}
    for split, most in limits.items():
        lines = Path(folder, f"{split}.txt").read_bytes().splitlines()
        groups = itertools.groupby(lines, _is_word)
        sentences = [b"\n".join(group) for is_word, group in groups if is_word]
        _require_some(
            os.path.join(folder, f"{split}.txt"), len(sentences), "conll_dir", "sentences"
        )
        chosen = spread(sentences, most)
        contents[f"{split}.txt"] = b"".join(each + b"\n\n" for each in chosen)
        words = sum(each.count(b"\n") + 1 for each in chosen)
        tokens[split] = words * _TOKENS_PER_WORD
        examples[split], found[split] = len(chosen), len(sentences)
    return Part("data:CoNLL", contents, tokens, examples, found)


def _is_word(line: bytes) -> bool:
    return bool(line.strip()) and not line.startswith(b"-DOCSTART-")


def read_squad(folder: str | None, recipe: Recipe) -> Part:
    """Returns the questions about paragraphs."""
    folder = folder or _sample("sample/questions", "squad_dir")
    contents: dict[str, bytes | str] = {}
    tokens, examples, found = {}, {}, {}
    for split, most in (("train", recipe.questions), ("dev", recipe.held_out)):
        path = _find_squad(folder, split)
        values = parse_json(read_file(path))
        try:
            found[split] = len(_questions(values))
            cut = _cut_questions(values, most)
        except (KeyError, TypeError) as error:
            lost = error if isinstance(error, KeyError) else "list or object where one must be"
            raise ValueError(
                f"{path!r} must hold questions in SQuAD's JSON. It has no {lost}."
            ) from None
        _require_some(path, found[split], "squad_dir", "questions")
        contents[f"{split}.json"] = json.dumps(cut, ensure_ascii=False).encode()
        examples[split] = len(_questions(cut))
        tokens[split] = examples[split] * _TOKENS_PER_QUESTION
    return Part("data:SQuAD", contents, tokens, examples, found)


def _find_squad(folder: str, split: str) -> str:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    fits = [name for name in names if name.startswith(split) and name.endswith(".json")]
    # Of the two data sets, the one in which every question has an answer.
    fits = [name for name in fits if "v2" not in name]
    if not fits:
        raise ValueError(
            f"`--squad_dir` must be a folder with train*.json and dev*.json of SQuAD 1.1. Received "
            f"{folder!r}, which has no {split}*.json."
        )
    return os.path.join(folder, fits[0])


def _questions(values: Mapping[str, Any]) -> list[Any]:
    return [
        question
        for article in values["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def _cut_questions(values: Mapping[str, Any], most: int) -> dict[str, Any]:
    total = len(_questions(values))
    count = min(total, most)
    kept = {total * place // count for place in range(count)}
    articles, number = [], 0
    for article in values["data"]:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            numbered = list(enumerate(paragraph["qas"], start=number))
            number += len(numbered)
            if chosen := [question for place, question in numbered if place in kept]:
                paragraphs.append({**paragraph, "qas": chosen})
        if paragraphs:
            articles.append({**article, "paragraphs": paragraphs})
    return {**values, "data": articles}


def read_text(folder: str | None, recipe: Recipe) -> tuple[Part, Part]:
    """Returns the text to pre-train on, and a file of it that is held out.

    Raises:
      ValueError: where there are not two files, or one is empty.
    """
    if folder is None:
        paths = [
            _sample(name, "text_dir") for name in ("sample_text.txt", "sample/held_out_text.txt")
        ]
        return _text("text", paths[:1]), _text("held_out", paths[1:])
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.endswith(".txt")]
    paths = [path for path in paths if os.path.isfile(path)]
    if len(paths) < 2:
        raise ValueError(
            "`--text_dir` must be a folder with at least two .txt files, one of which is held out. "
            f"Received {folder!r}, which has {len(paths)}."
        )
    for path in paths:
        _require_some(path, os.path.getsize(path), "text_dir", "text")
    held_out = paths.pop(len(paths) // 2)
    return _text("text", _choose(paths, recipe.text_bytes)), _text("held_out", [held_out])


def _choose(paths: Sequence[str], most: int) -> list[str]:
    """Returns files at even distances, as many as about so many bytes are."""
    total = sum(map(os.path.getsize, paths))
    count = max(len(paths) * min(most, total) // total, 1)
    return [paths[len(paths) * place // count] for place in range(count)]


def _text(name: str, paths: Sequence[str]) -> Part:
    contents = {os.path.basename(path): path for path in paths}
    size = sum(map(os.path.getsize, paths))
    return Part(f"data:{name}", contents, {"train": size / _BYTES_PER_TOKEN})


def config_part(size: Size, vocab_size: int) -> Part:
    """Returns a model's bert_config.json.

    Without dropout, since no run sees its text more than twice. Initial weights stand to a model's
    width as those of BERT Base do; narrow models learned less with its 0.02 (docs/hour.md).
    """
    config = {
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": size.hidden,
        "initializer_range": round(0.02 * math.sqrt(768 / size.hidden), 4),
        "intermediate_size": 4 * size.hidden,
        "max_position_embeddings": _POSITIONS,
        "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers,
        "type_vocab_size": 2,
        "vocab_size": vocab_size,
    }
    content = json.dumps(config, indent=2) + "\n"
    return Part(f"data:{size.name}", {"bert_config.json": content.encode()})


def read_weights(folder: str) -> tuple[Part, Size]:
    """Returns the files of a model that was trained elsewhere, which stay where they are.

    Raises:
      ValueError: where it is no folder of a model, or its texts must be shorter than ours.
    """
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    weights = [name for name in names if name.endswith(_WEIGHTS)]
    configs = [name for name in _CONFIGS if name in names]
    kinds = {
        "weights, such as model.safetensors": weights,
        " or ".join(_CONFIGS): configs,
        " or ".join(_VOCABULARIES): [name for name in _VOCABULARIES if name in names],
    }
    if missing := [kind for kind, found in kinds.items() if not found]:
        raise ValueError(
            "`--weights` must be a folder with weights, configuration and vocabulary of a BERT. "
            f"Received {folder!r}, which has no {missing[0]}."
        )
    config = read_json_object(os.path.join(folder, configs[0]))
    lowest = dict(zip(_SHAPE, (_LAYERS, 1, 1, _POSITIONS), strict=True))
    for key, least in lowest.items():
        if type(config.get(key)) is not int or config[key] < least:
            raise ValueError(
                f"`--weights` must be of a BERT with {key} of at least {least}. Received "
                f"{folder!r}, whose {configs[0]} has {config.get(key)!r}."
            )
    layers, hidden, heads, _ = (config[key] for key in _SHAPE)
    described = [name for name in (*_CONFIGS, *_VOCABULARIES, *_CASINGS) if name in names]
    contents = {name: os.path.join(folder, name) for name in (*weights, *described)}
    part = Part("data:weights", contents, folder=os.path.abspath(folder))
    return part, Size(layers, hidden, heads)
