"""A model as a server offers it: its name, its version and its signatures."""

import dataclasses
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert.export.formats import PRECISIONS, Export
from bert.files.paths import list_folder
from bert.files.stored_models import is_of_model
from bert.log import logger
from bert.models.answering import AnsweringModel
from bert.models.exported import ExportedModel
from bert.models.model import assume_frozen_weights
from bert.models.open import FIXED, find_export, open_model
from bert.models.options import EngineModel, check_absent
from bert.models.pretrained import PretrainedModel, Score
from bert.models.vectors import Encoding
from bert.options import OptionError
from bert.serving.options import AnswerOptions
from bert.tasks.examples import LISTS, InputRow
from tokenization import FullTokenizer

DEFAULT = "serving_default"

Check = Callable[[], None]
Answer = Callable[[Sequence[InputRow], Check], Sequence[Mapping[str, Any]]]
Model = AnsweringModel | ExportedModel | PretrainedModel

_TEXTS = ("text_a", "text_b")
# Folders of models in the output folder of a run.
_WITHIN = {"best", *(Export(form, each).name for form in PRECISIONS for each in PRECISIONS[form])}


@dataclasses.dataclass(frozen=True)
class Signature:
    """A kind of request that a model answers.

    Attributes:
      fields: Names of the values of a row: texts, and lists of texts for `endings`.
      answer: Returns an answer for each row, ready for JSON.
      outputs: Names of the values of an answer.
      optional: The fields that a row may lack.
    """

    fields: tuple[str, ...]
    answer: Answer
    outputs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> list[str]:
        """The fields that a row must have."""
        return [name for name in self.fields if name not in self.optional]


@dataclasses.dataclass(frozen=True)
class Served:
    """A model that is served.

    Attributes:
      name: The name in URLs.
      version: The version in URLs.
      kind: The kind of its task, `fill_mask`, or `encoder`.
      signatures: The signatures by name; one is `DEFAULT`.
      example: A row that `DEFAULT` answers.
      score_pair: Returns the score of a pair of texts from its answer; None where pairs have none.
    """

    name: str
    version: int
    kind: str
    signatures: Mapping[str, Signature]
    example: InputRow
    score_pair: Callable[[Mapping[str, Any]], float] | None = None

    def answer(
        self, signature: str, rows: Sequence[InputRow], check: Check
    ) -> Sequence[Mapping[str, Any]]:
        """Returns an answer for each row, as the model's own methods give it.

        Args:
          signature: The name of the signature.
          rows: Rows with the fields of the signature.
          check: Called between parts of the work; an exception of it ends the work.

        Raises:
          ValueError: where the model refuses a row, with its number.
        """
        return self.signatures[signature].answer(rows, check)

    def warm_up(self) -> None:
        """Answers an example, which builds the graph before the first request."""
        self.answer(DEFAULT, [self.example], lambda: None)


def open_served(
    options: EngineModel,
    answers: AnswerOptions,
    name: str | None,
    batch_size: int,
    *,
    dry: bool = False,
) -> Served:
    """Returns the model of a folder, or its latest version, as a server offers it.

    Args:
      options: The model.
      answers: How it answers.
      name: The name in URLs; None for the name of its folder.
      batch_size: Maximum inputs per batch.
      dry: Whether this is a dry run, as for `open_model`.

    Raises:
      ValueError: where the model cannot be opened.
    """
    path, version = find_version(options.model_dir)
    if find_export(path):
        check_absent("pooling", answers.pooling, FIXED, path)
    assume_frozen_weights(options.precision)
    given = dataclasses.replace(options, model_dir=path)
    model = open_model(given, batch_size=batch_size, dry=dry)
    name = name or find_name(options.model_dir)
    how = (answers.top_k, answers.pooling, answers.rerank_label)
    return serve(model, name, version, *how)


