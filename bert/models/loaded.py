"""A model in memory: loaded once, used often; what `bert.load` gives."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert.export.formats import MODEL_FILES
from bert.export.portable import find_format
from bert.files.huggingface import FINE_TUNED
from bert.files.paths import find_file
from bert.files.sentence_transformers import TextVectors
from bert.files.weight_names import SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE
from bert.models.encoding import Text, TextEncoder, as_pair, check_list, find_encoder
from bert.models.exported import ExportedModel, is_export
from bert.models.kinds import KINDS, Told, check_untold, find_architecture, read_task
from bert.models.masked_model import HEAD, Guess, MaskedModel, Score, check_sides
from bert.models.masked_model import Text as MaskedText
from bert.models.masked_model import load as load_masked_model
from bert.tasks.layers import NO_ENCODER
from bert.tasks.task import (
    ASKED,
    Arrays,
    Inputs,
    Outputs,
    Task,
    collect,
    read_rows,
    stored_field,
)
from bert.training.evaluation import Predictor
from bert.training.lengths import by_length
from bert.weights import huggingface
from bert.weights.folder import ModelFolder
from bert.weights.model_files import TASK_FILE
from bert.weights.told import check_untold_export


class Encoding:
    """What a model does with its encoder; a text is a string, or a pair of strings."""

    model: keras.Model
    tokenizer: tokenization.FullTokenizer
    batch_size: int
    max_seq_length: int | None
    text_vectors: TextVectors | None = None

    @functools.cached_property
    def _encoder(self) -> TextEncoder:
        bert = find_encoder(self.model)
        if bert is None:
            raise ValueError(NO_ENCODER)
        return TextEncoder(bert, self.tokenizer, self.batch_size)

    def encode(
        self,
        texts: Sequence[Text],
        layer: int | str = "last",
        pooling: str | None = None,
        *,
        normalize: bool | None = None,
        max_seq_length: int | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> np.ndarray:
        """Returns a vector for each text, float32 [N, W], in their order.

        What is not given is as the folder of a sentence-transformers model says, or else the mean
        over tokens of texts of any length. extract_features.py writes the same to the last bit, if
        given the same lengths and batches. In other batches, and beside other texts, vectors differ
        by rounding.

        Args:
          texts: The texts.
          layer: A number, from 0 or from the end with -1, or one of
            `bert.tasks.layers.COMBINATIONS`.
          pooling: "mean" or "max" over tokens, [CLS] and [SEP] included, or "cls".
          normalize: Whether to scale each vector to length 1.
          max_seq_length: Tokens at most, [CLS] and [SEP] included; None for what was told where the
            model was loaded, what its folder says, or else all that it takes. What is longer is
            cut.
          between: Called behind each batch; what it raises ends the work.

        Raises:
          ValueError: where there is no such layer or pooling, or these are no texts.
        """
        given: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
        if self.text_vectors:
            given |= self.text_vectors.fill(given)
        return self._encoder.encode(
            texts,
            layer,
            given["pooling"] or "mean",
            normalize=bool(given["normalize"]),
            max_seq_length=self._length(max_seq_length),
            between=between,
        )

    def inputs(
        self, texts: Sequence[Text], max_seq_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns texts as `input_ids`, `input_mask` and `segment_ids`, int32 [N, S].

        So a Keras model of the encoder takes them.

        Args:
          texts: The texts.
          max_seq_length: As `encode`.
        """
        return self._encoder.inputs(texts, self._length(max_seq_length))

    def _length(self, given: int | None) -> int | None:
        vectors = self.text_vectors
        lengths = (given, self.max_seq_length, vectors.max_seq_length if vectors else None)
        return next((length for length in lengths if length is not None), None)


