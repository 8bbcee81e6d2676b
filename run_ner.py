r"""Fine-tunes, evaluates and applies models that label words, such as names (paper, section 5.3).

    python run_ner.py --data_dir=conll2003 --output_dir=tagger --do_train --do_eval --do_predict \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

Reads columns like those of CoNLL-2003, in any order, with tags in IOB1, IOB2, IOBES or BMES; with
--scheme=none, tags that are no entities, such as parts of speech. A model whose folder does not say
is taken to be cased, unless --do_lower_case is given.
"""

import dataclasses
import os
from typing import Any, ClassVar

from bert.commands import training
from bert.commands.checks import Checks, make_script
from bert.commands.console import run_script
from bert.commands.flags import TPU_FLAGS
from bert.commands.training import DistilledSettings
from bert.files.owned import model_folder
from bert.files.process import import_tensorflow
from bert.options import Message, Option, OptionError, option, read_grid, several
from bert.parts import FAILED
from bert.runs.recipes import FineTuning, Search
from bert.tasks.options import LEARNING_RATE, LSTM_LEARNING_RATE, Teacher
from bert.tasks.tagging.options import FeatureOptions, TaggingData, TaggingLengths, TagOptions
from bert.weights.options import LOWERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FeatureOptions, TagOptions, TaggingData, TaggingLengths, DistilledSettings):
    """The flags of this script, by name."""

    LOWERS_BY_DEFAULT: ClassVar[bool] = False
    do_lower_case: bool | None = option(
        None,
        f"{LOWERS} Default: as the model's folder says, or else false.",
        alias="do_lower",
        group="model",
    )
    learning_rate: float = several(
        option(
            None,
            Message(
                f"Peak learning rate. Default: {LEARNING_RATE:g}, or {LSTM_LEARNING_RATE:g} with "
                "%s.",
                Option("feature_based"),
            ),
            low=0.0,
            shapes_training=True,
            group="training",
        )
    )
    eval_batch_size: int = option(8, "Sentences per evaluation step.", low=1, group="training")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learning_rate is None:
            rate = LSTM_LEARNING_RATE if self.feature_based else LEARNING_RATE
            object.__setattr__(self, "learning_rate", rate)


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      The scores of the dev set, with `loss` and `baseline`, and those of the test set, where it has
      tags, as `test_f1` and so on; with several runs, what `bert.runs.search.run` gives.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    with model_folder() as folder:
        return training.run(make_recipe(_with_word_vectors(settings, folder)))


def check(settings: Settings, checks: Checks) -> None:
    """Shows what `run` would do."""
    with model_folder() as folder:
        if path := settings.word_vectors:
            arguments = (_with_word_vectors, settings, folder)
            settings = checks("word vectors", *arguments, shows=lambda _: path)
        if settings is not FAILED:
            training.check(make_recipe(settings), checks)


def make_recipe(settings: Settings) -> FineTuning | Search:
    """Returns the recipe that the flags describe, or the search over several runs."""
    is_several = settings.num_runs > 1 or read_grid(settings)
    if is_several and settings.feature_based and settings.features_dir is None:
        settings = dataclasses.replace(settings, features_dir=settings.output_dir)
    groups = {"teacher": Teacher, "tags": TagOptions, "features": FeatureOptions}
    return training.make_recipe(settings, TaggingData, **groups)


def _with_word_vectors(settings: Settings, folder: str) -> Settings:
    """Returns the settings with the model that `--word_vectors` are, made in a folder."""
    if settings.word_vectors is None:
        return settings
    if not settings.feature_based:
        must = Message("go with %s", Option("feature_based"))
        raise OptionError("word_vectors", must, settings.word_vectors)
    others = ("init_checkpoint", "bert_config_file", "vocab_file", "do_lower_case")
    if given := [name for name in others if getattr(settings, name) not in (None, "")]:
        text = "not be given with %s, which take the place of a BERT"
        must = Message(text, Option("word_vectors"))
        raise OptionError(given[0], must, getattr(settings, given[0]))
    import_tensorflow()
    from bert.files.word_vectors import read_word_vectors
    from bert.models.neighbours import save_as_model

    # Messages tell of its name.
    model = os.path.join(folder, os.path.basename(settings.word_vectors))
    save_as_model(read_word_vectors(settings.word_vectors), model)
    layers = settings.feature_layers or "embeddings"
    return dataclasses.replace(settings, init_checkpoint=model, feature_layers=layers)


define_flags, main = make_script(Settings, run, check, without_effect=TPU_FLAGS)

if __name__ == "__main__":
    define_flags()
    run_script(main)
