"""The folder of a model: its configuration, vocabulary, casing, task and weights, read and kept.

It is the original's, one of transformers, or one that a run of this project fills, `--output_dir`.
"""

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

import tokenization
from bert.files import fingerprints, owned, sentence_transformers
from bert.files import huggingface as huggingface_files
from bert.files.durable import replace_files
from bert.files.paths import find_file, is_file, read_file
from bert.files.weight_names import step_of
from bert.text.casing import warn_of_casing
from bert.text.vocabulary import check_same
from bert.weights import checkpoint, provenance, tokenizers
from bert.weights.checkpoint import Stored
from bert.weights.kept import (
    CONFIG_FILE,
    KEPT,
    TASK_FILE,
    TOKENIZER,
    VOCAB_FILE,
    check_task,
    kept_files,
)
from bert.weights.variables import check_size
from modeling import BertConfig

TOKENIZER_FILE = huggingface_files.TOKENIZER_FILE

# By flag, the names that its file may have in the folder of a model.
_NAMES = {
    "bert_config_file": (CONFIG_FILE, huggingface_files.CONFIG_FILE),
    "vocab_file": (VOCAB_FILE, TOKENIZER_FILE),
}


# The folder of one of several runs.
_RUN = re.compile(r"([^/]+-)?run_\d+")


