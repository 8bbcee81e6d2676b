"""A model as a server offers it: its name, its version, and what can be asked of it."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from bert.files.paths import list_folder
from bert.files.weight_names import is_of_model
from bert.models.exported import ExportedModel
from bert.models.fine_tuned import LoadedModel
from bert.models.pretrained import PretrainedModel, Score
from bert.models.vectors import Encoding, find_encoder
from bert.tasks.task import LISTS, Row
from tokenization import FullTokenizer

DEFAULT = "serving_default"

Check = Callable[[], None]
Answer = Callable[[Sequence[Row], Check], Sequence[Mapping[str, Any]]]
Model = LoadedModel | ExportedModel | PretrainedModel

_TEXTS = ("text_a", "text_b")


@dataclasses.dataclass(frozen=True)
class Signature:
    """Something that can be asked.

    Attributes:
      fields: Names of what a row has, all of them texts, but `endings` a list of texts.
      answer: Returns an answer for each row, fit for JSON.
      outputs: Names of what an answer holds.
      optional: Those of `fields` that a row may lack.
    """

    fields: tuple[str, ...]
    answer: Answer
    outputs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> list[str]:
        """Those of `fields` that a row must have."""
        return [name for name in self.fields if name not in self.optional]

    def is_list(self, field: str) -> bool:
        """Returns whether a row has several texts of that name."""
        return field in LISTS


@dataclasses.dataclass(frozen=True)
class Served:
    """A model that is served.

    Attributes:
      name: In addresses.
      version: Likewise, a number.
      kind: What it decides, `fill_mask`, or `encoder`.
      signatures: By name what can be asked; one is `DEFAULT`.
      example: A row that `DEFAULT` answers.
    """

    name: str
    version: int
    kind: str
    signatures: Mapping[str, Signature]
    example: Row

    def answer(
        self, signature: str, rows: Sequence[Row], check: Check
    ) -> Sequence[Mapping[str, Any]]:
        """Returns an answer for each row, as the model's own methods give it.

        Args:
          signature: The name of the one that is asked.
          rows: Each with the fields of that signature.
          check: Called between parts of the work; what it raises ends it.

        Raises:
          ValueError: where the model refuses a row, telling its number among these.
        """
        return self.signatures[signature].answer(rows, check)

    def warm_up(self) -> None:
        """Answers an example, so that nobody else waits until the graph is built."""
        self.answer(DEFAULT, [self.example], lambda: None)


def serve(
    model: Model, name: str, version: int, top_k: int = 5, pooling: str | None = None
) -> Served:
    """Returns a model as it is served.

    Args:
      model: As `bert.load` gives it.
      name: In addresses.
      version: Likewise.
      top_k: How many tokens a pre-trained model tells of each [MASK].
      pooling: As for `Encoding.encode`.

    Raises:
      ValueError: where an encoder alone needs a pooling, and none is given.
    """
    signatures = _encoding(model, pooling) if isinstance(model, Encoding) else {}
    if isinstance(model, PretrainedModel):
        signatures |= _masked(model, top_k)
        if DEFAULT not in signatures:
            signatures[DEFAULT] = signatures["encode"]
        kind = "fill_mask" if "score" in signatures else "encoder"
        return Served(name, version, kind, signatures, {"text_a": "a [MASK]"})
    names = model.task.answer_names
    signatures[DEFAULT] = Signature(model.fields, _predicting(model), names)
    example = {name: ["a", "b"] if name in LISTS else "a" for name in model.fields}
    return Served(name, version, model.task.kind, signatures, example)


def _predicting(model: LoadedModel | ExportedModel) -> Answer:
    shortened = _shortener(model, _lengths(model)) if isinstance(model, LoadedModel) else dict

    def predict(rows: Sequence[Row], check: Check) -> list[dict[str, Any]]:
        short = list(map(shortened, rows))
        answers = model.predict(short, between=check)
        for answer, row, sent in zip(answers, rows, short, strict=True):
            if "ending" in answer and sent["endings"] != row["endings"]:
                answer["ending"] = row["endings"][answer["label"]].strip()
        return answers

    return predict


def _lengths(model: LoadedModel) -> dict[str, int]:
    """Returns how many tokens a model reads of each field that it truncates."""
    stored = model.task.stored()
    if model.task.kind == "question_answering":
        return {"question": stored["max_query_length"]}
    if model.task.kind == "tagging":
        return {}
    return dict.fromkeys(model.fields, stored["max_seq_length"])


def _shortener(model: Encoding, lengths: Mapping[str, int]) -> Callable[[Row], Row]:
    """Returns what makes a row of so much of its texts as the model reads of them."""

    def shortened(name: str, value: Any) -> Any:
        if name not in lengths:
            return value
        if isinstance(value, str):
            return shorten(value, model.tokenizer, lengths[name])
        return [shorten(each, model.tokenizer, lengths[name]) for each in value]

    return lambda row: {name: shortened(name, value) for name, value in row.items()}


def shorten(text: str, tokenizer: FullTokenizer, num_tokens: int) -> str:
    """Returns so much of a text that its first tokens are there, as they are in all of it.

    A megabyte that a model truncates would else be tokenized first, which takes a second.

    Args:
      text: The text.
      tokenizer: That of the model. One with methods of its own gets all of the text.
      num_tokens: How many tokens the model reads.
    """
    if not tokenizer.is_standard:
        return text
    # The end of a text that is cut in a word, or in an added token, has other tokens: those of a
    # word are at most as many as its characters.
    added = max((len(token.content) for token in tokenizer.added_tokens), default=0)
    enough = num_tokens + tokenizer.wordpiece_tokenizer.max_input_chars_per_word + added
    size = 16 * enough
    while size < len(text):
        part = text[:size]
        # What this letter becomes depends on letters at any distance.
        if "\N{GREEK CAPITAL LETTER SIGMA}" in part:
            return text
        if len(tokenizer.tokenize(part)) >= enough:
            return part
        size *= 4
    return text


def _encoding(model: Encoding, pooling: str | None) -> dict[str, Signature]:
    """Returns what makes vectors, nothing where it cannot, but other answers can be given."""
    try:
        if model.text_vectors:
            model.text_vectors.fill({"pooling": pooling}, "--")
    except ValueError as error:
        if isinstance(model, PretrainedModel) and not model.fills_masks:
            raise
        logging.warning("The signature `encode` is not offered: %s", error)
        return {}
    bert = find_encoder(model.model)
    most = model.max_seq_length or (bert.config.max_position_embeddings if bert else None)
    shortened = _shortener(model, dict.fromkeys(_TEXTS, most) if most else {})

    def encode(rows: Sequence[Row], check: Check) -> list[dict[str, Any]]:
        texts = [_text(shortened(row)) for row in rows]
        vectors = model.encode(texts, pooling=pooling, between=check)
        return [{"vector": row} for row in vectors.tolist()]

    return {"encode": Signature(_TEXTS, encode, ("vector",), optional=_TEXTS[1:])}


def _masked(model: PretrainedModel, top_k: int) -> dict[str, Signature]:
    """Returns what a masked-LM head can be asked, nothing where there is none."""
    if not model.fills_masks:
        return {}

    def fill(rows: Sequence[Row], check: Check) -> list[dict[str, Any]]:
        filled = model.fill_mask(list(map(_text, rows)), top_k, between=check)
        return [
            {"masks": [[dataclasses.asdict(guess) for guess in mask] for mask in masks]}
            for masks in filled
        ]

    def score(rows: Sequence[Row], check: Check) -> list[dict[str, Any]]:
        scores = model.score(list(map(_text, rows)), between=check)
        return [{**dataclasses.asdict(each), "perplexity": each.perplexity} for each in scores]

    scored = (*(field.name for field in dataclasses.fields(Score)), "perplexity")
    return {
        DEFAULT: Signature(_TEXTS, fill, ("masks",), optional=_TEXTS[1:]),
        "score": Signature(_TEXTS, score, scored, optional=_TEXTS[1:]),
    }


def _text(row: Row) -> str | tuple[str, str]:
    return (row["text_a"], row["text_b"]) if row.get("text_b") else row["text_a"]


def find_version(path: str) -> tuple[str, int]:
    """Returns the folder to load, and its version.

    A folder with versions has folders that are named by numbers, of which the largest is the one
    to load, as in TensorFlow Serving. Anything else there is ignored, unless it is a model's file.

    Args:
      path: What may be such a folder, one of its versions, or any other model, whose version is 1.
    """
    names = list_folder(path)
    versions = [name for name in names if _is_version(name)]
    if versions and not any(map(is_of_model, names)):
        last = max(versions, key=int)
        return os.path.join(path, last), int(last)
    last = os.path.basename(path.rstrip("/"))
    return path, int(last) if _is_version(last) else 1


def _is_version(name: str) -> bool:
    return re.fullmatch(r"[0-9]{1,18}", name) is not None


def find_name(path: str) -> str:
    """Returns a name for the model at a path: that of its folder, versions and exports apart."""
    parts = [part for part in re.split(r"[/\\]+", path) if part not in ("", ".", "..")]
    while len(parts) > 1 and (parts[-1] in ("saved_model", "best") or _is_version(parts[-1])):
        parts.pop()
    return re.sub(r"[^A-Za-z0-9_.-]", "_", parts[-1] if parts else "") or "model"
