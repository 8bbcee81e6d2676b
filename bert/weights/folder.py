"""Reads and writes the folder of a model: configuration, vocabulary, casing, task and weights.

The folder is the original's, one of transformers, or the output folder of a run of this project.
"""

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenization
from bert.files import owned
from bert.files.durable import replace_files
from bert.files.paths import find_file, find_json_object, is_file, read_file
from bert.files.stored_models import step_of
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError, joined
from bert.text.vocabulary import (
    check_same,
    is_tokenizer_json,
    read_json_vocab,
    vocab_text,
    warn_of_casing,
)
from bert.weights import (
    checkpoint,
    provenance,
    readers,
    saved_models,
    sentence_transformers,
    tokenizers,
)
from bert.weights.checkpoint import Stored
from bert.weights.loading import read_config
from bert.weights.model_files import (
    CONFIG_FILE,
    FILES_KEY,
    TASK_FILE,
    VOCAB_FILE,
    check_digest,
    check_task,
    find_config_differences,
    find_task_differences,
    make_files,
    read_labels,
)
from bert.weights.options import ModelSource, VocabularySource
from bert.weights.tokenizers import HUGGINGFACE_CONFIG_FILE
from modeling import BertConfig

# By option, the names that its file may have in the folder of a model.
_NAMES = {
    "bert_config_file": (CONFIG_FILE, HUGGINGFACE_CONFIG_FILE),
    "vocab_file": (*tokenizers.VOCABULARIES, VOCAB_FILE, tokenizers.TOKENIZER_FILE),
}


