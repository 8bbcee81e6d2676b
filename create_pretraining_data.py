r"""Makes pre-training records for masked LM and next-sentence prediction (paper, 3.1 and A.1).

    python create_pretraining_data.py --input_file=text.txt --output_file=train.tfrecord \
      --vocab_file=vocab.txt

The input has one sentence per line and a blank line between documents. With the same flags, the
records and their order are those of the original release: all random draws come from one generator,
in its order.
"""

import dataclasses
import functools
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from absl import flags, logging

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.flags import changed_flags
from bert.commands.lines import show_lines
from bert.commands.settings import PATTERNS, OutputSettings, VocabularySettings
from bert.files import huggingface
from bert.files.collector import at_rest
from bert.files.fingerprints import WatchedFiles
from bert.files.machine import size_text
from bert.files.outputs import check_open_files, check_outputs, name_shards, try_outputs
from bert.files.paths import read_file
from bert.files.progress import Progress
from bert.files.rows import describe_files, find_texts
from bert.options import REQUIRED, option
from bert.original import instances as original_instances
from bert.pretraining import making, streaming
from bert.pretraining.corpus import kinds_of, read_corpus
from bert.pretraining.draws import RANGES, Draws, check_numbers, check_vocabulary
from bert.pretraining.instances import (
    BATCH,
    Drawn,
    InstanceTable,
    TrainingInstance,
    write_instances,
)
from bert.pretraining.masking import RATIOS, create_masked_lm_predictions
from bert.pretraining.pairs import Bounds, draw_pairs, finish_pair, truncate
from bert.pretraining.spaced_words import PIECES, SPACES, SpacedTokenizer
from bert.pretraining.statistics import (
    InstanceCounts,
    describe_corpus,
    describe_instances,
)
from bert.scale import record_pipeline as pipeline
from bert.scale.beam import check_beam
from bert.scale.options import BeamOptions
from bert.text.casing import warn_of_casing
from bert.weights.options import LOWERS
from bert.weights.tokenizers import cutting_of, options_of, read_cutting

# What people import from the original's create_pretraining_data.py.
FLAGS = flags.FLAGS
MaskedLmInstance = original_instances.MaskedLmInstance
create_int_feature = original_instances.create_int_feature
create_float_feature = original_instances.create_float_feature

# Names of outputs that are all told.
_MOST_TOLD = 8
# Flags whose values a check tells.
_TOLD = (*RANGES, "do_whole_word_mask", "words", "mask_ratios", "mask_at_training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(VocabularySettings, OutputSettings, BeamOptions):
    """The flags of this script, by name."""

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
        "accents stay or Chinese characters are not split, words are cut so.",
        group="model",
    )
    num_shards: int | None = option(
        None,
        "Number of files to write, named --output_file with -00000-of-00008 and so on appended.",
        low=1,
        group="output",
    )
    do_lower_case: bool = option(
        True,
        LOWERS,
        alias="do_lower",
        group="model",
    )
    max_seq_length: int = option(
        128,
        "Tokens per sequence, including [CLS] and [SEP]. Use the same value for training.",
        low=1,
    )
    max_predictions_per_seq: int = option(
        20,
        "Maximum masked tokens per sequence, about max_seq_length * masked_lm_prob. Use the same "
        "value for training; with --mask_at_training, only training masks.",
        low=1,
    )
    next_sentence: bool = option(
        True,
        "Make pairs of segments: half of the time, the second follows the first; otherwise, it is "
        "from elsewhere. --nonext_sentence makes sequences of one segment, each right after the "
        "one before, with no token left out: for --objective=masked_lm, left_to_right and "
        "bilstm_lm of run_pretraining.py.",
    )
    do_whole_word_mask: bool = option(
        False, "Mask all pieces of a word or none, instead of single pieces."
    )
    words: str = option(
        PIECES,
        "What counts as a word for --do_whole_word_mask. pieces: a token and the following ones "
        "that begin with ##; spaces: everything between two spaces, as for Chinese text that is "
        "segmented into words. The tokens are the same.",
        choices=(PIECES, SPACES),
    )
    random_seed: int = option(12345, "Seed for all random draws.")
    dupe_factor: int = option(
        10, "Number of times to use each document, with other pairs and masks."
    )
    masked_lm_prob: float = option(
        0.15, "Fraction of the tokens to mask, up to --max_predictions_per_seq."
    )
    mask_ratios: str = option(
        RATIOS,
        "Percentages of the masked tokens that become [MASK], stay the same and become a random "
        "word (paper, table 8: MASK, SAME, RND).",
    )
    mask_at_training: bool = option(
        False,
        "Leave the tokens as they are: run_pretraining.py masks them anew whenever it reads a "
        "record, as set by the flags here. --dupe_factor=1 is then enough.",
    )
    short_seq_prob: float = option(
        0.1, "Fraction of documents to cut into sequences of a random, shorter length."
    )
    streaming: bool = option(
        False,
        "Keep the text and the records on disk instead of in memory, for any amount of them. The "
        "records are other draws of the same kind than without this flag. They are the same for "
        "any --num_workers and --memory_gb and, joined, for any --num_shards.",
        group="devices",
    )
    num_workers: int = option(
        1,
        "Number of processes; without --streaming, they share only the tokenization. The records "
        "are the same for any number.",
        low=1,
        group="devices",
    )
    memory_gb: float | None = option(
        None,
        "With --streaming, maximum memory of all processes together, in GB. Default: 4, or what "
        "--num_workers need.",
        low=0.0,
        group="devices",
    )


