r"""Learns a WordPiece vocabulary from text, for pre-training (paper, section 3).

    python create_vocab.py --input_file='text/*.txt' --output_file=vocab.txt --vocab_size=30000

The same text and flags give the same file, whatever the number of processes. Set `vocab_size` in
bert_config.json to the number of lines in the file, which the log shows at the end.
"""

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.create_vocab import Settings, check, report
from bert.commands.lines import show_lines
from bert.files.durable import replace_files
from bert.files.outputs import try_outputs
from bert.log import logger
from bert.pretraining.vocabulary import Summary, count_words, learn, measure


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> Summary:
    """Writes the vocabulary; returns how it fits the text.

    Raises:
      ValueError: where the settings, or the text and the settings, do not fit.
    """
    show_lines()
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


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
