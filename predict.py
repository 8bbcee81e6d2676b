"""Predicts with a fine-tuned model: loads it once, reads inputs, writes an answer a line as JSON.

    python predict.py --model_dir=mrpc --input_file=pairs.tsv > answers.jsonl
    echo 'A film to see twice.' | python predict.py --model_dir=sst

In Python: `model = predict.load("mrpc")`, then `model.predict([("one text", "another")])` as often
as wanted; only the first call builds the graph.
"""

import dataclasses
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert.command_line import quiet_import  # isort: skip  # noqa: F401

from absl import logging

from bert.command_line import flags as common_flags
from bert.command_line.console import run_script
from bert.command_line.flags import REQUIRED, flag
from bert.files.paths import check_outputs, match_files, open_output
from bert.files.tables import read_csv, text_lines
from bert.loaded import LoadedModel
from bert.loaded import load_fine_tuned as load
from bert.weights.folder import ModelFolder

__all__ = ["LoadedModel", "load"]

FORMATS = ("lines", "tsv", "csv", "jsonl")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(common_flags.OutputSettings):
    """The flags of this script, by name."""

    model_dir: str = flag(REQUIRED, "The --output_dir of a fine-tuning script.")
    input_file: str = flag("-", "File to read; - for standard input.")
    output_file: str = flag(
        "-", "File to write, which appears when it is whole; - for standard output."
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
    batch_size: int = flag(32, "Sequences that go through the model together.", low=1)
    precision: str = flag("float32", "Arithmetic of the network.", choices=common_flags.PRECISIONS)


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> int:
    """Writes an answer for each input, and returns their number.

    Raises:
      ValueError: where the folder, a flag or an input is not what it must be.
    """
    is_file = settings.input_file != "-"
    if is_file:
        match_files(settings.input_file, "input_file")
    if settings.output_file != "-":
        folder = ModelFolder(settings.model_dir, "model_dir")
        folder.read_task()
        inputs = [settings.input_file, *folder.files]
        check_outputs([settings.output_file], inputs, "output_file", settings.may_replace)
    model = load(settings.model_dir, batch_size=settings.batch_size, precision=settings.precision)
    names = settings.columns.split(",") if settings.columns else list(model.fields)
    if len(names) != len(model.fields):
        raise ValueError(
            f"`--columns` must name {len(model.fields)} columns, for {', '.join(model.fields)}. "
            f"Received {settings.columns!r}."
        )
    rows = _read_rows(settings, model.fields, names)
    # Who types, or pipes one line after the other, waits for each answer.
    size = 1 if not is_file and sys.stdin.isatty() else 16 * settings.batch_size
    count = 0
    with open_output(settings.output_file) as output:
        while chunk := list(itertools.islice(rows, size)):
            for row, answer in zip(chunk, model.predict(chunk), strict=True):
                output.write(json.dumps({**row, **answer}, ensure_ascii=False).encode() + b"\n")
            output.flush()
            count += len(chunk)
            if is_file:
                logging.info("Answered %d inputs.", count)
    if not count:
        raise ValueError(f"`--input_file` must hold inputs. {settings.input_file!r} is empty.")
    return count


def _read_rows(
    settings: Settings, fields: tuple[str, ...], names: list[str]
) -> Iterator[dict[str, Any]]:
    """Yields the fields of each input."""
    path = settings.input_file
    kind = settings.input_format
    if kind is None:
        ending = path.removesuffix(".gz").rpartition(".")[2]
        kind = ending if ending in FORMATS else "lines"
    if kind == "csv":
        lines: Iterable[tuple[int, Any]] = read_csv(path)
    elif path == "-":
        lines = enumerate((_decode(line) for line in sys.stdin.buffer), start=1)
    else:
        lines = text_lines(path)
    parsers = {"lines": _parse_lines, "tsv": _parse_table, "csv": _parse_table}
    return parsers.get(kind, _parse_json)(iter(lines), path, fields, names)


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _parse_lines(
    lines: Iterator[tuple[int, str]], path: str, fields: tuple[str, ...], _: list[str]
) -> Iterator[dict[str, Any]]:
    for number, line in lines:
        cells = line.split("\t") if len(fields) > 1 else [line]
        if len(cells) != len(fields):
            raise ValueError(
                f"{path}:{number}: must have {', '.join(fields)}, with a tab between them. "
                f"Received {line!r}."
            )
        yield dict(zip(fields, cells, strict=True))


def _parse_table(
    lines: Iterator[tuple[int, Any]], path: str, fields: tuple[str, ...], names: list[str]
) -> Iterator[dict[str, Any]]:
    def split(cells: Any) -> list[str]:
        return cells.split("\t") if isinstance(cells, str) else cells

    _, header = next(lines, (0, ""))
    header = split(header)
    if missing := [name for name in names if name not in header]:
        raise ValueError(
            f"{path}:1: the header must name {missing}. Received {header}. Say with `--columns` "
            "which columns hold the texts, or with `--input_format=lines` that there is no header."
        )
    places = [header.index(name) for name in names]
    for number, cells in lines:
        row = split(cells)
        if len(row) <= max(places):
            raise ValueError(
                f"{path}:{number}: has {len(row)} columns, needs {max(places) + 1}. Received {row}."
            )
        yield {field: row[place] for field, place in zip(fields, places, strict=True)}


def _parse_json(
    lines: Iterator[tuple[int, str]], path: str, fields: tuple[str, ...], names: list[str]
) -> Iterator[dict[str, Any]]:
    for number, line in lines:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise ValueError(
                f"{path}:{number}: must be JSON. Received {line!r} ({error})."
            ) from None
        if isinstance(value, str) and len(names) == 1:
            value = {names[0]: value}
        if not isinstance(value, Mapping) or not all(name in value for name in names):
            raise ValueError(
                f"{path}:{number}: must be an object with the keys {names}. Received {line!r}."
            )
        yield {field: value[name] for field, name in zip(fields, names, strict=True)}


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    run(common_flags.read_settings(Settings))


if __name__ == "__main__":
    define_flags()
    run_script(main)
