"""Engines: runtimes for which a fine-tuned model is converted once, since they answer faster.

Converted models are kept in a cache of the user, by the digest of all that they are made of.
"""

import functools
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import keras
import numpy as np

from bert.export import portable
from bert.export.formats import check_installed, missing_packages
from bert.files.cache import Entry
from bert.files.machine import processor_name, usable_cores
from bert.log import logger
from bert.models.answering import AnsweringModel
from bert.models.fine_tuned import LoadedModel, open_fine_tuned, open_stored_task, read_task
from bert.models.options import Overrides
from bert.models.portable import PortableModel
from bert.models.vectors import Encoding
from bert.network.lengths import pad_sequences
from bert.options import Message, Option, OptionError
from bert.tasks.task import LISTS, Task
from bert.training.options import AUTO
from bert.weights.checkpoint import describe_weights
from bert.weights.folder import ModelFolder

# By engine, the format of its models.
FORMS: Mapping[str, str] = {"litert": "tflite", "onnx": "onnx"}

_FOLDER = "bert-engines"
# Raised with a change of what is converted, after which what is kept is made anew.
_REVISION = 1
# By which outputs of float32 may differ, in logits.
_TOLERANCE = 1e-3
# An engine is timed for this long.
_SECONDS = 0.3


def open_with_engine(
    folder: ModelFolder, overrides: Overrides, engine: str, precision: str, batch_size: int
) -> AnsweringModel:
    """Returns a fine-tuned model that an engine computes.

    Args:
      folder: The folder of the model.
      overrides: Options in place of what the folder says.
      engine: "litert", "onnx" or "auto".
      precision: "float32" or "int8".
      batch_size: Maximum sequences that go through the model together.

    Raises:
      ValueError: where the model cannot be opened, or the engine cannot run it.
    """
    source = _Source(folder, overrides, batch_size)
    if engine == AUTO:
        model = _fastest(source, precision)
    else:
        check_installed(FORMS[engine], Option("engine", engine))
        model = source.convert(engine, precision)
    source.release()
    return model


class _Source:
    """A fine-tuned model, which is loaded only where it must be converted.

    Args:
      folder: The folder of the model.
      overrides: Options in place of what the folder says.
      batch_size: Maximum sequences that go through the model together.
    """

    def __init__(self, folder: ModelFolder, overrides: Overrides, batch_size: int) -> None:
        self._folder, self._overrides = folder, overrides
        self.batch_size = batch_size
        self._stored = read_task(folder, overrides)
        self.task: Task = open_stored_task(folder, self._stored)
        self.text_vectors = folder.text_vectors
        self.max_seq_length = overrides.max_seq_length
        self.has_encoder = not folder.config.is_word_vectors
        self._loaded: LoadedModel | None = None
        self._loading = threading.Lock()
        made_of = [describe_weights(folder.stored), folder.config.to_dict(), self._stored]
        self._made_of = [_REVISION, *made_of]

    def key(self, *others: Any) -> str:
        """Returns the digest of the model and of other values."""
        values = json.dumps([*self._made_of, *others], sort_keys=True, default=str)
        return hashlib.sha256(values.encode()).hexdigest()

    def load(self) -> LoadedModel:
        """Returns the model that TensorFlow computes."""
        with self._loading:
            if self._loaded is None:
                folder, overrides = self._folder, self._overrides
                self._loaded = open_fine_tuned(folder, overrides, batch_size=self.batch_size)
            return self._loaded

    def release(self) -> None:
        """Frees the model that TensorFlow computes, which is loaded again where it is needed."""
        self._loaded = None

    def convert(self, engine: str, precision: str) -> "ConvertedModel":
        """Returns the model that an engine computes, converted unless the cache has it."""
        form = FORMS[engine]
        entry = Entry.find(_FOLDER, self.key(form, precision, _versions(form)))
        content = entry.read()
        if content is None:
            logger.info("Converting the model for %s, in %s, once.", engine, precision)
            content = self._convert(engine, precision)
            entry.write(content)
        runtime = portable.make_runtime(content, form, entry.path)
        return ConvertedModel(self, runtime)

    def _convert(self, engine: str, precision: str) -> bytes:
        form, model = FORMS[engine], self.load().model
        try:
            content = portable.convert(model, form, precision)
            runtime = portable.make_runtime(content, form, engine)
        # Converters raise what they like.
        except Exception as error:
            reason = (str(error) or type(error).__name__).partition("\n")[0]
            raise OptionError("engine", "be one that can run this model", engine, reason) from error
        if precision == "float32":
            _compare(model, runtime, engine)
        return content


