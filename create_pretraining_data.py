r"""Makes pre-training records for masked LM and next-sentence prediction (paper, 3.1 and A.1).

    python create_pretraining_data.py --input_file=text.txt --output_file=train.tfrecord \
      --vocab_file=vocab.txt

The input has one sentence per line and a blank line between documents. With the same flags, the
records and their order are those of the original release: all random draws come from one generator,
in its order.
"""

import dataclasses
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from types import SimpleNamespace
from typing import Any, NamedTuple

from absl import flags

import tokenization
from bert.commands.checks import OutputSettings, Step, call, make_script
from bert.commands.console import run_script
from bert.commands.flags import changed_flags
from bert.commands.lines import begin_run
from bert.files.display import Progress
from bert.files.fingerprints import WatchedFiles
from bert.files.machine import describe_files
from bert.files.outputs import check_open_files, name_shards, try_outputs
from bert.files.paths import PATTERNS
from bert.files.process import collector_off
from bert.files.texts import find_texts
from bert.log import logger
from bert.options import REQUIRED, Option, OptionError, option, take
from bert.pretraining import streaming
from bert.pretraining.corpus import describe_corpus, read_corpus
from bert.pretraining.draws import Drawn, Draws, check_vocabulary, truncate
from bert.pretraining.instances import (
    BATCH,
    InstanceCounts,
    InstanceTable,
    TrainingInstance,
    describe_instances,
    features_of,
    write_instances,
)
from bert.pretraining.masking import create_masked_lm_predictions
from bert.pretraining.options import Processing
from bert.pretraining.records import NewRecords, open_tokenizer
from bert.scale import record_pipeline
from bert.scale.batches import check_beam
from bert.scale.options import BeamOptions
from bert.weights.options import VocabularySource

# What people import from the original's create_pretraining_data.py.
FLAGS = flags.FLAGS

# The most names of output files that a check shows.
_MOST_SHOWN = 8
# Flags whose values a check shows.
_SHOWN = (
    *("max_seq_length", "max_predictions_per_seq", "dupe_factor", "masked_lm_prob"),
    *("short_seq_prob", "do_whole_word_mask", "words", "mask_ratios", "mask_at_training"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(VocabularySource, OutputSettings, BeamOptions, Processing, Draws):
    """The flags of create_pretraining_data.py, by name."""

    GROUP = "data"

    input_file: str = option(
        REQUIRED,
        "Text files, plain or gzip, with one sentence per line and a blank line between "
        f"documents: {PATTERNS}.",
    )
    output_file: str = option(
        REQUIRED,
        "TFRecord files to write, comma-separated; the records are dealt to them in turn.",
        group="output",
    )
    vocab_file: str = option(
        REQUIRED,
        "WordPiece vocabulary, one entry per line. If files of its model beside it say that "
        "accents stay, Chinese characters are not split or added tokens stay whole, texts are cut "
        "so.",
        group="model",
    )
    num_shards: int | None = option(
        None,
        "Number of files to write, named --output_file with -00000-of-00008 and so on appended.",
        low=1,
        group="output",
    )


class MaskedLmInstance(NamedTuple):
    """A masked token: its position, and what stood there."""

    index: int  # type: ignore[assignment]  # hides the method of tuples, as in the original
    label: str


def create_int_feature(values: Sequence[int]) -> Any:
    """Returns a `tf.train.Feature` of integers."""
    import tensorflow as tf

    return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))


def create_float_feature(values: Sequence[float]) -> Any:
    """Returns a `tf.train.Feature` of floats."""
    import tensorflow as tf

    return tf.train.Feature(float_list=tf.train.FloatList(value=list(values)))


# The arguments of the functions below, in number and order, are those of the original.


def write_instance_to_example_files(
    instances: Iterable[TrainingInstance],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    max_predictions_per_seq: int,
    output_files: Sequence[str | os.PathLike[str]],
    *,
    made_with: Mapping[str, Any] | None = None,
) -> None:
    """Writes instances to TFRecord files in turn; the files appear when all are complete.

    With `made_with`, a description of the instances, an index appears beside each file.

    Raises:
      ValueError: where an instance does not fit the lengths, or the vocabulary lacks a token.
    """
    paths = [os.fspath(path) for path in output_files]
    lengths = (max_seq_length, max_predictions_per_seq)
    if isinstance(instances, InstanceTable):
        length, most_masks = instances.lengths
        if not most_masks and length != max_seq_length:
            must = f"be {length} for a table of instances without masks, as it was made"
            raise OptionError("max_seq_length", must, max_seq_length)
        if instances.lengths in {lengths, (length, 0)}:
            write_instances(instances, instances.features, paths, made_with)
            return
    listed = list(instances)

    def features(start: int, stop: int) -> dict[str, Any]:
        return features_of(listed[start:stop], tokenizer.vocab, *lengths)

    write_instances(listed, features, paths, made_with)