def serve(
    model: Model,
    name: str,
    version: int,
    top_k: int = 5,
    pooling: str | None = None,
    rerank_label: str | None = None,
) -> Served:
    """Returns a model as a server offers it.

    Args:
      model: The model, as `bert.load` returns it.
      name: The name in URLs.
      version: The version in URLs.
      top_k: Number of tokens that a pre-trained model returns for each [MASK].
      pooling: As for `Encoding.encode`.
      rerank_label: The label of relevant texts, for a classifier of pairs; None to find it.

    Raises:
      ValueError: where a model that only encodes needs a pooling, and none is given, or the model
        lacks the label of relevant texts.
    """
    signatures = _encoding(model, pooling) if isinstance(model, Encoding) else {}
    score_pair = _pair_scorer(model, rerank_label)
    if isinstance(model, PretrainedModel):
        signatures |= _masked(model, top_k)
        if DEFAULT not in signatures:
            signatures[DEFAULT] = signatures["encode"]
        kind = "fill_mask" if "score" in signatures else "encoder"
        return Served(name, version, kind, signatures, {"text_a": "a [MASK]"})
    names = model.task.answer_names
    signatures[DEFAULT] = Signature(model.fields, _predicting(model), names)
    example = {name: ["a", "b"] if name in LISTS else "a" for name in model.fields}
    return Served(name, version, model.task.kind, signatures, example, score_pair)


def _pair_scorer(model: Model, label: str | None) -> Callable[[Mapping[str, Any]], float] | None:
    """Returns how an answer about a pair of texts becomes a score; None where it does not.

    It is the value of a regression, or else the probability of a label: the given one,
    "entailment", or of two labels the positive one.
    """
    is_paired = not isinstance(model, PretrainedModel) and model.fields == _TEXTS
    labels = model.labels if is_paired else []
    # An export knows its own when its graph has run, which it does not in a dry run.
    is_known = isinstance(model, PretrainedModel) or bool(model.task.answer_names)
    if label is not None and label not in labels and (is_known or not is_paired):
        must = (
            f"be a label of a classifier of pairs, of {', '.join(labels) or 'which this is none'}"
        )
        raise OptionError("rerank_label", must, label)
    if is_paired and not labels:
        return operator.itemgetter("score")
    if label is None and "entailment" in labels:
        label = "entailment"
    elif label is None and len(labels) == 2:
        from bert.tasks.classification.examples import positive_label

        label = positive_label(labels)
    return (lambda answer: answer["probabilities"][label]) if label else None


def _predicting(model: AnsweringModel | ExportedModel) -> Answer:
    shortened = _shortener(model, _lengths(model)) if isinstance(model, AnsweringModel) else dict

    def predict(rows: Sequence[InputRow], check: Check) -> list[dict[str, Any]]:
        short = list(map(shortened, rows))
        # By name, the values would be taken for columns of the training.
        values = [tuple(row[name] for name in model.fields) for row in short]
        answers = model.predict(values, between=check)
        for answer, row, sent in zip(answers, rows, short, strict=True):
            if "ending" in answer and sent["endings"] != row["endings"]:
                answer["ending"] = row["endings"][answer["label"]].strip()
        return answers

    return predict


def _lengths(model: AnsweringModel) -> dict[str, int]:
    """Returns how many tokens a model reads of each field that it truncates."""
    stored = model.task.stored()
    if model.task.kind == "question_answering":
        return {"question": stored["max_query_length"]}
    if model.task.kind == "tagging":
        return {}
    most = stored["max_seq_length"]
    if long_texts := getattr(model.task, "long_texts", None):
        most = long_texts.num_read(most)
    return dict.fromkeys(model.fields, most) if most else {}


def _shortener(
    model: AnsweringModel | Encoding, lengths: Mapping[str, int]
) -> Callable[[InputRow], InputRow]:
    """Returns a function that truncates the texts of a row to what the model reads."""

    def shortened(name: str, value: Any) -> Any:
        if name not in lengths:
            return value
        if isinstance(value, str):
            return shorten(value, model.tokenizer, lengths[name])
        return [shorten(each, model.tokenizer, lengths[name]) for each in value]

    return lambda row: {name: shortened(name, value) for name, value in row.items()}


