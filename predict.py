r"""Predicts with a fine-tuned model: loads it once, reads inputs, writes an answer a line as JSON.

    python predict.py --model_dir=mrpc --input_file=pairs.tsv > answers.jsonl
    echo 'A film to see twice.' | python predict.py --model_dir=sst

A run that writes a file and ends early keeps its answers; the same command goes on behind them.

In Python: `model = predict.load("mrpc")`, then `model.predict([("one text", "another")])` as often
as wanted; only the first call builds the graph.
"""

import contextlib
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from bert.command_line import flags as common_flags
from bert.command_line.checks import Checks, start
from bert.command_line.console import Progress, run_script
from bert.command_line.flags import REQUIRED, flag
from bert.command_line.names import serve
from bert.files import fingerprints
from bert.files.huggingface import FINE_TUNED
from bert.files.json_text import parse_json
from bert.files.kept_lines import KeptLines, keep_lines
from bert.files.outputs import check_outputs, open_output
from bert.files.paths import file_size, is_file, match_files, read_lines
from bert.files.places import is_remote
from bert.files.tables import decode_line, read_csv

if TYPE_CHECKING:
    from bert.kinds import Told
    from bert.loaded import LoadedModel
    from bert.weights.folder import ModelFolder

FORMATS = ("lines", "tsv", "csv", "jsonl")

# Inputs without an answer to tell of one by one.
_PROBLEMS_SHOWN = 10

# Digits of the fingerprint in the name of an unfinished file.
_KEY_LENGTH = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(common_flags.OutputSettings):
    """The flags of this script, by name."""

    model_dir: str = flag(
        REQUIRED,
        "The --output_dir of a fine-tuning script; or a fine-tuned model of others: a Hugging Face "
        "folder, the name of one on the hub, owner/model, or a checkpoint of the original.",
        group="model",
    )
    input_file: str = flag("-", "File to read; - for standard input.")
    output_file: str = flag(
        "-",
        "File to write, which appears when it is whole; - for standard output. Until then the "
        "answers are in <output_file>.<digits>.unfinished, behind which the same command goes on.",
        group="output",
    )
    input_format: str | None = flag(
        None,
        "lines: an input a line, a tab between its texts if it has several; tsv and csv: a header "
        "names the columns; jsonl: an object a line. Absent, by the file's ending, or else lines.",
        choices=FORMATS,
    )
    columns: str | None = flag(
        None,
        "Comma-separated names of the columns or keys with the texts, in order, where they are not "
        "those that the task uses (text_a and text_b for classifiers).",
    )
    on_error: str = flag(
        "stop",
        "What to do at an input that cannot be answered. stop: end there, those before it "
        'answered. skip: write {"line": ..., "error": ...} in place of its answer, and go on.',
        choices=("stop", "skip"),
        group="output",
    )
    batch_size: int = flag(
        32, "Sequences that go through the model together.", low=1, group="devices"
    )
    precision: str = flag(
        "float32", "Arithmetic of the network.", choices=common_flags.PRECISIONS, group="devices"
    )
    # What the folder of a model of others may not say.
    bert_config_file: str | None = flag(
        None, f"The model's configuration{common_flags.BESIDE}.", group="model"
    )
    vocab_file: str | None = flag(
        None, f"The model's vocabulary{common_flags.BESIDE}.", group="model"
    )
    do_lower_case: bool | None = flag(
        None, "Whether the model is uncased; absent, what its folder says.", group="model"
    )
    architecture: str | None = flag(
        None,
        "What a model without task.json is, in the terms of transformers; absent, what its files "
        "say, or else by its head.",
        choices=tuple(FINE_TUNED.values()),
        group="model",
    )
    task_name: str | None = flag(
        None,
        "The task of GLUE, or xnli, for which the original has trained a classifier, which gives "
        "its labels and number of texts.",
        group="model",
    )
    labels: str | None = flag(
        None,
        "Labels of a model without task.json, comma-separated, in the order of its outputs; "
        "absent, those in config.json.",
        group="model",
    )
    is_pair: bool | None = flag(
        None, "A classifier without task.json takes pairs of texts.", group="model"
    )
    max_seq_length: int | None = flag(
        None,
        "Where texts are cut, in tokens; absent, as the model was trained, or where nothing says "
        "so, as long as it takes them.",
        low=5,
        group="model",
    )

    @property
    def told(self) -> "Told":
        """What the folder may not say."""
        from bert.kinds import Told

        return Told(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Told)})


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


