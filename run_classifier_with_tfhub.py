r"""Fine-tunes classifiers from a TensorFlow Hub module.

    python run_classifier_with_tfhub.py --bert_hub_module_handle=bert_uncased_L-12_H-768_A-12 \
      --task_name=mrpc --data_dir=glue/MRPC --do_train --do_eval --output_dir=mrpc

This is run_classifier.py with all its flags and tasks, but vocabulary, casing, configuration and
weights come from the module. The original has a script of the same name.
"""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from absl import flags

import run_classifier
import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.files.owned import model_folder
from bert.files.process import import_tensorflow
from bert.log import logger
from bert.names import serve
from bert.options import REQUIRED, OptionGroup, option
from bert.parts import FAILED

if TYPE_CHECKING:
    from bert.original import model_fn

# What the module gives, whatever the flags of that name say.
_GIVEN = ("vocab_file", "do_lower_case", "bert_config_file", "init_checkpoint")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OptionGroup):
    """The flag of this script beside those of run_classifier.py."""

    bert_hub_module_handle: str = option(
        REQUIRED,
        "Folder of an unpacked TensorFlow Hub BERT module (format 1); or anything that "
        f"--init_checkpoint takes, with vocabulary and configuration next to it. Replaces "
        f"{', '.join(f'--{name}' for name in _GIVEN)}.",
        group="model",
    )


def define_flags() -> None:
    """Defines the flags (original: run_classifier_with_tfhub.py)."""
    run_classifier.define_flags()
    common_flags.define(Settings)


def run(
    settings: run_classifier.Settings,
    bert_hub_module_handle: str | os.PathLike[str],
    do_lower_case: bool | None = None,
) -> dict[str, Any]:
    """Does what `run_classifier.run` does, with the model of the module.

    Args:
      settings: The flags of run_classifier.py.
      bert_hub_module_handle: The module.
      do_lower_case: What the flag says, None where it was not given: it counts where the module
        does not tell its casing.

    Raises:
      ValueError: before the expensive part, where settings, files and module do not fit.
    """
    with model_folder() as folder:
        complete = _complete(settings, os.fspath(bert_hub_module_handle), do_lower_case, folder)
        return run_classifier.run(complete)


def check(
    settings: run_classifier.Settings,
    checks: Checks,
    bert_hub_module_handle: str | os.PathLike[str],
    do_lower_case: bool | None = None,
) -> None:
    """Shows what `run` would do."""
    with model_folder() as folder:
        handle = os.fspath(bert_hub_module_handle)
        arguments = (settings, handle, do_lower_case, folder)
        complete = checks("module", _complete, *arguments, shows=lambda _: handle)
        if complete is not FAILED:
            run_classifier.check(complete, checks)


def _complete(
    settings: run_classifier.Settings, handle: str, do_lower_case: bool | None, folder: str
) -> run_classifier.Settings:
    """Returns the settings with the module's files; `folder` is for those that it lacks."""
    import_tensorflow()
    from bert.weights import tf_hub
    from bert.weights.folder import ModelFolder
    from bert.weights.model_files import CONFIG_FILE

    found: dict[str, Any]
    tf_hub.check_local(handle)
    if tf_hub.is_module(handle):
        module = tf_hub.Module(handle, vocab_file=settings.vocab_file, do_lower_case=do_lower_case)
        ModelFolder(folder).save(module.config)
        found = {
            "vocab_file": module.vocab_file,
            "do_lower_case": module.do_lower_case,
            "bert_config_file": os.path.join(folder, CONFIG_FILE),
            "init_checkpoint": module.stored.prefix,
        }
    else:
        beside = ModelFolder.open(handle, tf_hub.OPTION)
        found = {name: "" for name in ("vocab_file", "bert_config_file") if beside.find(name)}
        found["init_checkpoint"] = handle
        if beside.do_lower_case is not None:
            found["do_lower_case"] = beside.do_lower_case
    return dataclasses.replace(settings, **found)


def create_tokenizer_from_hub_module(
    bert_hub_module_handle: str | os.PathLike[str],
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a module (original: run_classifier_with_tfhub.py).

    Raises:
      ValueError: where the folder is no such module.
    """
    import_tensorflow()
    from bert.weights import tf_hub

    return tf_hub.Module(bert_hub_module_handle).load_tokenizer()


def model_fn_builder(
    num_labels: int,
    learning_rate: float,
    num_train_steps: int | None,
    num_warmup_steps: int | None,
    use_tpu: bool,
    bert_hub_module_handle: str | os.PathLike[str],
) -> "model_fn.ModelFn":
    """Returns what `run_classifier.model_fn_builder` does, with the model of the module.

    Raises:
      ValueError: where the folder is no such module.
    """
    import_tensorflow()
    from bert.original.classifier import model_fn_builder
    from bert.weights import tf_hub

    module = tf_hub.Module(bert_hub_module_handle)
    return model_fn_builder(
        module.config,
        num_labels,
        module.stored.prefix,
        learning_rate,
        num_train_steps,
        num_warmup_steps,
        use_tpu,
        use_one_hot_embeddings=False,
    )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(run_classifier.Settings)
    given = {name for name in (*_GIVEN, "do_lower") if flags.FLAGS[name].present}
    for name in _GIVEN:
        if name in given:
            logger.warning(
                "--%s only counts where --bert_hub_module_handle does not tell it.", name
            )
    handle = common_flags.read_settings(Settings).bert_hub_module_handle
    casing = settings.do_lower_case if given & {"do_lower_case", "do_lower"} else None
    start(settings, run, check, handle, casing)


# What people have from the original's run_classifier_with_tfhub.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl.flags": ("FLAGS",),
            "bert.original.classifier": ("create_hub_model as create_model",),
            "optimization": (),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
