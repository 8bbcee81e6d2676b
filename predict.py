r"""Predicts with a fine-tuned model: loads it once, reads inputs, writes an answer to each.

    python predict.py --model_dir=mrpc --input_file=pairs.csv --output_file=answers.csv
    python predict.py --model_dir=mrpc --input_file=pairs.tsv > answers.jsonl
    echo 'A film to see twice.' | python predict.py --model_dir=sst

If a run that writes a file ends early, its answers are kept, and the same command resumes after
them.

In Python: `model = predict.load("mrpc")`, then `model.predict([("one text", "another")])` as often
as you like; only the first call builds the graph.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import FAILED, Checks, start
from bert.commands.console import run_script
from bert.commands.frozen_weights import assume_frozen_weights
from bert.commands.names import serve
from bert.commands.settings import WHOLE_FILE, OutputSettings
from bert.files import fingerprints, parquet
from bert.files.inputs import Input, Inputs, kind_of, names_of
from bert.files.outputs import check_outputs, check_replaced, open_output, try_outputs
from bert.files.paths import is_file, is_remote, match_file
from bert.files.process import import_tensorflow
from bert.files.progress import Progress
from bert.files.row_writer import (
    JsonLines,
    KeptLines,
    Names,
    ParquetLines,
    Table,
    flat_names,
    keep_lines,
)
from bert.options import option
from bert.scale.answers import Answer, Answerer, Form
from bert.scale.batches import check_machines, describe_part, folder_of, key_of, made_files
from bert.scale.beam import BeamSettings
from bert.scale.parts import write_description
from bert.scale.settings import AnsweredSettings, only
from bert.scale.shards import ShardSettings

if TYPE_CHECKING:
    from bert.models.exported import Export, ExportedModel
    from bert.models.loaded import LoadedModel
    from bert.weights.folder import ModelFolder

    Model = LoadedModel | ExportedModel

# Inputs without an answer to tell of one by one.
_PROBLEMS_SHOWN = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(AnsweredSettings, OutputSettings, ShardSettings, BeamSettings):
    """The flags of this script, by name."""

    output_file: str = option(
        "-",
        f"{WHOLE_FILE}, in the format of its extension: .csv, .tsv, .parquet, or JSON lines for "
        ".jsonl, .json, .txt or none; - for JSON lines on standard output. Keeps all columns of "
        "the input and adds the answers. Until the file is complete, the answers are in "
        "<output_file>.<digits>.unfinished, from which the same command resumes.",
        group="output",
    )
    on_error: str = option(
        "stop",
        "What to do with an input that cannot be answered. stop: end there and keep the answers "
        'so far. skip: write {"line": ..., "error": ...} instead of its answer, or a column '
        "error in a table, and continue.",
        choices=("stop", "skip"),
        group="output",
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> int:
    """Writes an answer for each input, and returns their number.

    Raises:
      ValueError: where the folder, a flag or an input is not what it must be.
    """
    import_tensorflow()
    from bert.training.devices import tell_gpus

    settings = _find_input(settings)
    folder = _open_folder(settings)
    made_of = _check_output(settings, folder)
    try_outputs([settings.output_file], "output_file")
    tell_gpus()
    model = _load(settings, folder)
    span = _find_span(settings, model)
    inputs = _read_inputs(settings, model)
    if span is not None:
        inputs.rows.only(span)
    rows, form = _open_form(settings, model, inputs, span)
    answers = Answerer(model, settings.input_file, form)
    if settings.runner:
        num_answers, problems = _write_those_of_machines(settings, answers, made_of)
    else:
        described = _describe_part(settings, made_of)
        with _open(settings, made_of, form) as output:
            num_answers, problems = _write(settings, output, rows, answers, span)
            if not num_answers and span is None:
                raise _nothing_to_answer(settings)
        if (part := settings.part) and described:
            write_description(settings.output_file, part.number, part.count, described)
    _report(settings, num_answers, problems)
    return num_answers


def _describe_part(settings: Settings, made_of: Sequence[str]) -> dict[str, Any]:
    """Returns what a part has in common with the others; {} where there is none in a file."""
    if not settings.part or settings.output_file == "-":
        return {}
    form = _ending(settings.output_file).removeprefix(".") or "jsonl"
    # Only a table has a column for errors, with one value of the flag.
    others = {} if form == "jsonl" else {"on_error": settings.on_error}
    return {**describe_part(settings, form, [settings.input_file], made_of), **others}


def _chunk_size(settings: Settings) -> int:
    """Returns how many inputs are read before those of like lengths go through the model."""
    # Who types, or pipes one line after the other, waits for each answer.
    is_typed = settings.input_file == "-" and sys.stdin.isatty()
    return 1 if is_typed else 16 * settings.batch_size


def _find_span(settings: Settings, model: "Model") -> range | None:
    """Returns which inputs `--shard` asks for: whole chunks, so that all are rounded alike."""
    part, size = settings.part, _chunk_size(settings)
    if part is None:
        return None
    num_inputs = _read_inputs(settings, model).rows.count()
    if not num_inputs:
        raise _nothing_to_answer(settings)
    span = part.of(num_inputs, size)
    if span:
        logging.info("Part %s: inputs %d to %d.", part, span.start + 1, span.stop)
    else:
        logging.info("Part %s is empty: %d inputs, %d at a time.", part, num_inputs, size)
    return span


def _write(
    settings: Settings, output: Any, rows: Iterator[Input], answers: Answerer, span: range | None
) -> tuple[int, list[str]]:
    """Writes the answers, and returns their number and what problems there were."""
    num_answers = num_again = 0
    problems: list[str] = []
    form, size = answers.form, _chunk_size(settings)
    header = form.header if settings.part is None or settings.part.is_first else b""
    if isinstance(output, KeptLines):

        def belongs(line: bytes, asked: Input) -> bool:
            kept = answers.find_kept(line, asked)
            if kept is None:
                return False
            if kept.problem and settings.on_error == "stop":
                # What is kept behind it stays for a run that skips it.
                raise _unanswered(kept.problem)
            problems.extend([kept.problem] * bool(kept.problem))
            return True

        rows = output.pass_over(rows, belongs, header, form.records, size)
        num_answers, num_again = output.count, output.num_again
    else:
        output.write(header)
    total = 1 if span is None else len(span)
    progress = Progress("Answering", total) if settings.input_file != "-" else None
    while chunk := list(itertools.islice(rows, size)):
        # A chunk within which an earlier run ended is computed as it was then, to round alike.
        for answer in itertools.islice(answers(chunk), num_again, None):
            _put(settings, output, answer, problems)
            num_answers += 1
        num_again = 0
        output.flush()
        if progress:
            progress(chunk[-1].done if span is None else num_answers)
    return num_answers, problems


def _put(settings: Settings, output: Any, answer: Answer, problems: list[str]) -> None:
    if answer.problem and settings.on_error == "stop":
        output.flush()
        raise _unanswered(answer.problem)
    output.write(answer.text)
    problems += [answer.problem] * bool(answer.problem)


def _write_those_of_machines(
    settings: Settings, answers: Answerer, made_of: Sequence[str]
) -> tuple[int, list[str]]:
    """Writes what a pipeline answers, and returns the number and what problems there were."""
    import_tensorflow()
    from bert.scale.answering import AnswerWork, read_back

    num_inputs = _read_inputs(settings, answers.model).rows.count()
    if not num_inputs:
        raise _nothing_to_answer(settings)
    form = answers.form
    # Wholly, for no line that is found there is compared with its input again.
    whole = fingerprints.of_whole_files([settings.input_file])
    folder = folder_of(settings.output_file, _key(settings, made_of, form, whole))
    given = only(AnsweredSettings, settings)
    work = AnswerWork.plan(given, form, _chunk_size(settings), num_inputs, folder)
    problems: list[str] = []
    # Not before all are there: until then, the folder holds what a run has left, and it alone.
    with (
        made_files(settings, work) as paths,
        open_output(settings.output_file) as file,
        _open_lines(file, form) as lines,
    ):
        lines.write(form.header)
        for answer in read_back(paths):
            _put(settings, lines, answer, problems)
    return num_inputs, problems


@contextlib.contextmanager
def _open_lines(file: BinaryIO, form: Form) -> Iterator[IO[bytes]]:
    """Opens what takes lines: the file, or what it is made of where they are not it."""
    if not form.make:
        yield file
        return
    with tempfile.TemporaryFile() as lines:
        yield lines
        lines.seek(0)
        form.make(lines, file)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    found = checks("input file", _find_input, settings, tells=lambda each: each.input_file)
    settings = settings if found is FAILED else found
    folder = checks("folder", _open_folder, settings, tells=lambda each: each.path)
    checks("output file", _check_output, settings, folder, tells=lambda _: settings.output_file)
    model = checks(
        "model", _load, settings, folder, tells=lambda model: model.task.kind.replace("_", " ")
    )
    if settings.input_file != "-":
        checks("first input", _check_first, settings, model, tells=lambda _: "can be asked")


def _open_folder(settings: Settings) -> "ModelFolder | Export":
    """Returns the folder of the model, which is known to decide something."""
    import_tensorflow()
    from bert.scale.models import open_folder

    return open_folder(settings)


def _load(settings: Settings, folder: "ModelFolder | Export") -> "Model":
    import_tensorflow()
    from bert.scale.models import load

    assume_frozen_weights(settings.precision)
    return load(settings, folder)


def _find_input(settings: Settings) -> Settings:
    """Returns the settings with the path of the input, which a pattern may have named."""
    if settings.input_file != "-":
        path = match_file(settings.input_file, "input_file")
        settings = dataclasses.replace(settings, input_file=path)
    if settings.part and settings.input_file == "-":
        raise ValueError(
            f"`--input_file` must be a file for `--shard={settings.part}`, which is counted first. "
            "Received '-', standard input."
        )
    check_machines(settings)
    if settings.runner and "-" in (settings.input_file, settings.output_file):
        raise ValueError(
            "`--input_file` and `--output_file` must be files with `--runner`. Received "
            f"{settings.input_file!r} and {settings.output_file!r}."
        )
    return settings


def _check_first(settings: Settings, model: "Model") -> None:
    """Checks the file's header, where it has one, and the first input."""
    first = next(_read_inputs(settings, model).rows, None)
    if first is None:
        raise _nothing_to_answer(settings)
    if first.problem and settings.on_error == "stop":
        raise _unanswered(first.problem)


