"""Reads how a model of sentence-transformers computes the vectors of texts.

`modules.json` lists the steps: BERT, a pooling, which `1_Pooling/config.json` describes, and
perhaps a scaling to length 1. `sentence_bert_config.json` has the longest input.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files.paths import find_json_object, is_file, parse_json, read_file, to_json
from bert.log import logger
from bert.options import OptionError
from bert.weights.tokenizers import TOKENIZER_CONFIG_FILE

# Tokens of a text at most, by default (original: extract_features.py).
DEFAULT_LENGTH = 128
# In the help of options.
AS_IN_FOLDER = "as the folder of a sentence-transformers model says"

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
PROMPTS_FILE = "config_sentence_transformers.json"
# sentence-transformers has this folder in every model that it saves.
POOLING_FILE = "1_Pooling/config.json"
FILES = (MODULES_FILE, POOLING_FILE, LENGTH_FILE, PROMPTS_FILE)

# The modules that are followed; a dropout does nothing outside of training.
_KINDS = ("Transformer", "Pooling", "Normalize", "Dropout")
_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}


def make_files(width: int, max_seq_length: int) -> dict[str, bytes]:
    """Returns by name the files for vectors that are the mean over tokens, as `encode` computes it.

    Args:
      width: The size of a vector.
      max_seq_length: Maximum tokens of a text.
    """
    kinds = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kinds}.Transformer"},
        {"idx": 1, "name": "1", "path": os.path.dirname(POOLING_FILE), "type": f"{kinds}.Pooling"},
    ]
    pooling = {key: mode == "mean" for key, mode in _POOLINGS.items()}
    values = {
        MODULES_FILE: modules,
        POOLING_FILE: {"word_embedding_dimension": width, **pooling},
        LENGTH_FILE: {"max_seq_length": max_seq_length, "do_lower_case": False},
    }
    return {name: to_json(value) for name, value in values.items()}


@dataclasses.dataclass(frozen=True)
class TextVectors:
    """How the vector of a text is computed.

    Attributes:
      path: The file that says so.
      pooling: "cls", "mean" or "max"; something else only where it is `unknown`.
      normalize: Whether vectors are scaled to length 1.
      max_seq_length: Tokens of a text at most, [CLS] and [SEP] included.
      unknown: What sentence-transformers computes and this project does not.
      notes: What sentence-transformers does to texts and this project does not.
    """

    path: str
    pooling: str
    normalize: bool
    max_seq_length: int
    unknown: tuple[str, ...]
    notes: tuple[str, ...]

    def fill(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the files' values of the options that are None.

        Args:
          given: Some of `pooling`, `normalize` and `max_seq_length`, by name.

        Raises:
          OptionError: where `pooling` is None, and this project cannot compute the vectors.
        """
        missing = [name for name, value in given.items() if value is None]
        if "pooling" in missing and self.unknown:
            raise OptionError(
                "pooling",
                "be given for this model",
                remedy=f"{self.path!r} asks for {' and '.join(self.unknown)}, which this project "
                "does not compute. With mean, max or cls, vectors are made without it, and are not "
                "those of sentence-transformers.",
            )
        return {name: getattr(self, name) for name in missing}

    def log(self, filled: Mapping[str, Any]) -> None:
        """Logs which values were taken from the files."""
        if filled:
            values = ", ".join(f"{name} {value}" for name, value in filled.items())
            logger.info("As %s says: %s. Flags and arguments override it.", self.path, values)

    def find_pooling(self, option: str) -> str:
        """Returns the pooling of a model that `option` names; warns of what else is left out.

        Raises:
          OptionError: where this project does not compute the pooling.
        """
        if self.pooling not in _POOLINGS.values():
            must = f"name a model that pools by {', '.join(_POOLINGS.values())}"
            asked = " and ".join(self.unknown)
            raise OptionError(option, must, remedy=f"{self.path!r} asks for {asked}.")
        self.warn()
        return self.pooling

    def warn(self) -> None:
        """Warns of what the files request and this project does not compute."""
        if left_out := [*self.unknown, *self.notes]:
            logger.warning("%s asks for %s, which is left out.", self.path, " and ".join(left_out))


def follow(
    vectors: TextVectors | None, given: Mapping[str, Any], usual: Mapping[str, Any], *, warns: bool
) -> dict[str, Any]:
    """Returns the values of options: given, or else from the files, or else the usual ones.

    Args:
      vectors: The content of the files in the model's folder; None where there are none.
      given: The options that the files may fill, None where not given.
      usual: The values without such files.
      warns: Whether to warn of what the files request and this project does not compute.

    Raises:
      ValueError: as `TextVectors.fill`.
    """
    if vectors is None:
        return {**usual}
    filled = vectors.fill(given)
    vectors.log(filled)
    if warns:
        vectors.warn()
    return {**usual, **filled}


