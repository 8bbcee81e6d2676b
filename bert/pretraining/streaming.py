"""Records of pre-training for any amount of text, by several processes in bounded memory.

The text is read once, and goes to disk as ids. Then every document tells its instances, as far as
it can alone; these are sorted by their keys, finished with what the others hold, and written. All
that is drawn depends on the seed, on the document's number and on the number of documents alone.
"""

import dataclasses
import functools
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from absl import logging

import tokenization
from bert.files.collector import at_rest
from bert.files.durable import replace_files
from bert.files.machine import free_disk, free_memory, size_text
from bert.files.owned import scratch_folder
from bert.files.paths import file_size, index_path, is_gzip
from bert.files.processes import Workers
from bert.files.progress import Progress
from bert.files.records import RecordWriter, encode_examples
from bert.pretraining.corpus import (
    CorpusCounts,
    Documents,
    ids_dtype,
    tokenize_files,
)
from bert.pretraining.draws import Builder, Draws, Seed, part_of
from bert.pretraining.instances import MOST_SHOWN, TrainingInstance, show
from bert.pretraining.pairs import Plan
from bert.pretraining.spill import FILES, SEED, SeedFiles, Spill
from bert.pretraining.statistics import InstanceCounts, describe_corpus

# Documents that are looked at together, to see how much work they are.
_DOCUMENTS = 1 << 15
# Instances that are drawn together, at most.
_INSTANCES = 1 << 18
# Tokens of the instances that are finished together.
_TOKENS = 1 << 18

# What a process takes for itself and the work at hand.
_BYTES_PER_PROCESS = 250_000_000
# What all processes take where nobody says.
_MEMORY = 4_000_000_000
# Bytes of English text: those that gzip makes a byte of, those on disk as ids and bounds of
# sentences, and those that become a token of a sequence, padding included.
_PACKED, _SPILLED, _TEXT_PER_TOKEN = 2.7, 0.7, 2.5
# Where text and records are held in memory: what a process takes for itself, and for each byte of
# text. Of 4 and 8 MB, used once to ten times, it took from 0.91 to 1.16 times what this tells.
_HELD_ALONE, _HELD_PER_TEXT = 50_000_000, 1.7
# Of a sorted file of instances, a copy and the order are in memory for a moment.
_COPIES = 2.5


