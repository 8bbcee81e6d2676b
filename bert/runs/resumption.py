"""Where a training run starts: it resumes the one in the output folder, or starts over."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files import owned
from bert.files.weight_names import WEIGHTS, step_of
from bert.log import logger
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
      made_of: The identity of the run: by name, the values that shape the model.
      init: The weights to start from; None for random ones.
      starts_over: Whether checkpoints in the folder are of another training run.
      has_ended: Whether nothing is left to train: the folder has the final weights of this run and
        no checkpoint any more.
    """

    num_train_steps: int | None
    made_of: Mapping[str, Any]
    init: Stored | None
    starts_over: bool = False
    has_ended: bool = False

    @property
    def last_step(self) -> int:
        """The last step of a run that counts steps."""
        assert self.num_train_steps is not None
        return self.num_train_steps

    def describe(self) -> str:
        """Returns the number of steps."""
        steps = self.num_train_steps
        return "as many as there is time for" if steps is None else f"{steps:,} in all"

    def record(self, folder: str, environment: Mapping[str, Any]) -> None:
        """Records the training run and its environment in `run.json`."""
        if self.starts_over:
            # If this run is killed before its first checkpoint, it must not resume another's.
            checkpoint.Checkpoints(folder).remove(0)
        provenance.begin(
            *(folder, self.made_of, self.num_train_steps, environment),
            begins_anew=self.starts_over,
        )


def check_apart(output_dir: str, paths: Mapping[str, str | None]) -> None:
    """Checks that a training run reads none of the files that it deletes or replaces.

    Args:
      output_dir: The folder of the run.
      paths: By option, the path that is read.

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
                    "To resume that run, give the path that it started with, or none; to start "
                    "another run from this path, give another %s.",
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
      output: The folder, and whether its files are deleted or may be of another run.
      num_train_steps: The last step; None where a clock ends the run.
      init: The weights to start from, or None.
      made_of: The identity of the run, as `identity.of_training` returns it.
      paths: By option, other files that are read.

    Raises:
      ValueError: naming the difference where the run in the folder is another one.
    """
    check_apart(output.output_dir, paths)
    if output.overwrite_output_dir and init:
        # Damaged weights must be found before anything is deleted.
        init.read()
    if output.overwrite_output_dir:
        return Training(num_train_steps, made_of, init, starts_over=True)
    folder = output.output_dir
    latest = None if _were_deleted(folder) else checkpoint.Checkpoints(folder).latest()
    differences = provenance.differences(folder, made_of)
    if latest is None:
        return _plan_without_checkpoint(
            folder, differences, Training(num_train_steps, made_of, init)
        )
    if differences and step_of(latest) == 0:
        logger.info("Nothing is trained yet in %s, so training starts over there.", folder)
        return Training(num_train_steps, made_of, init, starts_over=True)
    if differences and not output.resume_with_changes:
        raise _describe_other(
            folder,
            differences,
            Message(
                "Give the same values; or give another %s, or %s to delete what is there; or %s "
                "to resume from its last checkpoint all the same.",
                *(_FOLDER, Option("overwrite_output_dir"), Option("resume_with_changes")),
            ),
        )
    if differences:
        logger.warning("Resuming with changes: %s.", "; ".join(differences))
    return Training(num_train_steps, made_of, init)


def _were_deleted(folder: str) -> bool:
    """Returns whether the checkpoints of a training run that has ended were deleted by its user.

    They may still be listed. The checkpoint of step 0 does not count: no run resumes from it.
    """
    has_ended = bool(provenance.read(folder).get("ended"))
    return has_ended and not any(map(step_of, weight_files(folder)))


def _plan_without_checkpoint(folder: str, differences: Sequence[str], plan: Training) -> Training:
    """Returns the training run for a folder without checkpoints; it replaces no final weights.

    Raises:
      ValueError: where another training run, or an unknown one, has ended there.
    """
    run, has_weights = provenance.read(folder), f"{WEIGHTS}.index" in weight_files(folder)
    if not has_weights and not run.get("ended"):
        return dataclasses.replace(plan, starts_over=True)
    # Pre-training and fine-tuning record different data; without `run.json`, nothing is recorded.
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
                "It has ended, and has no checkpoint to resume from. Give another %s, or %s to "
                "delete what is there and start over.",
                *(_FOLDER, Option("overwrite_output_dir")),
            ),
        )
    if has_weights:
        logger.warning("Nothing to train: the training run in %s has ended.", folder)
    return dataclasses.replace(plan, starts_over=not has_weights, has_ended=has_weights)


def _describe_other(folder: str, differences: Sequence[str], remedy: Message) -> OptionError:
    text = f"In {folder!r}, {'; '.join(differences)}."
    return OptionError(
        "output_dir", "hold the same training run, if any", remedy=joined([text, remedy], " ")
    )


def find_weights(output: Output, init: Stored | None) -> Stored | None:
    """Returns the weights in the output folder that a run without training uses, if any.

    Args:
      output: The folder, and whether its weights may be of another run.
      init: The weights that `init_checkpoint` names. If they are in that folder, they are used;
        else the weights in the folder must have been trained from them.

    Raises:
      ValueError: where the weights in the folder were trained from others.
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
                "In %r, %s. Leave %s out to use the weights there, or give another %s.",
                *(folder, differences[0], Option("init_checkpoint"), _FOLDER),
            ),
        )
    return Stored(trained, "output_dir")
