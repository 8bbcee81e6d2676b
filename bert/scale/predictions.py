"""A file of a model's answers to the inputs of another file, written so that a run can resume."""

import contextlib
import dataclasses
import functools
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from bert.files import fingerprints, parquet
from bert.files.display import Progress, counted
from bert.files.outputs import check_outputs, check_replaced, open_output
from bert.files.paths import is_file, is_remote, match_file
from bert.files.row_writer import (
    JsonLines,
    Names,
    ParquetLines,
    ResumableFile,
    Table,
    flat_names,
    open_resumable,
)
from bert.files.texts import Input, InputRows, kind_of, names_of
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.scale.answers import (
    Answer,
    Answerer,
    AnswerWork,
    check_probability,
    read,
    read_back,
)
from bert.scale.batches import check_machines, computed_files, folder_of, key_of
from bert.scale.options import Answering, AnswerOutput, BeamOptions, Part, described

if TYPE_CHECKING:
    from bert.scale.answers import Model

# Maximum number of problems that are logged one by one.
_PROBLEMS_SHOWN = 10


def find_input(given: Answering, output_file: str, part: Part | None, beam: BeamOptions) -> str:
    """Returns the path of the input, which a pattern may have named.

    Raises:
      MessageError: where the input or output cannot be divided.
    """
    path = given.input_file
    if path != "-":
        path = match_file(path, "input_file")
    elif part:
        raise OptionError(
            "input_file",
            Message("be a file for %s, which is counted first", Option("shard", str(part))),
            Message("%r, standard input", path),
        )
    elif given.input_format == "parquet":
        must = Message("be a file for %s, read from its end", Option("input_format", "parquet"))
        raise OptionError("input_file", must, Message("%r, standard input", path))
    check_machines(beam, part)
    if beam.runner and "-" in (path, output_file):
        raise MessageError(
            "%s and %s must be files with %s. Received %r and %r.",
            Option("input_file"),
            Option("output_file"),
            Option("runner"),
            path,
            output_file,
        )
    return path


def check_output(
    output_file: str,
    input_file: str,
    model_files: Sequence[str],
    may_replace: Callable[[str], bool],
) -> None:
    """Checks the output before the model is loaded; writes nothing.

    Raises:
      OptionError: where it cannot be written, or must not be.
    """
    if output_file == "-":
        return
    if _ending(output_file) == parquet.ENDING:
        parquet.check_installed(output_file)
        if is_remote(output_file):
            raise OptionError("output_file", "be a local path for Parquet", output_file)
    inputs = [input_file] * (input_file != "-")
    check_outputs([output_file], [*inputs, *model_files], "output_file", may_replace)


def check_first(given: Answering, model: "Model", on_error: str) -> None:
    """Checks the header of the file, if it has one, and the first input."""
    check_probability(given.min_probability, model)
    first = next(read(given, model), None)
    if first is None:
        raise _empty_input(given.input_file)
    if first.problem and on_error == "stop":
        raise _unanswered(first.problem)


def _ending(output_file: str) -> str:
    """Returns the extension of a table, "" for JSON lines."""
    ending = os.path.splitext(output_file)[1].lower()
    if ending in (".csv", ".tsv", parquet.ENDING):
        return ending
    if ending not in ("", ".jsonl", ".json", ".txt"):
        raise OptionError(
            "output_file",
            "end in .csv, .tsv or .parquet for a table, or in .jsonl, .json, .txt or without an "
            "ending for JSON lines",
            output_file,
        )
    return ""


def _unanswered(problem: str) -> MessageError:
    resume = Option("on_error", "skip")
    return MessageError("%s %s continues after what has no answer.", problem, resume)


def _empty_input(name: str) -> OptionError:
    return OptionError("input_file", "hold inputs", remedy=f"{name!r} is empty.")


