"""A training as it is planned: how far it goes, what it is made of, and where it begins.

Everything is checked before anything in its folder is touched.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert.command_line.flags import training_flags
from bert.command_line.settings import TrainingSettings
from bert.files import fingerprints, manifest
from bert.files.paths import paths_from
from bert.files.weight_names import step_of
from bert.weights import checkpoint, provenance
from bert.weights.checkpoint import Stored


@dataclasses.dataclass(frozen=True)
class Plan:
    """A training.

    Attributes:
      num_train_steps: The step that it ends with; None where a clock ends it.
      made_of: By name; another value of any makes another model.
      init: The weights to begin with; None for random ones.
      begins_anew: Whether checkpoints in the folder are those of another training.
    """

    num_train_steps: int | None
    made_of: Mapping[str, Any]
    init: Stored | None
    begins_anew: bool = False

    @property
    def last_step(self) -> int:
        """The step that it ends with, of a training that counts them."""
        assert self.num_train_steps is not None
        return self.num_train_steps

    def keep(self, folder: str, ran_with: Mapping[str, Any]) -> None:
        """Keeps in a folder that this is the training there, and what it runs with."""
        steps = self.num_train_steps
        if self.begins_anew:
            # Killed before it has its own, this training would go on from another's.
            checkpoint.Checkpoints(folder).remove(0)
        provenance.begin(folder, self.made_of, steps, ran_with, begins_anew=self.begins_anew)


def check_apart(settings: TrainingSettings) -> None:
    """Checks that nothing that is read is a file that a training here deletes or replaces.

    Raises:
      ValueError: naming the flag.
    """
    data = ("input_file", "train_file", "dev_file", "test_file", "predict_file", "unlabeled_file")
    for name in ("init_checkpoint", "teacher", *data):
        path = getattr(settings, name, None)
        if path and manifest.is_own(settings.output_dir, path):
            raise ValueError(
                f"`--{name}` must not be of the run in `--output_dir`, which replaces its files. "
                f"Received {path!r}. To go on with that run, give what it began with, or nothing; "
                "to begin another with it, give another `--output_dir`."
            )


def make_plan(
    settings: TrainingSettings,
    num_train_steps: int | None,
    init: Stored | None,
    data: Mapping[str, Any],
    *,
    overwrites: bool = False,
) -> Plan:
    """Returns the plan, checked against the training in `--output_dir`, if there is one.

    Args:
      settings: Those of the script.
      num_train_steps: The step to end with; None where a clock ends it.
      init: The weights to begin with, or None.
      data: By name, with `sha256`, what is trained on.
      overwrites: Whether what is there is going to be deleted.

    Raises:
      ValueError: where that training is made of something else, naming it.
    """
    check_apart(settings)
    made_of = {**training_flags(settings), "--init_checkpoint": describe_weights(init), **data}
    if overwrites and init:
        # Damaged, it would be told when what is there is deleted already.
        init.read()
    if overwrites:
        return Plan(num_train_steps, made_of, init, begins_anew=True)
    folder = settings.output_dir
    latest = checkpoint.Checkpoints(folder).latest()
    if latest is None:
        return Plan(num_train_steps, made_of, init, begins_anew=True)
    differences = provenance.differences(folder, made_of)
    if differences and step_of(latest) == 0:
        logging.info("Nothing is trained yet in %s, so training begins anew there.", folder)
        return Plan(num_train_steps, made_of, init, begins_anew=True)
    if differences and not settings.resume_with_changes:
        overwrite = hasattr(settings, "overwrite_output_dir")
        raise ValueError(
            f"`--output_dir` must hold the same training, if any. Of the one in {folder!r}, "
            f"{'; '.join(differences)}. Go on with what it was made of; or give another "
            "`--output_dir`"
            f"{', or `--overwrite_output_dir` to delete what is there' if overwrite else ''}; or "
            "`--resume_with_changes` to go on from its last checkpoint all the same."
        )
    if differences:
        logging.warning("Going on with changes: %s.", "; ".join(differences))
    return Plan(num_train_steps, made_of, init)


def describe_weights(init: Stored | None) -> dict[str, str] | None:
    """Returns what `run.json` keeps of weights that a training is made of: name and digest."""
    if init is None:
        return None
    # An index holds checksums of all tensors.
    files = [f"{init.prefix}.index"]
    if init.is_huggingface:
        # There may be several.
        beside = paths_from(os.path.join(init.folder, ""))
        others = [path for path in beside if path.endswith(".safetensors") and path != init.prefix]
        files = [init.prefix, *(others if init.prefix.endswith(".json") else [])]
    return {"path": os.path.basename(init.path), "sha256": fingerprints.of_files(files)}