def read(folder: str, limit: int) -> TextVectors | None:
    """Returns the content of the files in a folder, None where it has no `modules.json`.

    Args:
      folder: The folder of the model.
      limit: Maximum tokens that the model takes.

    Raises:
      ValueError: where a file is not as sentence-transformers writes it.
    """
    path = os.path.join(folder, MODULES_FILE)
    if not is_file(path):
        return None
    modules = _read_modules(path)
    unknown = [f"the module {kind!r}" for kind, _ in modules if kind not in _KINDS]
    poolings = [path for kind, path in modules if kind == "Pooling"]
    modes = [
        mode
        for pooling in poolings
        for mode in _modes(_read_pooling(os.path.join(folder, pooling, "config.json"), path))
    ]
    if len(modes) != 1 or modes[0] not in _POOLINGS.values():
        unknown.append(f"a pooling of {modes}" if poolings else "no module 'Pooling'")
    return TextVectors(
        path,
        pooling=modes[0] if modes else "none",
        normalize=any(kind == "Normalize" for kind, _ in modules),
        max_seq_length=_length(folder, limit),
        unknown=tuple(unknown),
        notes=tuple(_notes(folder)),
    )


def _read_modules(path: str) -> list[tuple[str, str]]:
    """Returns the kind of each module, and its path in the folder."""
    try:
        listed = parse_json(read_file(path))
    except ValueError as error:
        raise ValueError(f"{path!r} must be JSON: {error}.") from error
    if not isinstance(listed, list) or not all(map(_is_module, listed)):
        raise ValueError(
            f"{path!r} must list modules, each with the texts `type` and `path`, as "
            f"sentence-transformers writes it. Received {listed!r:.80}."
        )
    return [(module["type"].rpartition(".")[2], module["path"]) for module in listed]


def find_left_out(folder: str) -> list[str]:
    """Returns the kinds of the modules in a folder that need more than `FILES` to be copied."""
    path = os.path.join(folder, MODULES_FILE)
    modules = _read_modules(path) if is_file(path) else []
    # To normalize needs no file.
    return [
        kind
        for kind, place in modules
        if place and kind != "Normalize" and f"{place}/config.json" not in FILES
    ]


def _read_pooling(path: str, listed_in: str) -> dict[str, Any]:
    if not is_file(path):
        raise ValueError(f"The folder must have the file {path!r}, since {listed_in!r} lists it.")
    return find_json_object(path)


def _is_module(value: Any) -> bool:
    keys = ("type", "path")
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in keys)


def _modes(config: Mapping[str, Any]) -> Sequence[str]:
    """Returns the names of the poolings; the vectors of several are concatenated."""
    if given := config.get("pooling_mode"):
        return [str(mode) for mode in (given if isinstance(given, list) else [given])]
    # The default is the mean.
    config = {"pooling_mode_mean_tokens": True, **config}
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    return [_POOLINGS.get(key, key.removeprefix("pooling_mode_")) for key in chosen]


def _length(folder: str, limit: int) -> int:
    """Returns the maximum tokens of a text, by its own file or else by the tokenizer's."""
    path = os.path.join(folder, LENGTH_FILE)
    length = find_json_object(path).get("max_seq_length")
    if length is None:
        path = os.path.join(folder, TOKENIZER_CONFIG_FILE)
        # A tokenizer without a limit has 1e30.
        length = find_json_object(path).get("model_max_length") or limit
    if isinstance(length, bool) or not isinstance(length, int | float) or length < 3:
        raise ValueError(f"The length in {path!r} must be at least 3. It is {length!r}.")
    return int(min(length, limit))


def _notes(folder: str) -> list[str]:
    notes = []
    tokenizer = find_json_object(os.path.join(folder, TOKENIZER_CONFIG_FILE))
    lowers = find_json_object(os.path.join(folder, LENGTH_FILE)).get("do_lower_case")
    if lowers and tokenizer.get("do_lower_case") is False:
        notes.append("texts in lower case")
    settings = find_json_object(os.path.join(folder, PROMPTS_FILE))
    prompts = settings.get("prompts")
    if isinstance(prompts, dict) and (prompt := prompts.get(settings.get("default_prompt_name"))):
        notes.append(f"{prompt!r} before each text")
    return notes