@dataclasses.dataclass(frozen=True)
class Job:
    """What all processes know that make records of documents on disk."""

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
      shard: Its number.
      content: What stands in the file.
      sizes: Bytes of each record in it.
      counts: What its instances are like.
      shown: The first of them, where these are shown.
    """

    shard: int
    content: bytes
    sizes: Sequence[int]
    counts: InstanceCounts
    shown: list[TrainingInstance]


def find_memory(settings: Any) -> int | None:
    """Returns the bytes that all processes may take; None where it is not for us to say.

    Args:
      settings: Those of create_pretraining_data.py.

    Raises:
      ValueError: where it is too little, or the flags are of another way of working.
    """
    given, num_workers = settings.memory_gb, settings.num_workers
    if settings.runner is not None and (given is not None or num_workers > 1):
        raise ValueError(
            "`--memory_gb` and `--num_workers` must not go with `--runner`, which has options of "
            f"its own for that. Received {given} and {num_workers}. Leave them out, and see "
            "`--beam_options`."
        )
    if not settings.streaming and given is not None:
        raise ValueError(
            "`--memory_gb` must go with `--streaming`: without it, the text and the records are "
            f"held in memory. Received {given}. Give `--streaming` too, or leave it out."
        )
    if not settings.streaming or settings.runner is not None:
        return None
    needed = _least_memory(num_workers)
    if given is None:
        return max(_MEMORY, needed)
    if given * 1e9 < needed:
        raise ValueError(
            f"`--memory_gb` must be at least {needed / 1e9:g} for {num_workers} processes. "
            f"Received {given}. Give more, or lower `--num_workers`."
        )
    return int(given * 1e9)


def _least_memory(num_workers: int) -> int:
    return _BYTES_PER_PROCESS * (num_workers + 1)


def tell_held(input_files: Sequence[str], draws: Draws, bytes_per_instance: int) -> None:
    """Logs about how much memory holds all text and records, and warns where there is less.

    Args:
      input_files: The text.
      draws: How instances are drawn of it.
      bytes_per_instance: As in `InstanceTable`.
    """
    text, num_instances = _estimate(input_files, draws)
    needed = _HELD_ALONE + _HELD_PER_TEXT * text + bytes_per_instance * num_instances
    free = free_memory()
    beside = "" if free is None else f", of {size_text(free)} free"
    logging.info("Memory: about %s to hold all text and records%s.", size_text(needed), beside)
    if free is not None and needed > free:
        logging.warning(
            "Text and records will take about %s of memory, and %s are free: the run may be "
            "killed. Give --streaming, which keeps them on disk, or lower --dupe_factor.",
            *map(size_text, (needed, free)),
        )


def _estimate(input_files: Sequence[str], draws: Draws) -> tuple[float, float]:
    """Returns about how many bytes of text there are, and how many instances they give."""
    text = sum(file_size(path) * (_PACKED if is_gzip(path) else 1) for path in input_files)
    return text, text * draws.dupe_factor / (_TEXT_PER_TOKEN * draws.max_seq_length)


def tell_disk(input_files: Sequence[str], draws: Draws, output_file: str) -> None:
    """Logs about how much is written, and warns where there is too little room for it."""
    free = free_disk(os.path.dirname(output_file))
    if free is None:
        return
    text, num_instances = _estimate(input_files, draws)
    records = num_instances * (200 + 4 * draws.max_seq_length + 7 * draws.most_masks)
    for_a_while = _SPILLED * text + num_instances * SEED.itemsize
    logging.info(
        "Disk: records about %s, and %s for a while, of %s free.",
        *map(size_text, (records, for_a_while, free)),
    )
    if records + for_a_while > free:
        logging.warning(
            "The records to come and what is needed to make them take about %s, and %s are free "
            "beside %s. Lower --dupe_factor, or give another --output_file.",
            *map(size_text, (records + for_a_while, free)),
            output_file,
        )


def make_records(
    input_files: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    draws: Draws,
    output_files: Sequence[str],
    made_with: Mapping[str, Any],
    *,
    num_workers: int,
    memory: int,
) -> InstanceCounts:
    """Writes the records of all documents in the files; returns what the instances are like.

    Args:
      input_files: Paths of texts.
      tokenizer: Makes ids of them.
      draws: How instances are drawn.
      output_files: Paths of the shards, which appear when all are whole.
      made_with: As for `write_records`.
      num_workers: Processes; the records do not depend on it.
      memory: Bytes that all processes take together; the records do not depend on it.

    Raises:
      ValueError: where there is no text.
    """
    with (
        scratch_folder(output_files[0], FILES) as folder,
        Spill(folder, ids_dtype(tokenizer.inv_vocab)) as spill,
    ):
        counts = _tokenize(input_files, tokenizer, spill, num_workers)
        describe_corpus(counts, draws)
        job = Job(spill, tokenizer, draws, counts.num_documents)
        with Workers(num_workers, job) as workers:
            left = memory - _least_memory(num_workers) + _BYTES_PER_PROCESS
            seeds = SeedFiles(folder, int(_COPIES * _most_bytes(counts, draws) // left) + 1)
            num_instances = _draw(job, workers, seeds)
            pieces = workers.map(_finish, _pieces(seeds, draws, len(output_files)))
            return _write(pieces, num_instances, output_files, made_with)


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
    """Returns what all instances take on disk at most, as far as their documents know them."""
    most = draws.most_instances(counts.num_documents, counts.num_sentences, counts.num_tokens)
    return most * draws.dupe_factor * SEED.itemsize


class _Uses(NamedTuple):
    """Some uses of documents that follow each other.

    Attributes:
      first: The first of the documents.
      stop: The one behind the last.
      uses: Their numbers.
      is_long: Whether it is one use of one document, and may have more instances than are drawn
        together.
    """

    first: int
    stop: int
    uses: range
    is_long: bool


def _draw(job: Job, workers: Workers, seeds: SeedFiles) -> int:
    """Writes all instances as far as their own documents know them; returns their number."""
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
    """Yields what `_draw_seeds` returns of the long parts, some instances of each at a time."""
    for part in _uses(job):
        if part.is_long:
            rows = _rows(job, part)
            while some := [*islice(rows, _INSTANCES)]:
                yield 0, np.array(some, SEED)
            yield 1, np.array([], SEED)


def _uses(job: Job) -> Iterator[_Uses]:
    """Yields all uses of all documents, in parts of about as many instances at most."""
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
    """Returns how many instances some documents from `start` on have at most, for each."""
    firsts = job.spill.firsts(start, min(start + _DOCUMENTS, job.num_documents))
    places = np.array([job.spill.bounds(first, first)[0] for first in firsts.tolist()])
    return job.draws.most_instances(1, np.diff(firsts), np.diff(places))


@at_rest
def _draw_seeds(job: Job, part: _Uses) -> tuple[int, np.ndarray]:
    """Returns how many uses of documents a part has, and their instances."""
    return (part.stop - part.first) * len(part.uses), np.array([*_rows(job, part)], SEED)


def _rows(job: Job, part: _Uses) -> Iterator[tuple[Any, ...]]:
    """Yields the instances of a part, as `SEED` has them."""
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


@at_rest
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
    made_with: Mapping[str, Any],
) -> InstanceCounts:
    """Writes shards and their indexes; returns what all instances are like."""
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
            files[shard].write(writer.encode_index(made_with))
    logging.info("Wrote %d total instances", counts.num_instances)
    return counts
