"""Engines: runtimes for which a fine-tuned model is converted once, since they answer faster.

Converted models are kept in a cache of the user, by the digest of all that they are made of. A
large model is converted in a process of its own, with which the memory ends that this takes.
"""

import contextlib
import functools
import hashlib
import json
import math
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.export import portable
from bert.export.formats import Runtime, check_installed, missing_packages
from bert.files.cache import Entry
from bert.files.machine import Workers, processor_name, usable_cores
from bert.files.paths import file_size
from bert.files.process import hidden_stderr
from bert.log import logger
from bert.models.answering import AnsweringModel
from bert.models.fine_tuned import LoadedModel, open_fine_tuned, open_stored_task, read_task
from bert.models.options import EngineModel, Overrides
from bert.models.vectors import Encoding
from bert.network.lengths import pad_sequences
from bert.options import Message, Option, OptionError
from bert.tasks.answering import AnsweringTask
from bert.tasks.examples import LISTS
from bert.weights.folder import ModelFolder
from bert.weights.options import AUTO
from modeling import BertConfig

# By engine, the format of its models.
FORMS: Mapping[str, str] = {"litert": "tflite", "onnx": "onnx"}

_FOLDER = "bert-engines"
# Raised with a change of what is converted, after which what is kept is made anew.
_REVISION = 2
# By which outputs of float32 may differ, in logits.
_TOLERANCE = 1e-3
# An engine is timed for this long.
_SECONDS = 0.3
# A model with as many bytes of weights is converted in another process, whose start takes seconds.
_LARGE = 10**8


def open_with_engine(folder: ModelFolder, given: EngineModel, batch_size: int) -> AnsweringModel:
    """Returns a fine-tuned model that an engine computes.

    Args:
      folder: The folder of the model.
      given: The engine, other than tensorflow; the precision, "float32" or "int8"; and options in
        place of what the folder says.
      batch_size: Maximum sequences that go through the model together.

    Raises:
      ValueError: where the model cannot be opened, or the engine cannot run it.
    """
    source = _Source(folder, given, batch_size)
    engine, precision, content = given.engine, given.precision, None
    if engine == AUTO:
        engine, content = _find_fastest(source, precision)
        if engine == "tensorflow":
            return source.load()
    check_installed(FORMS[engine], Option("engine", engine))
    content = content or source.entry(engine, precision).read()
    if content is None:
        with _calling(source) as call:
            _, content = _get(source, call, engine, precision, is_timed=False)
    assert content is not None
    model = source.open(content, engine, precision)
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
        self.task: AnsweringTask = open_stored_task(folder, self._stored)
        self.text_vectors = folder.text_vectors
        self.max_seq_length = overrides.max_seq_length
        self.has_encoder = not folder.config.is_word_vectors
        self._loaded: LoadedModel | None = None
        self._loading = threading.Lock()
        made_of = [folder.stored.describe(), folder.config.to_dict(), self._stored]
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

    def __reduce__(self) -> tuple[Any, ...]:
        return _Source, (self._folder, self._overrides, self.batch_size)

    @property
    def is_large(self) -> bool:
        """Whether the memory that a conversion takes is worth a process of its own."""
        stored = self._folder.stored
        return sum(map(file_size, {stored.index, *stored.parts})) >= _LARGE

    def entry(self, engine: str, precision: str) -> Entry:
        """Returns the model for an engine in the cache, whether it is there or not."""
        form = FORMS[engine]
        return Entry.find(_FOLDER, self.key(form, precision, _versions(form)))

    def open(self, content: bytes, engine: str, precision: str) -> "ConvertedModel":
        """Returns the model that an engine computes, from its file."""
        path = self.entry(engine, precision).path
        return ConvertedModel(self, portable.make_runtime(content, FORMS[engine], path))

    def convert(self, engine: str, precision: str) -> bytes:
        """Returns the file of the model for an engine.

        Raises:
          OptionError: where the engine cannot run it, or computes something else.
        """
        form, model = FORMS[engine], self.load().model
        try:
            content = portable.convert(model, form, precision)
            runtime = portable.make_runtime(content, form, engine)
            if precision == "float32":
                _compare(model, runtime, engine, self._folder.config)
        except OptionError:
            raise
        # Converters and runtimes raise what they like.
        except Exception as error:
            reason = (str(error) or type(error).__name__).partition("\n")[0]
            raise OptionError("engine", "be one that can run this model", engine, reason) from error
        return content


class ConvertedModel(Encoding, AnsweringModel):
    """A fine-tuned model whose answers an engine computes, and whose vectors TensorFlow does.

    TensorFlow loads the model for the first vector.
    """

    def __init__(self, source: _Source, runtime: Runtime) -> None:
        super().__init__(source.task, runtime, source.batch_size)
        self.max_seq_length = source.max_seq_length
        self.text_vectors = source.text_vectors
        self.methods += ("encode", "inputs") if source.has_encoder else ()
        self._source = source

    @property
    def model(self) -> keras.Model:  # type: ignore[override]
        return self._source.load().model


def _compare(model: keras.Model, runtime: Runtime, engine: str, config: BertConfig) -> None:
    """Checks that an engine computes what the model does."""
    length, largest = min(8, config.max_position_embeddings), config.vocab_size - 1
    rows = [[min(token, largest) for token in row][:length] for row in ([1, 2, 3, 4, 2], [1, 2])]
    arrays = pad_sequences(rows, [[0] * len(row) for row in rows], length)
    arrays["label_mask"] = arrays["input_mask"]
    batch = {
        name: arrays[name] if rank == 2 else arrays[name][:, None]
        for name, rank in runtime.ranks.items()
    }
    # GPUs may round the factors of products, which the engines do not.
    with tf.device("/CPU:0"):
        expected, found = model(batch, training=False), runtime(batch)
    for name, values in expected.items():
        difference = float(np.max(np.abs(np.asarray(values) - found[name])))
        if not difference <= _TOLERANCE:
            received = Message("%r, whose %s differ by %.3g", engine, name, difference)
            raise OptionError("engine", "compute what the model computes", received)


