"""Records of pre-training for any amount of text, by several processes in bounded memory.

The text is read once and written to disk as ids. Then the instances of every document are drawn, as
far as it determines them; they are sorted by their keys, finished with the documents of their
second segments, and written. All draws depend on the seed, on the document's number and on the
number of documents alone.
"""

import dataclasses
import functools
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

import tokenization
from bert.files.display import Progress
from bert.files.durable import replace_files
from bert.files.machine import Workers, free_disk, size_text
from bert.files.owned import scratch_folder
from bert.files.paths import index_path, open_file
from bert.files.process import collector_off
from bert.files.records import RecordWriter, encode_examples
from bert.log import logger
from bert.options import Option
from bert.pretraining import options
from bert.pretraining.corpus import (
    CorpusCounts,
    Documents,
    Found,
    describe_corpus,
    ids_dtype,
    tokenize_files,
)
from bert.pretraining.draws import Cut, Draws, part_of
from bert.pretraining.instances import (
    MOST_SHOWN,
    InstanceCounts,
    TrainingInstance,
    describe_instances,
    mask_all,
    show,
)
from bert.pretraining.masking import find_kinds
from bert.pretraining.records import NewRecords

# Documents whose work is estimated together.
_DOCUMENTS = 1 << 15
# The most instances that are drawn together.
_INSTANCES = 1 << 18
# Tokens of the instances that are finished together.
_TOKENS = 1 << 18

# The bytes on disk of ids and bounds of sentences, per byte of English text.
_SPILLED = 0.7
# A sorted file of instances, a copy and the order are in memory for a moment.
_COPIES = 2.5

# An instance before the document of its second segment is read. Positions are numbers of tokens
# among all tokens.
SEED = np.dtype(
    [
        ("key", np.uint64),
        ("a_start", np.int64),
        ("a_size", np.uint32),
        # The number of tokens of the text that follows.
        ("size", np.uint32),
        ("target", np.uint32),
        ("is_random_next", np.bool_),
        ("b_document", np.int64),
    ]
)

# The names of all files that this module writes.
FILES = re.compile(r"ids|ends|firsts|seeds-\d+")


