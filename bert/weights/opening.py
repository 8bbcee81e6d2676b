"""The parts of a model that most scripts open: weights, configuration, casing, vocabulary."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from bert.parts import FAILED
from bert.weights.folder import ModelFolder
from bert.weights.options import ModelSource, VocabularySource
from bert.weights.variables import count_parameters
from modeling import BertConfig


def open_model(
    parts: Callable[..., Any],
    model: ModelSource,
    vocabulary: VocabularySource | None,
    output_dir: str = "",
    *,
    fetches: bool,
) -> tuple[Any, Any]:
    """Adds weights and configuration; returns the folder of the model, and the configuration.

    Both are `FAILED` where they are wrong.

    Args:
      parts: Opens parts, as `bert.parts.Parts`.
      model: The options of weights and configuration.
      vocabulary: The options of the vocabulary, where one is needed.
      output_dir: The folder of the model where no weights are named.
      fetches: Whether a model of the hub that is not in the local cache is fetched.
    """
    find = functools.partial(ModelFolder.named_by, fetches=fetches)
    source = parts("checkpoint", find, model, vocabulary, output_dir, shows=_describe_checkpoint)
    folder = _folder_with(model.bert_config_file, model, vocabulary, source)
    config = parts("configuration", lambda found: found.config, folder, shows=_describe_config)
    return source, config


def open_vocabulary(
    parts: Callable[..., Any],
    model: ModelSource,
    vocabulary: VocabularySource,
    source: Any,
    config: Any,
) -> Any:
    """Adds casing and vocabulary; returns the tokenizer.

    Args:
      parts: As for `open_model`.
      model: As for `open_model`.
      vocabulary: The options of the vocabulary.
      source: The folder of the model.
      config: The configuration of the model.
    """

    def describe_casing(_: None) -> str:
        return "cased" if source.do_lower_case is False else "texts are lower-cased"

    parts("casing", ModelFolder.check_casing, source, shows=describe_casing)
    folder = _folder_with(vocabulary.vocab_file, model, vocabulary, source)
    return parts(
        "vocabulary",
        lambda found, _: found.load_tokenizer(),
        folder,
        config,
        shows=lambda tokenizer: f"{len(tokenizer.vocab):,} entries: {folder.vocab_file}",
    )


def _folder_with(
    path: str, model: ModelSource, vocabulary: VocabularySource | None, source: Any
) -> Any:
    """Returns the folder of a file; a file that was given can be read without the weights."""
    if source is not FAILED or not path:
        return source
    return ModelFolder.named_by(dataclasses.replace(model, init_checkpoint=None), vocabulary, ".")


def _describe_checkpoint(source: ModelFolder) -> str:
    return source.stored.prefix if source.option == "init_checkpoint" else "none is given"


def _describe_config(config: BertConfig) -> str:
    return (
        f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{count_parameters(config):,} parameters"
    )
