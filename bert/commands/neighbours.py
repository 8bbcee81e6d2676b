"""The options of neighbours.py, its first steps, and the form of its answers."""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert.commands.checks import WHOLE_FILE, Checks, OutputSettings, Step, call, open_folder
from bert.files.display import visible
from bert.files.machine import describe_files
from bert.files.outputs import check_outputs
from bert.files.process import import_tensorflow
from bert.models.options import Search
from bert.options import option
from bert.parts import FAILED
from bert.weights.options import ConfigSource, VocabularySource

if TYPE_CHECKING:
    from bert.models.neighbours import Neighbour
    from bert.weights.folder import ModelFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Search, ConfigSource, VocabularySource, OutputSettings):
    """The flags of the script, by name."""

    top_k: int = option(10, "Number of neighbors to show, the nearest ones.", low=1, group="output")
    output_file: str = option("-", f"{WHOLE_FILE}; - for standard output.", group="output")
    format: str | None = option(
        None,
        "text: for reading. jsonl: one JSON object per query. Default: text on standard output, "
        "jsonl in a file.",
        choices=("text", "jsonl"),
        group="output",
    )


def prepare(
    settings: Settings, step: Step = call
) -> tuple[Settings, list[str], "ModelFolder | None"]:
    """Finds the texts and the model, and checks that they and the output fit.

    Returns:
      The settings, completed with what the folder of the model says; the files to search; and the
      folder of the model, None for word vectors.
    """
    import_tensorflow()
    words = "the words of the vocabulary"
    files = step(
        "text", settings.find_files, shows=lambda found: describe_files(found) if found else words
    )
    folder = None
    if not settings.word_vectors:
        folder, _ = open_folder(settings, step)
        fits = "fit the configuration"
        found = step("weights", _check_all, settings, folder, files, shows=lambda _: fits)
        settings = settings if found is FAILED else found
    output = settings.output_file
    step("output file", _check_output, settings, files, folder, shows=lambda _: output)
    return settings, files, folder


def check(settings: Settings, checks: Checks) -> None:
    """Shows the texts, the model and the output, and whether they fit."""
    _, files, _ = prepare(settings, checks)
    if settings.word_vectors:
        from bert.models.neighbours import read_vectors

        # Without a word, which the text step refuses, standard input would be read.
        checks(
            "word vectors",
            lambda _: read_vectors(settings),
            files,
            shows=lambda found: f"{len(found.words):,} words, {found.values.shape[1]} values each",
        )


def _check_all(settings: Settings, folder: "ModelFolder", files: Sequence[str]) -> Settings:
    settings = settings.follow(folder, files)
    settings.check_model(folder)
    return settings


def _check_output(settings: Settings, files: Sequence[str], folder: "ModelFolder | None") -> None:
    if settings.output_file != "-":
        inputs = [*files, *(folder.files if folder else [settings.word_vectors or ""])]
        check_outputs([settings.output_file], inputs, "output_file", settings.may_replace)


def show(settings: Settings, query: str, found: Sequence["Neighbour"]) -> str:
    """Returns the lines of a query and its neighbours."""
    query = f"{settings.word}: {query}" if settings.context else query
    by_default = "text" if settings.output_file == "-" else "jsonl"
    if (settings.format or by_default) == "jsonl":
        neighbours: list[dict[str, Any]] = [
            {name: value for name, value in dataclasses.asdict(each).items() if value is not None}
            for each in found
        ]
        return json.dumps({"query": query, "neighbours": neighbours}, ensure_ascii=False)
    lines = [
        f"{each.cosine:8.4f}  {visible(each.text)}"
        + (f"  ({visible(each.id)})" if each.id is not None else "")
        for each in found
    ]
    return "\n".join([visible(query), *lines, ""])
