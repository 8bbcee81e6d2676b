r"""Converts a model between TF1 checkpoints, Hugging Face folders and Keras weights.

    python convert_checkpoint.py --input=uncased_L-12_H-768_A-12 --output=converted \
      --format=huggingface --do_lower_case

The result appears only when it is complete and, unless --noverify is given, has been run and
compared with the original on the same input.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING

from bert.commands.checks import Checks, CheckSettings, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.process import import_tensorflow
from bert.models.options import ConversionOutput, ConversionSource
from bert.parts import FAILED

if TYPE_CHECKING:
    import keras

    import modeling
    from bert.models.conversion import Report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ConversionOutput, CheckSettings, ConversionSource):
    """The flags of this script, by name."""


def make_model(
    architecture: str, config: "modeling.BertConfig", num_labels: int = 2
) -> "keras.Model":
    """Returns a model with the variables of an architecture; Keras' load_weights fits it.

    Args:
      architecture: One of `bert.weights.options.ARCHITECTURES`.
      config: The shape of the encoder.
      num_labels: Outputs of a classifier or tagger.
    """
    import_tensorflow()
    from bert.models import keras_models

    return keras_models.make_model(architecture, config, num_labels)


def run(settings: Settings) -> "Report":
    """Converts as the settings say.

    Raises:
      ValueError: before anything is written, where the input cannot be converted or the output
        cannot be written.
      ArithmeticError: where the result does not compute what the original does.
    """
    import_tensorflow()
    from bert.models import conversion

    begin_run(settings.check)
    return conversion.convert(settings, settings)


def check(settings: Settings, checks: Checks) -> None:
    """Shows the output, the model and the files to write, and whether they fit."""
    import_tensorflow()
    from bert.models import conversion

    place = checks("output", conversion.split_output, settings, shows=lambda place: place[0])
    open_source = functools.partial(conversion.open_source, fetches=False)
    arguments = (settings, settings.format)
    folder = checks("input", open_source, *arguments, shows=lambda found: found.stored.prefix)
    target = (settings, settings.format, folder)
    architecture = checks("architecture", conversion.find_output, *target, shows=str)
    if place is not FAILED:
        checks(
            "files to write",
            conversion.plan_conversion,
            settings,
            settings,
            folder,
            architecture,
            shows=lambda plan: ", ".join([plan.name, *plan.files]),
        )


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)