class Spill:
    """Documents in files of a folder: written once, then read at any position by any process.

    As in `corpus.Documents`, the bounds of a document are the end of the sentence before it and the
    ends of its own sentences.

    Args:
      folder: The local folder of the files.
      dtype: The type of the ids.
    """

    def __init__(self, folder: str, dtype: np.dtype) -> None:
        self._folder = folder
        self._dtypes = {"ids": dtype, "ends": np.dtype(np.int64), "firsts": np.dtype(np.int64)}
        self._files: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Each process opens the files itself.
        return {**vars(self), "_files": {}}

    def __enter__(self) -> "Spill":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; reading opens them again."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _place(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _write(self, name: str, values: Any) -> None:
        if name not in self._files:
            self._files[name] = open_file(self._place(name), "wb")
        self._files[name].write(np.asarray(values, self._dtypes[name]).tobytes())

    def begin(self) -> None:
        """Starts writing."""
        self._write("ends", [0])

    def add(self, ids: np.ndarray, found: Found) -> None:
        """Writes the documents of some lines."""
        self._write("ids", ids)
        self._write("ends", found.ends)
        self._write("firsts", found.firsts)

    def finish(self, num_sentences: int) -> None:
        """Ends writing."""
        self._write("firsts", [num_sentences])
        self.close()

    def _read(self, name: str, start: int, stop: int) -> bytes:
        file = self._files.get(name)
        if file is None:
            # Without a buffer, for reads are seldom of adjacent bytes.
            file = self._files[name] = io.FileIO(self._place(name))
        size = self._dtypes[name].itemsize
        file.seek(start * size)
        count = (stop - start) * size
        content = file.read(count)
        # A system reads 2 GiB at once, and no more.
        while len(content) < count and (more := file.read(count - len(content))):
            content += more
        return content

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Returns the ids of tokens."""
        return np.frombuffer(self._read("ids", start, stop), self._dtypes["ids"])

    def bounds(self, first: int, stop: int) -> Sequence[int]:
        """Returns where sentences `first` to `stop` - 1 begin, and where the last of them ends."""
        return memoryview(self._read("ends", first, stop + 1)).cast("q")

    def firsts(self, start: int, stop: int) -> np.ndarray:
        """Returns the first sentence of each document, and the one after the last document."""
        return np.frombuffer(self._read("firsts", start, stop + 1), np.int64)

    def document(self, number: int) -> "SpilledBounds":
        """Returns the bounds of a document, which are read on access."""
        first, stop = memoryview(self._read("firsts", number, number + 2)).cast("q")
        return SpilledBounds(self, first, stop)


class SpilledBounds(Sequence[int]):
    """Where the sentences of a document begin, and where the last ends."""

    def __init__(self, spill: Spill, first: int, stop: int) -> None:
        self._spill = spill
        self._first, self._stop = first, stop

    def __len__(self) -> int:
        return self._stop + 1 - self._first

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self._spill.bounds(self._first + start, self._first + stop - 1)
        index = range(len(self))[index]
        return self[index : index + 1][0]


class SeedFiles:
    """Drawn instances on disk, a file for each range of the keys.

    Args:
      folder: The local folder of the files.
      num_files: The number of files; one at a time must fit into memory.
    """

    def __init__(self, folder: str, num_files: int) -> None:
        self._paths = [Path(folder, f"seeds-{number}") for number in range(num_files)]

    def add(self, seeds: np.ndarray) -> None:
        """Adds instances to their files."""
        numbers = part_of(seeds["key"], len(self._paths)).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(len(self._paths) + 1))
        ordered = seeds[order]
        for path, (start, stop) in zip(self._paths, pairwise(bounds.tolist()), strict=True):
            if start < stop:
                with path.open("ab") as file:
                    file.write(ordered[start:stop].tobytes())

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yields the instances of each file in the order of the keys; removes read files."""
        for path in self._paths:
            if path.exists():
                seeds = np.fromfile(path, SEED)
                yield seeds[np.argsort(seeds["key"], kind="stable")]
                path.unlink()


@dataclasses.dataclass(frozen=True)
class Job:
    """The state of all processes that make records of documents on disk."""

    spill: Spill
    tokenizer: tokenization.FullTokenizer
    draws: Draws
    num_documents: int

    @functools.cached_property
    def kinds(self) -> np.ndarray:
        """The kind of every id."""
        return find_kinds(self.tokenizer)


class Piece(NamedTuple):
    """Records that follow each other in a shard.

    Attributes:
      shard: The number of the shard.
      content: The bytes of the file.
      sizes: The number of bytes of each record.
      counts: Counts of the instances.
      shown: The first instances, where these are logged.
    """

    shard: int
    content: bytes
    sizes: Sequence[int]
    counts: InstanceCounts
    shown: list[TrainingInstance]


def log_disk(records: NewRecords) -> None:
    """Logs about how much is written, and warns where there is too little room for it."""
    draws, output_file = records.draws, records.output_files[0]
    free = free_disk(os.path.dirname(output_file))
    if free is None:
        return
    text, num_instances = records.estimate()
    size = num_instances * (200 + 4 * draws.max_seq_length + 7 * draws.most_masks)
    temporary = _SPILLED * text + num_instances * SEED.itemsize
    logger.info(
        "Disk: records about %s, and %s for a while, of %s free.",
        *map(size_text, (size, temporary, free)),
    )
    if size + temporary > free:
        logger.warning(
            "The records to come and what is needed to make them take about %s, and %s are free "
            "beside %s. Lower %s, or give another %s.",
            *map(size_text, (size + temporary, free)),
            output_file,
            *map(Option, ("dupe_factor", "output_file")),
        )