def _unanswered(problem: str) -> ValueError:
    return ValueError(f"{problem} --on_error=skip goes on behind what has no answer.")


def _nothing_to_answer(settings: Settings) -> ValueError:
    return ValueError(f"`--input_file` must hold inputs. {settings.input_file!r} is empty.")


def _check_output(settings: Settings, folder: "ModelFolder | Export") -> list[str]:
    """Checks the output before the model is loaded, and returns the files that make the answers."""
    if settings.output_file == "-":
        return []
    if _ending(settings.output_file) == parquet.ENDING:
        parquet.check_installed(settings.output_file)
        if is_remote(settings.output_file):
            raise ValueError(
                f"`--output_file` must be a local path for Parquet. Received "
                f"{settings.output_file!r}."
            )
    inputs = [settings.input_file] * (settings.input_file != "-")
    check_outputs(
        [settings.output_file], [*inputs, *folder.files], "output_file", settings.may_replace
    )
    return folder.files


def _ending(output: str) -> str:
    """Returns how the name of the output ends, "" for JSON lines."""
    ending = os.path.splitext(output)[1].lower()
    if ending in (".csv", ".tsv", parquet.ENDING):
        return ending
    if ending not in ("", ".jsonl", ".json", ".txt"):
        raise ValueError(
            "`--output_file` must end in .csv, .tsv or .parquet for a table, or in .jsonl, .json, "
            f".txt or without an ending for JSON lines. Received {output!r}."
        )
    return ""