class ModelFolder:
    """The folder of a model.

    Args:
      path: The folder.
      option: The option that gave it or its weights, for messages.
      stored: Its weights, where they are located already.
      bert_config_file: Replaces the configuration in the folder.
      vocab_file: Replaces the vocabulary in the folder; as `saved_models.find_text_options`.
      do_lower_case: The given casing; None for what the folder says.
      default_casing: The casing where neither the caller nor the folder says it.
    """

    def __init__(
        self,
        path: str,
        option: str = "output_dir",
        stored: Stored | None = None,
        *,
        bert_config_file: str | None = None,
        vocab_file: str | None = None,
        do_lower_case: bool | None = None,
        default_casing: bool | None = None,
    ) -> None:
        self.path = path
        self.option = option
        self._stored = stored
        vocab_file, casing = saved_models.find_text_options(vocab_file, do_lower_case)
        self._given = {"bert_config_file": bert_config_file, "vocab_file": vocab_file}
        self._given_casing = casing
        self._default_casing = default_casing
        self.warned_of: set[str] = set()

    @classmethod
    def open(
        cls, path: str, option: str = "init_checkpoint", *, fetches: bool = True, **given: Any
    ) -> "ModelFolder":
        """Returns the folder of weights.

        Args:
          path: As `Stored.open` takes it.
          option: The option that gave it, for messages.
          fetches: Whether a model of the hub that is not in the local cache is fetched.
          **given: Keyword arguments of `ModelFolder`.

        Raises:
          ValueError: where there are no weights, or the given casing is not the model's.
        """
        stored = Stored.open(path, option, fetches=fetches)
        folder = cls(stored.folder, option, stored, **given)
        folder.check_casing()
        return folder

    @classmethod
    def of(
        cls, model: ModelSource, vocabulary: VocabularySource, output_dir: str = ""
    ) -> "ModelFolder":
        """Returns the folder of the model that options name, with configuration and vocabulary.

        The folder is that of `init_checkpoint`, or else `output_dir`.

        Raises:
          ValueError: where a file is neither given nor there, or the casing is not that of the
            model.
        """
        folder = cls.named_by(model, vocabulary, output_dir)
        folder.log_found()
        folder.check_casing()
        return folder

    def log_found(self, names: Iterable[str] = tuple(_NAMES)) -> None:
        """Logs which of the files of these names are beside the weights rather than given."""
        names = [name for name in names if name != "bert_config_file" or not self._is_described]
        if found := [self._file(name) for name in names if not self._given[name]]:
            logger.info("Not given, so taken from beside the weights: %s.", ", ".join(found))

    @classmethod
    def named_by(
        cls,
        model: ModelSource,
        vocabulary: VocabularySource | None = None,
        output_dir: str = "",
        *,
        fetches: bool = True,
    ) -> "ModelFolder":
        """Returns the folder as `of` does, but only locates the weights and checks nothing.

        `fetches` is as for `open`.
        """
        given: dict[str, Any] = {"bert_config_file": model.bert_config_file}
        if vocabulary is not None:
            given["vocab_file"] = vocabulary.vocab_file
            given["do_lower_case"] = vocabulary.do_lower_case
            given["default_casing"] = vocabulary.LOWERS_BY_DEFAULT
        if not model.init_checkpoint:
            return cls(output_dir, **given)
        stored = Stored.open(model.init_checkpoint, fetches=fetches)
        return cls(stored.folder, stored.option, stored, **given)

    def find(self, name: str) -> str | None:
        """Returns the path of "bert_config_file" or "vocab_file", given or in the folder."""
        found = self._given[name] or find_file(self.path, self._names(name))
        return found or (saved_models.find_vocabulary(self.path) if name == "vocab_file" else None)

    @property
    def files(self) -> list[str]:
        """The files of the model that a script reads, weights included."""
        names = (TASK_FILE, *tokenizers.FILES, *sentence_transformers.FILES)
        files = [*map(self.find, _NAMES), *(find_file(self.path, [name]) for name in names)]
        return [*filter(None, files), self.stored.prefix, *self.stored.parts]

    def _names(self, name: str) -> tuple[str, ...]:
        # A folder may have two configurations, those of two kinds of weights.
        reverse = name == "bert_config_file" and self._is_huggingface
        return _NAMES[name][::-1] if reverse else _NAMES[name]

    @property
    def _is_huggingface(self) -> bool:
        return self._stored is not None and self._stored.is_huggingface

    def _file(self, name: str) -> str:
        if path := self.find(name):
            if not self._given[name]:
                check_digest(path, self.task.get(FILES_KEY, {}))
            return path
        neither = "neither %r nor %r in %r"
        missing = (*self._names(name)[-2:], self.path)
        if self._stored is None and self.option == "output_dir":
            must = Message(f"be given, or else %s: there is {neither}", Option(name), *missing)
            raise OptionError("init_checkpoint", must)
        raise OptionError(name, Message(f"be given, for there is {neither}", *missing))

    @property
    def _is_described(self) -> bool:
        """Whether the file of the weights alone has the configuration."""
        is_in_file = self._stored is not None and self._stored.shape is not None
        return is_in_file and not self.find("bert_config_file")

    @functools.cached_property
    def bert_config_file(self) -> str:
        """The path of the configuration; a `ValueError` where there is none."""
        return self._file("bert_config_file")

    @functools.cached_property
    def vocab_file(self) -> str:
        """The path of the vocabulary; a `ValueError` where there is none."""
        return self._file("vocab_file")

    @functools.cached_property
    def config(self) -> BertConfig:
        """The shape of the model, as `read_config`."""
        return read_config("" if self._is_described else self.bert_config_file, self._stored)

    @functools.cached_property
    def huggingface_config(self) -> dict[str, Any]:
        """The content of `config.json`, {} where there is none."""
        return find_json_object(os.path.join(self.path, HUGGINGFACE_CONFIG_FILE))

    @functools.cached_property
    def vocabulary(self) -> bytes:
        """The text of a `vocab.txt` with the word pieces; added tokens are not among them."""
        text = read_file(self.vocab_file)
        if not is_tokenizer_json(self.vocab_file):
            return text
        vocab = read_json_vocab(text, self.vocab_file, with_added=False)
        return vocab_text(vocab)

    def load_tokenizer(
        self, special_tokens: Sequence[str] = ("[CLS]", "[SEP]")
    ) -> tokenization.FullTokenizer:
        """Returns the model's tokenizer, which lower-cases where nothing says anything else.

        Raises:
          ValueError: where the vocabulary does not fit the model or lacks a special token.
        """
        casing, config = self.do_lower_case is not False, self.config
        is_words = config.is_word_vectors
        tokenizer = tokenizers.make(self.vocab_file, casing, self.tokenizer_options, is_words)
        vocab = tokenizer.vocab
        tokenizers.check_vocabulary(tokenizer, self.vocab_file, config.vocab_size, special_tokens)
        if self._given["vocab_file"]:
            self.check_given(vocab, Option("vocab_file"), self.vocab_file)
        elif not is_tokenizer_json(self.vocab_file):
            tokenizers.check_json_agrees(vocab, self.vocab_file)
        if not is_words:
            warn_of_casing(vocab, self.vocab_file, casing)
        tokenizer.model_max_length = config.max_position_embeddings
        return tokenizer

    def check_given(self, vocab: Mapping[str, int], what: Any, path: str) -> None:
        """Checks that a vocabulary is the one beside the weights, if any; as `check_same`."""
        own_file = find_file(self.path, _NAMES["vocab_file"]) if self._stored else None
        if own_file and os.path.dirname(path) != self.path:
            own = tokenizers.make(own_file, True, self.tokenizer_options).vocab
            check_same(vocab, what, path, own=own, own_file=own_file)

    @functools.cached_property
    def tokenizer_options(self) -> dict[str, Any]:
        """How the tokenizer differs from the original's, as `read_tokenizer_options` has it."""
        try:
            saved = self.task.get(tokenizers.TOKENIZER)
        except ValueError:
            # A run may be about to replace a damaged file.
            if self._stored or not self._given["vocab_file"]:
                raise
            return {}
        if saved is not None:
            return saved
        own = tokenizers.read_options(self.path)
        return tokenizers.read_options_beside(given) if (given := self._telling_file) else own

    @property
    def _telling_file(self) -> str | None:
        """A given `tokenizer.json`, where it says how texts are split because the folder does not.

        The folder of a run says it in its `task.json`.
        """
        given = self._given["vocab_file"]
        is_silent = not find_file(self.path, (TASK_FILE, *tokenizers.FILES))
        return given if given and is_tokenizer_json(given) and is_silent else None

    @property
    def do_lower_case(self) -> bool | None:
        """Whether the model is uncased, as given, or as the folder says, or by default."""
        return self._default_casing if self.known_casing is None else self.known_casing

    @property
    def stored_casing(self) -> bool | None:
        """Whether the model is uncased, as the folder says; None where nothing in it does."""
        return self._stored_casing[0] if self._stored_casing else None

    @property
    def known_casing(self) -> bool | None:
        """Whether the model is uncased, as given, or as the folder says, or None."""
        return self.stored_casing if self._given_casing is None else self._given_casing

    @functools.cached_property
    def _stored_casing(self) -> tuple[bool, str] | None:
        """Whether the folder says that the model is uncased, and the file that says so."""
        try:
            found = tokenizers.read_casing(self.path)
            found = found or (saved_models.read_casing(self._stored) if self._stored else None)
            if not found and (given := self._telling_file):
                return tokenizers.read_casing(os.path.dirname(given))
            return found
        except ValueError:
            # A run may be about to replace a damaged file, as in `tokenizer_options`.
            if self._stored:
                raise
            return None

    def check_casing(self) -> None:
        """Checks the casing of texts against what the folder of weights says of its model."""
        casing = self.do_lower_case
        if casing is None or not self._stored:
            return
        # The files in the folder count more than its name.
        if self._given_casing is not None or not self._stored_casing:
            tokenization.validate_case_matches_checkpoint(casing, self._stored.path)
        tokenizers.check_casing(casing, self._stored_casing)

    @property
    def task(self) -> dict[str, Any]:
        """The content of `task.json`, {} where there is none; a run may have just written it."""
        path = os.path.join(self.path, TASK_FILE)
        stored = find_json_object(path)
        if "registered_name" in stored:
            # keras-hub has a file of that name, too.
            return {}
        check_task(stored, path)
        return stored

    def read_task(self) -> dict[str, Any]:
        """Returns the content of `task.json`; a `ValueError` where it is absent or damaged."""
        if is_file(os.path.join(self.path, TASK_FILE)):
            return self.task
        raise OptionError(
            self.option,
            Message("be the %s of a fine-tuning script", Option("output_dir")),
            remedy=Message(
                "%r has no %s. Fine-tune first, with %s; convert_checkpoint.py makes such a folder "
                "of a fine-tuned Hugging Face model; fill_mask.py and extract_features.py use "
                "models that are only pre-trained.",
                self.path,
                TASK_FILE,
                Option("do_train"),
            ),
        )

    @functools.cached_property
    def text_vectors(self) -> sentence_transformers.TextVectors | None:
        """How sentence-transformers computes the vectors of texts; None without its files."""
        return sentence_transformers.read(self.path, self.config.max_position_embeddings)

    @property
    def labels(self) -> list[str] | None:
        """The names of the model's outputs, where a file has them."""
        return self._task_labels or read_labels(self.huggingface_config)

    @property
    def _task_labels(self) -> list[str]:
        labels = self.task.get("task", {}).get("labels") or []
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            path = os.path.join(self.path, TASK_FILE)
            raise ValueError(f"`labels` in {path!r} must be a list of texts. It is {labels!r:.80}.")
        return labels

    def check_labels(self, labels: Sequence[str]) -> None:
        """Checks that a task's labels are in the order of the model's; warns of other labels."""
        stored, name = self._task_labels, TASK_FILE
        if not stored and self._is_huggingface:
            stored = read_labels(self.huggingface_config) or []
            name = HUGGINGFACE_CONFIG_FILE
        # transformers writes LABEL_0, LABEL_1 and so on where nobody has named them.
        if not stored or stored == list(labels) or stored[0] == "LABEL_0":
            return
        path = os.path.join(self.path, name)
        if sorted(stored) == sorted(labels):
            raise MessageError(
                "The task's labels must come in the order of the model's outputs. They are "
                "%s; %r has %s. predict.py takes the model's order, of a Hugging Face model in a "
                "folder that convert_checkpoint.py makes; with a custom task, %s does, too.",
                list(labels),
                path,
                stored,
                Option("labels", ",".join(stored)),
            )
        pairs = zip(stored, labels, strict=False)
        logger.warning(
            "The labels in %s are not those of the task. Taken are: %s.",
            path,
            ", ".join(f"{theirs} as {ours}" for theirs, ours in pairs),
        )

    def find_weights(self) -> Stored | None:
        """Returns the weights that a training run has left here by now, or None."""
        prefix = checkpoint.find_trained(self.path)
        return Stored(prefix, self.option) if prefix else None

    def check_fillable(self, *, overwrites: bool) -> None:
        """Checks that a training run here replaces no weights that no such run has written.

        Args:
          overwrites: Whether the run deletes the files of earlier runs; otherwise it resumes from
            checkpoints of TensorFlow 1, too.
        """
        names = owned.read_names(self.path)
        foreign = [
            name
            for name in readers.weight_files(self.path)
            if name not in names and (overwrites or step_of(name) is None)
        ]
        # Weights of a run whose list of files was lost are renamed rather than replaced.
        if foreign and not provenance.read(self.path):
            raise OptionError(
                self.option,
                "not hold weights that were not trained there",
                remedy=Message(
                    "%r has %r. Give a new folder; the model to begin with is the %s.",
                    self.path,
                    foreign[0],
                    Option("init_checkpoint"),
                ),
            )

    @functools.cached_property
    def stored(self) -> Stored:
        """The weights, as located, or as a training run has left them in the folder."""
        if self._stored:
            return self._stored
        if found := self.find_weights():
            provenance.check_trained(self.path, step_of(found.prefix), self.option)
            return found
        remedy = f"{self.path!r} has none; did the training end?"
        raise OptionError(self.option, "hold trained weights", remedy=remedy)

    def save(
        self,
        config: BertConfig,
        vocabulary: bytes | None = None,
        task: Mapping[str, Any] | None = None,
        do_lower_case: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the files of a model beside its weights; arguments as for `make_files`."""
        self.write(make_files(config, vocabulary, task, do_lower_case, options))

    def write(self, files: Mapping[str, bytes]) -> None:
        """Writes files of a run, by name, unless they are there already."""
        for name, text in files.items():
            path = os.path.join(self.path, name)
            if not is_file(path) or read_file(path) != text:
                with replace_files([owned.claim(self.path, name)]) as (file,):
                    file.write(text)

    def check_same(
        self,
        config: BertConfig,
        vocabulary: bytes | None = None,
        task: Mapping[str, Any] | None = None,
    ) -> None:
        """Checks that the files to `save` do not differ from those in the folder, if any.

        Raises:
          ValueError: where they are of another configuration or task, naming the differences.
        """
        vectors = config.is_word_vectors
        option = Option("word_vectors" if vectors else "bert_config_file")
        if differences := find_config_differences(self.path, config, option):
            raise OptionError(
                self.option,
                "belong to the same configuration",
                remedy=Message(
                    "In %r, %s. Give another %s, or the old %s.",
                    self.path,
                    joined(differences, "; "),
                    Option("output_dir"),
                    "vectors" if vectors else "configuration",
                ),
            )
        stored = self.task if task is not None else {}
        differences = [*find_task_differences(stored, task or {})]
        if stored and read_file(os.path.join(self.path, VOCAB_FILE)) != vocabulary:
            option = option if vectors else Option("vocab_file")
            differences.append(Message("its %s differs from %s", VOCAB_FILE, option))
        if differences:
            raise OptionError(
                self.option,
                "belong to the same task",
                remedy=Message(
                    "In %r, %s. Give another %s, or %s and %s to delete what is there.",
                    self.path,
                    joined(differences, "; "),
                    Option("output_dir"),
                    Option("do_train"),
                    Option("overwrite_output_dir"),
                ),
            )
