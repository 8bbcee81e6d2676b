"""A training as it is planned: how far it goes, what it is made of, and where it begins.

Everything is checked before anything in its folder is touched.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert.commands.settings import TrainingSettings
from bert.files import owned
from bert.files.weight_names import WEIGHTS, step_of
from bert.options import shaping_options
from bert.weights import checkpoint, provenance
from bert.weights.checkpoint import Stored, describe_weights, weight_files


@dataclasses.dataclass(frozen=True)
class Plan:
    """A training.

    Attributes:
      num_train_steps: The step that it ends with; None where a clock ends it.
      made_of: By name; another value of any makes another model.
      init: The weights to begin with; None for random ones.
      begins_anew: Whether checkpoints in the folder are those of another training.
      has_ended: Whether the folder has this training's finished weights and no checkpoint any more,
        so that nothing is left to train.
    """

    num_train_steps: int | None
    made_of: Mapping[str, Any]
    init: Stored | None
    begins_anew: bool = False
    has_ended: bool = False

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
        if path and owned.is_own(settings.output_dir, path):
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
    shaping = {f"--{name}": value for name, value in shaping_options(settings).items()}
    made_of = {**shaping, "--init_checkpoint": describe_weights(init), **data}
    if overwrites and init:
        # Damaged, it would be told when what is there is deleted already.
        init.read()
    if overwrites:
        return Plan(num_train_steps, made_of, init, begins_anew=True)
    folder = settings.output_dir
    latest = None if _were_deleted(folder) else checkpoint.Checkpoints(folder).latest()
    differences = provenance.differences(folder, made_of)
    if latest is None:
        return _plan_without_checkpoint(folder, differences, Plan(num_train_steps, made_of, init))
    if differences and step_of(latest) == 0:
        logging.info("Nothing is trained yet in %s, so training begins anew there.", folder)
        return Plan(num_train_steps, made_of, init, begins_anew=True)
    if differences and not settings.resume_with_changes:
        raise ValueError(
            f"{_describe_other(folder, differences)} Go on with what it was made of; or give "
            "another `--output_dir`, or `--overwrite_output_dir` to delete what is there; or "
            "`--resume_with_changes` to go on from its last checkpoint all the same."
        )
    if differences:
        logging.warning("Going on with changes: %s.", "; ".join(differences))
    return Plan(num_train_steps, made_of, init)


def _were_deleted(folder: str) -> bool:
    """Returns whether the checkpoints of a training that has ended are gone, if listed still.

    The checkpoint of step 0 does not count: no training resumes from it.
    """
    has_ended = bool(provenance.read(folder).get("ended"))
    return has_ended and not any(map(step_of, weight_files(folder)))


def _plan_without_checkpoint(folder: str, differences: Sequence[str], plan: Plan) -> Plan:
    """Returns the plan for a folder without checkpoints, whose finished weights are not replaced.

    Raises:
      ValueError: where a training has ended there that is another one, or an unknown one.
    """
    run, has_weights = provenance.read(folder), f"{WEIGHTS}.index" in weight_files(folder)
    if not has_weights and not run.get("ended"):
        return dataclasses.replace(plan, begins_anew=True)
    # Another kind of training has other data; a folder without `run.json` does not say which.
    unknown = [
        f"{name} is not known"
        for name, value in plan.made_of.items()
        if isinstance(value, Mapping) and name not in run.get("made_of", {})
    ]
    if differences := [*differences, *unknown]:
        raise ValueError(
            f"{_describe_other(folder, differences)} It has ended, and has no checkpoint to go on "
            "from. Give another `--output_dir`, or `--overwrite_output_dir` to delete what is "
            "there and start over."
        )
    if has_weights:
        logging.warning("Nothing to train: the training in %s has ended.", folder)
    return dataclasses.replace(plan, begins_anew=not has_weights, has_ended=has_weights)


def _describe_other(folder: str, differences: Sequence[str]) -> str:
    return (
        f"`--output_dir` must hold the same training, if any. Of the one in {folder!r}, "
        f"{'; '.join(differences)}."
    )


def find_weights(settings: TrainingSettings, init: Stored | None) -> Stored | None:
    """Returns the weights in `--output_dir` that a run without training uses, if there are any.

    Args:
      settings: The settings of the script.
      init: The weights that `--init_checkpoint` names. Where they are in that folder, they are
        used; else they must be what its weights were trained from.

    Raises:
      ValueError: where they are other weights.
    """
    folder = settings.output_dir
    trained = checkpoint.find_trained(folder)
    if trained is None or init is None:
        return None if trained is None else Stored(trained, "output_dir")
    # Departs: the original uses the latest checkpoint of the folder, whatever is named.
    differences = provenance.differences(folder, {"--init_checkpoint": describe_weights(init)})
    is_unknown = not provenance.read(folder)
    output, place = owned.resolve(folder, init.folder)
    is_within = f"{place}/".startswith(output) and not init.is_huggingface
    if is_within and (differences or is_unknown):
        return Stored(init.prefix, "output_dir")
    if differences and not settings.resume_with_changes:
        raise ValueError(
            "`--init_checkpoint` must name weights in `--output_dir`, or what they were trained "
            f"from. Of those in {folder!r}, {differences[0]}. Leave `--init_checkpoint` out to use "
            "them, or give another `--output_dir`."
        )
    return Stored(trained, "output_dir")
