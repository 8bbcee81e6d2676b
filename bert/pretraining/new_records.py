"""The records that create_pretraining_data.py is to make: text, tokenizer, draws and files."""

import dataclasses
import functools
import os
from typing import Any

import tokenization
from bert.files.fingerprints import WatchedFiles
from bert.files.outputs import check_outputs
from bert.files.paths import read_file
from bert.log import logger
from bert.pretraining.draws import Draws, check_vocabulary
from bert.pretraining.masking import SPACES
from bert.pretraining.record_description import describe, holds_same_records
from bert.pretraining.spaced_words import SpacedTokenizer
from bert.text import tokenizer_json
from bert.text.casing import warn_of_casing
from bert.weights.tokenizers import options_of, read_splitting_options, splitting_options


def open_tokenizer(
    vocab_file: str, *, do_lower_case: bool, words: str
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a text, with the options of the model of the vocabulary.

    Args:
      vocab_file: The vocabulary.
      do_lower_case: Whether texts are lowercased.
      words: What counts as a word, as `Masking.words`.

    Raises:
      ValueError: where the vocabulary lacks a token that instances need.
    """
    kind = SpacedTokenizer if words == SPACES else tokenization.FullTokenizer
    cutting = read_splitting_options(vocab_file, do_lower_case)
    if cutting:
        folder = os.path.dirname(vocab_file)
        logger.info("Tokenizer options of the model in %r: %s.", folder, cutting)
    tokenizer = kind(vocab_file, do_lower_case, **cutting)
    warn_of_casing(tokenizer.vocab, vocab_file, do_lower_case)
    check_vocabulary(tokenizer.vocab)
    return tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewRecords:
    """Records that are to be made.

    Attributes:
      draws: How their instances are drawn.
      input_files: The text.
      vocab_file: The vocabulary of the tokenizer.
      do_lower_case: Whether the text is lowercased.
      tokenizer: Tokenizes the text.
      output_files: The files of the records, to which these are dealt.
      streaming: Whether the draws are those of streaming, rather than the original's.
    """

    draws: Draws
    input_files: WatchedFiles
    vocab_file: str
    do_lower_case: bool
    tokenizer: tokenization.FullTokenizer
    output_files: list[str]
    streaming: bool = False

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        """Everything on which the records depend, for the index beside each file of records."""
        values = {
            **dataclasses.asdict(self.draws),
            "do_lower_case": self.do_lower_case,
            "streaming": self.streaming,
        }
        vocab = self.tokenizer.vocab
        vocabulary = read_file(self.vocab_file)
        if tokenizer_json.is_tokenizer(self.vocab_file):
            vocabulary = tokenizer_json.vocab_text(vocab)
        return describe(
            values,
            vocabulary,
            max(vocab.values()) + 1,
            splitting_options(options_of(self.tokenizer), self.do_lower_case),
            text=self.input_files.digest,
            num_files=len(self.output_files),
        )

    def check_outputs(self, *, overwrite: bool) -> None:
        """Checks that the files can be written.

        Departs: the original replaces whatever is there. Here, a run replaces its own records;
        others stay.

        Args:
          overwrite: Whether other files may be replaced.

        Raises:
          ValueError: where a file can't be written or holds other records.
        """
        check_outputs(
            self.output_files,
            [*self.input_files, self.vocab_file],
            "output_file",
            lambda path: overwrite or holds_same_records(path, self.description),
        )
