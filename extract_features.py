r"""Writes the values of BERT's layers for each line of a text (paper, section 5.3).

    python extract_features.py --input_file=text.txt --output_file=features.jsonl \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

A line is a text `A` or a pair `A ||| B`. Memory use does not depend on the size of the files: they
are read, computed and written in chunks, within which lines of similar length are computed
together. Old commands for the original's extract_features.py work unchanged.

    python extract_features.py --input_file=reviews.csv --text_column=review \
      --output_file=vectors.npy --init_checkpoint=my_bert

writes one vector for each row of a table, as a single matrix.
"""

from typing import TYPE_CHECKING

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.extract_features import WITHOUT_EFFECT, Settings, prepare
from bert.commands.flags import changed_flags
from bert.commands.lines import show_lines
from bert.files.outputs import try_outputs
from bert.log import logger
from bert.names import serve
from bert.options import take
from bert.scale.batches import changing_options
from bert.scale.options import BeamOptions, Extraction

# As the other scripts call it: the run begins with all that is checked.
check = prepare


def define_flags() -> None:
    """Defines the flags (original: extract_features.py)."""
    common_flags.define(Settings, without_effect=WITHOUT_EFFECT)


def run(settings: Settings) -> None:
    """Writes the features of all lines.

    Raises:
      ValueError: before the expensive part, where the settings, the text and the model do not fit.
    """
    show_lines()
    logger.info("Flags: %s; the others have their defaults.", " ".join(changed_flags(settings)))
    settings, folder, texts = prepare(settings)
    from bert.scale.features import FeatureFile
    from bert.training.devices import log_gpus

    try_outputs([settings.output_file], "output_file")
    log_gpus()
    features = FeatureFile(folder, texts, take(Extraction, settings), changing_options(settings))
    features.write(settings.part, take(BeamOptions, settings))


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


# What people import from the original's extract_features.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "tokenization": (),
            "bert.original.extraction": (
                "InputExample",
                "InputFeatures",
                "read_examples",
                "convert_examples_to_features",
                "input_fn_builder",
                "model_fn_builder",
            ),
            "bert.original.processors": ("truncate_seq_pair as _truncate_seq_pair",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
