"""Pre-training records as a pipeline of Apache Beam, with the result of `streaming`.

Documents are read and numbered. Their instances are cut, sent to the documents of their second
segments, completed there, and sent to their shards. Random draws depend on the numbers of documents
alone, so the result does not depend on machines and their order.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np

import tokenization
from bert.files.durable import remove, rename, replace_files
from bert.files.paths import (
    file_size,
    hidden_path,
    index_path,
    is_gzip,
    list_folder,
    open_file,
    read_lines,
    read_part,
    real_path,
)
from bert.files.records import encode_examples, write_records
from bert.pretraining.corpus import (
    CorpusCounts,
    Documents,
    TokenizedLines,
    describe_corpus,
    ids_dtype,
    tokenize_lines,
)
from bert.pretraining.draws import Cut, Draws, part_of
from bert.pretraining.instances import InstanceCounts, Segments, describe_instances, mask_all
from bert.pretraining.masking import find_kinds
from bert.pretraining.records import NewRecords
from bert.scale.batches import NAMESPACE, absolute_path, check_shared, run_pipeline
from bert.scale.options import BeamOptions

# Bytes of a part of a file.
_PART = 1 << 26
# Documents whose instances are completed together.
_TOGETHER = 64
# Maximum instances of a table.
_BATCH = 2048
# The key of the total of all parts.
_ALL = -1

# The order of records: the key of an instance, the number of its document, its number there.
_ORDER = struct.Struct(">QQQ")

# The names of counters, in the order of `CorpusCounts` and `InstanceCounts`.
_COUNTED = (
    *("documents", "sentences", "tokens", "unknown tokens", "documents of one sentence"),
    *("damaged lines", "joined files", "following tokens"),
)
_MADE = (
    *("instances", "random next segments", "tokens of instances", "masked tokens"),
    *("truncated instances", "tokens cut off"),
)


class Document(NamedTuple):
    """A document as bytes, which are serialized quickly.

    Attributes:
      ids: The ids of its tokens, of the smallest type for the vocabulary.
      bounds: The start of each sentence and the end of the last one, int64.
    """

    ids: bytes
    bounds: bytes


class Request(NamedTuple):
    """An instance that is sent to the document of its second segment.

    Attributes:
      order: The position of its record, as `_ORDER`.
      ids: The token ids of the first segment and, if it is the next one, of the second.
      cut: The cut of the instance, with offsets in `ids`.
    """

    order: bytes
    ids: bytes
    cut: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Job:
    """The values that every step of the pipeline needs."""

    tokenizer: tokenization.FullTokenizer
    draws: Draws
    num_shards: int

    @functools.cached_property
    def dtype(self) -> np.dtype:
        """The type of token ids."""
        return ids_dtype(self.tokenizer.inv_vocab)

    @functools.cached_property
    def kinds(self) -> np.ndarray:
        """The kind of every id."""
        return find_kinds(self.tokenizer)


def make_records(beam: BeamOptions, new: NewRecords) -> None:
    """Writes the records of `streaming.make_records` as a pipeline of Beam."""
    draws, output_files, made_with = new.draws, new.output_files, new.description
    job = Job(new.tokenizer, draws, len(output_files))
    # A unique name, so that no file of another run is removed; hidden, for a killed run leaves
    # complete shards, which a pattern must not match.
    name = f"{uuid.uuid4().hex}.partial"
    partial = [hidden_path(real_path(path), name) for path in output_files]
    clear = functools.partial(_clear, partial, name)
    texts = [*map(absolute_path, new.input_files)]
    try:
        counters = run_pipeline(
            beam, lambda root: _build(root, job, texts, partial, made_with), clear
        )
        new.input_files.check()
        _put_in_place(partial, output_files)
    finally:
        clear()
    if counters:
        describe_corpus(CorpusCounts(*(counters.get(name, 0) for name in _COUNTED)), draws)
        made = InstanceCounts(*(counters.get(name, 0) for name in _MADE))
        describe_instances(made, draws)


def _put_in_place(partial: Sequence[str], output_files: Sequence[str]) -> None:
    """Renames the shards once all are written."""
    for path in partial:
        check_shared(path)
        check_shared(index_path(path))
    for old, new in zip(partial, output_files, strict=True):
        # The index stays beside a link, which may be on another disk than the shard.
        with open_file(index_path(old)) as index, replace_files([index_path(new)]) as [file]:
            shutil.copyfileobj(index, file)
        rename(old, real_path(new))


def _clear(partial: Sequence[str], name: str) -> None:
    """Removes the files of machines, unfinished ones included."""
    for folder in dict.fromkeys(map(os.path.dirname, partial)):
        with contextlib.suppress(OSError):
            for file in list_folder(folder):
                if name in file:
                    remove(os.path.join(folder, file))


def _build(
    root: Any,
    job: Job,
    input_files: Sequence[str],
    output_files: Sequence[str],
    made_with: Mapping[str, Any],
) -> None:
    import apache_beam as beam  # noqa: PLC0415
    from apache_beam.pvalue import AsSingleton  # noqa: PLC0415

    parts = [part for path in input_files for part in _parts(path)]
    read = (
        root
        | "Parts" >> beam.Create(list(enumerate(parts)))
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(_read, job)
    )
    firsts = AsSingleton(
        read
        | "Part" >> beam.Map(lambda document: document[0])
        | "Count" >> beam.combiners.Count.PerElement()
        | "Together" >> beam.combiners.ToDict()
        | "Add" >> beam.Map(_add_up)
    )
    documents = read | "Number" >> beam.Map(_number, firsts)
    requests = documents | "Draw" >> beam.FlatMap(_draw, job, firsts)
    places = documents | "Place" >> beam.Map(lambda one: (one[0] // _TOGETHER, one))
    records = (
        {"documents": places, "requests": requests}
        | "Meet" >> beam.CoGroupByKey()
        | "Finish" >> beam.FlatMap(_finish, job)
    )
    # An empty shard is written, too.
    every = root | "Shards" >> beam.Create([(shard, None) for shard in range(job.num_shards)])
    _ = (
        {"records": records, "every": every}
        | "Sort" >> beam.CoGroupByKey()
        | "Write" >> beam.Map(_write, output_files, made_with, firsts)
    )


def _count(names: Sequence[str], counts: CorpusCounts | InstanceCounts) -> None:
    from apache_beam.metrics import Metrics  # noqa: PLC0415

    for name, number in zip(names, dataclasses.astuple(counts), strict=True):
        if number:
            Metrics.counter(NAMESPACE, name).inc(number)


@dataclasses.dataclass(frozen=True)
class FilePart:
    """A part of a file, or a complete gzip file, which cannot be divided."""

    path: str
    start: int
    stop: int | None

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of the part."""
        if self.stop is None:
            return (line for line, _ in read_lines(self.path))
        return read_part(self.path, self.start, self.stop)


