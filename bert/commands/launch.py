r"""Trains with several processes on this machine, and restarts them if one dies.

    bert launch --workers=2 run_pretraining --input_file=train.tfrecord --output_dir=pretrained \
      --bert_config_file=bert_config.json --do_train --train_batch_size=32

After its own flags, give a script that trains and that script's flags, as you type them without it;
--strategy=multi_worker is added. Each batch is split among the workers, so its size must be a
multiple of their number. The result is that of one process, up to rounding.

You see the output of the first worker, the chief, which alone writes files; of another worker, the
last lines if it fails. If a worker is killed or hangs, all are ended and restarted from the last
checkpoint. If a script ends with an error message and exit status 1, somebody must fix the cause,
so nothing is restarted. Ctrl-C and SIGTERM reach all workers, which save their progress; the same
command resumes from there.

On several machines, start the script itself on each: docs/distributed.md.
"""

import difflib
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from bert.commands import flags as common_flags
from bert.commands.console import run_script
from bert.scale.launch import Launch, Workers, launch

# The scripts that have the flag --strategy.
TRAINING = (
    "run_pretraining",
    "run_classifier",
    "run_classifier_with_tfhub",
    "run_squad",
    "run_swag",
    "run_ner",
)


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Workers)


def make_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of each worker.

    Args:
      arguments: A script and its flags.

    Raises:
      ValueError: where that is no script that trains, or another strategy is given.
    """
    name = os.path.basename(arguments[0]).removesuffix(".py") if arguments else ""
    if name not in TRAINING:
        similar = difflib.get_close_matches(name, TRAINING, n=1)
        remedy = f"Did you mean {similar[0]!r}?" if similar else f"Give {' or '.join(TRAINING)}."
        raise ValueError(
            "`bert launch` must be given a script that trains, behind its own flags. Received "
            f"{arguments[0] if arguments else ''!r}. {remedy}"
        )
    strategy, rest = _take(arguments, flags.DEFINE_string, "strategy")
    if strategy not in (None, "multi_worker"):
        raise ValueError(
            "`bert launch` gives `--strategy=multi_worker` itself. Received "
            f"`--strategy={strategy}`: leave it out; or leave out `bert launch`, for one process "
            "alone can use all GPUs of this machine."
        )
    # In front, since a flag behind texts would be one of them. Not `-m bert`, which would be
    # another package of that name in the folder where this was started.
    script = str(Path(__file__).resolve().parents[2] / f"{name}.py")
    return [sys.executable, script, "--strategy=multi_worker", *rest[1:]]


def _take(command: Sequence[str], define: Callable[..., Any], name: str) -> tuple[Any, list[str]]:
    """Returns the value of a flag in a command, or None, and the command without that flag.

    The flags of a `--flagfile` take its place.

    Args:
      command: A program, its flags, and texts.
      define: Defines the flag, as `flags.DEFINE_string` does.
      name: The name of the flag.

    Raises:
      ValueError: where the flag has no such value, or a file cannot be read.
    """
    values = flags.FlagValues()
    # The value of a flag that is not known here seems to be a text, which must not end parsing.
    values.set_gnu_getopt()
    define(name, None, "", flag_values=values)
    try:
        rest = values(command, known_only=True)
    except (flags.Error, UnicodeDecodeError) as error:
        line = str(error).removeprefix("ERROR:: ").rstrip(".")
        raise ValueError(f"Flags must be as `--help` of the script shows them. {line}.") from error
    return values[name].value, rest


def read_command(command: Sequence[str]) -> Launch:
    """Returns what is launched: the command, how it resumes, and its output folder."""
    output_dir, _ = _take(command, flags.DEFINE_string, "output_dir")
    return Launch(command, without_overwriting(command), output_dir)


def without_overwriting(command: Sequence[str]) -> list[str]:
    """Returns a command that deletes nothing: what is there, it has written itself."""
    return _take(command, flags.DEFINE_bool, "overwrite_output_dir")[1]


def main(arguments: list[str]) -> None:
    """Starts the script that the arguments name."""
    workers = common_flags.read_settings(Workers)
    status = launch(workers, read_command(make_command(arguments[1:])))
    if status:
        sys.exit(status)


def split_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with `--` before the script: the flags after it are the script's."""
    for place, (before, word) in enumerate(itertools.pairwise(["", *arguments])):
        # Every flag of the launcher has a value.
        is_value = before.startswith("-") and "=" not in before
        if not word.startswith("-") and not is_value:
            return [*arguments[:place], "--", *arguments[place:]]
    return [*arguments]


if __name__ == "__main__":
    define_flags()
    sys.argv = [sys.argv[0], *split_arguments(sys.argv[1:])]
    run_script(main, takes_arguments=True)