def define_flags() -> None:
    """Defines the flags (original: create_pretraining_data.py)."""
    common_flags.define(Settings)


# The arguments of the functions below, in number and order, are those of the original.


def write_instance_to_example_files(
    instances: Iterable[TrainingInstance],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    max_predictions_per_seq: int,
    output_files: Sequence[str],
    *,
    made_with: Mapping[str, Any] | None = None,
) -> None:
    """Writes instances to TFRecord files, dealt in turn; these appear when all are whole.

    With `made_with`, how the instances were made, an index appears beside each file.
    """
    if isinstance(instances, InstanceTable):
        table = instances
    else:
        table = InstanceTable(tokenizer, max_seq_length, max_predictions_per_seq)
        for instance in instances:
            table.append(instance)
    write_instances(table, output_files, made_with)


def create_training_instances(  # noqa: PLR0913, PLR0917
    input_files: Sequence[str],
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

    They may be changed before they are written. A table, as the script has it, would take less
    memory, but gives copies.

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
    check_numbers(draws)
    check_vocabulary(tokenizer.vocab)
    return list(_draw_instances(input_files, tokenizer, draws, rng))


def _draw_instances(
    input_files: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    draws: Draws,
    rng: random.Random,
    num_workers: int = 1,
) -> InstanceTable:
    """Does as `create_training_instances`; all is drawn from one generator, in its order."""
    corpus, counts = read_corpus(input_files, tokenizer, num_workers)
    describe_corpus(counts, draws)
    rng.shuffle(corpus.documents)

    num_uses = draws.dupe_factor * len(corpus.documents)
    progress = Progress("Making instances", num_uses)

    def draw() -> Iterator[Drawn]:
        for use in range(num_uses):
            index = use % len(corpus.documents)
            for plan in draws.plans(corpus.documents[index], index, len(corpus.documents), rng):
                pair = finish_pair(plan, corpus.documents[plan.b_document], draws.budget, rng)
                yield draws.mask(pair, kinds_of(corpus.kinds, pair), len(tokenizer.vocab), rng)
            progress(use)

    instances = InstanceTable(tokenizer, draws.max_seq_length, draws.most_masks)
    drawn = draw()
    while batch := list(islice(drawn, BATCH)):
        instances.extend(corpus.ids, batch)
    instances.shuffle(rng)
    return instances


def _check_flags(settings: Settings) -> None:
    check_numbers(settings)
    if settings.words != PIECES and not settings.do_whole_word_mask:
        raise ValueError(
            "`--words` says what whole words are, and must go with `--do_whole_word_mask`. "
            f"Received {settings.words!r} without it."
        )
    if settings.mask_at_training and settings.dupe_factor > 1:
        logging.info(
            "--dupe_factor=%d makes records of each document so many times, with other pairs. "
            "Since --mask_at_training draws other masks in every pass, --dupe_factor=1 is enough.",
            settings.dupe_factor,
        )


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
    document = list(chain.from_iterable(all_documents[document_index]))
    instances = []
    for pair in draw_pairs(
        Bounds(all_documents), document_index, max_seq_length - 3, short_seq_prob, rng
    ):
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
      The instances in the order of the records; with `streaming`, what they are like; with
      `runner`, nothing.

    Raises:
      ValueError: before the expensive part, where files or numbers are not as they must be.
    """
    show_lines()
    logging.info("Flags: %s; the others are as by default.", " ".join(changed_flags(settings)))
    check_beam(settings)
    memory = streaming.find_memory(settings)
    input_files = _find_texts(settings)
    _check_flags(settings)
    tokenizer = _check_tokenizer(settings)
    output_files = _check_output(settings, input_files, tokenizer)
    try_outputs(output_files, "output_file")
    made_with = _describe(settings, tokenizer, input_files, len(output_files))
    logging.info("*** Reading from input files ***")
    for input_file in input_files:
        logging.info("  %s", input_file)
    files = (input_files, tokenizer, output_files, made_with)
    if settings.runner is not None:
        _run_pipeline(settings, *files)
        return None
    if memory is not None:
        _tell_disk(settings, input_files, output_files)
        return _stream(settings, memory, *files)
    _tell_memory(settings, input_files, tokenizer)
    return _hold(settings, *files)


@at_rest
def _hold(
    settings: Settings,
    input_files: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    output_files: Sequence[str],
    made_with: Mapping[str, Any],
) -> InstanceTable:
    """Makes the records of the original, with all of them in memory."""
    draws = _draws(settings)
    instances = _draw_instances(
        input_files,
        tokenizer,
        draws,
        random.Random(settings.random_seed),
        settings.num_workers,
    )
    logging.info("*** Writing to output files ***")
    for output_file in output_files:
        logging.info("  %s", output_file)
    write_instance_to_example_files(
        instances,
        tokenizer,
        settings.max_seq_length,
        settings.max_predictions_per_seq,
        output_files,
        made_with=made_with,
    )
    # Here rather than before: the first records, which writing logs, would hide it.
    describe_instances(InstanceCounts.of(instances, draws), draws)
    return instances


def _stream(
    settings: Settings,
    memory: int,
    input_files: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    output_files: Sequence[str],
    made_with: Mapping[str, Any],
) -> InstanceCounts:
    """Makes records of another order and other draws, with all of them on disk."""
    arguments = (_draws(settings), output_files, made_with)
    counts = streaming.make_records(
        input_files, tokenizer, *arguments, num_workers=settings.num_workers, memory=memory
    )
    describe_instances(counts, _draws(settings))
    return counts


def _run_pipeline(
    settings: Settings,
    input_files: Sequence[str],
    tokenizer: tokenization.FullTokenizer,
    output_files: Sequence[str],
    made_with: Mapping[str, Any],
) -> None:
    """Makes the records of `_stream` as a pipeline of Beam."""
    draws = _draws(settings)
    pipeline.make_records(settings, input_files, tokenizer, draws, output_files, made_with)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    told = ", ".join(f"--{name}={getattr(settings, name)}" for name in _TOLD)
    checks("flags", _check_flags, settings, tells=lambda _: told)
    checks("runner", check_beam, settings, tells=lambda _: settings.runner or "none")
    files = checks("text", _find_texts, settings, tells=describe_files)
    tokenizer = checks("vocabulary", _check_tokenizer, settings, tells=_tell_vocabulary)
    output_files = checks(
        "output files", _check_output, settings, files, tokenizer, tells=_tell_outputs
    )
    if settings.streaming:
        checks("disk", _tell_disk, settings, files, output_files)
    checks("memory", _tell_memory, settings, files, tokenizer)


def _find_texts(settings: Settings) -> WatchedFiles:
    return WatchedFiles(find_texts(settings.input_file))


def _check_output(
    settings: Settings, input_files: WatchedFiles, tokenizer: tokenization.FullTokenizer
) -> list[str]:
    output_files = name_shards(settings.output_file, settings.num_shards)
    # A machine of a pipeline has one open at a time.
    if settings.runner is None:
        check_open_files(output_files)

    @functools.cache
    def made_with() -> dict[str, Any]:
        return _describe(settings, tokenizer, input_files, len(output_files))

    # Departs: the original replaces whatever is there. Here, the same command replaces its own
    # records; other ones stay.
    check_outputs(
        output_files,
        [*input_files, settings.vocab_file],
        "output_file",
        lambda path: settings.overwrite or making.is_again(path, made_with()),
    )
    return output_files


def _tell_outputs(output_files: Sequence[str]) -> str:
    if len(output_files) > _MOST_TOLD:
        return f"{len(output_files)} files, {output_files[0]} and so on"
    return ", ".join(output_files)


def _tell_disk(settings: Settings, input_files: Sequence[str], output_files: Sequence[str]) -> None:
    streaming.tell_disk(input_files, _draws(settings), output_files[0])


def _tell_memory(
    settings: Settings, input_files: Sequence[str], tokenizer: tokenization.FullTokenizer
) -> None:
    """Logs what the work takes of memory, or may take at most."""
    if memory := streaming.find_memory(settings):
        logging.info("Memory: at most %s.", size_text(memory))
    elif settings.runner is not None:
        logging.info("Memory: what the workers of %s need.", settings.runner)
    else:
        draws = _draws(settings)
        table = InstanceTable(tokenizer, draws.max_seq_length, draws.most_masks)
        streaming.tell_held(input_files, draws, table.bytes_per_instance)


def _check_tokenizer(settings: Settings) -> tokenization.FullTokenizer:
    tokenizer = _open_tokenizer(settings)
    check_vocabulary(tokenizer.vocab)
    return tokenizer


def _tell_vocabulary(tokenizer: tokenization.FullTokenizer) -> str:
    return f"{len(tokenizer.vocab):,} entries"


# What is different from one copy of the same data to the next, and what none depends on.
_NO_PART = (
    *("input_file", "output_file", "vocab_file", "overwrite", "check"),
    *("num_shards", "num_workers", "memory_gb", "runner", "beam_options"),
)


def _describe(
    settings: Settings,
    tokenizer: tokenization.FullTokenizer,
    input_files: WatchedFiles,
    num_files: int,
) -> dict[str, Any]:
    """Returns what the records of each output file depend on, for its index."""
    flags = {name: value for name, value in vars(settings).items() if name not in _NO_PART}
    # The records are the same.
    flags["streaming"] |= settings.runner is not None
    vocabulary = read_file(settings.vocab_file)
    if huggingface.is_tokenizer(settings.vocab_file):
        vocabulary = huggingface.vocab_text(tokenizer.vocab)
    cutting = cutting_of(options_of(tokenizer), settings.do_lower_case)
    made_with = making.describe(flags, vocabulary, max(tokenizer.vocab.values()) + 1, cutting)
    return {**made_with, making.TEXT: input_files.digest, making.NUM_FILES: num_files}


def _draws(settings: Settings) -> Draws:
    names = [field.name for field in dataclasses.fields(Draws)]
    return Draws(**{name: getattr(settings, name) for name in names})


def _open_tokenizer(settings: Settings) -> tokenization.FullTokenizer:
    kind = SpacedTokenizer if settings.words == SPACES else tokenization.FullTokenizer
    cutting = read_cutting(settings.vocab_file, settings.do_lower_case)
    if cutting:
        folder = os.path.dirname(settings.vocab_file)
        logging.info("Words are cut as the files of the model in %r say: %s.", folder, cutting)
    tokenizer = kind(settings.vocab_file, settings.do_lower_case, **cutting)
    warn_of_casing(tokenizer.vocab, settings.vocab_file, settings.do_lower_case)
    return tokenizer


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