def _parts(path: str) -> list[FilePart]:
    if is_gzip(path):
        return [FilePart(path, 0, None)]
    return [FilePart(path, start, start + _PART) for start in range(0, file_size(path), _PART)]


def _read(numbered: tuple[int, FilePart], job: Job) -> Iterator[tuple[int, int, Document]]:
    """Yields the number of a part, the number of each document within it, and the document."""
    number, part = numbered
    documents = Documents(job.tokenizer, end_with_files=True)
    pieces: list[tuple[np.ndarray, np.ndarray]] = []
    count = 0
    for lines in tokenize_lines(part.lines(), job.tokenizer):
        first, *new = _split(lines, documents)
        pieces.append(first)
        for piece in new:
            if document := _join(pieces):
                yield number, count, document
                count += 1
            pieces = [piece]
    if pieces and (document := _join(pieces)):
        yield number, count, document
    documents.complete()
    _count(_COUNTED, documents.counts)


def _split(lines: TokenizedLines, documents: Documents) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns ids and sizes of sentences by document; the first piece continues a document."""
    sentences, tokens = documents.counts.num_sentences, documents.counts.num_tokens
    found = documents.add(lines)
    ends = found.ends - tokens
    places = found.firsts - sentences
    starts = np.append(0, ends)[places]
    sizes = np.diff(ends, prepend=0)
    return list(zip(np.split(lines.ids, starts), np.split(sizes, places), strict=True))


def _join(pieces: Iterable[tuple[np.ndarray, np.ndarray]]) -> Document | None:
    """Returns the document of some pieces; None where it has no sentence."""
    ids, sizes = map(np.concatenate, zip(*pieces, strict=True))
    if not len(sizes):
        return None
    bounds = np.cumsum(np.append(0, sizes), dtype=np.int64)
    return Document(ids.tobytes(), bounds.tobytes())


def _add_up(counts: Mapping[int, int]) -> dict[int, int]:
    """Returns the number of the first document of each part, and of all documents as `_ALL`."""
    numbers = accumulate((counts[part] for part in sorted(counts)), initial=0)
    return dict(zip([*sorted(counts), _ALL], numbers, strict=True))


def _number(found: tuple[int, int, Document], firsts: Mapping[int, int]) -> tuple[int, Document]:
    """Returns a document with its number among all documents."""
    part, number, document = found
    return firsts[part] + number, document


def _draw(
    found: tuple[int, Document], job: Job, firsts: Mapping[int, int]
) -> Iterator[tuple[int, Request]]:
    """Yields the instances of a document with the numbers of their destinations."""
    number, document = found
    size = job.dtype.itemsize
    bounds = memoryview(document.bounds).cast("q")
    seeds = job.draws.seeds(bounds, number, firsts[_ALL], range(job.draws.dupe_factor))
    for place, (key, cut) in enumerate(seeds):
        start = cut.a_start
        stop = cut.a_stop if cut.is_random_next else cut.stop
        moved = cut._replace(a_start=0, a_stop=cut.a_stop - start, stop=cut.stop - start)
        order = _ORDER.pack(key, number, place)
        ids = document.ids[start * size : stop * size]
        yield cut.b_document // _TOGETHER, Request(order, ids, tuple(moved))


def _finish(
    met: tuple[int, Mapping[str, Iterable[Any]]], job: Job
) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """Yields the records of instances with their shards, from the documents that they need."""
    _, groups = met
    documents, requests = dict(groups["documents"]), iter(groups["requests"])
    while some := [*islice(requests, _BATCH)]:
        instances = [_complete(request, documents, job) for request in some]
        table = mask_all(instances, job.draws, job.tokenizer, job.kinds)
        _count(_MADE, InstanceCounts.of(table, job.draws))
        records = encode_examples(table.features(0, len(table)))
        for (order, *_), record in zip(some, records, strict=True):
            yield part_of(_ORDER.unpack(order)[0], job.num_shards), (order, record)


def _complete(request: Request, documents: Mapping[int, Document], job: Job) -> Segments:
    """Returns an instance, from the document of its second segment."""
    order, content, values = request
    cut = Cut(*values)
    document = documents[cut.b_document]
    ids = np.frombuffer(content, job.dtype)
    (key, *_) = _ORDER.unpack(order)
    pair, rng = job.draws.pair(key, cut, memoryview(document.bounds).cast("q"))
    others = np.frombuffer(document.ids, job.dtype) if pair.is_random_next else ids
    a, b = ids[pair.a_start : pair.a_stop], others[pair.b_start : pair.b_stop]
    return pair, a, b, rng


def _write(
    shard: tuple[int, Mapping[str, Iterable[Any]]],
    output_files: Sequence[str],
    made_with: Mapping[str, Any],
    firsts: Mapping[int, int],
) -> None:
    """Writes a shard."""
    number, groups = shard
    if not firsts[_ALL]:
        raise ValueError("The input files must hold text. Received only blank lines.")
    with write_records([output_files[number]], made_with) as [writer]:
        for _, record in sorted(groups["records"]):
            writer.write(record)