def make_records(records: NewRecords, *, num_workers: int, memory: int) -> InstanceCounts:
    """Writes the records of all documents in the files; returns counts of the instances.

    Args:
      records: The records to make, whose files appear when all are complete.
      num_workers: The number of processes; the records do not depend on it.
      memory: The bytes that all processes take together; the records do not depend on it.

    Raises:
      ValueError: where there is no text.
    """
    tokenizer, draws, output_files = records.tokenizer, records.draws, records.output_files
    # Its digest of the text comes first, to find changes of the text while it is read.
    description = records.description
    with (
        scratch_folder(output_files[0], FILES) as folder,
        Spill(folder, ids_dtype(tokenizer.inv_vocab)) as spill,
    ):
        counts = _tokenize(records.input_files, tokenizer, spill, num_workers)
        describe_corpus(counts, draws)
        job = Job(spill, tokenizer, draws, counts.num_documents)
        with Workers(num_workers, job) as workers:
            most = draws.dupe_factor * draws.most_instances(
                counts.num_documents, counts.num_sentences, counts.num_tokens
            )
            left = memory - options.BYTES_PER_PROCESS * num_workers
            seeds = SeedFiles(folder, int(_COPIES * most * SEED.itemsize // left) + 1)
            num_instances = _draw(job, workers, seeds)
            pieces = workers.map(_finish, _pieces(seeds, draws, len(output_files)))
            made = _write(pieces, num_instances, output_files, description)
    describe_instances(made, draws)
    return made


def _tokenize(
    input_files: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    spill: Spill,
    num_workers: int,
) -> CorpusCounts:
    documents = Documents(tokenizer, end_with_files=True)
    spill.begin()
    with Workers(num_workers, tokenizer) as workers:
        for lines in tokenize_files(input_files, workers):
            spill.add(lines.ids, documents.add(lines))
    counts = documents.finish(input_files)
    spill.finish(counts.num_sentences)
    return counts


class _Uses(NamedTuple):
    """Some uses of documents that follow each other.

    Attributes:
      first: The number of the first document.
      stop: The number after the last document.
      uses: The numbers of the uses.
      is_long: Whether this is one use of one document, and may have more instances than are drawn
        together.
    """

    first: int
    stop: int
    uses: range
    is_long: bool


def _draw(job: Job, workers: Workers, seeds: SeedFiles) -> int:
    """Writes all instances as far as their documents determine them; returns their number."""
    progress = Progress("Drawing", job.num_documents * job.draws.dupe_factor)
    num_instances = num_done = 0
    short = (part for part in _uses(job) if not part.is_long)
    for num_uses, found in chain(workers.map(_draw_seeds, short), _draw_long(job)):
        seeds.add(found)
        num_instances += len(found)
        num_done += num_uses
        progress(num_done)
    return num_instances


def _draw_long(job: Job) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the results of `_draw_seeds` for the long parts, some instances at a time."""
    for part in _uses(job):
        if part.is_long:
            rows = _rows(job, part)
            while some := [*islice(rows, _INSTANCES)]:
                yield 0, np.array(some, SEED)
            yield 1, np.array([], SEED)


def _uses(job: Job) -> Iterator[_Uses]:
    """Yields all uses of all documents, in parts of at most about as many instances."""
    every = range(job.draws.dupe_factor)
    for start in range(0, job.num_documents, _DOCUMENTS):
        most = len(every) * _most_instances(job, start)
        sums = np.cumsum(most)
        first = 0
        while first < len(most):
            limit = sums[first] - most[first] + _INSTANCES
            stop = max(int(np.searchsorted(sums, limit, "right")), first + 1)
            is_alone = most[first] > _INSTANCES
            is_long = bool(most[first] > _INSTANCES * len(every))
            for uses in [range(use, use + 1) for use in every] if is_alone else [every]:
                yield _Uses(start + first, start + stop, uses, is_long)
            first = stop


def _most_instances(job: Job, start: int) -> np.ndarray:
    """Returns the most instances of each of some documents from `start` on."""
    firsts = job.spill.firsts(start, min(start + _DOCUMENTS, job.num_documents))
    places = np.array([job.spill.bounds(first, first)[0] for first in firsts.tolist()])
    return job.draws.most_instances(1, np.diff(firsts), np.diff(places))


@collector_off()
def _draw_seeds(job: Job, part: _Uses) -> tuple[int, np.ndarray]:
    """Returns the number of uses of documents in a part, and their instances."""
    return (part.stop - part.first) * len(part.uses), np.array([*_rows(job, part)], SEED)


def _rows(job: Job, part: _Uses) -> Iterator[tuple[Any, ...]]:
    """Yields the instances of a part in the form of `SEED`."""
    firsts = job.spill.firsts(part.first, part.stop).tolist()
    ends = job.spill.bounds(firsts[0], firsts[-1])
    for number, (first, stop) in enumerate(pairwise(firsts), part.first):
        bounds = ends[first - firsts[0] : stop - firsts[0] + 1]
        for key, cut in job.draws.seeds(bounds, number, job.num_documents, part.uses):
            size = cut.stop - cut.a_stop
            yield key, cut.a_start, cut.a_stop - cut.a_start, size, *cut[3:]


class _Unfinished(NamedTuple):
    """Some instances of a shard, in the order of their records."""

    shard: int
    seeds: np.ndarray
    num_shown: int


def _pieces(files: SeedFiles, draws: Draws, num_shards: int) -> Iterator[_Unfinished]:
    size = max(_TOKENS // draws.max_seq_length, 1)
    num_shown = MOST_SHOWN
    for seeds in files:
        shards = part_of(seeds["key"], num_shards).astype(np.int64)
        bounds = np.searchsorted(shards, np.arange(shards[0], shards[-1] + 2)).tolist()
        for shard, (first, stop) in enumerate(pairwise(bounds), int(shards[0])):
            for start in range(first, stop, size):
                yield _Unfinished(shard, seeds[start : min(start + size, stop)], num_shown)
                num_shown = 0


@collector_off()
def _finish(job: Job, part: _Unfinished) -> Piece:
    spill, instances = job.spill, []
    for key, a_start, a_size, size, target, is_random_next, b_document in part.seeds.tolist():
        a_stop = a_start + a_size
        cut = Cut(a_start, a_stop, a_stop + size, target, is_random_next, b_document)
        other = spill.document(b_document) if is_random_next else ()
        pair, rng = job.draws.pair(key, cut, other)
        a, b = spill.ids(pair.a_start, pair.a_stop), spill.ids(pair.b_start, pair.b_stop)
        instances.append((pair, a, b, rng))
    table = mask_all(instances, job.draws, job.tokenizer, job.kinds)
    content = io.BytesIO()
    writer = RecordWriter(content)
    for record in encode_examples(table.features(0, len(table))):
        writer.write(record)
    counts, shown = InstanceCounts.of(table, job.draws), table[: part.num_shown]
    return Piece(part.shard, content.getvalue(), writer.sizes, counts, shown)


def _write(
    pieces: Iterator[Piece],
    num_instances: int,
    output_files: Sequence[str],
    description: Mapping[str, Any],
) -> InstanceCounts:
    """Writes shards and their indexes; returns counts of all instances."""
    progress = Progress("Writing", num_instances)
    counts = InstanceCounts()
    num_shards = len(output_files)
    # The indexes first, as in `write_records`.
    with replace_files([*map(index_path, output_files), *output_files]) as files:
        piece = next(pieces, None)
        for shard in range(num_shards):
            writer = RecordWriter(files[num_shards + shard])
            while piece is not None and piece.shard == shard:
                writer.join(piece.content, piece.sizes)
                for number, instance in enumerate(piece.shown):
                    show(number, instance)
                counts += piece.counts
                progress(counts.num_instances)
                piece = next(pieces, None)
            files[shard].write(writer.encode_index(description))
    logger.info("Wrote %d total instances", counts.num_instances)
    return counts