@dataclasses.dataclass
class _Tally:
    """The answers of a file.

    Attributes:
      num_answers: The number of lines, those of earlier runs included.
      num_computed: The number of answers that this run has computed.
      num_empty: How many of these are too improbable to be given.
      problems: Why inputs have no answer.
    """

    num_answers: int = 0
    num_computed: int = 0
    num_empty: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class AnswerFile:
    """Writes the answers of a model to the inputs of a file.

    Args:
      model: The model.
      model_files: The files of the model.
      given: Names the model and the inputs.
      output: Where answers are written.
      part: The part of the inputs to answer, None for all.
      options: All options that change the output, by name.
      may_replace: Whether an output file that is there may be replaced.
    """

    model: "Model"
    model_files: Sequence[str]
    given: Answering
    output: AnswerOutput
    part: Part | None
    options: Mapping[str, Any]
    may_replace: Callable[[str], bool]

    def write(self, beam: BeamOptions) -> int:
        """Writes an answer to each input, and returns their number.

        Raises:
          ValueError: where a flag or an input is not what it must be.
        """
        check_probability(self.given.min_probability, self.model)
        span = self._find_span()
        inputs = self._read()
        if span is not None:
            inputs.only(span)
        rows, form = self._open_form(inputs, span)
        given = self.given
        answers = Answerer(self.model, inputs.name, form, given.min_probability)
        if beam.runner:
            tally = self._write_by_machines(answers, beam)
        else:
            tally = self._write_here(rows, answers, span)
        self._report(tally)
        return tally.num_answers

    def _read(self) -> InputRows:
        return read(self.given, self.model)

    @property
    def _chunk_size(self) -> int:
        """Inputs of a chunk, which are sorted by length into batches."""
        # A user who types waits for each answer.
        is_typed = self.given.input_file == "-" and sys.stdin.isatty()
        return 1 if is_typed else 16 * self.given.batch_size

    def _find_span(self) -> range | None:
        """Returns the inputs of the part: complete chunks, so that all are rounded alike."""
        part, size = self.part, self._chunk_size
        if part is None:
            return None
        num_inputs = self._count_inputs()
        span = part.of(num_inputs, size)
        if span:
            logger.info("Part %s: inputs %d to %d.", part, span.start + 1, span.stop)
        else:
            logger.info("Part %s is empty: %d inputs, %d at a time.", part, num_inputs, size)
        return span

    def _count_inputs(self) -> int:
        num_inputs = self._read().count()
        if not num_inputs:
            raise _empty_input(self.given.input_file)
        return num_inputs

    def _write_here(self, rows: Iterator[Input], answers: Answerer, span: range | None) -> "_Tally":
        """Writes what this process answers."""
        path = self.output.output_file
        part = None if path == "-" else self.part
        form, options = _ending(path).removeprefix(".") or "jsonl", {**self.options}
        if form != "jsonl":
            # Tables have a column for errors only with one value of the option.
            options["on_error"] = self.output.on_error
        files = [self.given.input_file], self.model_files
        with described(path, part, options, form, *files), self._open(answers.form) as output:
            tally = self._write_rows(output, rows, answers, span)
            if not tally.num_answers and span is None:
                raise _empty_input(answers.path)
        return tally

    def _write_rows(
        self, output: Any, rows: Iterator[Input], answers: Answerer, span: range | None
    ) -> "_Tally":
        tally = _Tally()
        num_rewritten = 0
        size = self._chunk_size
        if isinstance(output, ResumableFile):
            belongs = functools.partial(self._is_answered, answers, tally.problems)
            rows = output.skip_answered(rows, belongs, size)
            tally.num_answers, num_rewritten = output.count, output.num_rewritten
        # What an earlier run has answered took none of this run's time.
        kept = tally.num_answers - num_rewritten
        total = 1 if span is None else len(span)
        progress = Progress("Answering", total, kept) if self.given.input_file != "-" else None
        while chunk := list(itertools.islice(rows, size)):
            if progress and kept and span is None:
                progress.restart(chunk[0].done)
                kept = 0
            # The chunk in which an earlier run ended is computed again, for the same rounding.
            for answer in itertools.islice(answers(chunk), num_rewritten, None):
                self._put(output, answer, tally)
            num_rewritten = 0
            output.flush()
            if progress:
                progress(chunk[-1].done if span is None else tally.num_answers)
        return tally

    def _is_answered(
        self, answers: Answerer, problems: list[str], line: bytes, query: Input
    ) -> bool:
        """Returns whether a line of an earlier run is the answer to an input."""
        saved = answers.find_saved(line, query)
        if saved is None:
            return False
        if saved.problem and self.output.on_error == "stop":
            # The following lines remain for a run with `on_error="skip"`.
            raise _unanswered(saved.problem)
        problems += [saved.problem] * bool(saved.problem)
        return True

    def _put(self, output: Any, answer: Answer, tally: "_Tally") -> None:
        if answer.problem and self.output.on_error == "stop":
            output.flush()
            raise _unanswered(answer.problem)
        output.write(answer.text)
        tally.num_answers += 1
        tally.num_computed += not answer.problem
        tally.num_empty += answer.is_empty
        tally.problems += [answer.problem] * bool(answer.problem)

    def _write_by_machines(self, answers: Answerer, beam: BeamOptions) -> "_Tally":
        """Writes what a pipeline answers."""
        num_inputs = self._count_inputs()
        form, path = answers.form, answers.path
        # The complete content counts, since finished files are not compared with their inputs.
        content = fingerprints.of_whole_files([path])
        folder = folder_of(self.output.output_file, self._key(form, content))
        size = self._chunk_size
        starts = range(0, num_inputs, size)
        work = AnswerWork.plan(folder, self.given, starts, num_inputs, form, size, path)
        tally = _Tally()
        # Opened only when all files are complete.
        with (
            computed_files(beam, work) as paths,
            open_output(self.output.output_file) as file,
            _open_lines(file, form) as lines,
        ):
            for answer in read_back(paths):
                self._put(lines, answer, tally)
        return tally

    @contextlib.contextmanager
    def _open(self, form: JsonLines) -> Iterator[Any]:
        path = self.output.output_file
        if path == "-" or is_remote(path):
            with open_output(path) as file, _open_lines(file, form) as lines:
                yield lines
        else:
            # Another run may have written the file meanwhile.
            check = functools.partial(check_replaced, path, "output_file", self.may_replace)
            with open_resumable(path, self._key(form), form.make, check) as saved:
                yield saved

    def _key(self, form: JsonLines, *inputs: Any) -> str:
        """Returns the key of these answers, for the names of unfinished files."""
        model = fingerprints.of_files([*filter(is_file, self.model_files)])
        # Rows with other columns are those of another table.
        columns = form.names.inputs if isinstance(form, Table) else b""
        return key_of(self.options, model, form.names.added, columns, *inputs)

    def _open_form(
        self, inputs: InputRows, span: range | None
    ) -> tuple[Iterator[Input], JsonLines]:
        """Returns the inputs, and how answers are written, by the extension of the output."""
        path, source = self.output.output_file, self.given.input_file
        ending = _ending(path)
        answers = self.model.task.answer_names
        found, rows = self._find_names(inputs)
        names = Names.of(found, flat_names(answers) if ending else answers)
        has_errors = self.output.on_error == "skip"
        if ending == parquet.ENDING:
            if source != "-" and not inputs.names:
                # Otherwise the error would come only after all inputs are answered.
                cells = (query.cells or {} for query in self._read())
                parquet.check_columns(cells, source)
            kind = self.given.input_format or kind_of(source, self.given.separator)
            start = (span.start if span else 0) if kind == "parquet" else None
            return rows, ParquetLines(names, source, start, has_errors=has_errors)
        if not ending:
            return rows, JsonLines(names)
        separator = "\t" if ending == ".tsv" else inputs.separator.replace("\t", ",")
        return rows, Table(
            names,
            separator,
            has_errors=has_errors,
            has_header=self.part is None or self.part.number == 1,
            has_mark=inputs.has_mark,
        )

    def _find_names(self, inputs: InputRows) -> tuple[list[str], Iterator[Input]]:
        """Returns the names of all values of the inputs, and the inputs."""
        if inputs.names:
            return inputs.names, inputs
        if self.given.input_file != "-":
            return names_of(self._read()), inputs
        # Of standard input, only the first input that can be read is known.
        first: list[Input] = []
        for query in inputs:
            first.append(query)
            if query.cells:
                break
        return names_of(first), itertools.chain(first, inputs)

    def _report(self, tally: "_Tally") -> None:
        num_answers, problems = tally.num_answers, tally.problems
        for problem in problems[:_PROBLEMS_SHOWN]:
            logger.warning("No answer: %s", problem)
        if problems:
            logger.warning("%d of %d inputs have no answer.", len(problems), num_answers)
        if len(problems) == num_answers and self.part is None:
            raise OptionError("input_file", "hold inputs of the task", remedy=problems[0])
        logger.info("Answered %s.", counted(num_answers - len(problems), "input"))
        if self.given.min_probability and tally.num_computed:
            num_sure = tally.num_computed - tally.num_empty
            logger.info(
                "%d of the %d answers computed now (%.1f %%) have a probability of at least %s; "
                "the others are empty.",
                num_sure,
                tally.num_computed,
                100 * num_sure / tally.num_computed,
                Option("min_probability", self.given.min_probability),
            )


@contextlib.contextmanager
def _open_lines(file: BinaryIO, form: JsonLines) -> Iterator[IO[bytes]]:
    """Opens a file of lines; a temporary one where the output is converted from them."""
    if not form.make:
        yield file
        return
    with tempfile.TemporaryFile() as lines:
        yield lines
        lines.seek(0)
        form.make(lines, file)
