"""The options of extract_features.py, and its first steps."""

import dataclasses
from typing import TYPE_CHECKING

from bert.commands import flags
from bert.commands.checks import OutputSettings, Step, call, open_folder
from bert.files.machine import describe_files
from bert.files.outputs import check_outputs
from bert.files.process import import_tensorflow
from bert.log import logger
from bert.options import option, take
from bert.parts import FAILED
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
    use_tpu: bool = option(False, flags.WITHOUT_EFFECT, group="data")


def prepare(settings: Settings, step: Step = call) -> tuple[Settings, "ModelFolder", "Texts"]:
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
    fits = "of the shape that the configuration asks for"
    step("weights", _check_weights, folder, config, shows=lambda _: fits)
    arguments = (take(BeamOptions, settings), settings.part)
    step("runner", check_machines, *arguments, shows=lambda _: settings.runner or "none")
    texts = step("text", find_texts_of, settings, shows=lambda found: describe_files(found.files))
    output = repr(settings.output_file)
    step("output file", _check_output, settings, texts, folder, shows=lambda _: output)
    return settings, folder, texts


def _complete(settings: Settings, folder: "ModelFolder", config: "modeling.BertConfig") -> Settings:
    """Returns the settings with what the folder of the model says, checked against the model."""
    from bert.scale.features import check_layers

    settings = settings.followed(folder.text_vectors)
    check_layers(settings, config)
    if settings.use_tpu:
        logger.warning("--use_tpu has no effect: features are computed on a GPU or the CPU.")
    return settings


def _check_weights(folder: "ModelFolder", config: "modeling.BertConfig") -> None:
    folder.stored.check_fit(config)


def _check_output(settings: Settings, texts: "Texts", folder: "ModelFolder") -> None:
    # Departs: the original replaces any file.
    inputs = [*texts.files, *folder.files]
    check_outputs([settings.output_file], inputs, "output_file", settings.may_replace)