class LoadedModel(Encoding):
    """A fine-tuned model that answers.

    Args:
      task: What it does.
      model: From tokens, with its weights.
      batch_size: Sequences that go through the model together, at most.
      max_seq_length: Where `encode` cuts texts, in tokens; None for as many as the model takes. For
        answers, the task has its own.

    Attributes:
      task: As given.
      model: As given, a Keras model of `input_ids`, `input_mask` and `segment_ids`.
      tokenizer: That of the model.
    """

    def __init__(
        self,
        task: Task,
        model: keras.Model,
        batch_size: int = 32,
        max_seq_length: int | None = None,
    ) -> None:
        self.max_seq_length = max_seq_length
        self.task = task
        self.model = model
        self.tokenizer = task.tokenizer
        self.batch_size = batch_size
        self._rank = len(next(iter(model.input.values())).shape)
        signature = {
            name: tf.TensorSpec([None] * self._rank, tf.int32, name=name) for name in model.input
        }
        self._predictor = Predictor(model, signature)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of an input's values."""
        return self.task.fields

    def predict(
        self, inputs: Sequence[Any], *, between: Callable[[], None] = lambda: None
    ) -> list[dict[str, Any]]:
        """Returns an answer for each input, in their order.

        Args:
          inputs: Each a dictionary of `fields`; or a tuple of their values, in that order; or, for
            a task of one field, its value.
          between: Called behind each batch; what it raises ends the work.

        Raises:
          ValueError: where an input is none of these, naming its place.
        """
        rows = read_rows(inputs, self.fields)
        if not rows:
            return []
        made, predictions = self.decide(self.task.parse(rows), between)
        return self.task.answers(made, predictions)

    def decide(
        self, examples: Sequence[Any], between: Callable[[], None] = lambda: None
    ) -> tuple[Inputs, Any]:
        """Returns what the task makes of some examples of its own, and its predictions.

        Args:
          examples: One at least, as `task.parse` gives them.
          between: As for `predict`.
        """
        made, outputs = self.compute(examples, between)
        return made, self.task.decode(made, outputs)

    def compute(
        self, examples: Sequence[Any], between: Callable[[], None] = lambda: None
    ) -> tuple[Inputs, Outputs]:
        """Returns what the task makes of some examples, and the model's outputs; as `decide`."""
        made = self.task.make_inputs(ASKED, examples)
        run = self._run if self._rank == 2 else self._run_choices
        return made, run(made.arrays, between)

    def _run(self, arrays: Arrays, between: Callable[[], None]) -> Outputs:
        """Yields the model's outputs; sequences of about the same length go together."""
        for numbers, batch in by_length(arrays, list(self.model.input), self.batch_size):
            outputs = self._predictor(batch)
            between()
            yield numbers, outputs

    def _run_choices(self, arrays: Arrays, between: Callable[[], None]) -> Outputs:
        """Yields the outputs for all rows of choices, of which each goes by itself.

        So a batch has no more sequences than it may, and none that is padding.
        """
        is_there = np.asarray(arrays["input_mask"].any(axis=-1))  # [N, E]
        each = {name: arrays[name][is_there][:, None] for name in self.model.input}  # [C, 1, S]
        outputs = {}
        for name, values in collect(self._run(each, between)).items():
            outputs[name] = np.zeros(is_there.shape, values.dtype)
            outputs[name][is_there] = values[:, 0]
        yield np.arange(len(is_there)), outputs


