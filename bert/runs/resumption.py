"""How far a training run goes, and from where: the one in the output folder, or a new one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert.files import owned
from bert.files.weight_names import WEIGHTS, step_of
from bert.options import Message, Option, OptionError, joined
from bert.training.options import Output
from bert.weights import checkpoint, provenance
from bert.weights.checkpoint import Stored, describe_weights, weight_files

_FOLDER = Option("output_dir")


@dataclasses.dataclass(frozen=True)
class Training:
    """A training run in an output folder.

    Attributes:
      num_train_steps: The last step; None where a clock ends the run.
      made_of: What it is made of, by name; another value of any makes another model.
      init: The weights to start from; None for random ones.
      begins_anew: Whether checkpoints in the folder are those of another training run.
      has_ended: Whether the folder has the finished weights of this run and no checkpoint any more,
        so that nothing is left to train.
    """

    num_train_steps: int | None
    made_of: Mapping[str, Any]
    init: Stored | None
    begins_anew: bool = False
    has_ended: bool = False

    @property
    def last_step(self) -> int:
        """The last step of a run that counts steps."""
        assert self.num_train_steps is not None
        return self.num_train_steps

    def describe(self) -> str:
        """Returns how many steps there are."""
        steps = self.num_train_steps
        return "as many as there is time for" if steps is None else f"{steps:,} in all"

    def record(self, folder: str, environment: Mapping[str, Any]) -> None:
        """Records in a folder that this is the training run there, and its environment."""
        steps = self.num_train_steps
        if self.begins_anew:
            # Killed before it has its own, this run would resume from another's.
            checkpoint.Checkpoints(folder).remove(0)
        provenance.begin(folder, self.made_of, steps, environment, begins_anew=self.begins_anew)


def check_apart(output_dir: str, paths: Mapping[str, str | None]) -> None:
    """Checks that no file that is read is one that a training run deletes or replaces.

    Args:
      output_dir: The folder of the run.
      paths: By option, what is read.

    Raises:
      OptionError: naming the option.
    """
    for name, path in paths.items():
        if path and owned.is_own(output_dir, path):
            raise OptionError(
                name,
                Message("not be of the run in %s, which replaces its files", _FOLDER),
                path,
                Message(
                    "To go on with that run, give what it began with, or nothing; to begin "
                    "another with it, give another %s.",
                    _FOLDER,
                ),
            )


def plan_training(
    output: Output,
    num_train_steps: int | None,
    init: Stored | None,
    made_of: Mapping[str, Any],
    paths: Mapping[str, str | None],
) -> Training:
    """Returns a training run, checked against the one in the output folder, if there is one.

    Args:
      output: The folder, and whether what is in it is deleted or may be of another run.
      num_train_steps: The last step; None where a clock ends the run.
      init: The weights to start from, or None.
      made_of: As `identity.of_training` returns it.
      paths: By option, other files that are read.

    Raises:
      ValueError: where the run there is made of something else, naming it.
    """
    check_apart(output.output_dir, paths)
    if output.overwrite_output_dir and init:
        # Damaged weights would be found when what is there is deleted already.
        init.read()
    if output.overwrite_output_dir:
        return Training(num_train_steps, made_of, init, begins_anew=True)
    folder = output.output_dir
    latest = None if _were_deleted(folder) else checkpoint.Checkpoints(folder).latest()
    differences = provenance.differences(folder, made_of)
    if latest is None:
        return _plan_without_checkpoint(
            folder, differences, Training(num_train_steps, made_of, init)
        )
    if differences and step_of(latest) == 0:
        logging.info("Nothing is trained yet in %s, so training begins anew there.", folder)
        return Training(num_train_steps, made_of, init, begins_anew=True)
    if differences and not output.resume_with_changes:
        raise _describe_other(
            folder,
            differences,
            Message(
                "Go on with what it was made of; or give another %s, or %s to delete what is "
                "there; or %s to go on from its last checkpoint all the same.",
                *(_FOLDER, Option("overwrite_output_dir"), Option("resume_with_changes")),
            ),
        )
    if differences:
        logging.warning("Going on with changes: %s.", "; ".join(differences))
    return Training(num_train_steps, made_of, init)


def _were_deleted(folder: str) -> bool:
    """Returns whether the checkpoints of a training that has ended are gone, if listed still.

    The checkpoint of step 0 does not count: no training resumes from it.
    """
    has_ended = bool(provenance.read(folder).get("ended"))
    return has_ended and not any(map(step_of, weight_files(folder)))


def _plan_without_checkpoint(folder: str, differences: Sequence[str], plan: Training) -> Training:
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
        raise _describe_other(
            folder,
            differences,
            Message(
                "It has ended, and has no checkpoint to go on from. Give another %s, or %s to "
                "delete what is there and start over.",
                *(_FOLDER, Option("overwrite_output_dir")),
            ),
        )
    if has_weights:
        logging.warning("Nothing to train: the training in %s has ended.", folder)
    return dataclasses.replace(plan, begins_anew=not has_weights, has_ended=has_weights)


def _describe_other(folder: str, differences: Sequence[str], remedy: Message) -> OptionError:
    text = f"Of the one in {folder!r}, {'; '.join(differences)}."
    return OptionError(
        "output_dir", "hold the same training, if any", remedy=joined([text, remedy], " ")
    )


def find_weights(output: Output, init: Stored | None) -> Stored | None:
    """Returns the weights in the output folder that a run without training uses, if any.

    Args:
      output: The folder, and whether its weights may be of another run.
      init: The weights that `init_checkpoint` names. Where they are in that folder, they are
        used; else they must be what its weights were trained from.

    Raises:
      ValueError: where they are other weights.
    """
    folder = output.output_dir
    trained = checkpoint.find_trained(folder)
    if trained is None or init is None:
        return None if trained is None else Stored(trained, "output_dir")
    # Departs: the original uses the latest checkpoint of the folder, whatever is named.
    differences = provenance.differences(folder, {"--init_checkpoint": describe_weights(init)})
    is_unknown = not provenance.read(folder)
    there, place = owned.resolve(folder, init.folder)
    is_within = f"{place}/".startswith(there) and not init.is_huggingface
    if is_within and (differences or is_unknown):
        return Stored(init.prefix, "output_dir")
    if differences and not output.resume_with_changes:
        raise OptionError(
            "init_checkpoint",
            Message("name weights in %s, or what they were trained from", _FOLDER),
            remedy=Message(
                "Of those in %r, %s. Leave %s out to use them, or give another %s.",
                *(folder, differences[0], Option("init_checkpoint"), _FOLDER),
            ),
        )
    return Stored(trained, "output_dir")
