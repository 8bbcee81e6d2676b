"""The flags of create_pretraining_data.py and its first steps."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert.commands.checks import OutputSettings, Step, call
from bert.files.fingerprints import WatchedFiles
from bert.files.machine import describe_files
from bert.files.outputs import check_open_files, name_shards
from bert.files.paths import PATTERNS
from bert.files.texts import find_texts
from bert.log import logger
from bert.options import REQUIRED, Option, option, take
from bert.pretraining.draws import Draws
from bert.pretraining.options import Processing
from bert.pretraining.records import NewRecords, open_tokenizer
from bert.pretraining.streaming import log_disk
from bert.scale.batches import check_beam
from bert.scale.options import BeamOptions
from bert.weights.options import VocabularySource

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
        step("disk", log_disk, records)
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