class Input(NamedTuple):
    """What is asked on a line, or what is wrong with it.

    Attributes:
      line: Its number, from 1.
      done: What part of the inputs is read with it, up to 1.
      row: The fields of the task, None where they cannot be read.
      problem: Why not.
    """

    line: int
    done: float
    row: dict[str, Any] | None
    problem: str = ""


class Answer(NamedTuple):
    """A line to write; with a problem, there is none to the input."""

    text: bytes
    problem: str = ""


def run(settings: Settings) -> int:
    """Writes an answer for each input, and returns their number.

    Raises:
      ValueError: where the folder, a flag or an input is not what it must be.
    """
    from bert.training.devices import tell_gpus

    reads_file = settings.input_file != "-"
    _find_input(settings)
    folder = _open_folder(settings)
    made_of = _check_output(settings, folder)
    tell_gpus()
    model = _load(settings, folder)
    inputs = _read_inputs(settings, model.fields)
    # Who types, or pipes one line after the other, waits for each answer.
    size = 1 if not reads_file and sys.stdin.isatty() else 16 * settings.batch_size
    num_answers = 0
    problems: list[str] = []
    with _open(settings, made_of) as output:
        if isinstance(output, KeptLines):
            inputs = output.pass_over(inputs, _belongs)
            num_answers = output.count
        progress = Progress("Answering", 1) if reads_file else None
        while chunk := list(itertools.islice(inputs, size)):
            for answer in _answer(model, chunk, settings.input_file):
                if answer.problem and settings.on_error == "stop":
                    output.flush()
                    raise _unanswered(answer.problem)
                output.write(answer.text)
                problems += [answer.problem] * bool(answer.problem)
                num_answers += 1
            output.flush()
            if progress:
                progress(chunk[-1].done)
        if not num_answers:
            raise _nothing_to_answer(settings)
    _report(num_answers, problems)
    return num_answers


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    checks("input file", _find_input, settings, tells=lambda _: settings.input_file)
    folder = checks("folder", _open_folder, settings, tells=lambda each: each.path)
    checks("output file", _check_output, settings, folder, tells=lambda _: settings.output_file)
    model = checks(
        "model", _load, settings, folder, tells=lambda model: model.task.kind.replace("_", " ")
    )
    if settings.input_file != "-":
        checks("first input", _check_first, settings, model, tells=lambda _: "can be asked")


def _open_folder(settings: Settings) -> "ModelFolder":
    """Returns the folder of the model, which is known to decide something."""
    from bert.kinds import read_task
    from bert.loaded import find_folder

    folder = find_folder(
        settings.model_dir,
        "model_dir",
        bert_config_file=settings.bert_config_file,
        vocab_file=settings.vocab_file,
        do_lower_case=settings.do_lower_case,
    )
    read_task(folder, settings.told)
    return folder


def _load(settings: Settings, folder: "ModelFolder") -> "LoadedModel":
    from bert.loaded import open_fine_tuned

    return open_fine_tuned(
        folder, settings.told, batch_size=settings.batch_size, precision=settings.precision
    )


def _find_input(settings: Settings) -> None:
    if settings.input_file != "-":
        match_files(settings.input_file, "input_file")


def _check_first(settings: Settings, model: "LoadedModel") -> None:
    """Checks the file's header, where it has one, and the first input."""
    first = next(_read_inputs(settings, model.fields), None)
    if first is None:
        raise _nothing_to_answer(settings)
    if first.problem and settings.on_error == "stop":
        raise _unanswered(first.problem)


def _unanswered(problem: str) -> ValueError:
    return ValueError(f"{problem} --on_error=skip goes on behind what has no answer.")