def create_training_instances(  # noqa: PLR0913, PLR0917
    input_files: Sequence[str | os.PathLike[str]],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    dupe_factor: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    rng: random.Random,
    *,
    do_whole_word_mask: bool = False,
) -> list[TrainingInstance]:
    """Returns the instances of all documents in the files, in random order.

    The instances may be changed before they are written. An `InstanceTable` would take less memory,
    but returns copies.

    Raises:
      ValueError: where a number is out of range, the vocabulary lacks a token that is needed, or
        there is no text.
    """
    draws = Draws(
        random_seed=0,
        dupe_factor=dupe_factor,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        short_seq_prob=short_seq_prob,
        masked_lm_prob=masked_lm_prob,
        do_whole_word_mask=do_whole_word_mask,
    )
    draws.validate()
    check_vocabulary(tokenizer.vocab)
    whole = tokenizer if hasattr(tokenizer, "inv_vocab") else _complete(tokenizer)
    return list(_draw_instances([os.fspath(f) for f in input_files], whole, draws, rng))


def _complete(tokenizer: Any) -> Any:
    """Returns a tokenizer with what the original did not ask of one, made of its vocabulary."""
    vocab = tokenizer.vocab
    inverse = {number: token for token, number in vocab.items()}
    return SimpleNamespace(
        vocab=vocab,
        inv_vocab=inverse,
        tokenize=tokenizer.tokenize,
        convert_tokens_to_ids=partial(tokenization.convert_by_vocab, vocab),
        convert_ids_to_tokens=partial(tokenization.convert_by_vocab, inverse),
    )


def _draw_instances(
    input_files: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    draws: Draws,
    rng: random.Random,
    num_workers: int = 1,
) -> InstanceTable:
    """Returns the instances of all documents, drawn from one generator in the original's order."""
    corpus, counts = read_corpus(input_files, tokenizer, num_workers)
    describe_corpus(counts, draws)
    rng.shuffle(corpus.documents)

    num_uses = draws.dupe_factor * len(corpus.documents)
    progress = Progress("Making instances", num_uses)

    def draw() -> Iterator[Drawn]:
        for use in range(num_uses):
            index = use % len(corpus.documents)
            for cut in draws.cuts(corpus.documents[index], index, len(corpus.documents), rng):
                pair = draws.finish(cut, corpus.documents[cut.b_document], rng)
                yield draws.mask(pair, corpus.kinds, len(tokenizer.vocab), rng)
            progress(use)

    instances = InstanceTable(tokenizer, draws.max_seq_length, draws.most_masks)
    drawn = draw()
    while batch := list(islice(drawn, BATCH)):
        instances.extend(corpus.ids, batch)
    instances.shuffle(rng)
    return instances


def create_instances_from_document(  # noqa: PLR0913, PLR0917
    all_documents: Sequence[Sequence[Sequence[str]]],
    document_index: int,
    max_seq_length: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: random.Random,
    *,
    do_whole_word_mask: bool = False,
) -> list[TrainingInstance]:
    """Returns the instances of one use of a document (paper, section A.2)."""
    draws = Draws(max_seq_length=max_seq_length, short_seq_prob=short_seq_prob)
    document = list(chain.from_iterable(all_documents[document_index]))
    bounds = _find_bounds(all_documents[document_index])
    instances = []
    for cut in draws.cuts(bounds, document_index, len(all_documents), rng):
        pair = draws.finish(cut, _find_bounds(all_documents[cut.b_document]), rng)
        other = list(chain.from_iterable(all_documents[pair.b_document]))
        tokens, segment_ids = tokenization.pack(
            document[pair.a_start : pair.a_stop],
            other[pair.b_start : pair.b_stop],
            max_length=max_seq_length,
        )
        masked_tokens, positions, labels = create_masked_lm_predictions(
            tokens,
            masked_lm_prob,
            max_predictions_per_seq,
            vocab_words,
            rng,
            do_whole_word_mask=do_whole_word_mask,
        )
        instances.append(
            TrainingInstance(
                masked_tokens,
                segment_ids,
                positions,
                labels,
                pair.is_random_next,
                pair.num_truncated,
            )
        )
    return instances


def _find_bounds(document: Sequence[Sequence[str]]) -> list[int]:
    """Returns where the sentences of a document begin, and where the last ends, in tokens."""
    return [*accumulate(map(len, document), initial=0)]


def truncate_seq_pair(
    tokens_a: list[str], tokens_b: list[str], max_num_tokens: int, rng: random.Random
) -> None:
    """Shortens the longer list, at either end by chance, until both fit; changes them in place."""
    length_a, length_b = len(tokens_a), len(tokens_b)
    a_start, a_stop, b_start, b_stop = truncate(
        0, length_a, 0, length_b, length_a + length_b - max_num_tokens, rng
    )
    tokens_a[:] = tokens_a[a_start:a_stop]
    tokens_b[:] = tokens_b[b_start:b_stop]


