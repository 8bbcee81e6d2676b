"""The options of neighbours.py, its first steps, and the form of its answers."""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert.commands.checks import WHOLE_FILE, Checks, OutputSettings, check_model, check_vocabulary
from bert.files.display import visible
from bert.files.machine import describe_files
from bert.files.outputs import check_outputs
from bert.files.process import import_tensorflow
from bert.files.word_vectors import WordVectors
from bert.models.options import Search
from bert.options import option, take
from bert.weights.options import ConfigSource, ModelSource, VocabularySource

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


def prepare(settings: Settings) -> tuple[Settings, list[str], "ModelFolder | None"]:
    """Finds the texts and the model, and checks that they and the output fit.

    Returns:
      The settings, completed with what the folder of the model says; the files to search; and the
      folder of the model, None for word vectors.
    """
    import_tensorflow()
    from bert.weights.folder import ModelFolder

    files = settings.find_files()
    folder = None
    if not settings.word_vectors:
        folder = ModelFolder.of(take(ModelSource, settings), settings)
    if folder:
        settings = _check_all(settings, folder, files)
    _check_output(settings, files, folder)
    return settings, files, folder


def check(settings: Settings, checks: Checks) -> None:
    """Shows the texts, the model and the output, and whether they fit."""
    import_tensorflow()
    from bert.models.neighbours import read_vectors

    files = checks("text", settings.find_files, shows=_describe)
    output = settings.output_file
    if settings.word_vectors:
        checks("output file", _check_output, settings, files, None, shows=lambda _: output)
        checks("word vectors", read_vectors, settings, shows=_describe_vectors)
        return
    folder, config = check_model(checks, settings)
    check_vocabulary(checks, settings, folder, config)
    checks("weights", _check_all, settings, folder, files, shows=lambda _: "fit the configuration")
    checks("output file", _check_output, settings, files, folder, shows=lambda _: output)


def _check_all(settings: Settings, folder: "ModelFolder", files: Sequence[str]) -> Settings:
    settings = settings.follow(folder, files)
    settings.check_model(folder)
    return settings


def _check_output(settings: Settings, files: Sequence[str], folder: "ModelFolder | None") -> None:
    if settings.output_file != "-":
        inputs = [*files, *(folder.files if folder else [settings.word_vectors or ""])]
        check_outputs([settings.output_file], inputs, "output_file", settings.may_replace)


def _describe(files: Sequence[str]) -> str:
    return describe_files(files) if files else "the words of the vocabulary"


def _describe_vectors(vectors: WordVectors) -> str:
    return f"{len(vectors.words):,} words, {vectors.values.shape[1]} values each"


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
