"""The plan of a run, its result, and what all plans open: devices, weights, the output folder."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert.export.formats import MODEL_FILES, Export, ExportOptions, check_exports
from bert.files import owned
from bert.files.outputs import check_folder, check_saved_model
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError, joined
from bert.parts import FAILED, UNCHECKED, Line, Parts
from bert.runs import identity
from bert.runs.identity import FolderState, Training
from bert.runs.recipes import Steps, TrainingStep
from bert.training import devices, strategies
from bert.training.cluster import find_cluster
from bert.training.options import Compute, Output
from bert.weights import provenance
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.opening import open_model, open_vocabulary
from bert.weights.options import AUTO, ModelSource, VocabularySource
from modeling import BertConfig


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
      scores: The scores of what was evaluated; empty for none.
      step: The step of the weights.
      files: Paths of the files that runs have written in the output folder.
    """

    scores: Mapping[str, Any]
    step: int
    files: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A verified plan of a run.

    Attributes:
      recipe: The recipe, with all values that it left out.
      lines: A line for each part, in the order in which they were opened.
      strategy: The devices.
      limit: The most examples of each data set that were read; None for all.
      state: The state of the output folder.
      has_memory: Whether the memory that training needs is free.
      training: How far training goes, and from where; None for no training.
    """

    recipe: Any
    lines: tuple[Line, ...]
    strategy: tf.distribute.Strategy
    limit: int | None
    state: FolderState
    has_memory: bool
    training: Training | None

    def describe(self) -> str:
        """Returns a line for each part."""
        return "\n".join(map(str, self.lines))

    @contextlib.contextmanager
    def locked(self, folder: str) -> Iterator[None]:
        """Locks an output folder for training, on the chief alone, and checks that it is unchanged.

        Raises:
          ValueError: where another process trains in the folder, or has changed it.
        """
        if not strategies.is_chief(self.strategy):
            yield
            return
        with owned.lock(folder) if self.training else contextlib.nullcontext():
            self.state.check(folder)
            yield

    def estimate(self) -> list[Line]:
        """Tries a plan with a limit; returns a line on the time of training, or on the weights."""
        parts = Parts(is_muted=True)
        if self.training and self.obstacle:
            parts.add(UNCHECKED, "time", f"not measured, for {self.obstacle}")
            return parts.lines
        with self.strategy.scope():
            if self.training:
                parts("time", self.try_steps, shows=str)
            else:
                parts("model", self.restore, shows=lambda step: f"step {step}")
        return parts.lines

    @property
    def obstacle(self) -> str:
        """Why no steps can be tried; "" where they can be."""
        return "" if self.has_memory else "there is too little memory"

    def restore(self) -> int:
        """Returns the step of the weights that a run without training would use."""
        raise NotImplementedError

    def try_steps(self) -> str:
        """Takes a few steps of training; returns an estimate of the time that training takes."""
        raise NotImplementedError


def check_steps(steps: TrainingStep) -> None:
    """Checks that a step is requested."""
    names = [
        name for name in ("do_train", "do_eval", "do_predict", "do_export") if hasattr(steps, name)
    ]
    if not any(getattr(steps, name) for name in names):
        *others, last = map(Option, names)
        raise MessageError("At least one of %s and %s must be given.", joined(others), last)


def check_scored(
    steps: Steps, export: ExportOptions, patience: int, scored: Sequence[str] = ()
) -> None:
    """Checks that a step is requested, and that options that need scores have a scored dev set.

    Args:
      steps: The steps of the run.
      export: The options of the export.
      patience: `early_stopping_patience`.
      scored: The options of a search, all of which need scores.
    """
    check_steps(steps)
    check_exports(export, is_exported=steps.do_export)
    if steps.do_train and steps.scores:
        return
    if wrong := ["early_stopping_patience"] * (patience > 0) + [*scored]:
        is_grid = wrong[0] not in ("early_stopping_patience", "num_runs")
        raise MessageError(
            "%s%s needs %s and %s.",
            Option(wrong[0]),
            " of several values" * is_grid,
            Option("do_train"),
            Option(steps.SCORING),
        )


class Opening:
    """Opens what all runs need, part by part: devices, model, precision, weights, output folder.

    What could not be opened is `FAILED`.

    Args:
      limit: The most examples of each data set to read; None for all.
      parts: Records what is found; absent, new ones.

    Attributes:
      parts: The parts so far.
      is_trial: Whether the run is only looked at.
      strategy: The devices.
      num_replicas: Devices that share a batch.
      source: The folder of the model to start from.
      config: The shape of the model.
      has_memory: Whether there is enough memory, as far as that is known.
    """

    def __init__(self, limit: int | None, parts: Parts | None = None) -> None:
        self.is_trial = limit is not None
        self.parts = parts or Parts(is_muted=self.is_trial)
        self.strategy, self.num_replicas = FAILED, FAILED
        self.source, self.config = FAILED, FAILED
        self.has_memory = True

    def open_devices(
        self,
        compute: Compute,
        options: Mapping[str, Any],
        strategy: tf.distribute.Strategy | None,
    ) -> None:
        """Adds the devices.

        Args:
          compute: The requested devices.
          options: All options of the run, in which workers must agree.
          strategy: A strategy that was opened before, if any.
        """

        def open_strategy() -> tf.distribute.Strategy:
            if self.is_trial and compute.strategy == "multi_worker" and not compute.use_tpu:
                return _stay_alone()
            opened = strategy or strategies.open_strategy(compute)
            if strategies.has_several_workers(opened):
                strategies.meeting_of(opened).check_same(identity.shared_by_workers(options))
            return opened

        self.strategy = self.parts("devices", open_strategy, shows=_describe_devices)
        if self.strategy is not FAILED:
            self.num_replicas = self.strategy.num_replicas_in_sync

    def open_model(
        self, model: ModelSource, vocabulary: VocabularySource | None, output_dir: str
    ) -> Any:
        """Adds the model to start from; returns its tokenizer where a vocabulary is needed."""
        self.source, self.config = open_model(
            self.parts, model, vocabulary, output_dir, fetches=not self.is_trial
        )
        tokenizer, files = None, ["bert_config_file"]
        if vocabulary:
            tokenizer = open_vocabulary(self.parts, model, vocabulary, self.source, self.config)
            files.append("vocab_file")
        if not self.is_trial and self.source is not FAILED:
            self.source.log_found(filter(self.source.find, files))
        return tokenizer

    def choose_precision(
        self, compute: Compute, outputs: Sequence[Output], steps: TrainingStep
    ) -> Compute:
        """Adds the precision that `auto` stands for; returns the options of computing with it.

        Args:
          compute: The options of computing.
          outputs: The output folders; a run that resumes in one of them has its precision.
          steps: The steps of the run.
        """
        if compute.precision != AUTO:
            return compute
        starts_over = steps.do_train and outputs[0].overwrite_output_dir
        folders = [] if starts_over else [output.output_dir for output in outputs]

        def choose(config: BertConfig, strategy: tf.distribute.Strategy) -> str:
            chosen = _choose_precision(folders, config) if strategies.is_chief(strategy) else ""
            return strategies.meeting_of(strategy).all_gather(chosen.encode())[0].decode()

        chosen = self.parts("precision", choose, self.config, self.strategy)
        precision = "float32" if chosen is FAILED else str(chosen)
        return dataclasses.replace(compute, precision=precision)

    def find_init(self, model: ModelSource, output_dir: str, steps: TrainingStep) -> Any:
        """Adds and returns the weights of `init_checkpoint`; None without.

        They must have the shape of the model. A run without training needs some in either folder.
        """

        def find(source: ModelFolder, config: BertConfig) -> Stored | None:
            if model.init_checkpoint:
                source.stored.check_fit(config)
                return source.stored
            if not steps.do_train and ModelFolder(output_dir).find_weights() is None:
                raise OptionError(
                    "output_dir",
                    Message(
                        "hold a trained model, or %s name one, unless %s is given",
                        Option("init_checkpoint"),
                        Option("do_train"),
                    ),
                    Message("%r, which holds none", output_dir),
                )
            return None

        text = "of the shape that the configuration asks for" if model.init_checkpoint else ""
        return self.parts("weights", find, self.source, self.config, shows=text)

    def add_folder(
        self, output: Output, steps: TrainingStep, exports: Iterable[Export] = ()
    ) -> None:
        """Adds the output folder and its lock.

        Args:
          output: The folder, and whether files of runs in it are deleted.
          steps: The steps of the run.
          exports: The exports that the run writes there.
        """
        output_dir = output.output_dir

        def check() -> None:
            check_folder(output_dir)
            if steps.do_train:
                ModelFolder(output_dir).check_fillable(overwrites=output.overwrite_output_dir)
            for export in exports:
                check_saved_model(os.path.join(output_dir, export.name), MODEL_FILES[export.format])

        there = "is there" if tf.io.gfile.isdir(output_dir) else "is new"
        self.parts("output folder", check, shows=f"{output_dir!r} {there}")
        if steps.do_train:
            self.parts("lock", owned.check_lock, output_dir, shows="nothing else trains there")

    def add_needs(
        self,
        compute: Compute,
        outputs: Sequence[Output],
        trainings: Any,
        num_weights_alone: int = 0,
        **sizes: Any,
    ) -> None:
        """Adds memory and disk.

        Args:
          compute: The options of computing.
          outputs: The output folder of each training run, and what is saved in it.
          trainings: The training runs.
          num_weights_alone: Number of checkpoints without the optimizer's slots.
          **sizes: The sizes of a batch, as for `devices.log_training_memory`.
        """

        def log_memory(config: BertConfig, num_replicas: int) -> bool:
            return devices.log_training_memory(compute, config, num_replicas=num_replicas, **sizes)

        def log_disk(config: BertConfig, trainings: Sequence[Training]) -> None:
            pairs = zip(trainings, outputs, strict=True)
            left = [run for run, output in pairs if not has_run(output.output_dir, run)]
            num_train_steps = [training.num_train_steps for training in left]
            devices.log_disk(outputs[0], config, num_train_steps, num_weights_alone)

        has_memory = self.parts("memory", log_memory, self.config, self.num_replicas)
        self.parts("disk", log_disk, self.config, trainings)
        self.has_memory = has_memory is not False

    def check_same(
        self,
        vocabulary: bytes,
        training: Training | None,
        output_dir: str,
        describe_data: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Checks that several workers have read the same; nothing else may be wrong.

        Args:
          vocabulary: The content of the vocabulary.
          training: The training run, if there is one.
          output_dir: The output folder.
          describe_data: Returns descriptions of the data.
        """
        if not self.is_trial and strategies.has_several_workers(self.strategy):
            values = identity.shared_after_reading(self.config, vocabulary, training, output_dir)
            strategies.meeting_of(self.strategy).check_same({**values, **describe_data()})


