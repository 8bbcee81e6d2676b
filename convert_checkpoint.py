r"""Converts a model between TF1 checkpoints, Hugging Face folders and Keras weights.

    python convert_checkpoint.py --input=uncased_L-12_H-768_A-12 --output=converted \
      --format=huggingface --do_lower_case

The result appears only when it is complete and, unless --noverify is given, has been run and
compared with the original on the same input.
"""

from typing import TYPE_CHECKING

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.convert_checkpoint import Settings, check
from bert.commands.lines import show_lines
from bert.files.process import import_tensorflow

if TYPE_CHECKING:
    import keras

    import modeling
    from bert.models.conversion import Report


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


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

    show_lines()
    return conversion.convert(settings, settings)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
