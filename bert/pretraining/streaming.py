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
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

import tokenization
from bert.files.durable import replace_files
from bert.files.machine import free_disk, free_memory, size_text
from bert.files.owned import scratch_folder
from bert.files.paths import file_size, index_path, is_gzip
from bert.files.process import collector_off
from bert.files.processes import Workers
from bert.files.progress import Progress
from bert.files.records import RecordWriter, encode_examples
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError, option
from bert.pretraining.corpus import (
    CorpusCounts,
    Documents,
    ids_dtype,
    tokenize_files,
)
from bert.pretraining.draws import Builder, Draws, Seed, part_of
from bert.pretraining.instances import MOST_SHOWN, InstanceTable, TrainingInstance, show
from bert.pretraining.new_records import NewRecords
from bert.pretraining.pairs import Plan
from bert.pretraining.spill import FILES, SEED, SeedFiles, Spill
from bert.pretraining.statistics import InstanceCounts, describe_corpus, describe_instances

# Documents whose work is estimated together.
_DOCUMENTS = 1 << 15
# The most instances that are drawn together.
_INSTANCES = 1 << 18
# Tokens of the instances that are finished together.
_TOKENS = 1 << 18

# The memory of a process for itself and its current work.
_BYTES_PER_PROCESS = 250_000_000
# The default for all processes.
_MEMORY = 4_000_000_000
# For English text: its bytes per byte of gzip, the bytes on disk of its ids and bounds of sentences
# per byte, and its bytes per token of a sequence, padding included.
_PACKED, _SPILLED, _TEXT_PER_TOKEN = 2.7, 0.7, 2.5
# Where text and records are in memory: the bytes of a process, and those per byte of text. With
# 4 and 8 MB, used once to ten times, the process took 0.91 to 1.16 times this estimate.
_HELD_ALONE, _HELD_PER_TEXT = 50_000_000, 1.7
# A sorted file of instances, a copy and the order are in memory for a moment.
_COPIES = 2.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processing:
    """Where text and records are, and which processes work on them."""

    GROUP = "devices"

    streaming: bool = option(
        False,
        Message(
            "Keep the text and the records on disk instead of in memory, for any amount of them. "
            "The records are other draws of the same kind than without this flag. They are the "
            "same for any %s and %s and, joined, for any %s.",
            *map(Option, ("num_workers", "memory_gb", "num_shards")),
        ),
    )
    num_workers: int = option(
        1,
        Message(
            "Number of processes; without %s, they share only the tokenization. The records are "
            "the same for any number.",
            Option("streaming"),
        ),
        low=1,
    )
    memory_gb: float | None = option(
        None,
        Message(
            "With %s, maximum memory of all processes together, in GB. Default: 4, or what %s "
            "need.",
            *map(Option, ("streaming", "num_workers")),
        ),
        low=0.0,
    )

    def find_memory(self, runner: str | None) -> int | None:
        """Returns the bytes that all processes may take; None where there is no limit.

        Args:
          runner: The runner of Beam, whose options limit its memory; None for no pipeline.

        Raises:
          OptionError: where it is too little, or the options exclude each other.
        """
        given, num_workers = self.memory_gb, self.num_workers
        if runner is not None and (given is not None or num_workers > 1):
            raise MessageError(
                "%s and %s must not go with %s, which has options of its own for that. Received %s "
                "and %s. Leave them out, and see %s.",
                *map(Option, ("memory_gb", "num_workers", "runner")),
                *(given, num_workers, Option("beam_options")),
            )
        if not self.streaming and given is not None:
            raise MessageError(
                "%s must go with %s: without it, the text and the records are held in memory. "
                "Received %s. Give %s too, or leave it out.",
                *map(Option, ("memory_gb", "streaming")),
                *(given, Option("streaming")),
            )
        if not self.streaming or runner is not None:
            return None
        needed = _least_memory(num_workers)
        if given is None:
            return max(_MEMORY, needed)
        if given * 1e9 < needed:
            must = f"be at least {needed / 1e9:g} for {num_workers} processes"
            remedy = Message("Give more, or lower %s.", Option("num_workers"))
            raise OptionError("memory_gb", must, given, remedy)
        return int(given * 1e9)


@dataclasses.dataclass(frozen=True)
class Job:
    """The state of all processes that make records of documents on disk."""

    spill: Spill
    tokenizer: tokenization.FullTokenizer
    draws: Draws
    num_documents: int

    @functools.cached_property
    def builder(self) -> Builder:
        """Makes tables of instances."""
        return Builder(self.draws, self.tokenizer)


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


def _least_memory(num_workers: int) -> int:
    return _BYTES_PER_PROCESS * (num_workers + 1)


def log_memory(records: NewRecords, memory: int | None) -> None:
    """Logs how much memory the work takes, and warns where less is free.

    Args:
      records: The records to make.
      memory: The limit of all processes; None to hold text and records in memory.
    """
    if memory is not None:
        logger.info("Memory: at most %s.", size_text(memory))
        return
    text, num_instances = _estimate(records)
    table = InstanceTable(records.tokenizer, records.draws.max_seq_length, records.draws.most_masks)
    needed = _HELD_ALONE + _HELD_PER_TEXT * text + table.bytes_per_instance * num_instances
    free = free_memory()
    beside = "" if free is None else f", of {size_text(free)} free"
    logger.info("Memory: about %s to hold all text and records%s.", size_text(needed), beside)
    if free is not None and needed > free:
        logger.warning(
            "Text and records will take about %s of memory, and %s are free: the run may be "
            "killed. Give %s, which keeps them on disk, or lower %s.",
            *map(size_text, (needed, free)),
            *map(Option, ("streaming", "dupe_factor")),
        )


def _estimate(records: NewRecords) -> tuple[float, float]:
    """Returns about how many bytes of text there are, and how many instances they give."""
    files, draws = records.input_files, records.draws
    text = sum(file_size(path) * (_PACKED if is_gzip(path) else 1) for path in files)
    return text, text * draws.dupe_factor / (_TEXT_PER_TOKEN * draws.max_seq_length)


def log_disk(records: NewRecords) -> None:
    """Logs about how much is written, and warns where there is too little room for it."""
    draws, output_file = records.draws, records.output_files[0]
    free = free_disk(os.path.dirname(output_file))
    if free is None:
        return
    text, num_instances = _estimate(records)
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
            left = memory - _least_memory(num_workers) + _BYTES_PER_PROCESS
            seeds = SeedFiles(folder, int(_COPIES * _most_bytes(counts, draws) // left) + 1)
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


def _most_bytes(counts: CorpusCounts, draws: Draws) -> int:
    """Returns the most bytes of all instances on disk, as far as their documents determine them."""
    most = draws.most_instances(counts.num_documents, counts.num_sentences, counts.num_tokens)
    return most * draws.dupe_factor * SEED.itemsize


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
        for key, plan in job.draws.seeds(bounds, number, job.num_documents, part.uses):
            size = plan.stop - plan.a_stop
            yield key, plan.a_start, plan.a_stop - plan.a_start, size, *plan[3:]


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
    spill, builder = job.spill, job.builder
    for key, a_start, a_size, size, target, is_random_next, b_document in part.seeds.tolist():
        a_stop = a_start + a_size
        plan = Plan(a_start, a_stop, a_stop + size, target, is_random_next, b_document)
        other = spill.document(b_document) if is_random_next else ()
        pair, rng = job.draws.pair(Seed(key, plan), other)
        a, b = spill.ids(pair.a_start, pair.a_stop), spill.ids(pair.b_start, pair.b_stop)
        builder.add(pair, a, b, rng)
    table = builder.build()
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
