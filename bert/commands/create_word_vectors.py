"""The flags of create_word_vectors.py and its first steps."""

import dataclasses
from typing import TYPE_CHECKING

from bert.commands.checks import (
    CheckSettings,
    Step,
    TextFileSettings,
    call,
    check_files,
    check_output,
    open_folder,
)
from bert.files.paths import PATTERNS
from bert.files.process import import_tensorflow
from bert.options import REQUIRED, Message, MessageError, Option, OptionError, option
from bert.parts import FAILED
from bert.pretraining.skip_gram import Options, check_installed
from bert.tasks.layers import check_encoder
from bert.weights.options import ModelSource, VocabularySource

if TYPE_CHECKING:
    import modeling
    from bert.weights.folder import ModelFolder

# What `--words` may be; create_pretraining_data.py has spaces, too.
TOKENS, SPACES = "tokens", "spaces"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TextFileSettings, Options):
    """The flags of this script, by name."""

    input_file: str | None = option(  # type: ignore[assignment]
        None,
        Message(
            "Text files, plain or gzip: %s. This or %s is needed.",
            PATTERNS,
            Option("init_checkpoint"),
        ),
    )
    init_checkpoint: str | None = option(
        None,
        "A BERT to read the vectors off instead of learning them: each entry of its vocabulary is "
        "encoded once. Its folder, or its name on the hub.",
        group="model",
    )
    output_file: str = option(REQUIRED, "File to write the vectors to.", group="output")
    words: str = option(
        TOKENS,
        "What counts as a word. tokens: what predict.py takes for words, each Chinese character "
        "alone; spaces: everything between two spaces, as for Chinese text that is segmented into "
        "words.",
        choices=(TOKENS, SPACES),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Model(CheckSettings, ModelSource, VocabularySource):
    """What `open_folder` takes: the casing of a model is none of the settings."""


def check(settings: Settings, step: Step = call) -> "list[str] | tuple[ModelFolder, str]":
    """Checks the text and that gensim is installed, or the model.

    Returns:
      The files of the text; or the folder of the model, and the pooling of its vectors.

    Raises:
      ValueError: where neither or both are given, or what is given does not fit.
    """
    if (settings.input_file is None) == (settings.init_checkpoint is None):
        given = "neither" if settings.input_file is None else "both"
        names = Option("input_file"), Option("init_checkpoint")
        raise MessageError("Either %s or %s must be given. Received %s.", *names, given)
    if settings.init_checkpoint is None:
        step("gensim", check_installed, shows=lambda _: "is installed")
        return check_files(settings, step)
    import_tensorflow()
    learning = {field.name for field in dataclasses.fields(Options)} - {"vector_size"} | {"words"}
    for field in dataclasses.fields(Settings):
        if field.name in learning and getattr(settings, field.name) != field.default:
            names = Option(field.name), Option("init_checkpoint")
            raise MessageError("%s must not be given with %s: it is about learning.", *names)
    model = _Model(init_checkpoint=settings.init_checkpoint, check=settings.check)
    folder, config = open_folder(model, step)
    size = settings.vector_size
    pooling = step(
        "vectors", _check_model, folder, config, size, shows=lambda found: f"{size} values, {found}"
    )
    check_output(settings, FAILED if folder is FAILED else folder.files, step)
    return folder, pooling


def _check_model(folder: "ModelFolder", config: "modeling.BertConfig", vector_size: int) -> str:
    """Checks that a model has the vectors, and returns their pooling: its folder's, or the mean."""
    most = config.hidden_size
    if vector_size > most:
        raise OptionError("vector_size", f"be at most {most} for this model", vector_size)
    check_encoder(config)
    folder.stored.check_fit(config)
    of_texts = folder.text_vectors
    return of_texts.find_pooling(folder.option) if of_texts else "mean"