class ConvertedModel(Encoding, PortableModel):
    """A fine-tuned model whose answers an engine computes, and whose vectors TensorFlow does.

    TensorFlow loads the model for the first vector.
    """

    def __init__(self, source: _Source, runtime: portable.Runtime) -> None:
        super().__init__(source.task, runtime, source.batch_size)
        self.max_seq_length = source.max_seq_length
        self.text_vectors = source.text_vectors
        self.methods += ("encode", "inputs") if source.has_encoder else ()
        self._source = source

    @property
    def model(self) -> keras.Model:  # type: ignore[override]
        return self._source.load().model


def _compare(model: keras.Model, runtime: portable.Runtime, engine: str) -> None:
    """Checks that an engine computes what the model does."""
    arrays = pad_sequences([[1, 2, 3, 4, 2], [1, 2]], [[0, 0, 0, 0, 0], [0, 0]], 8)
    arrays["label_mask"] = arrays["input_mask"]
    batch = {
        name: arrays[name] if rank == 2 else arrays[name][:, None]
        for name, rank in runtime.ranks.items()
    }
    expected, found = model(batch, training=False), runtime(batch)
    for name, values in expected.items():
        difference = float(np.max(np.abs(np.asarray(values) - found[name])))
        if not difference <= _TOLERANCE:
            received = Message("%r, whose %s differ by %.3g", engine, name, difference)
            raise OptionError("engine", "compute what the model computes", received)


def _fastest(source: _Source, precision: str) -> AnsweringModel:
    """Returns the model with the engine that answers fastest on this machine.

    One text and a batch count alike. Which engine it is, is kept in the cache, too.
    """
    names = [name for name, form in FORMS.items() if not missing_packages(form)]
    if not names and precision == "float32":
        logger.info("The engine is tensorflow: neither LiteRT nor ONNX Runtime is installed.")
        return source.load()
    opened: dict[str, Callable[[], AnsweringModel]] = {
        name: functools.partial(source.convert, name, precision) for name in names
    }
    if precision == "float32":
        opened["tensorflow"] = source.load
    elif not names:
        raise OptionError("precision", "be float32 where no engine for it is installed", precision)
    versions = [_versions(FORMS[name]) for name in names]
    machine = (processor_name(), usable_cores(), source.batch_size)
    entry = Entry.find(_FOLDER, source.key("fastest", precision, versions, *machine))
    chosen = (entry.read() or b"").decode()
    if chosen in opened:
        logger.info("The engine is %s, the fastest on this machine when it was measured.", chosen)
        return opened[chosen]()
    models, times = {}, {}
    for name, make in opened.items():
        try:
            models[name] = make()
        except OptionError as error:
            logger.warning("The engine %s is left out. %s", name, error)
            continue
        times[name] = [_time(models[name], size) for size in (1, source.batch_size)]
    chosen = min(times, key=lambda name: math.prod(times[name]))
    shown = ", ".join(
        f"{name} {1000 * one:.1f} and {1000 * batch:.1f}" for name, (one, batch) in times.items()
    )
    logger.info(
        "The engine is %s. Milliseconds for one text and for %d: %s.",
        *(chosen, source.batch_size, shown),
    )
    entry.write(chosen.encode())
    return models[chosen]


def _time(model: AnsweringModel, num_texts: int) -> float:
    """Returns the least seconds in which a model answers so many texts of about 16 tokens."""
    text = "a b c d " * 4
    row = {name: [text, text] if name in LISTS else text for name in model.fields}
    rows = [row] * num_texts
    model.predict(rows)
    end = time.monotonic() + _SECONDS
    seconds: list[float] = []
    while not seconds or time.monotonic() < end:
        start = time.perf_counter()
        model.predict(rows)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _versions(form: str) -> list[str]:
    """Returns the packages that convert for an engine and run what they write."""
    names = {"tflite": ("tensorflow", "ai-edge-litert"), "onnx": ("tf2onnx", "onnxruntime")}
    return [f"{name} {metadata.version(name)}" for name in names[form]]