def run(settings: Settings) -> InstanceTable | InstanceCounts | None:
    """Makes the records and writes them.

    Returns:
      The instances in the order of the records; with `streaming`, counts of them; with `runner`,
      nothing.

    Raises:
      ValueError: before the expensive part, where files or numbers are not as they must be.
    """
    begin_run(settings.check)
    logger.info("Flags: %s; the others have their defaults.", " ".join(changed_flags(settings)))
    records, memory = check(settings)
    try_outputs(records.output_files, "output_file")
    logger.info("*** Reading from input files ***")
    for input_file in records.input_files:
        logger.info("  %s", input_file)
    if settings.runner is not None:
        record_pipeline.make_records(take(BeamOptions, settings), records)
        return None
    if memory is not None:
        return streaming.make_records(records, num_workers=settings.num_workers, memory=memory)
    return _make_records(records, settings.num_workers)


@collector_off()
def _make_records(records: NewRecords, num_workers: int) -> InstanceTable:
    """Makes the records of the original, with all of them in memory."""
    draws, tokenizer = records.draws, records.tokenizer
    # Its digest of the text comes first, to find changes of the text while it is read.
    description = records.description
    rng = random.Random(draws.random_seed)
    instances = _draw_instances(records.input_files, tokenizer, draws, rng, num_workers)
    logger.info("*** Writing to output files ***")
    for output_file in records.output_files:
        logger.info("  %s", output_file)
    write_instances(instances, instances.features, records.output_files, description)
    # Here rather than before: the first records, which writing logs, would hide it.
    describe_instances(InstanceCounts.of(instances, draws), draws)
    return instances


def check(settings: Settings, step: Step = call) -> tuple[NewRecords, int | None]:
    """Checks everything that making records needs; writes nothing.

    Returns:
      The records to make; and the bytes of memory for streaming, None for another way of working.

    Raises:
      ValueError: where files or numbers are not as they must be.
    """
    shown = ", ".join(f"--{name}={getattr(settings, name)}" for name in _SHOWN)
    step("flags", _check_draws, settings, shows=lambda _: shown)
    step(
        "runner", check_beam, take(BeamOptions, settings), shows=lambda _: settings.runner or "none"
    )
    files = step(
        "text", lambda: WatchedFiles(find_texts(settings.input_file)), shows=describe_files
    )
    casing, words = settings.do_lower_case, settings.words
    tokenizer = step(
        "vocabulary",
        lambda: open_tokenizer(settings.vocab_file, do_lower_case=casing, words=words),
        shows=lambda tokenizer: f"{len(tokenizer.vocab):,} entries",
    )
    records = step(
        "output files", _open_records, settings, files, tokenizer, shows=_describe_outputs
    )
    if settings.streaming:
        step("disk", streaming.log_disk, records)
    memory = step("memory", _check_memory, settings, records)
    return records, memory


def _check_draws(settings: Settings) -> None:
    take(Draws, settings).validate()
    if settings.mask_at_training and settings.dupe_factor > 1:
        logger.info(
            "%s makes records of each document so many times, with other pairs. Since %s draws "
            "other masks in every pass, %s is enough.",
            Option("dupe_factor", settings.dupe_factor),
            Option("mask_at_training"),
            Option("dupe_factor", 1),
        )


def _open_records(settings: Settings, input_files: WatchedFiles, tokenizer: Any) -> NewRecords:
    output_files = name_shards(settings.output_file, settings.num_shards)
    # A machine of a pipeline has one open at a time.
    if settings.runner is None:
        check_open_files(output_files)
    records = NewRecords(
        draws=take(Draws, settings),
        input_files=input_files,
        vocab_file=settings.vocab_file,
        do_lower_case=tokenizer.basic_tokenizer.do_lower_case,
        tokenizer=tokenizer,
        output_files=output_files,
        # A pipeline makes the same records as streaming.
        streaming=settings.streaming or settings.runner is not None,
    )
    records.check_outputs(overwrite=settings.overwrite)
    return records


def _describe_outputs(records: NewRecords) -> str:
    names: Sequence[str] = records.output_files
    return ", ".join(names) if len(names) <= _MOST_SHOWN else f"{len(names)} files, {names[0]} …"


def _check_memory(settings: Settings, records: NewRecords) -> int | None:
    memory = take(Processing, settings).find_memory(settings.runner)
    if settings.runner is not None:
        logger.info("Memory: what the workers of %s need.", settings.runner)
    else:
        records.log_memory(memory)
    return memory


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)