def _stay_alone() -> tf.distribute.Strategy:
    if cluster := find_cluster(os.environ):
        logger.warning(
            "Of %d workers, only %s is checked, as if it were alone.",
            len(cluster.workers),
            cluster.name(cluster.index),
        )
    return tf.distribute.get_strategy()


def _describe_devices(strategy: tf.distribute.Strategy) -> str:
    gpus = len(tf.config.list_physical_devices("GPU"))
    used = strategy.num_replicas_in_sync
    return f"{used} used, of {gpus} GPUs and {os.cpu_count()} CPU cores"


def _choose_precision(folders: Iterable[str], config: BertConfig) -> str:
    """Returns the precision of a training run in one of the folders, or else the faster one."""
    for folder in folders:
        if begun := identity.read_option(folder, "precision"):
            logger.info("Precision: %s, in which the training in %s began.", begun, folder)
            return str(begun)
    return devices.measure(config.hidden_size, config.intermediate_size)


def has_run(folder: str, training: Training) -> bool:
    """Returns whether the training run that has ended in a folder is the planned one."""
    ended = not training.starts_over and provenance.read(folder).get("ended")
    return bool(ended) and not provenance.differences(folder, training.made_of)


def list_files(folder: str) -> list[str]:
    """Returns the paths of the files that runs have written in an output folder."""
    return [os.path.join(folder, name) for name in sorted(owned.read_names(folder))]