@contextlib.contextmanager
def _open(settings: Settings, made_of: Iterable[str], form: Form) -> Iterator[Any]:
    if settings.output_file == "-" or is_remote(settings.output_file):
        with open_output(settings.output_file) as file, _open_lines(file, form) as lines:
            yield lines
    else:
        key, path = _key(settings, made_of, form), settings.output_file
        # Another run may have written it meanwhile.
        check = functools.partial(check_replaced, path, "output_file", settings.may_replace)
        with keep_lines(path, key, form.make, check) as kept:
            yield kept


def _key(settings: Settings, made_of: Iterable[str], form: Form, *others: Any) -> str:
    """Returns what tells answers of other making apart, for the name of what is not finished."""
    model = fingerprints.of_files([*filter(is_file, made_of)])
    # Rows under another header, of an input with other columns, are none of these.
    return key_of(settings, model, form.names.added, form.header, *others)


def _open_form(
    settings: Settings, model: "Model", inputs: Inputs, span: range | None
) -> tuple[Iterator[Input], Form]:
    """Returns the inputs, and how their answers are written: as the output's name ends."""
    path = settings.output_file
    ending = _ending(path)
    answers = model.task.answer_names
    given, rows = _find_names(settings, model, inputs)
    names = Names.of(given, flat_names(answers) if ending else answers)
    has_errors = settings.on_error == "skip"
    if ending == parquet.ENDING:
        if settings.input_file != "-" and not inputs.names:
            # Else it would be told when all answers are there.
            asked = _read_inputs(settings, model).rows
            parquet.check_columns((each.cells or {} for each in asked), settings.input_file)
        kind = settings.input_format or kind_of(settings.input_file, settings.separator)
        start = (span.start if span else 0) if kind == "parquet" else None
        return rows, ParquetLines(names, settings.input_file, path, start, has_errors=has_errors)
    if not ending:
        return rows, JsonLines(names)
    separator = "\t" if ending == ".tsv" else inputs.separator.replace("\t", ",")
    return rows, Table(names, separator, has_errors=has_errors)


def _find_names(
    settings: Settings, model: "Model", inputs: Inputs
) -> tuple[list[str], Iterator[Input]]:
    """Returns the names of all that inputs hold, and the inputs."""
    if inputs.names:
        return inputs.names, inputs.rows
    if settings.input_file != "-":
        return names_of(_read_inputs(settings, model).rows), inputs.rows
    # What comes later is not known: those of the first one that can be read.
    begun: list[Input] = []
    for each in inputs.rows:
        begun.append(each)
        if each.cells:
            break
    return names_of(begun), itertools.chain(begun, inputs.rows)


def _report(settings: Settings, num_answers: int, problems: Sequence[str]) -> None:
    for problem in problems[:_PROBLEMS_SHOWN]:
        logging.warning("No answer: %s", problem)
    if problems:
        logging.warning("%d of %d inputs have no answer.", len(problems), num_answers)
    if len(problems) == num_answers and settings.part is None:
        raise ValueError(f"`--input_file` must hold inputs of the task. {problems[0]}")
    logging.info("Answered %d inputs.", num_answers - len(problems))


def _read_inputs(settings: Settings, model: "Model") -> Inputs:
    import_tensorflow()
    from bert.scale.models import read

    return read(settings, model)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "bert.models.loaded": ("LoadedModel", "load_fine_tuned as load"),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
