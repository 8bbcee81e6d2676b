r"""Learns a WordPiece vocabulary from text, for pre-training (paper, section 3).

    python create_vocab.py --input_file='text/*.txt' --output_file=vocab.txt --vocab_size=30000

The same text and flags give the same file, whatever the number of processes. Set `vocab_size` in
bert_config.json to the number of lines in the file, which the log shows at the end.
"""

import dataclasses

from bert.commands.checks import Step, TextFileSettings, call, check_files, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.durable import replace_files
from bert.files.outputs import try_outputs
from bert.log import logger
from bert.options import REQUIRED, Option, option
from bert.pretraining.vocabulary import (
    LONGEST_WORD,
    UNUSED_IN_FRONT,
    Summary,
    check_room,
    count_words,
    learn,
    measure,
)

# A vocabulary with a larger share of unknown pieces does not fit its text.
MOST_UNKNOWN = 0.001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TextFileSettings):
    """The flags of this script, by name."""

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


def run(settings: Settings) -> Summary:
    """Writes the vocabulary; returns how it fits the text.

    Raises:
      ValueError: where the settings, or the text and the settings, do not fit.
    """
    begin_run(settings.check)
    input_files = check(settings)
    try_outputs([settings.output_file], "output_file")
    counts = count_words(input_files, settings.do_lower_case, settings.num_processes)
    logger.info(
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
    report(settings, summary)
    return summary


def check(settings: Settings, step: Step = call) -> list[str]:
    """Checks the size of the vocabulary and the files; returns the paths of the text files."""
    size = settings.vocab_size
    arguments = (size, settings.num_unused)
    step("size", check_room, *arguments, shows=lambda _: f"{size:,} entries at most")
    return check_files(settings, step)


def report(settings: Settings, summary: Summary) -> None:
    """Logs the size of a vocabulary and how it fits the text; warns where it does not."""
    logger.info(
        "Wrote %d entries to %s: %.4f pieces a word, %.4f %% of the pieces [UNK]. `vocab_size` in "
        "bert_config.json must be %d.",
        summary.num_entries,
        settings.output_file,
        summary.pieces_per_word,
        100 * summary.unknown_rate,
        summary.num_entries,
    )
    if summary.num_entries < settings.vocab_size:
        logger.warning(
            "%s asks for more entries, but the text gives %d: no other pieces fit %s.",
            Option("vocab_size", settings.vocab_size),
            summary.num_entries,
            Option("min_frequency", settings.min_frequency),
        )
    if summary.unknown_rate > MOST_UNKNOWN:
        logger.warning(
            "%.2f %% of the pieces are [UNK], because of %s or %s, or of words longer than %d "
            "characters.",
            100 * summary.unknown_rate,
            *map(Option, ("coverage", "limit_alphabet")),
            LONGEST_WORD,
        )


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)