# What `_prepare` returns: the seconds of `_time` for one text and for a batch, and a file.
_Prepared = tuple[list[float], bytes | None]
_Call = Callable[[str, str, bool], _Prepared]


def _find_fastest(source: _Source, precision: str) -> tuple[str, bytes | None]:
    """Returns the engine that answers fastest on this machine, and its file if that is not kept.

    One text and a batch count alike. Which engine it is, is kept in the cache, too.
    """
    names = [name for name, form in FORMS.items() if not missing_packages(form)]
    if not names and precision == "float32":
        logger.info("The engine is tensorflow: neither LiteRT nor ONNX Runtime is installed.")
        return "tensorflow", None
    if not names:
        raise OptionError("precision", "be float32 where no engine for it is installed", precision)
    versions = [_versions(FORMS[name]) for name in names]
    machine = (processor_name(), usable_cores(), source.batch_size)
    entry = Entry.find(_FOLDER, source.key("fastest", precision, versions, *machine))
    chosen = (entry.read() or b"").decode()
    # Measured first, TensorFlow answers where a conversion needs more memory than there is.
    names = ["tensorflow", *names] if precision == "float32" else names
    if chosen in names:
        logger.info("The engine is %s, the fastest on this machine when it was measured.", chosen)
        return chosen, None
    chosen, content, is_sure = _measure(source, names, precision)
    if is_sure:
        entry.write(chosen.encode())
    return chosen, content


def _measure(
    source: _Source, names: Sequence[str], precision: str
) -> tuple[str, bytes | None, bool]:
    """Returns the fastest of some engines, its file if that is not kept, and whether that is sure.

    It is not sure where a process ended while it measured one of them.
    """
    times: dict[str, list[float]] = {}
    errors: list[Exception] = []
    chosen, content = "", None
    with _calling(source) as call:
        for name in names:
            try:
                times[name], made = _get(source, call, name, precision)
            except (OptionError, OSError) as error:
                logger.warning("The engine %s is left out. %s", name, error)
                errors.append(error)
                continue
            if not chosen or math.prod(times[name]) < math.prod(times[chosen]):
                chosen, content = name, made
    if not chosen:
        raise errors[0]
    shown = ", ".join(
        f"{name} {1000 * one:.1f} and {1000 * batch:.1f}" for name, (one, batch) in times.items()
    )
    logger.info(
        "The engine is %s. Milliseconds for one text and for %d: %s.",
        chosen,
        source.batch_size,
        shown,
    )
    return chosen, content, not any(isinstance(error, OSError) for error in errors)


@contextlib.contextmanager
def _calling(source: _Source) -> Iterator[_Call]:
    """Gives a function that calls `_prepare`, for a large model in another process.

    With a GPU, whose memory two processes would share, it is this process.
    """
    is_daemon = multiprocessing.current_process().daemon
    if not source.is_large or is_daemon or tf.config.list_physical_devices("GPU"):
        yield lambda *given: _prepare(source, given)
        return
    with (
        # The process may be ended before it has removed its files.
        tempfile.TemporaryDirectory(prefix="bert-engine-") as folder,
        Workers(1, source, is_apart=True) as workers,
    ):
        # It shows nothing of what converters write.
        with hidden_stderr():
            [*_] = workers.map(_put_files, [folder])

        def call(*given: Any) -> _Prepared:
            [prepared] = workers.map(_prepare, [given])
            return prepared

        yield call


def _put_files(source: _Source, folder: str) -> None:
    """Sets where this process puts temporary files."""
    del source
    tempfile.tempdir = folder


def _get(
    source: _Source, call: _Call, engine: str, precision: str, *, is_timed: bool = True
) -> _Prepared:
    """Returns what `call` does; a model that is converted goes into the cache.

    A file that is in the cache is not returned beside seconds, for it may not be needed.
    """
    entry = None if engine == "tensorflow" else source.entry(engine, precision)
    if entry and not entry.exists:
        logger.info("Converting the model for %s, in %s, once.", engine, precision)
    times, content = call(engine, precision, is_timed)
    if entry and content and not entry.exists:
        entry.write(content)
    return times, None if times and entry and entry.exists else content


def _prepare(source: _Source, given: tuple[str, str, bool]) -> _Prepared:
    """Returns the seconds in which an engine answers, and its file, converted where need be.

    Args:
      source: The model.
      given: The engine, "tensorflow" among them; the precision; whether to measure the seconds.
    """
    engine, precision, is_timed = given
    content = None
    model: AnsweringModel
    if engine == "tensorflow":
        model = source.load()
    else:
        content = source.entry(engine, precision).read() or source.convert(engine, precision)
        if not is_timed:
            return [], content
        model = source.open(content, engine, precision)
    return [_time(model, size) for size in (1, source.batch_size)], content


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


@functools.cache
def _versions(form: str) -> list[str]:
    """Returns the packages that convert for an engine and run what they write."""
    names = {"tflite": ("tensorflow", "ai_edge_litert"), "onnx": ("tf2onnx", "onnxruntime")}
    # They may be installed under other names, such as tensorflow-cpu and onnxruntime-gpu.
    found = metadata.packages_distributions()
    packages = [package for name in names[form] for package in sorted({*found.get(name, ())})]
    return [f"{package} {metadata.version(package)}" for package in packages]