def _nothing_to_answer(settings: Settings) -> ValueError:
    return ValueError(f"`--input_file` must hold inputs. {settings.input_file!r} is empty.")


def _check_output(settings: Settings, folder: "ModelFolder") -> list[str]:
    """Checks the output before the model is loaded, and returns the files that make the answers."""
    if settings.output_file == "-":
        return []
    inputs = [settings.input_file] * (settings.input_file != "-")
    check_outputs(
        [settings.output_file], [*inputs, *folder.files], "output_file", settings.may_replace
    )
    return folder.files


def _open(settings: Settings, made_of: Iterable[str]) -> contextlib.AbstractContextManager[Any]:
    from bert.kinds import Told

    if settings.output_file == "-" or is_remote(settings.output_file):
        return open_output(settings.output_file)
    made_with: tuple[Any, ...] = (
        fingerprints.of_files([*filter(is_file, made_of)]),
        settings.precision,
    )
    if (settings.told, settings.do_lower_case) != (Told(), None):
        made_with += (settings.told, settings.do_lower_case)
    return keep_lines(
        settings.output_file, fingerprints.of_bytes(repr(made_with).encode())[:_KEY_LENGTH]
    )


def _belongs(line: bytes, asked: Input) -> bool:
    """Returns whether a line of an earlier run is the answer to an input."""
    try:
        answer = parse_json(line)
    except ValueError:
        return False
    if not isinstance(answer, dict):
        return False
    if answer.keys() == {"line", "error"}:
        # The reason may have been the reader's or the model's.
        return bool(answer["line"] == asked.line)
    return asked.row is not None and answer | asked.row == answer


def _answer(model: "LoadedModel", inputs: Sequence[Input], path: str) -> Iterator[Answer]:
    """Yields what to write for each input."""
    rows = [each for each in inputs if each.row is not None]
    answers = iter(_ask(model, rows, path))
    for each in inputs:
        yield _refuse(each.line, each.problem) if each.row is None else next(answers)


def _refuse(line: int, problem: str) -> Answer:
    text = json.dumps({"line": line, "error": problem}, ensure_ascii=False)
    return Answer(text.encode("utf-8", "backslashreplace") + b"\n", problem)


def _ask(model: "LoadedModel", inputs: Sequence[Input], path: str) -> list[Answer]:
    """Returns the answers; where the model refuses some inputs, it is asked about parts of them."""
    try:
        answers = model.predict([each.row for each in inputs])
    except ValueError as error:
        if len(inputs) > 1:
            middle = len(inputs) // 2
            parts = (inputs[:middle], inputs[middle:])
            return [answer for part in parts for answer in _ask(model, part, path)]
        # It was asked about a single one, whose place in the file is another.
        reason = str(error).removeprefix("Input 0, counted from 0").lstrip(",: ")
        return [_refuse(inputs[0].line, f"{path}:{inputs[0].line}: {reason}")]
    texts = (
        json.dumps({**(each.row or {}), **answer}, ensure_ascii=False)
        for each, answer in zip(inputs, answers, strict=True)
    )
    return [Answer(text.encode() + b"\n") for text in texts]


def _report(num_answers: int, problems: Sequence[str]) -> None:
    for problem in problems[:_PROBLEMS_SHOWN]:
        logging.warning("No answer: %s", problem)
    if problems:
        logging.warning("%d of %d inputs have no answer.", len(problems), num_answers)
    if len(problems) == num_answers:
        raise ValueError(f"`--input_file` must hold inputs of the task. {problems[0]}")
    logging.info("Answered %d inputs.", num_answers - len(problems))


Parser = Callable[[str, Any], dict[str, Any]]


