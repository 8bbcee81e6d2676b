"""BERT modules of TensorFlow Hub, such as bert_uncased_L-12_H-768_A-12/1, up to version 4.

A module is a folder, as its archive unpacks: a SavedModel with the names of the original's
checkpoints, or from version 2 on those of the Model Garden. The shapes of its variables give its
configuration.
"""

import os

import tensorflow as tf

from bert.files.stored_models import SAVED_MODEL_FILE
from bert.options import Message, Option, OptionError
from bert.weights import saved_models
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.formats import FormatError, UnsoundError

OPTION = "bert_hub_module_handle"


def is_module(folder: str) -> bool:
    """Returns whether a folder holds a module, or another SavedModel."""
    return tf.io.gfile.exists(os.path.join(folder, SAVED_MODEL_FILE))


def check_local(handle: str) -> None:
    """Checks that a module is not named by its address, as TensorFlow Hub took it."""
    if handle.startswith(("http:", "https:")):
        raise OptionError(
            OPTION,
            "be a folder",
            handle,
            "Fetch its archive and unpack it, or name the model on the Hugging Face hub, such as "
            "google-bert/bert-base-uncased.",
        )


class Module(ModelFolder):
    """The folder of a module, with the vocabulary and the casing that it has.

    Args:
      path: A folder for which `is_module` holds.
      vocab_file: The vocabulary, for a module without one.
      do_lower_case: The casing, for a module that does not say it.

    Raises:
      ValueError: where the module is none of a BERT, with what to give instead.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vocab_file: str | None = None,
        do_lower_case: bool | None = None,
    ) -> None:
        path = os.fspath(path)
        check_local(path)
        stored = Stored(os.path.join(path, "variables", "variables"), OPTION)
        try:
            shape = stored.shape
        except UnsoundError:
            raise
        except ValueError:
            # Of objects, as TensorFlow 2 stores them.
            shape = None
        if shape is None:
            raise OptionError(
                OPTION,
                "be a BERT module of TensorFlow Hub, with the variables of the original or of the "
                "Model Garden and a vocabulary",
                remedy=Message(
                    "%r is a SavedModel of another kind. What %s of run_classifier.py takes will "
                    "do, too: a checkpoint or its folder, or a Hugging Face model.",
                    path,
                    Option("init_checkpoint"),
                ),
            )
        try:
            vocabulary = saved_models.find_vocabulary(path) or vocab_file
            found = saved_models.read_casing(stored)
        except FormatError as error:
            raise OptionError(OPTION, "be a whole module", remedy=str(error)) from error
        if not vocabulary:
            raise OptionError(
                "vocab_file",
                "be given for a module without a vocabulary",
                remedy=f"{path!r} has none as the only file in its folder 'assets', or as the one "
                f"that its signature {saved_models.SIGNATURE!r} names.",
            )
        super().__init__(path, OPTION, stored, vocab_file=vocabulary)
        self._casing = found[0] if found else do_lower_case

    @property
    def do_lower_case(self) -> bool:
        """Whether the model is uncased, by its graph, or else as given."""
        if self._casing is not None:
            return self._casing
        raise OptionError(
            "do_lower_case",
            "be given, as true or false, for a module that does not say its casing",
            remedy=f"{self.path!r} has no plain constant as `do_lower_case` of a signature "
            f"{saved_models.SIGNATURE!r}; its graph is not run to find out.",
        )
