"""The flags of create_word_vectors.py and its first steps."""

import dataclasses
from typing import Any

from bert.commands.checks import call
from bert.commands.text_files import TextFileSettings, check_files
from bert.options import REQUIRED, option
from bert.pretraining.skip_gram import Options, check_installed

# What `--words` may be; create_pretraining_data.py has spaces, too.
TOKENS, SPACES = "tokens", "spaces"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TextFileSettings, Options):
    """The flags of this script, by name."""

    output_file: str = option(REQUIRED, "File to write the vectors to.", group="output")
    words: str = option(
        TOKENS,
        "What counts as a word. tokens: what predict.py takes for words, each Chinese character "
        "alone; spaces: everything between two spaces, as for Chinese text that is segmented into "
        "words.",
        choices=(TOKENS, SPACES),
    )


def check(settings: Settings, step: Any = call) -> list[str]:
    """Checks that gensim is installed, and the files; returns the paths of the text files.

    Args:
      settings: The flags.
      step: As for `check_files`.
    """
    step("gensim", check_installed, shows=lambda _: "is installed")
    return check_files(settings, step)
