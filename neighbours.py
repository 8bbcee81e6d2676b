r"""Finds nearest neighbors: the sentences nearest to a sentence, the words nearest to a word.

    python neighbours.py --init_checkpoint=my_bert --input_file=sentences.txt \
      --query="Who wrote the book?"
    python neighbours.py --init_checkpoint=my_bert --word=bank,river
    python neighbours.py --init_checkpoint=my_bert --input_file=sentences.txt \
      --word=bank --context="He sat on the bank of the river."
    python neighbours.py --word_vectors=vectors.txt --word=bank,river

Similarity is the cosine between vectors. Those of sentences come from the encoder, as
extract_features.py writes them; its output can be given instead of the sentences. A word without
--context has its vector in the embedding table, the same wherever it occurs. With --context, it has
the encoder's vector in that sentence, and its neighbors are words of the file, where they stand.
With --word_vectors, words have the vectors of create_word_vectors.py, word2vec or GloVe instead of
BERT's.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.settings import (
    AS_IN_FOLDER,
    DEFAULT_LENGTH,
    PATTERNS,
    WHOLE_FILE,
    ModelSettings,
    OutputSettings,
    TextSettings,
    VocabularySettings,
)
from bert.files.outputs import check_outputs, open_output, try_outputs
from bert.files.process import import_tensorflow
from bert.files.rows import describe_files, stdin_lines
from bert.files.sentence_transformers import follow
from bert.files.texts import Texts, clean_line, find_texts
from bert.files.visible import visible
from bert.files.word_vectors import WordVectors, read_word_vectors
from bert.options import option, take
from bert.tasks.layers import COMBINATIONS, check_encoder, parse_layers
from bert.weights.options import CHECKPOINT_FORMS, ModelSource

if TYPE_CHECKING:
    from bert.models.neighbours import Neighbour, Space
    from bert.weights.folder import ModelFolder

_ARCHIVE = ".npz"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
    TextSettings,
    ModelSettings,
    VocabularySettings,
    OutputSettings,
):
    """The flags of this script, by name."""

    init_checkpoint: str | None = option(
        None,
        f"Checkpoint of a pre-trained or fine-tuned model: {CHECKPOINT_FORMS}.",
        group="model",
    )
    word_vectors: str | None = option(
        None,
        "With --word, file of word vectors to use instead of a model: word2vec or GloVe text "
        "format, such as create_word_vectors.py writes.",
        group="model",
    )
    input_file: str | None = option(
        None,
        f"Sentences to search, one per line or in a table: {PATTERNS}; or one .npz file of "
        "extract_features.py --pooling. Omit it for a --word without --context.",
    )
    query: str | None = option(
        None, "Sentence to look up. Default: each line of standard input.", group="steps"
    )
    word: str | None = option(
        None,
        "Word to look up, instead of a sentence; or several, comma-separated; or one with "
        "--context.",
        group="steps",
    )
    context: str | None = option(
        None, "Sentence that contains the --word, to show what it means there.", group="steps"
    )
    top_k: int = option(10, "Number of neighbors to show, the nearest ones.", low=1, group="output")
    layer: str = option(
        "last",
        "Layer to take the vectors from: a number from 0, or from the end with -1; or a name: "
        f"{', '.join(COMBINATIONS)}.",
        group="model",
    )
    pooling: str | None = option(
        None,
        "How to make the vector of a sentence: the mean or maximum over its tokens, or the vector "
        f"of [CLS]. Default: mean, or {AS_IN_FOLDER}.",
        choices=("mean", "max", "cls"),
        group="model",
    )
    center: bool = option(
        False,
        "Subtract the mean of all vectors, around which they lie in a narrow cone, from each: "
        "cosines then spread and the neighbors change, not always for the better.",
        group="model",
    )
    max_seq_length: int | None = option(
        None,
        "Maximum tokens per text, including [CLS] and [SEP]; longer texts are truncated. "
        f"Default: {DEFAULT_LENGTH}, or {AS_IN_FOLDER}.",
        low=3,
    )
    batch_size: int = option(32, "Texts per batch.", low=1, group="devices")
    output_file: str = option(
        "-",
        f"{WHOLE_FILE}; - for standard output.",
        group="output",
    )
    format: str | None = option(
        None,
        "text: for reading. jsonl: one JSON object per query. Default: text on standard output, "
        "jsonl in a file.",
        choices=("text", "jsonl"),
        group="output",
    )

    def written_format(self) -> str:
        """Returns the form of the output."""
        return self.format or ("text" if self.output_file == "-" else "jsonl")


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> int:
    """Writes the neighbours of each query, and returns how many queries there were.

    Raises:
      ValueError: where the settings, the texts and the model do not fit.
    """
    import_tensorflow()
    from bert.training.devices import tell_gpus
    from bert.weights.folder import ModelFolder

    files = _find_input(settings)
    folder = (
        None if settings.word_vectors else ModelFolder.of(take(ModelSource, settings), settings)
    )
    if folder:
        settings = _follow(settings, folder, files)
        _check_model(settings, folder)
        tell_gpus()
    _check_output(settings, files, folder)
    try_outputs([settings.output_file], "output_file")
    with open_output(settings.output_file) as output:
        space = _open_space(settings, files, folder)
        logging.info("Looking among %d vectors.", len(space.texts))
        show = _FORMATS[settings.written_format()]
        count = 0
        for query, found in _answers(settings, space):
            output.write(f"{show(_shown(settings, query), found)}\n".encode())
            output.flush()
            count += 1
    if not count:
        raise ValueError("There must be a query. Standard input has none; give `--query`.")
    return count


def _answers(settings: Settings, space: "Space") -> Iterable[tuple[str, Sequence["Neighbour"]]]:
    """Returns the neighbours of each query; of words, all or an error before the first is told."""
    top_k = settings.top_k
    if _is_word_alone(settings):
        return [(word, space.nearest(word, top_k)) for word in _queries(settings)]
    return ((query, space.nearest(query, top_k)) for query in _queries(settings))


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.commands.checks import check_model, check_vocabulary

    files = checks("text", _find_input, settings, tells=_describe)
    output = settings.output_file
    if settings.word_vectors:
        checks("output file", _check_output, settings, files, None, tells=lambda _: output)
        checks("word vectors", _read_vectors, settings, tells=_describe_vectors)
        return
    folder, config = check_model(checks, settings)
    check_vocabulary(checks, settings, folder, config)
    checks("weights", _check_all, settings, folder, files, tells=lambda _: "fit the configuration")
    checks("output file", _check_output, settings, files, folder, tells=lambda _: output)


def _describe(files: Sequence[str]) -> str:
    return describe_files(files) if files else "the words of the vocabulary"


def _describe_vectors(vectors: WordVectors) -> str:
    return f"{len(vectors.words):,} words, {vectors.values.shape[1]} values each"


def _find_input(settings: Settings) -> list[str]:
    """Returns the files to look in, none where a word is looked for in the vocabulary."""
    _check_source(settings)
    if settings.context is not None and settings.word is None:
        raise ValueError(
            f"`--context` must go with the `--word` that is meant. Received {settings.context!r} "
            "alone; a sentence is a `--query`."
        )
    if settings.query is not None and settings.word is not None:
        raise ValueError(
            "Either `--query` or `--word` must be given. Received both, "
            f"{settings.query!r} and {settings.word!r}; the sentence of a word is its `--context`."
        )
    if _is_word_alone(settings) and settings.input_file:
        raise ValueError(
            "`--input_file` must go with a `--query` or a `--context`, for a word alone is looked "
            f"for in the vocabulary. Received {settings.input_file!r}."
        )
    if _is_word_alone(settings):
        return []
    if not settings.input_file:
        raise ValueError("`--input_file` must name the texts to look in. Received none.")
    files = find_texts(settings.input_file)
    if not _is_archive(files):
        # Tells what is wrong with a table.
        Texts(files, settings)
    elif settings.word or len(files) > 1:
        raise ValueError(
            f"`--input_file` must hold text for a word in its context, and one {_ARCHIVE} file at "
            f"most for a sentence. Received {files}."
        )
    return files


def _is_word_alone(settings: Settings) -> bool:
    return settings.word is not None and settings.context is None


def _check_source(settings: Settings) -> None:
    """Checks that there is a model, or word vectors for words alone."""
    vectors, model = settings.word_vectors, settings.init_checkpoint
    if (vectors is None) == (model is None):
        raise ValueError(
            "`--init_checkpoint` must name a model, or `--word_vectors` a file in its place. "
            f"Received {'both' if vectors else 'neither'}."
        )
    if vectors and (settings.word is None or settings.context is not None):
        raise ValueError(
            "`--word_vectors` must go with a `--word` without `--context`: each word has one "
            "vector, wherever it stands."
        )


def _is_archive(files: Sequence[str]) -> bool:
    return any(path.endswith(_ARCHIVE) for path in files)


def _follow(settings: Settings, folder: "ModelFolder", files: Sequence[str]) -> Settings:
    """Returns the settings with what the folder of the model says where no flag does."""
    vectors = folder.text_vectors if files else None
    given: dict[str, Any] = {"max_seq_length": settings.max_seq_length}
    # An archive has a pooling of its own, and words have none.
    if settings.word is None and not _is_archive(files):
        given["pooling"] = settings.pooling
    usual = {
        "max_seq_length": settings.max_seq_length or DEFAULT_LENGTH,
        "pooling": settings.pooling or "mean",
    }
    values = follow(vectors, given, usual, warns="pooling" in given)
    return dataclasses.replace(settings, **values)


def _check_all(settings: Settings, folder: "ModelFolder", files: Sequence[str]) -> None:
    _check_model(_follow(settings, folder, files), folder)


def _check_model(settings: Settings, folder: "ModelFolder") -> None:
    folder.stored.check_fit(folder.config)
    if folder.config.is_word_vectors and _is_word_alone(settings):
        # Its vector is in the table, which is all that there is.
        return
    check_encoder(folder.config)
    parse_layers(settings.layer, folder.config, flag="layer")
    limit = folder.config.max_position_embeddings
    if not 3 <= (settings.max_seq_length or DEFAULT_LENGTH) <= limit:
        raise ValueError(
            f"`--max_seq_length` must be at least 3 and at most {limit}, the "
            f"`max_position_embeddings` of the model. Received {settings.max_seq_length}."
        )


def _check_output(settings: Settings, files: Sequence[str], folder: "ModelFolder | None") -> None:
    if settings.output_file != "-":
        inputs = [*files, *(folder.files if folder else [settings.word_vectors or ""])]
        check_outputs([settings.output_file], inputs, "output_file", settings.may_replace)


def _open_space(settings: Settings, files: Sequence[str], folder: "ModelFolder | None") -> "Space":
    from bert.models import neighbours
    from bert.models.vectors import TextEncoder

    center = settings.center
    if folder is None:
        return neighbours.vectors_space(_read_vectors(settings), center=center)
    if not files:
        return neighbours.table_space(folder.stored, folder.load_tokenizer(), center=center)
    encoder = TextEncoder.load(folder, settings.batch_size)
    sizes: dict[str, Any] = {"max_seq_length": settings.max_seq_length, "center": center}
    if _is_archive(files):
        return neighbours.stored_space(files[0], encoder, **sizes)
    texts = Texts(files, settings)
    if settings.word:
        return neighbours.context_space(encoder, texts, settings.word, settings.layer, **sizes)
    return neighbours.sentence_space(
        encoder, texts, settings.layer, settings.pooling or "mean", **sizes
    )


def _read_vectors(settings: Settings) -> WordVectors:
    """Returns the vectors, among which are those of the words to look for."""
    from bert.models.neighbours import check_words

    assert settings.word_vectors
    vectors = read_word_vectors(settings.word_vectors)
    check_words(vectors, [*_queries(settings)])
    return vectors


def _queries(settings: Settings) -> Iterator[str]:
    if settings.word is not None and settings.context is None:
        yield from (word.strip() for word in settings.word.split(","))
    elif settings.context is not None or settings.query is not None:
        yield settings.context or settings.query or ""
    else:
        for _, line in stdin_lines():
            if text := clean_line(line):
                yield text


def _shown(settings: Settings, query: str) -> str:
    return f"{settings.word}: {query}" if settings.context else query


def _as_text(query: str, found: Sequence["Neighbour"]) -> str:
    lines = [
        f"{each.cosine:8.4f}  {visible(each.text)}"
        + (f"  ({visible(each.id)})" if each.id is not None else "")
        for each in found
    ]
    return "\n".join([visible(query), *lines, ""])


def _as_json(query: str, found: Sequence["Neighbour"]) -> str:
    values = [
        {name: value for name, value in dataclasses.asdict(each).items() if value is not None}
        for each in found
    ]
    return json.dumps({"query": query, "neighbours": values}, ensure_ascii=False)


_FORMATS = {"text": _as_text, "jsonl": _as_json}


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