class ModelFolder:
    """Where a model's files lie.

    Args:
      path: The folder.
      flag: The flag that gave it or its weights, for messages.
      stored: Its weights, where they have been found already.
      bert_config_file: Given in place of that in the folder.
      vocab_file: Given in place of that in the folder.
      do_lower_case: Given; None for what the folder says.
      default_casing: What `do_lower_case` is where nothing says it.
    """

    def __init__(
        self,
        path: str,
        flag: str = "output_dir",
        stored: Stored | None = None,
        *,
        bert_config_file: str | None = None,
        vocab_file: str | None = None,
        do_lower_case: bool | None = None,
        default_casing: bool | None = None,
    ) -> None:
        self.path = path
        self.flag = flag
        self._stored = stored
        self._given = {"bert_config_file": bert_config_file, "vocab_file": vocab_file}
        self._given_casing = do_lower_case
        self._default_casing = default_casing

    @classmethod
    def open(cls, path: str, flag: str = "init_checkpoint", **given: Any) -> "ModelFolder":
        """Returns the folder of weights.

        Args:
          path: As `Stored.open` takes it.
          flag: The flag that gave it, for messages.
          **given: As above: what is not to be taken from the folder.

        Raises:
          ValueError: where there are no weights, or the given casing is not that of the model.
        """
        stored = Stored.open(path, flag)
        folder = cls(stored.folder, flag, stored, **given)
        folder.check_casing()
        return folder

    @classmethod
    def of(cls, settings: Any) -> "ModelFolder":
        """Returns the folder of the model that a script's settings name.

        That is the one of `init_checkpoint`, or where there is none, `output_dir`.

        Args:
          settings: Has `bert_config_file`; `vocab_file` and `do_lower_case` need not be among its
            fields.

        Raises:
          ValueError: where a file is neither given nor there, or the casing is not that of the
            model.
        """
        folder = cls.named_by(settings)
        folder.log_found(settings)
        folder.check_casing()
        return folder

    def log_found(self, settings: Any) -> None:
        """Logs the files that the settings do not give and that are beside the weights."""
        flags = [flag for flag in _NAMES if hasattr(settings, flag) and not self._given[flag]]
        if found := [self._file(flag) for flag in flags]:
            logging.info("Not given, so taken from beside the weights: %s.", ", ".join(found))

    @classmethod
    def named_by(cls, settings: Any) -> "ModelFolder":
        """Returns what `of` does, of which nothing but the weights has been looked for."""
        given = {flag: getattr(settings, flag) for flag in _NAMES if hasattr(settings, flag)}
        given["do_lower_case"] = getattr(settings, "do_lower_case", None)
        given["default_casing"] = getattr(settings, "LOWERS_BY_DEFAULT", None)
        path = getattr(settings, "init_checkpoint", None)
        if not path:
            return cls(settings.output_dir, **given)
        stored = Stored.open(path)
        return cls(stored.folder, stored.flag, stored, **given)

    @classmethod
    def read_asked(cls, settings: Any) -> dict[str, Any]:
        """Returns the `task.json` of the model that a script asks, or {}, as where it trains one.

        It is that of `output_dir`, or where nothing was trained there, of `init_checkpoint`.
        """
        if settings.do_train:
            return {}
        return cls(settings.output_dir).task or cls.named_by(settings).task

    @classmethod
    def read_resumed(cls, settings: Any) -> dict[str, Any]:
        """Returns the `task.json` of the folder in which a script goes on training, or {}.

        One of several runs without one yet goes on with what others there have.
        """
        if not settings.do_train or settings.overwrite_output_dir:
            return {}
        if task := cls(settings.output_dir).task:
            return task
        folder, name = os.path.split(settings.output_dir.rstrip("/"))
        if not _RUN.fullmatch(name):
            return {}
        names = [os.path.split(each) for each in owned.read_names(folder)]
        others = [run for run, last in names if last == owned.LIST_FILE and _RUN.fullmatch(run)]
        tasks = (cls(os.path.join(folder, run)).task for run in others)
        return next(filter(None, tasks), {})

    def find(self, flag: str) -> str | None:
        """Returns the path of a file, given or in the folder, if there is one.

        Args:
          flag: That would name it, "bert_config_file" or "vocab_file".
        """
        return self._given[flag] or find_file(self.path, self._names(flag))

    @property
    def files(self) -> list[str]:
        """The files of the model that a script reads, weights included."""
        names = (TASK_FILE, *tokenizers.FILES, *sentence_transformers.FILES)
        files = [self.find(flag) for flag in _NAMES]
        files += [find_file(self.path, [name]) for name in names]
        return [*filter(None, files), self.stored.prefix, *self.stored.parts]

    def _names(self, flag: str) -> tuple[str, ...]:
        # Two configurations may lie side by side, those of two kinds of weights.
        reverse = flag == "bert_config_file" and self._is_huggingface
        return _NAMES[flag][::-1] if reverse else _NAMES[flag]

    @property
    def _is_huggingface(self) -> bool:
        return self._stored is not None and self._stored.is_huggingface

    def _file(self, flag: str) -> str:
        if path := self.find(flag):
            if not self._given[flag]:
                self._check_whole(path)
            return path
        one, other = self._names(flag)
        raise ValueError(
            f"`--{flag}` must be given, for there is neither {one!r} nor {other!r} in "
            f"{self.path!r}."
        )

    def _check_whole(self, path: str) -> None:
        """Checks that a file is the one that was kept with the task."""
        kept = self.task.get(KEPT, {}).get(os.path.basename(path))
        if kept is None:
            return
        text = read_file(path)
        if fingerprints.of_bytes(text) != kept["sha256"]:
            raise ValueError(
                f"{path!r} must be the file that the model was trained with, of {kept['bytes']:,} "
                f"bytes, as {TASK_FILE} beside it says. It is another one, of {len(text):,}. "
                "Restore it, or train again."
            )

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
        """The shape of the model.

        The form of the weights says which "gelu" is meant, where there are weights: a
        `bert_config.json` beside weights of the original may have keys of transformers.
        """
        config = BertConfig.from_json_file(self.bert_config_file)
        check_size(config, self.bert_config_file)
        values = huggingface_files.read_json(self.bert_config_file)
        if values.get("hidden_act", "gelu") != "gelu":
            return config
        is_theirs = huggingface_files.is_config(values)
        name = os.path.basename(self.bert_config_file)
        if self._stored and not self._is_huggingface and is_theirs:
            meant = "gelu"
        elif self._is_huggingface and not is_theirs and name == huggingface_files.CONFIG_FILE:
            meant = huggingface_files.to_bert(values)["hidden_act"]
        else:
            return config
        return BertConfig.from_dict({**config.to_dict(), "hidden_act": meant})

    @functools.cached_property
    def huggingface_config(self) -> dict[str, Any]:
        """What `config.json` holds, {} where there is none."""
        return self._read_object(huggingface_files.CONFIG_FILE)

    def _read_object(self, name: str) -> dict[str, Any]:
        path = os.path.join(self.path, name)
        return huggingface_files.read_json(path) if is_file(path) else {}

    @functools.cached_property
    def vocabulary(self) -> bytes:
        """The text of a `vocab.txt`, which has the word pieces; other tokens may be added."""
        text = read_file(self.vocab_file)
        if not huggingface_files.is_tokenizer(self.vocab_file):
            return text
        vocab = huggingface_files.read_vocab(text, self.vocab_file, with_added=False)
        return huggingface_files.vocab_text(vocab)

    def load_tokenizer(
        self, special_tokens: Sequence[str] = ("[CLS]", "[SEP]")
    ) -> tokenization.FullTokenizer:
        """Returns the model's tokenizer, which lower-cases where nothing says anything else.

        Args:
          special_tokens: Those that the vocabulary must hold.

        Raises:
          ValueError: where the vocabulary does not fit the model.
        """
        casing = self.do_lower_case is not False
        whole = self.config.is_word_vectors
        tokenizer = tokenizers.make(self.vocab_file, casing, self.tokenizer_options, whole)
        tokenizers.check_vocabulary(
            tokenizer.vocab, self.vocab_file, self.config.vocab_size, special_tokens
        )
        if self._given["vocab_file"]:
            self.check_given(tokenizer.vocab, "`--vocab_file`", self.vocab_file)
        if not whole:
            warn_of_casing(tokenizer.vocab, self.vocab_file, casing)
        return tokenizer

    def check_given(self, vocab: Mapping[str, int], what: str, path: str) -> None:
        """Checks a vocabulary from elsewhere against the one beside the weights, if one is there.

        Args:
          vocab: The id of every token.
          what: It, to begin a message.
          path: Where it is from.

        Raises:
          ValueError: where they are different ones.
        """
        own_file = find_file(self.path, _NAMES["vocab_file"]) if self._stored else None
        if own_file:
            own = tokenizers.make(own_file, True, self.tokenizer_options).vocab
            check_same(vocab, what, path, own=own, own_file=own_file)

    @functools.cached_property
    def tokenizer_options(self) -> dict[str, Any]:
        """How the tokenizer differs from the original's, as `read_tokenizer_options` has it."""
        try:
            kept = self.task.get(TOKENIZER)
        except ValueError:
            # It may be about to be replaced. Where it counts, it is told.
            if self._stored or not self._given["vocab_file"]:
                raise
            return {}
        return tokenizers.read_options(self.path, self._read_object) if kept is None else kept

    @property
    def do_lower_case(self) -> bool | None:
        """Whether the model is uncased: as is given, or as the folder says, or by default."""
        return self._default_casing if self.known_casing is None else self.known_casing

    @property
    def stored_casing(self) -> bool | None:
        """Whether the model is uncased, as the folder says, if anything in it does."""
        return self._stored_casing[0] if self._stored_casing else None

    @property
    def known_casing(self) -> bool | None:
        """Whether the model is uncased: as is given, or as the folder says, if anything does."""
        return self.stored_casing if self._given_casing is None else self._given_casing

    @functools.cached_property
    def _stored_casing(self) -> tuple[bool, str] | None:
        """Whether the folder says that the model is uncased, and the file that says so."""
        names = (TASK_FILE, huggingface_files.TOKENIZER_CONFIG_FILE)
        try:
            return tokenizers.read_casing(self.path, self._read_object, names)
        except ValueError:
            # As for the options.
            if self._stored:
                raise
            return None

    def check_casing(self) -> None:
        """Checks the casing of texts against what the folder of weights says of its model."""
        casing = self.do_lower_case
        if casing is None or not self._stored:
            return
        # What the folder says of itself counts more than its name.
        if self._given_casing is not None or not self._stored_casing:
            tokenization.validate_case_matches_checkpoint(casing, self._stored.path)
        if self._stored_casing and self._stored_casing[0] != casing:
            raise ValueError(
                f"`--do_lower_case` must be {self._stored_casing[0]} for this model, as "
                f"{self._stored_casing[1]!r} says. Received {casing}."
            )

    @property
    def task(self) -> dict[str, Any]:
        """What `task.json` holds, {} where there is none."""
        stored = self._read_object(TASK_FILE)
        check_task(stored, os.path.join(self.path, TASK_FILE))
        return stored

    def read_task(self) -> dict[str, Any]:
        """Returns what `task.json` holds.

        Raises:
          ValueError: where it is absent or damaged.
        """
        if is_file(os.path.join(self.path, TASK_FILE)):
            return self.task
        raise ValueError(
            f"`--{self.flag}` must be the `--output_dir` of a fine-tuning script. {self.path!r} "
            f"has no {TASK_FILE}. Fine-tune first, with `--do_train`; convert_checkpoint.py "
            "makes such a folder of a fine-tuned Hugging Face model; fill_mask.py and "
            "extract_features.py ask models that are only pre-trained."
        )

    @functools.cached_property
    def text_vectors(self) -> sentence_transformers.TextVectors | None:
        """How sentence-transformers makes vectors of texts; None where nothing here says it.

        Raises:
          ValueError: where its files are malformed.
        """
        return sentence_transformers.read(self.path, self.config.max_position_embeddings)

    @property
    def labels(self) -> list[str] | None:
        """Names of the model's outputs, where a file has them."""
        return self._task_labels or huggingface_files.labels(self.huggingface_config)

    @property
    def _task_labels(self) -> list[str]:
        labels = self.task.get("task", {}).get("labels") or []
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            path = os.path.join(self.path, TASK_FILE)
            raise ValueError(f"`labels` in {path!r} must be a list of texts. It is {labels!r:.80}.")
        return labels

    def check_labels(self, labels: Sequence[str]) -> None:
        """Checks the order of a task's labels against what the model says of its own.

        Where it has other names for all or some of them, a warning says which is taken for which.

        Raises:
          ValueError: where it has the same labels in another order.
        """
        stored, name = self._task_labels, TASK_FILE
        if not stored and self._is_huggingface:
            stored = huggingface_files.labels(self.huggingface_config) or []
            name = huggingface_files.CONFIG_FILE
        # transformers writes LABEL_0, LABEL_1 and so on where nobody has named them.
        if not stored or stored == list(labels) or stored[0] == "LABEL_0":
            return
        path = os.path.join(self.path, name)
        if sorted(stored) == sorted(labels):
            raise ValueError(
                f"The task's labels must come in the order of the model's outputs. They are "
                f"{list(labels)}; {path!r} has {stored}. predict.py keeps the model's order, of a "
                "Hugging Face model in a folder that convert_checkpoint.py makes; with a custom "
                f"task, `--labels={','.join(stored)}` does, too."
            )
        pairs = zip(stored, labels, strict=False)
        logging.warning(
            "The labels in %s are not those of the task. Taken are: %s.",
            path,
            ", ".join(f"{theirs} as {ours}" for theirs, ours in pairs),
        )

    def find_weights(self) -> Stored | None:
        """Returns the weights that a training has left here by now, or None."""
        prefix = checkpoint.find_trained(self.path)
        return Stored(prefix, self.flag) if prefix else None

    def check_fillable(self, *, overwrites: bool) -> None:
        """Checks that a training replaces no weights here that are of no training here.

        Args:
          overwrites: Whether what trainings have left is going to be deleted; else the checkpoints
            of one that TensorFlow 1 has begun are gone on from.

        Raises:
          ValueError: where it would.
        """
        names = owned.read_names(self.path)
        foreign = [
            name
            for name in checkpoint.weight_files(self.path)
            if name not in names and (overwrites or step_of(name) is None)
        ]
        # Of a training here whose list was lost, they are set aside rather than replaced.
        if foreign and not provenance.read(self.path):
            raise ValueError(
                f"`--{self.flag}` must not hold weights that were not trained there. "
                f"{self.path!r} has {foreign[0]!r}. Give a new folder; the model to begin with is "
                "the `--init_checkpoint`."
            )

    @functools.cached_property
    def stored(self) -> Stored:
        """The weights: those that the folder is of, or what a training has left in it.

        Raises:
          ValueError: where there are none.
        """
        if self._stored:
            return self._stored
        if found := self.find_weights():
            provenance.check_trained(self.path, step_of(found.prefix), self.flag)
            return found
        raise ValueError(
            f"`--{self.flag}` must hold trained weights. {self.path!r} has none; did the training "
            "end?"
        )

    def keep(
        self,
        config: BertConfig,
        vocabulary: bytes | None = None,
        task: Mapping[str, Any] | None = None,
        do_lower_case: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Stores what a prediction needs besides the weights.

        Args:
          config: The shape of the model.
          vocabulary: The text of its `vocab.txt`, or None to store none.
          task: What a fine-tuned model decides, or None to store nothing.
          do_lower_case: Whether a model without a task is uncased, or None to store nothing.
          options: How the tokenizer of such a model differs from the original's.
        """
        self.write(kept_files(config, vocabulary, task, do_lower_case, options))

    def write(self, files: Mapping[str, bytes]) -> None:
        """Writes files, by their names, as a run's own, where they are not there already."""
        for name, text in files.items():
            path = os.path.join(self.path, name)
            if not is_file(path) or read_file(path) != text:
                with replace_files([owned.claim(self.path, name)]) as (file,):
                    file.write(text)

    def check_kept(
        self,
        config: BertConfig,
        vocabulary: bytes | None = None,
        task: Mapping[str, Any] | None = None,
    ) -> None:
        """Checks what is to be kept against what is kept here already, if anything is.

        Args:
          config: As `keep`.
          vocabulary: As `keep`.
          task: As `keep`.

        Raises:
          ValueError: where they belong to another configuration or task, naming the differences.
        """
        self._check_config(config)
        stored = self.task if task is not None else {}
        # As JSON gives them back, lists for tuples.
        wanted = json.loads(json.dumps(task or {}))
        differences = [
            difference
            for key, value in wanted.items()
            if key in stored
            for difference in _differences(key, stored[key], value)
        ]
        if stored and read_file(os.path.join(self.path, VOCAB_FILE)) != vocabulary:
            flag = "word_vectors" if config.is_word_vectors else "vocab_file"
            differences.append(f"its {VOCAB_FILE} differs from `--{flag}`")
        if differences:
            raise ValueError(
                f"`--{self.flag}` must belong to the same task. In {self.path!r}, "
                f"{'; '.join(differences)}. Give another `--output_dir`, or "
                "`--do_train --overwrite_output_dir` to delete what is there."
            )

    def _check_config(self, config: BertConfig) -> None:
        path = os.path.join(self.path, CONFIG_FILE)
        if not is_file(path):
            return
        stored = vars(BertConfig.from_json_file(path))
        flag = "word_vectors" if config.is_word_vectors else "bert_config_file"
        differences = [
            f"`{key}` is {stored[key]!r} there and {value!r} in `--{flag}`"
            for key, value in vars(config).items()
            if key in stored and stored[key] != value
        ]
        if differences:
            raise ValueError(
                f"`--{self.flag}` must belong to the same configuration. In {self.path!r}, "
                f"{'; '.join(differences)}. Give another `--output_dir`, or the old "
                f"{'vectors' if config.is_word_vectors else 'configuration'}."
            )


def _differences(name: str, there: Any, now: Any) -> list[str]:
    """Returns how a value differs from what it was, as little of it as tells it."""
    if there == now:
        return []
    if isinstance(there, dict) and isinstance(now, dict):
        both = [key for key in there if key in now]
        inner = [_differences(f"{name}.{key}", there[key], now[key]) for key in both]
        return [
            *(each for found in inner for each in found),
            *(
                f"`{name}.{key}` is {there[key]!r:.200} only there"
                for key in sorted(there.keys() - both)
            ),
            *(f"`{name}.{key}` is {now[key]!r:.200} only now" for key in sorted(now.keys() - both)),
        ]
    if isinstance(there, list) and isinstance(now, list):
        lost = [each for each in there if each not in now]
        new = [each for each in now if each not in there]
        if not lost and not new:
            return [f"`{name}` is {there!r:.200} there and in another order now"]
        sides = (("there", lost), ("now", new))
        return [f"`{name}` has {each!r:.200} only {side}" for side, each in sides if each]
    return [f"`{name}` is {there!r} there and {now!r} now"]
