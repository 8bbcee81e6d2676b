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

import dataclasses
from typing import TYPE_CHECKING

from bert.commands import flags as common_flags
from bert.commands.checks import OutputSettings, Step, call, check_output, make_script, open_folder
from bert.commands.console import run_script
from bert.commands.flags import changed_flags
from bert.commands.lines import begin_run
from bert.files.machine import describe_files
from bert.files.outputs import try_outputs
from bert.files.process import import_tensorflow
from bert.log import logger
from bert.names import serve
from bert.options import Option, option, take
from bert.parts import FAILED
from bert.scale.batches import changing_options
from bert.scale.options import BeamOptions, Extraction, PartOptions

if TYPE_CHECKING:
    import modeling
    from bert.files.texts import Texts
    from bert.weights.folder import ModelFolder

# Flags of the original that are accepted beside the options.
WITHOUT_EFFECT = ("use_one_hot_embeddings", "master", "num_tpu_cores")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Extraction, OutputSettings, PartOptions, BeamOptions):
    """The flags of the script, by name."""

    # Who requests a TPU is warned that there is none.
    use_tpu: bool = option(False, common_flags.WITHOUT_EFFECT, group="data")


def run(settings: Settings) -> None:
    """Writes the features of all lines.

    Raises:
      ValueError: before the expensive part, where the settings, the text and the model do not fit.
    """
    begin_run(settings.check)
    logger.info("Flags: %s; the others have their defaults.", " ".join(changed_flags(settings)))
    settings, folder, texts = check(settings)
    from bert.network.gpus import log_gpus
    from bert.scale.features import FeatureFile

    try_outputs([settings.output_file], "output_file")
    log_gpus()
    features = FeatureFile(folder, texts, take(Extraction, settings), changing_options(settings))
    features.write(settings.part, take(BeamOptions, settings))


def check(settings: Settings, step: Step = call) -> tuple[Settings, "ModelFolder", "Texts"]:
    """Opens the model and the texts, and checks that they, the options and the output fit.

    Returns:
      The settings, completed with what the folder of the model says, the model, and the texts.
    """
    import_tensorflow()
    from bert.scale.batches import check_machines
    from bert.scale.features import find_texts_of

    folder, config = open_folder(settings, step)
    found = step("layers", _complete, settings, folder, config, shows=Extraction.written_layers)
    settings = settings if found is FAILED else found
    step(
        "weights",
        lambda folder, config: folder.stored.check_fit(config),
        folder,
        config,
        shows=lambda _: "of the shape that the configuration asks for",
    )
    arguments = (take(BeamOptions, settings), settings.part)
    step("runner", check_machines, *arguments, shows=lambda _: settings.runner or "none")
    texts = step("text", find_texts_of, settings, shows=lambda found: describe_files(found.files))
    # Departs: the original replaces any file.
    check_output(settings, step, texts, folder)
    return settings, folder, texts


def _complete(settings: Settings, folder: "ModelFolder", config: "modeling.BertConfig") -> Settings:
    """Returns the settings with what the folder of the model says, checked against the model."""
    from bert.scale.features import check_layers

    settings = settings.followed(folder.text_vectors)
    check_layers(settings, config)
    if settings.use_tpu:
        logger.warning("%s has no effect: a GPU or the CPU computes.", Option("use_tpu"))
    return settings


define_flags, main = make_script(Settings, run, check, without_effect=WITHOUT_EFFECT)

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