def shorten(text: str, tokenizer: FullTokenizer, num_tokens: int) -> str:
    """Returns a prefix of a text that has the same first tokens as the complete text.

    Otherwise a megabyte of which the model reads little would be tokenized, which takes a second.

    Args:
      text: The text.
      tokenizer: The tokenizer of the model. A text for one of another class is not shortened.
      num_tokens: The number of tokens that the model reads.
    """
    # Where the prefix ends within a word, or an added token, its last tokens differ: at most as
    # many as the characters of the word.
    added = max((len(token.content) for token in tokenizer.added_tokens), default=0)
    enough = num_tokens + tokenizer.wordpiece_tokenizer.max_input_chars_per_word + added
    size = 16 * enough
    if len(text) <= size or not tokenizer.is_standard:
        return text
    while size < len(text):
        part = text[:size]
        # The lower case of this letter depends on letters at any distance.
        if "\N{GREEK CAPITAL LETTER SIGMA}" in part:
            return text
        if len(tokenizer.tokenize(part)) >= enough:
            return part
        size *= 4
    return text


def _encoding(model: Encoding, pooling: str | None) -> dict[str, Signature]:
    """Returns the signature for vectors; none where only others can be offered."""
    if "encode" not in model.methods:
        return {}
    try:
        if model.text_vectors:
            model.text_vectors.fill({"pooling": pooling})
    except ValueError as error:
        if isinstance(model, PretrainedModel) and not model.masked:
            raise
        logger.warning("The signature `encode` is not offered: %s", error)
        return {}

    def encode(rows: Sequence[InputRow], check: Check) -> list[dict[str, Any]]:
        # The encoder of an engine's model is loaded here.
        most = model.max_seq_length or model.encoder.config.max_position_embeddings
        shortened = _shortener(model, dict.fromkeys(_TEXTS, most))
        lines = model.read([_text(shortened(row)) for row in rows])
        vectors = model.encode(lines, pooling=pooling, between=check)
        return [
            {"vector": vector, "num_tokens": len(line.input_ids)}
            for vector, line in zip(vectors.tolist(), lines, strict=True)
        ]

    names = ("vector", "num_tokens")
    return {"encode": Signature(_TEXTS, encode, names, optional=_TEXTS[1:])}


def _masked(model: PretrainedModel, top_k: int) -> dict[str, Signature]:
    """Returns the signatures of a masked-LM head, none without such a head."""
    if not model.masked:
        return {}

    def fill(rows: Sequence[InputRow], check: Check) -> list[dict[str, Any]]:
        filled = model.fill_mask(list(map(_text, rows)), top_k, between=check)
        return [
            {"masks": [[dataclasses.asdict(guess) for guess in mask] for mask in masks]}
            for masks in filled
        ]

    def score(rows: Sequence[InputRow], check: Check) -> list[dict[str, Any]]:
        scores = model.score(list(map(_text, rows)), between=check)
        return [{**dataclasses.asdict(each), "perplexity": each.perplexity} for each in scores]

    scored = (*(field.name for field in dataclasses.fields(Score)), "perplexity")
    return {
        DEFAULT: Signature(_TEXTS, fill, ("masks",), optional=_TEXTS[1:]),
        "score": Signature(_TEXTS, score, scored, optional=_TEXTS[1:]),
    }


def _text(row: InputRow) -> str | tuple[str, str]:
    return (row["text_a"], row["text_b"]) if row.get("text_b") else row["text_a"]


def find_version(path: str) -> tuple[str, int]:
    """Returns the folder to load, and its version.

    A folder of versions has folders that are named by numbers, of which the largest is loaded, as
    in TensorFlow Serving. Anything else in it is ignored, unless it is a file of a model.

    Args:
      path: A folder of versions, one of its versions, or any other model, whose version is 1.
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
    """Returns a name for the model at a path: the folder without versions and exports."""
    parts = [part for part in re.split(r"[/\\]+", path) if part not in ("", ".", "..")]
    while len(parts) > 1 and (parts[-1] in _WITHIN or _is_version(parts[-1])):
        parts.pop()
    return re.sub(r"[^A-Za-z0-9_.-]", "_", parts[-1] if parts else "") or "model"