def _read_inputs(settings: Settings, fields: tuple[str, ...]) -> Iterator[Input]:
    """Yields each input.

    Raises:
      ValueError: where `--columns` or the header of a table do not fit the task.
    """
    names = settings.columns.split(",") if settings.columns else list(fields)
    if len(names) != len(fields):
        raise ValueError(
            f"`--columns` must name {len(fields)} columns, for {', '.join(fields)}. "
            f"Received {settings.columns!r}."
        )
    path = settings.input_file
    kind = settings.input_format
    if kind is None:
        ending = path.removesuffix(".gz").rpartition(".")[2]
        kind = ending if ending in FORMATS else "lines"
    lines = _read_table(path) if kind == "csv" else _read_lines(path)
    if kind == "lines":
        return _parse(lines, path, _line_parser(fields))
    if kind == "jsonl":
        return _parse(lines, path, _json_parser(fields, names))
    return _parse(lines, path, _table_parser(next(lines, None), path, fields, names))


def _read_table(path: str) -> Iterator[tuple[int, float, Any]]:
    rows = read_csv(path)
    for count, row in enumerate(rows, start=1):
        yield row.line, count / len(rows), row.cells


def _read_lines(path: str) -> Iterator[tuple[int, float, Any]]:
    """Yields number, part that is read, and bytes of each line."""
    if path == "-":
        for number, line in enumerate(sys.stdin.buffer, start=1):
            yield number, 0.0, line.decode("utf-8", "replace").rstrip("\r\n")
        return
    size = max(file_size(path), 1)
    for number, (line, count) in enumerate(read_lines(path), start=1):
        yield number, count / size, line


def _text(path: str, number: int, line: Any) -> Any:
    return decode_line(path, number, line) if isinstance(line, bytes) else line


def _parse(lines: Iterator[tuple[int, float, Any]], path: str, parse: Parser) -> Iterator[Input]:
    for number, done, line in lines:
        place = f"{path}:{number}"
        try:
            row = parse(place, _text(path, number, line))
            _check_unicode(place, row)
        except ValueError as error:
            yield Input(number, done, None, str(error))
        else:
            yield Input(number, done, row)


def _check_unicode(place: str, row: Mapping[str, Any]) -> None:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{place}: text must be Unicode. Received {error.object[error.start : error.end]!r}, "
            "which is half of a pair of surrogates."
        ) from None


def _line_parser(fields: tuple[str, ...]) -> Parser:
    def parse(place: str, line: str) -> dict[str, Any]:
        cells = line.split("\t") if len(fields) > 1 else [line]
        if len(cells) != len(fields):
            raise ValueError(
                f"{place}: must have {', '.join(fields)}, with a tab between them. "
                f"Received {line!r}."
            )
        return dict(zip(fields, cells, strict=True))

    return parse


def _table_parser(
    first: tuple[int, float, Any] | None, path: str, fields: tuple[str, ...], names: list[str]
) -> Parser:
    """Returns a parser of rows below a header."""

    def split(cells: Any) -> list[str]:
        return cells.split("\t") if isinstance(cells, str) else cells

    header = split(_text(path, 1, first[2])) if first else [""]
    if missing := [name for name in names if name not in header]:
        raise ValueError(
            f"{path}:1: the header must name {missing}. Received {header}. Say with `--columns` "
            "which columns hold the texts, or with `--input_format=lines` that there is no header."
        )
    places = [header.index(name) for name in names]

    def parse(place: str, cells: Any) -> dict[str, Any]:
        row = split(cells)
        if len(row) <= max(places):
            raise ValueError(
                f"{place}: has {len(row)} columns, needs {max(places) + 1}. Received {row}."
            )
        return {field: row[index] for field, index in zip(fields, places, strict=True)}

    return parse


def _json_parser(fields: tuple[str, ...], names: list[str]) -> Parser:
    def parse(place: str, line: str) -> dict[str, Any]:
        try:
            value = parse_json(line)
        except ValueError as error:
            raise ValueError(f"{place}: must be JSON. Received {line!r:.200} ({error}).") from None
        if isinstance(value, str) and len(names) == 1:
            value = {names[0]: value}
        if not isinstance(value, Mapping) or not all(name in value for name in names):
            raise ValueError(
                f"{place}: must be an object with the keys {names}. Received {line!r:.200}."
            )
        return {field: value[name] for field, name in zip(fields, names, strict=True)}

    return parse


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "bert.loaded": ("LoadedModel", "load_fine_tuned as load"),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
