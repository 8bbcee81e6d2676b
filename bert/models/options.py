"""Options of a model that is queried, converted, or searched for nearest neighbours."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bert.files.paths import PATTERNS
from bert.files.rows import text_lines
from bert.files.stored_models import KERAS_ENDING, KERAS_FILE, SAFETENSORS_FILE, WEIGHTS
from bert.files.texts import TextColumns, Texts, clean_line, find_texts
from bert.options import REQUIRED, Message, MessageError, Option, OptionError, OptionGroup, option
from bert.tasks.layers import COMBINATIONS, check_encoder, parse_one_layer
from bert.weights.options import (
    ARCHITECTURES,
    AUTO,
    BESIDE,
    CHECKPOINT_FORMS,
    FINE_TUNED,
    LOWERS,
    MAX_TOKENS,
    PRECISION,
    PRECISIONS,
)
from bert.weights.sentence_transformers import AS_IN_FOLDER, DEFAULT_LENGTH, follow

if TYPE_CHECKING:
    from typing_extensions import Self

    from bert.weights.folder import ModelFolder

# The ending of an archive of vectors.
_ARCHIVE = ".npz"
# Maximum characters of a text or an id in such an archive.
TEXT_LIMIT = 1000
# Models that this project has not trained, and those whose graph is fixed.
FROM_ELSEWHERE = (
    "a Hugging Face folder; the name of a model on the Hugging Face hub, owner/model; a checkpoint "
    "of the original; or an exported SavedModel"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderOptions(OptionGroup):
    """Options in place of what the folder of a model says, or says nothing of; None by default."""

    GROUP = "model"

    bert_config_file: str | None = option(
        None, f"The model's configuration, bert_config.json.{BESIDE}"
    )
    vocab_file: str | None = option(None, f"WordPiece vocabulary, one entry per line.{BESIDE}")
    do_lower_case: bool | None = option(None, f"{LOWERS} Default: as the model's folder says.")
    is_pair: bool | None = option(
        None, "Whether a classifier without task.json takes pairs of texts."
    )
    version_2_with_negative: bool | None = option(
        None,
        "Whether a model may find that a question has no answer, as in SQuAD 2.0. Default: as "
        "task.json says, or else false.",
    )
    null_score_diff_threshold: float | None = option(
        None,
        "With SQuAD 2.0, answer that there is no answer if that scores higher than the best answer "
        "by more than this. Default: as task.json says, or else 0.",
    )

    @property
    def files(self) -> dict[str, Any]:
        """The options that `ModelFolder` takes."""
        names = ("bert_config_file", "vocab_file", "do_lower_case")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overrides(FolderOptions):
    """Options of a model that is queried, in place of what its folder says."""

    OBJECTS: ClassVar = {"labels": list | tuple}

    GROUP = "model"

    architecture: str | None = option(
        None,
        "Class of the model in transformers, for a model without task.json. Default: as its files "
        "say, or else by its head.",
        choices=tuple(FINE_TUNED.values()),
    )
    task_name: str | None = option(
        None,
        "Task of GLUE, or xnli, of a classifier that was trained with the original; it sets the "
        "labels and the number of texts.",
    )
    labels: str | None = option(
        None,
        "Labels of a model without task.json, comma-separated, in the order of its outputs. "
        "Default: those in config.json.",
    )
    max_seq_length: int | None = option(
        None,
        f"{MAX_TOKENS}. Default: as the model was trained, or else the most that it accepts; for "
        "questions without a task.json at most 384.",
        low=3,
    )

    @property
    def label_names(self) -> list[str]:
        """The labels as a list."""
        labels: Any = () if self.labels is None else self.labels
        names = labels.split(",") * bool(labels) if isinstance(labels, str) else labels
        return [str(name).strip() for name in names]

    def check_absent(self, names: Collection[str], where: str | Message, path: str) -> None:
        """Checks that options are not given that would be ignored.

        Args:
          names: The options.
          where: Why they would be ignored, such as "for an exported model".
          path: The model, for the message.

        Raises:
          OptionError: for the first that is given.
        """
        for name in names:
            check_absent(name, getattr(self, name), where, path)


OVERRIDES = tuple(field.name for field in dataclasses.fields(Overrides))
NO_OVERRIDES = Overrides()


def check_absent(name: str, value: Any, where: str | Message, path: str) -> None:
    """Checks that an option is None, as `Overrides.check_absent`."""
    if value is not None:
        must = Message("not be given %s", where)
        raise OptionError(name, must, Message("%r for %r", value, path))


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueriedModel(Overrides):
    """A model that is queried."""

    GROUP = "model"

    model_dir: str = option(
        REQUIRED,
        Message(
            f"Fine-tuned model: the %s of a fine-tuning script; {FROM_ELSEWHERE}.",
            Option("output_dir"),
        ),
    )
    precision: str = option(
        "float32",
        f"{PRECISION} bfloat16 also stores the weights in that type: half the memory, and fastest "
        "where the hardware has instructions for it.",
        choices=(*PRECISIONS, "bfloat16"),
        group="devices",
    )


ENGINES = ("tensorflow", "litert", "onnx", AUTO)
ENGINE_HELP = (
    "Runtime that computes the answers of a fine-tuned model. litert, onnx: faster on a CPU, in "
    "float32 or int8; the model is converted once, and kept in a cache of the user. auto: the "
    "fastest that is installed, by a measurement; tensorflow where no other can."
)
INT8 = "int8"
# What engines other than TensorFlow compute in.
ENGINE_PRECISIONS = ("float32", INT8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineModel(QueriedModel):
    """A model that answers, and the engine that computes its answers."""

    GROUP = "model"

    precision: str = option(
        "float32",
        Message(
            f"{PRECISION} bfloat16 also stores the weights in that type: half the memory, and "
            "fastest where the hardware has instructions for it. int8 needs an %s that has it.",
            Option("engine"),
        ),
        choices=(*PRECISIONS, "bfloat16", INT8),
        group="devices",
    )
    engine: str = option("tensorflow", ENGINE_HELP, choices=ENGINES, group="devices")


def check_engine(engine: str, precision: str) -> None:
    """Checks that an engine has a precision.

    Raises:
      OptionError: where it has not.
    """
    if engine == "tensorflow" and precision == INT8:
        must = Message("be another one unless %s is litert, onnx or auto", Option("engine"))
        raise OptionError("precision", must, precision)
    if engine in ("litert", "onnx") and precision not in ENGINE_PRECISIONS:
        must = Message("be float32 or int8 with %s", Option("engine", engine))
        raise OptionError("precision", must, precision)


# By format, the name of the weights in a folder, and the ending of a path that names them alone.
FORMATS = {
    "tf": (WEIGHTS, ".ckpt"),
    "huggingface": (SAFETENSORS_FILE, ".safetensors"),
    "keras": (KERAS_FILE, KERAS_ENDING),
    "sentence_transformers": (SAFETENSORS_FILE, ".safetensors"),
    "onnx": ("onnx/model.onnx", ".onnx"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionSource(FolderOptions):
    """The model to convert."""

    GROUP = "model"

    input: str = option(
        REQUIRED,
        Message(
            f"Model to convert: an %s of this project; a checkpoint: {CHECKPOINT_FORMS}; or "
            "a .weights.h5 that Keras has saved of a model of make_model, or its folder.",
            Option("output_dir"),
        ),
    )
    architecture: str | None = option(
        None,
        Message(
            "Class of the model in transformers. Default: as its files say, or else by its heads. "
            "With %s, weights that only another class needs are left out.",
            Option("format", "keras"),
        ),
        choices=tuple(ARCHITECTURES),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOutput(OptionGroup):
    """The format and the place of a converted model."""

    GROUP = "output"

    output: str = option(
        REQUIRED,
        "Folder to write, with configuration and vocabulary; or only the file of weights: "
        ".../name.ckpt, .../name.safetensors, .../name.weights.h5 or .../name.onnx.",
    )
    format: str = option(
        REQUIRED,
        "tf: a TF1 checkpoint, for this project and the original. huggingface: model.safetensors, "
        "for transformers. keras: weights for Keras' load_weights. sentence_transformers: the "
        "encoder, with the mean over tokens as the vector of a text. onnx: Hugging Face's layout, "
        "for transformers.js, optimum and others, in float32 and with weights of 8 bits.",
        choices=tuple(FORMATS),
    )
    weights_only: bool = option(False, "Leave out the optimizer's variables (slots).")
    verify: bool = option(
        True, "Run the original and the result on the same input, and compare the outputs."
    )
    without_vocabulary: bool = option(
        False, "Write a folder without a vocabulary, for a model whose vocabulary is not available."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search(TextColumns):
    """A search for the sentences nearest to a sentence, or the words nearest to a word."""

    GROUP = "model"

    init_checkpoint: str | None = option(
        None, f"Checkpoint of a pre-trained or fine-tuned model: {CHECKPOINT_FORMS}."
    )
    word_vectors: str | None = option(
        None,
        Message(
            "With %s, file of word vectors to use instead of a model: word2vec or GloVe text "
            "format, such as create_word_vectors.py writes.",
            Option("word"),
        ),
    )
    input_file: str | None = option(
        None,
        Message(
            f"Sentences to search, one per line or in a table: {PATTERNS}; or one .npz file of "
            "extract_features.py %s. Omit it for a %s without %s.",
            Option("pooling"),
            Option("word"),
            Option("context"),
        ),
        group="data",
    )
    query: str | None = option(
        None, "Sentence to look up. Default: each line of standard input.", group="steps"
    )
    word: str | None = option(
        None,
        Message(
            "Word to look up, instead of a sentence; or several, comma-separated; or one with %s.",
            Option("context"),
        ),
        group="steps",
    )
    context: str | None = option(
        None,
        Message("Sentence that contains the %s, to show what it means there.", Option("word")),
        group="steps",
    )
    layer: str = option(
        "last",
        "Layer to take the vectors from: a number from 0, or from the end with -1; or a name: "
        f"{', '.join(COMBINATIONS)}.",
    )
    pooling: str | None = option(
        None,
        "How to make the vector of a sentence: the mean or maximum over its tokens, or the vector "
        f"of [CLS]. Default: mean, or {AS_IN_FOLDER}.",
        choices=("mean", "max", "cls"),
    )
    center: bool = option(
        False,
        "Subtract the mean of all vectors, around which they lie in a narrow cone, from each: "
        "cosines then spread and the neighbors change, not always for the better.",
    )
    max_seq_length: int | None = option(
        None,
        "Maximum tokens per text, including [CLS] and [SEP]; longer texts are truncated. "
        f"Default: {DEFAULT_LENGTH}, or {AS_IN_FOLDER}.",
        low=3,
        group="data",
    )
    batch_size: int = option(32, "Texts per batch.", low=1, group="devices")

    @property
    def is_word_alone(self) -> bool:
        """Whether words are searched without a sentence that they are in."""
        return self.word is not None and self.context is None

    def find_files(self) -> list[str]:
        """Returns the files to search, none where words are searched in a vocabulary.

        Raises:
          ValueError: where options do not fit each other, or the files.
        """
        self._check_source()
        self._check_query()
        if self.is_word_alone:
            return []
        if not self.input_file:
            raise OptionError("input_file", "name the texts to search", remedy="None is given.")
        files = find_texts(self.input_file)
        if not is_archive(files):
            # Checks the columns of tables.
            Texts(files, self)
        elif self.word or len(files) > 1:
            must = f"be text for a word in its context, and at most one {_ARCHIVE} file"
            raise OptionError("input_file", must, files)
        return files

    def _check_source(self) -> None:
        """Checks that there is a model, or word vectors for words alone."""
        vectors, model = Option("word_vectors"), Option("init_checkpoint")
        if (self.word_vectors is None) == (self.init_checkpoint is None):
            received = "both" if self.word_vectors else "neither"
            raise MessageError(
                "%s must name a model, or %s a file in its place. Received %s.",
                model,
                vectors,
                received,
            )
        if self.word_vectors and not self.is_word_alone:
            must = Message("be given with a %s without %s", Option("word"), Option("context"))
            remedy = "Each word has one vector, in any sentence."
            raise OptionError("word_vectors", must, self.word_vectors, remedy)

    def _check_query(self) -> None:
        """Checks that there is one kind of query."""
        query, word, context = Option("query"), Option("word"), Option("context")
        if self.context is not None and self.word is None:
            raise OptionError(
                "context",
                Message("be given with the %s in it", word),
                self.context,
                Message("A sentence alone is a %s.", query),
            )
        if self.query is not None and self.word is not None:
            raise MessageError(
                "Either %s or %s must be given. Received both, %r and %r; the sentence of a word "
                "is its %s.",
                query,
                word,
                self.query,
                self.word,
                context,
            )
        if self.is_word_alone and self.input_file:
            must = Message("be given with a %s or a %s", query, context)
            remedy = "A word alone is searched in the vocabulary."
            raise OptionError("input_file", must, self.input_file, remedy)

    def follow(self, folder: "ModelFolder", files: Sequence[str]) -> "Self":
        """Returns the options with what the folder of the model says where they are not given.

        Args:
          folder: The folder of the model.
          files: The files to search.
        """
        given: dict[str, Any] = {"max_seq_length": self.max_seq_length}
        # An archive has its own pooling, and words have none.
        if self.word is None and not is_archive(files):
            given["pooling"] = self.pooling
        length = self.max_seq_length or DEFAULT_LENGTH
        usual = {"max_seq_length": length, "pooling": self.pooling}
        vectors = folder.text_vectors if files else None
        values = follow(vectors, given, usual, warns="pooling" in given)
        return dataclasses.replace(self, **values)

    def check_model(self, folder: "ModelFolder") -> None:
        """Checks that the model has the vectors.

        Raises:
          ValueError: where it lacks the layer, or the length is too large.
        """
        folder.stored.check_fit(folder.config)
        if self.is_word_alone:
            # Its vector is in the table of embeddings, which has no layer and no length.
            return
        check_encoder(folder.config)
        parse_one_layer(self.layer, folder.config, flag="layer")
        limit = folder.config.max_position_embeddings
        if not 3 <= (self.max_seq_length or DEFAULT_LENGTH) <= limit:
            must = f"be at least 3 and at most {limit}, the `max_position_embeddings` of the model"
            raise OptionError("max_seq_length", must, self.max_seq_length)

    def queries(self) -> Iterator[str]:
        """Yields the words or sentences to look up, by default the lines of standard input."""
        if self.word is not None and self.context is None:
            yield from (word.strip() for word in self.word.split(","))
        elif self.context is not None or self.query is not None:
            yield self.context or self.query or ""
        else:
            for _, line in text_lines("-"):
                if text := clean_line(line):
                    yield text


def is_archive(files: Sequence[str]) -> bool:
    """Returns whether files are archives of vectors."""
    return any(path.lower().endswith(_ARCHIVE) for path in files)
