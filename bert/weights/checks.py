"""What `--check` shows of a model that a script reads: its files, and whether they fit."""

from typing import Any

from bert.commands.checks import FAILED, Checks
from bert.weights.folder import ModelFolder
from bert.weights.variables import count_parameters
from modeling import BertConfig


def check_model(checks: Checks, settings: Any) -> tuple[Any, Any]:
    """Shows weights and configuration; returns the folder of the model, and the configuration.

    Each is `FAILED` where it is not as it must be.

    Args:
      checks: Show what is found.
      settings: As `ModelFolder.of` takes them.
    """
    source = checks("checkpoint", ModelFolder.named_by, settings, tells=_describe_checkpoint)
    folder = _folder_of("bert_config_file", settings, source)
    config = checks("configuration", lambda found: found.config, folder, tells=_describe_config)
    return source, config


def check_vocabulary(checks: Checks, settings: Any, source: Any, config: Any) -> Any:
    """Shows casing and vocabulary; returns the tokenizer.

    Args:
      checks: Show what is found.
      settings: As `check_model`.
      source: What that returned.
      config: As well.
    """
    checks("casing", ModelFolder.check_casing, source, tells=lambda _: _describe_casing(source))
    folder = _folder_of("vocab_file", settings, source)
    return checks(
        "vocabulary",
        lambda found, _: found.load_tokenizer(),
        folder,
        config,
        tells=lambda tokenizer: f"{len(tokenizer.vocab):,} entries: {folder.vocab_file}",
    )


def _folder_of(flag: str, settings: Any, source: Any) -> Any:
    """Returns where a file is found; without weights, it must have been given."""
    if source is not FAILED or not getattr(settings, flag):
        return source
    return ModelFolder(
        ".",
        bert_config_file=settings.bert_config_file,
        vocab_file=getattr(settings, "vocab_file", None),
        do_lower_case=getattr(settings, "do_lower_case", None),
    )


def _describe_checkpoint(source: ModelFolder) -> str:
    return source.stored.prefix if source.flag == "init_checkpoint" else "none is given"


def _describe_config(config: BertConfig) -> str:
    return (
        f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{count_parameters(config):,} parameters"
    )


def _describe_casing(source: ModelFolder) -> str:
    return "cased" if source.do_lower_case is False else "texts are lower-cased"