class PretrainedModel(Encoding):
    """A pre-trained model that fills masks, rates texts and encodes them.

    A text is a string, or a pair of strings.

    Args:
      folder: That of the model.
      batch_size: Sequences to compute at a time.
      precision: Name of a dtype policy.
      max_seq_length: Where `encode` cuts texts, in tokens; None for as many as the model takes.

    Attributes:
      config: The shape of the model.
      tokenizer: That of the model.
      model: A Keras model of `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], with
        `sequence_output` [B, S, H] and `pooled_output` [B, H].
      masked: The same under the heads of pre-training; None without the masked-LM head.
    """

    def __init__(
        self,
        folder: ModelFolder,
        batch_size: int = 32,
        precision: str = "float32",
        max_seq_length: int | None = None,
    ) -> None:
        self.config = folder.config
        self.text_vectors = folder.text_vectors
        self.max_seq_length = max_seq_length
        if max_seq_length is not None:
            _check_length(max_seq_length, self.config)
        self.batch_size = batch_size
        self.masked: MaskedModel | None = None
        has_head = any(name.startswith(HEAD) for name in folder.stored.shapes)
        if has_head and not (self.config.is_decoder or self.config.is_bilstm):
            self.masked = load_masked_model(folder, batch_size, precision)
            self.tokenizer = self.masked.tokenizer
            bert = self.masked.model.get_layer("bert")
        else:
            folder.stored.check_fit(self.config)
            self.tokenizer = folder.load_tokenizer()
            bert = modeling.BertModel(self.config, dtype=precision)
        inputs = modeling.encoder_inputs()
        encoded = bert(inputs)
        names = ("sequence_output", "pooled_output")
        self.model = keras.Model(inputs, {name: encoded[name] for name in names})
        if self.masked is None:
            folder.stored.assign(self.model.weights)

    @property
    def fills_masks(self) -> bool:
        """Whether there is a masked-LM head, for `fill_mask` and `score`."""
        return self.masked is not None

    def fill_mask(
        self,
        texts: Sequence[Text],
        top_k: int = 5,
        *,
        between: Callable[[], None] = lambda: None,
    ) -> list[list[list[Guess]]]:
        """Returns for each text, for each [MASK] in it, the best tokens.

        Args:
          texts: The texts, of which none is cut.
          top_k: Tokens for each [MASK].
          between: As for `encode`.

        Raises:
          ValueError: where a text has no [MASK], or the model no masked-LM head.
        """
        masked = self._head()
        return masked.fill(_read(masked, texts), top_k, between=between)

    def score(
        self, texts: Sequence[Text], *, between: Callable[[], None] = lambda: None
    ) -> list[Score]:
        """Returns how likely each text is, for which the model reads it once for each token.

        Args:
          texts: The texts, of which none is cut.
          between: As for `encode`.

        Raises:
          ValueError: where a text has a [MASK], or the model no masked-LM head.
        """
        masked = self._head()
        return masked.score(_read(masked, texts), between=between)

    def next_sentence(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Returns for each pair of texts the probability that the second follows the first.

        Raises:
          ValueError: where one is no pair, or the model lacks the heads of pre-training.
        """
        masked = self._head()
        return masked.next_sentence(_read(masked, pairs))

    def _head(self) -> MaskedModel:
        check_sides(self.config)
        if self.masked is None:
            raise ValueError(
                f"The model must have the masked-LM head of pre-training, {HEAD}*, to tell tokens. "
                "It has an encoder alone; `encode` works."
            )
        return self.masked


def _read(masked: MaskedModel, texts: Sequence[Text]) -> list[MaskedText]:
    return [
        masked.read(as_pair(text, number), f"Text {number}, counted from 0,")
        for number, text in enumerate(check_list(texts))
    ]


def load(  # noqa: PLR0913 (what a folder may not say)
    model: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    precision: str = "float32",
    bert_config_file: str | os.PathLike[str] | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    do_lower_case: bool | None = None,
    architecture: str | None = None,
    task_name: str | None = None,
    labels: str | Sequence[str] | None = None,
    is_pair: bool | None = None,
    max_seq_length: int | None = None,
    version_2_with_negative: bool | None = None,
    null_score_diff_threshold: float | None = None,
) -> LoadedModel | ExportedModel | PretrainedModel:
    """Returns a model that answers, if it is fine-tuned, or one that fills masks and encodes texts.

    Args:
      model: The `--output_dir` of a script; a checkpoint of the original with its configuration and
        its vocabulary; a Hugging Face folder; the name of a BERT on the hub, owner/model; or a
        SavedModel of `--do_export` without weights beside it, of which nothing can be told.
      batch_size: Sequences that go through the model together, at most.
      precision: Name of a dtype policy: "float32", "mixed_bfloat16" or "mixed_float16"; or
        "bfloat16", which keeps the weights in that type, too: the fastest where there are
        instructions for it, and half the memory.
      bert_config_file: Its configuration, if it is not there, or not to be taken from there.
      vocab_file: Its vocabulary, likewise.
      do_lower_case: Whether the model is uncased, for which it is taken by default where it is not
        fine-tuned, but not against the name of a released model.
      architecture: For a fine-tuned model that does not say what it decides, as the arguments
        below: what it is, in the terms of transformers.
      task_name: A task of GLUE, or XNLI, whose labels and number of texts it has.
      labels: Names of the outputs in their order, in a sequence or separated by commas.
      is_pair: Whether a classifier takes two texts.
      max_seq_length: Where texts are cut, in tokens, with specials; of a pre-trained model, those
        that are encoded.
      version_2_with_negative: Whether a question may have no answer, as in SQuAD 2.0, if that is
        not to be taken from there.
      null_score_diff_threshold: By how much that there is none must score higher than the best
        answer to be said, likewise.

    Raises:
      ValueError: where something is missing there, or does not fit.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received {batch_size}.")
    return open_model(
        os.fspath(model),
        "model",
        batch_size=batch_size,
        precision=precision,
        bert_config_file=bert_config_file and os.fspath(bert_config_file),
        vocab_file=vocab_file and os.fspath(vocab_file),
        do_lower_case=do_lower_case,
        architecture=architecture,
        task_name=task_name,
        labels=labels,
        is_pair=is_pair,
        max_seq_length=max_seq_length,
        version_2_with_negative=version_2_with_negative,
        null_score_diff_threshold=null_score_diff_threshold,
    )


def open_model(
    model: str, flag: str, *, batch_size: int = 32, precision: str = "float32", **told: Any
) -> LoadedModel | ExportedModel | PretrainedModel:
    """Returns what `load` does.

    Args:
      model: As there.
      flag: The flag that gave it, for messages.
      batch_size: As there.
      precision: Likewise.
      **told: What else `load` takes, which the folder may not say.
    """
    if is_export(model):
        check_untold_export(model, {**told, "precision": precision})
        return ExportedModel(model, batch_size, flag)
    others = Told(**{field.name: told.pop(field.name, None) for field in dataclasses.fields(Told)})
    given = told
    folder = find_folder(model, flag, **given)
    if not folder.task:
        architecture = find_architecture(folder, others.architecture)
        others = dataclasses.replace(others, architecture=architecture)
    if folder.task or others.architecture in FINE_TUNED.values():
        return open_fine_tuned(folder, others, batch_size=batch_size, precision=precision)
    check_untold(folder, others, but=("architecture", "max_seq_length"))
    if folder.do_lower_case is None:
        logging.warning(
            "Nothing in %s says whether the model is uncased: it is taken for that. For a cased "
            "one, pass do_lower_case=False.",
            folder.path,
        )
        # Not against the name of a released model.
        tokenization.validate_case_matches_checkpoint(True, folder.stored.path)
    if vectors := folder.text_vectors:
        names = ("pooling", "normalize", "max_seq_length")
        vectors.log({} if vectors.unknown else vectors.fill(dict.fromkeys(names)))
        vectors.warn()
    return PretrainedModel(folder, batch_size, precision, others.max_seq_length)


def load_fine_tuned(  # noqa: PLR0913 (what a folder may not say)
    model_dir: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    precision: str = "float32",
    bert_config_file: str | os.PathLike[str] | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    do_lower_case: bool | None = None,
    architecture: str | None = None,
    task_name: str | None = None,
    labels: str | Sequence[str] | None = None,
    is_pair: bool | None = None,
    max_seq_length: int | None = None,
    version_2_with_negative: bool | None = None,
    null_score_diff_threshold: float | None = None,
) -> LoadedModel:
    """Returns a model that answers, as `load` does; any other is refused."""
    given: dict[str, Any] = {
        "bert_config_file": bert_config_file and os.fspath(bert_config_file),
        "vocab_file": vocab_file and os.fspath(vocab_file),
        "do_lower_case": do_lower_case,
    }
    others = Told(
        architecture=architecture,
        task_name=task_name,
        labels=labels,
        is_pair=is_pair,
        max_seq_length=max_seq_length,
        version_2_with_negative=version_2_with_negative,
        null_score_diff_threshold=null_score_diff_threshold,
    )
    folder = find_folder(os.fspath(model_dir), "model_dir", **given)
    return open_fine_tuned(folder, others, batch_size=batch_size, precision=precision)


def find_folder(model: str, flag: str, *, fetches: bool = True, **given: Any) -> ModelFolder:
    """Returns the folder of a model: that of a run of ours, or any other that has weights.

    Args:
      model: As `load` takes it.
      flag: The flag that gave it, for messages.
      fetches: Whether a model of the hub that is not in the local cache is fetched.
      **given: As for `ModelFolder`: what is not to be taken from the folder.

    Raises:
      ValueError: where there are no weights.
    """
    folder = ModelFolder(model, flag, **given)
    if folder.task and folder.find_weights():
        return folder
    if folder.task:
        _check_not_portable(model, flag)
    if folder.task and not huggingface.find(model, flag):
        return folder
    return ModelFolder.open(model, flag, fetches=fetches, **given)


def _check_not_portable(model: str, flag: str) -> None:
    form = find_format(model)
    # A folder of Hugging Face's may have a model of ONNX beside its weights.
    if form and find_file(model, [SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE]) is None:
        raise ValueError(
            f"`--{flag}` must be the folder of a training or a SavedModel. Received {model!r}, an "
            f"export for other programs ({MODEL_FILES[form]}): ask it as sample/ask_portable.py "
            "does, or give the folder that it was exported from."
        )


def _check_length(max_seq_length: int, config: modeling.BertConfig) -> None:
    limit = config.max_position_embeddings
    if max_seq_length > limit:
        raise ValueError(
            f"`max_seq_length` must be at most {limit}, the `max_position_embeddings` in "
            f"bert_config.json. Received {max_seq_length}."
        )


def open_fine_tuned(
    folder: ModelFolder, told: Told, *, batch_size: int = 32, precision: str = "float32"
) -> LoadedModel:
    """Returns the model of a folder.

    Args:
      folder: That of a fine-tuned model.
      told: What it does not say of it.
      batch_size: Sequences that go through the model together, at most.
      precision: Name of a dtype policy.

    Raises:
      ValueError: where something is missing there.
    """
    stored = read_task(folder, told)
    kind = str(stored.get("kind"))
    if kind not in KINDS:
        path = os.path.join(folder.path, TASK_FILE)
        raise ValueError(f"`kind` in {path!r} must be one of {sorted(KINDS)}. It is {kind!r}.")
    weights = folder.stored
    if told.max_seq_length is not None:
        # That is no fault of the file.
        _check_length(told.max_seq_length, folder.config)
    try:
        stored_field(stored, "do_lower_case", bool)
        _check_length(stored_field(stored, "max_seq_length", int), folder.config)
        task = KINDS[kind](stored, folder.config, folder.load_tokenizer())
    except ValueError as error:
        path = os.path.join(folder.path, TASK_FILE)
        raise ValueError(f"{path!r} must be as a training has left it: {error}") from error
    model = task.whole_model(task.make_model(precision))
    weights.assign(model.weights, with_head=True)
    loaded = LoadedModel(task, model, batch_size, told.max_seq_length)
    loaded.text_vectors = folder.text_vectors
    return loaded
