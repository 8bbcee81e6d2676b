r"""Learns a WordPiece vocabulary from text, for pre-training (paper, section 3).

    python create_vocab.py --input_file='text/*.txt' --output_file=vocab.txt --vocab_size=30000

The same text and flags give the same file, whatever the number of processes. Set `vocab_size` in
bert_config.json to the number of lines in the file, which the log shows at the end.
"""

import dataclasses

from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.lines import show_lines
from bert.commands.settings import PATTERNS, OutputSettings
from bert.files.durable import replace_files
from bert.files.outputs import check_outputs, try_outputs
from bert.files.paths import file_size
from bert.files.processes import usable_cores
from bert.files.rows import describe_files, find_texts
from bert.options import REQUIRED, option
from bert.pretraining.vocabulary import (
    BYTES_PER_PROCESS,
    LONGEST_WORD,
    UNUSED_IN_FRONT,
    Summary,
    count_words,
    learn,
    measure,
    special_entries,
)

# Above that, a vocabulary does not fit its text.
MOST_UNKNOWN = 0.001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """The flags of this script, by name."""

    input_file: str = option(REQUIRED, f"Text files, plain or gzip: {PATTERNS}.")
    output_file: str = option(REQUIRED, "File to write, vocab.txt.", group="output")
    vocab_size: int = option(30_000, "Total number of entries in the vocabulary.")
    do_lower_case: bool = option(
        True,
        "Lowercase the text and strip accents; everything that uses the vocabulary must do the "
        "same.",
        alias="do_lower",
    )
    num_unused: int = option(
        UNUSED_IN_FRONT,
        "Number of [unusedN] entries, for words that extend_vocab.py may add later. From 99 on, "
        "the special tokens have the IDs of the released vocabularies.",
        low=0,
    )
    coverage: float = option(
        0.9999,
        "Fraction of the words, counted by occurrence, that the characters of the alphabet must "
        "cover. The others become [UNK].",
        low=0.0,
        high=1.0,
    )
    limit_alphabet: int | None = option(
        None,
        "Maximum number of characters in the alphabet, the most frequent ones. Default: as "
        "--coverage requires.",
        low=1,
    )
    min_frequency: int = option(2, "How often two pieces must occur together to be merged.", low=1)
    num_processes: int | None = option(
        None,
        "Number of processes that count words. Default: as many as there are cores and work for "
        "them.",
        low=1,
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> Summary:
    """Writes the vocabulary, and returns what it makes of the text.

    Raises:
      ValueError: where the settings, or the text and the settings, do not fit.
    """
    show_lines()
    _check_size(settings)
    input_files = find_texts(settings.input_file)
    check_outputs([settings.output_file], input_files, "output_file", settings.may_replace)
    try_outputs([settings.output_file], "output_file")
    counts = count_words(input_files, settings.do_lower_case, _num_processes(settings, input_files))
    logging.info(
        "Read %s words, %s different ones. Learning.", f"{counts.total():,}", f"{len(counts):,}"
    )
    entries = learn(
        counts,
        vocab_size=settings.vocab_size,
        do_lower_case=settings.do_lower_case,
        num_unused=settings.num_unused,
        coverage=settings.coverage,
        limit_alphabet=settings.limit_alphabet,
        min_frequency=settings.min_frequency,
    )
    summary = measure(entries, counts)
    with replace_files([settings.output_file]) as (file,):
        file.write("".join(f"{entry}\n" for entry in entries).encode())
    _report(settings, summary)
    return summary


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    size = settings.vocab_size
    checks("size", _check_size, settings, tells=lambda _: f"{size:,} entries at most")
    files = checks("text", find_texts, settings.input_file, tells=describe_files)
    output = settings.output_file
    arguments = ([output], files, "output_file", settings.may_replace)
    checks("output file", check_outputs, *arguments, tells=lambda _: repr(output))


def _check_size(settings: Settings) -> None:
    smallest = len(special_entries(settings.num_unused)) + 1
    if settings.vocab_size < smallest:
        raise ValueError(
            f"`--vocab_size` must be at least {smallest}, to hold more than the special tokens and "
            f"--num_unused={settings.num_unused}. Received {settings.vocab_size}."
        )


def _num_processes(settings: Settings, input_files: list[str]) -> int:
    if settings.num_processes is not None:
        return settings.num_processes
    # A process that begins takes as long as it does to count some megabytes.
    size = sum(map(file_size, input_files))
    return min(usable_cores(), 1 + size // BYTES_PER_PROCESS)


def _report(settings: Settings, summary: Summary) -> None:
    logging.info(
        "Wrote %d entries to %s: %.4f pieces a word, %.4f %% of the pieces [UNK]. `vocab_size` in "
        "bert_config.json must be %d.",
        summary.num_entries,
        settings.output_file,
        summary.pieces_per_word,
        100 * summary.unknown_rate,
        summary.num_entries,
    )
    if summary.num_entries < settings.vocab_size:
        logging.warning(
            "--vocab_size asks for %d entries, but the text gives %d: no other pieces meet "
            "--min_frequency=%d times.",
            settings.vocab_size,
            summary.num_entries,
            settings.min_frequency,
        )
    if summary.unknown_rate > MOST_UNKNOWN:
        logging.warning(
            "%.2f %% of the pieces are [UNK], because of --coverage or --limit_alphabet, or of "
            "words longer than %d characters.",
            100 * summary.unknown_rate,
            LONGEST_WORD,
        )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
