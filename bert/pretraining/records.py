"""Records of pre-training: those to be made, and the descriptions in the index beside each file.

A model that is trained on the records has their vocabulary, casing and lengths.
"""

import dataclasses
import functools
import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tokenization
from bert.files import fingerprints
from bert.files.fingerprints import WatchedFiles
from bert.files.machine import free_memory, in_threads, size_text
from bert.files.outputs import check_outputs
from bert.files.paths import file_size, index_path, is_gzip, read_file
from bert.files.records import has_feature, read_description
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.pretraining.draws import Draws, check_vocabulary
from bert.pretraining.instances import InstanceTable
from bert.pretraining.masking import SPACES, Masking, SpacedTokenizer
from bert.pretraining.options import LENGTHS, Goal
from bert.pretraining.vocabulary import SPECIAL_TOKENS
from bert.text.added_tokens import AddedToken
from bert.text.vocabulary import check_size, is_tokenizer_json, vocab_text, warn_of_casing
from bert.weights.tokenizers import (
    check_casing,
    check_options,
    make_of_vocab,
    options_of,
    read_casing,
    read_options_beside,
    splitting_options,
)

# For English text: its bytes per byte of gzip, and per token of a sequence, padding included.
_PACKED, _TEXT_PER_TOKEN = 2.7, 2.5
# Where text and records are in memory: the bytes of a process, and those per byte of text. With
# 4 and 8 MB, used once to ten times, the process took 0.91 to 1.16 times this estimate.
_HELD_ALONE, _HELD_PER_TEXT = 50_000_000, 1.7

# The subject of messages.
NOUN = "The vocabulary of the records"

_VOCABULARY = "vocabulary"
_CASING = "do_lower_case"
# The tokenizer options that differ from the original's.
_CUTTING = "tokenizer"
# A digest of the text.
_TEXT = "text"
_LATE = "mask_at_training"
_NEXT_SENTENCE = "next_sentence"
# The types of the values; the bounds of numbers are those of `Draws`.
_KINDS: Mapping[str, type] = {
    **{_VOCABULARY: str, "mask_ratios": str, "words": str, _CUTTING: dict},
    **dict.fromkeys((_CASING, _LATE, _NEXT_SENTENCE, "do_whole_word_mask"), bool),
    **dict.fromkeys(("vocab_size", "random_seed", *LENGTHS), int),
}
# The keys of `tokenizers.options_of`.
_ADDED = "added_tokens"
_CUTTINGS = frozenset({"strip_accents", "tokenize_chinese_chars", _ADDED})
# No tensor is longer.
_LONGEST = 2**31 - 1
_NUMBERS = ("dupe_factor", "masked_lm_prob", "short_seq_prob")
# The values that masking records as they are read needs.
_NEEDED = (
    *(_VOCABULARY, "max_predictions_per_seq", "masked_lm_prob", "do_whole_word_mask"),
    "random_seed",
)
# The values that files that are read together must share.
_SHARED = (_VOCABULARY, _CUTTING, "vocab_size", _CASING, *LENGTHS)


@dataclasses.dataclass(frozen=True)
class RecordDescription:
    """The description of the records of some files, as far as it is known.

    Attributes:
      values: The result of `NewRecords.description`; {} where there is no index.
      path: The file whose index has the values, for messages.
      late: How files without masks are masked as they are read, by path.
      single: The files whose records have one segment, and so no next sentence.
    """

    values: Mapping[str, Any]
    path: str
    late: Mapping[str, Masking] = dataclasses.field(default_factory=dict)
    single: Sequence[str] = ()

    @property
    def vocabulary(self) -> bytes | None:
        """The text of the `vocab.txt`, if known."""
        text = self.values.get(_VOCABULARY)
        return None if text is None else text.encode()

    @property
    def do_lower_case(self) -> bool | None:
        """Whether the text was lowercased, if known."""
        return self.values.get(_CASING)

    @property
    def cutting(self) -> dict[str, Any]:
        """The tokenizer options that differ from the original's, as `tokenizers.options_of`."""
        return dict(self.values.get(_CUTTING, {}))

    @functools.cached_property
    def vocab(self) -> dict[str, int]:
        """The id of every token, added tokens included."""
        vocab = tokenization.load_vocab(io.BytesIO(self.vocabulary or b""))
        added = self.cutting.get(_ADDED, ())
        return {token["content"]: token["id"] for token in added} | vocab

    def complete_options(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the tokenizer options of a model, with those of the records."""
        tokens = [*own.get(_ADDED, ()), *self.cutting.get(_ADDED, ())]
        added = {token["content"]: token for token in tokens}
        return {**own, **self.cutting, **({_ADDED: [*added.values()]} if added else {})}

    def length(self, flag: str, given: int | None) -> int:
        """Returns a length of the records: the given or described one, or the original's default.

        Args:
          flag: One of `LENGTHS`.
          given: The value of the option; None where it is absent.

        Raises:
          OptionError: where the records were made with another length.
        """
        made_with = self.values.get(flag)
        if given is not None and made_with is not None and given != made_with:
            must = f"be {made_with}, with which the records in {self.path!r} were made"
            raise OptionError(flag, must, given, "Leave it out, or make other records.")
        return next(n for n in (given, made_with, LENGTHS[flag]) if n is not None)

    def check_size(self, vocab_size: int) -> None:
        """Checks that the vocabulary fits a model with an embedding table of `vocab_size` rows.

        Raises:
          ValueError: where it does not.
        """
        size = self.values.get("vocab_size")
        has_vocab = self.vocabulary is not None
        if size and size > vocab_size and has_vocab and _ends_blank(self.vocab):
            raise MessageError(
                "%s must have at most %d tokens, the `vocab_size` in %s. That of %r has %d, the "
                "last of them the blank line %d of its file. Delete that line, and make the "
                "records again.",
                NOUN,
                vocab_size,
                Option("bert_config_file"),
                self.path,
                size,
                size,
            )
        if size:
            check_size(size, vocab_size, NOUN, self.path)

    def check_goal(self, goal: Goal) -> None:
        """Checks that the records have next sentences where the objective needs them.

        Raises:
          OptionError: where the objective needs next sentences, and the records have none.
        """
        if goal.has_next_sentence and self.single:
            without = Option("next_sentence", False)
            raise OptionError(
                "objective",
                "be without next sentences, such as masked_lm, for records of one segment",
                Message("%r, and %r was made with %s", goal.name, self.single[0], without),
                "Give another objective, or make records of two segments.",
            )

    def masking(self, files: Sequence[str]) -> Masking | None:
        """Returns the masking of files that are read together; None where they hold masks.

        Raises:
          ValueError: where some are masked, and others are not or in another way.
        """
        late = [path for path in files if path in self.late]
        if not late:
            return None
        masking = self.late[late[0]]
        for path in files:
            if path not in self.late:
                raise MessageError(
                    "Records that are read together must all be made with %s, or none. %r was; "
                    "nothing in %r says so of %r. Read them in separate runs, or make one of them "
                    "again.",
                    Option("mask_at_training"),
                    late[0],
                    index_path(path),
                    path,
                )
            # The description is the same for another seed, or another spelling of the ratios.
            if str(self.late[path]) != str(masking):
                raise ValueError(
                    "Records that are read together must be made to be masked alike. "
                    f"{late[0]!r} is for {masking}; {path!r} is for {self.late[path]}. Make one of "
                    "them again."
                )
        return masking

    def summary(self) -> str:
        """Returns a summary of one line."""
        if self.vocabulary is None:
            return "no index beside the records names their vocabulary"
        casing = "uncased" if self.do_lower_case else "cased"
        parts = [f"a vocabulary of {len(self.vocab):,} tokens, {casing}"]
        parts += ["one segment each"] * bool(self.single)
        parts += [f"masked as they are read: {late}" for late in list(self.late.values())[:1]]
        return "; ".join(parts)


def holds_same_records(path: str, made_with: Mapping[str, Any]) -> bool:
    """Returns whether a file already holds the records that are to be written.

    Args:
      path: A file; False where it holds something else than records.
      made_with: The description of the new records.

    Raises:
      OptionError: where the file holds records of another or an unknown description.
    """
    # A shard may be empty where the text is short.
    if file_size(path) and not has_feature(path, "next_sentence_labels"):
        return False
    there = read_description(path)
    if there == made_with:
        return True
    difference = "nothing beside it says what it is made of"
    if _TEXT in there:
        words = {_TEXT: "the text is another one", _VOCABULARY: "the vocabulary is another one"}
        difference = fingerprints.describe_differences(there, made_with, words, ", not ")
    received = Message("%r, of which %s", path, difference)
    remedy = Message("Give another name, or %s to replace it.", Option("overwrite"))
    must = "name new files, or records of the same text and flags"
    raise OptionError("output_file", must, received, remedy)


def read_descriptions(paths: Sequence[str]) -> RecordDescription:
    """Returns the description of the records of files that are read together.

    A file without an index is assumed to have the same description as the others.

    Raises:
      ValueError: where descriptions differ, naming two files and the difference.
    """
    known: RecordDescription | None = None
    late = {}
    single = []
    files = list(dict.fromkeys(paths))
    for path, values in zip(files, in_threads(read_description, files), strict=True):
        other = RecordDescription(values, path)
        # Shards of the same values are not checked again: a vocabulary takes a while.
        if known is None or values != known.values:
            _check_values(other)
        if values.get(_LATE):
            late[path] = Masking.of(values)
        if values.get(_NEXT_SENTENCE) is False:
            single.append(path)
        if known is None and other.values:
            known = other
        elif known is not None and other.values:
            _check_alike(known, other)
    return dataclasses.replace(known or RecordDescription({}, paths[0]), late=late, single=single)


def _check_values(made: RecordDescription) -> None:
    """Checks the types and bounds of the values of an index.

    Raises:
      ValueError: where create_pretraining_data.py cannot have written them.
    """
    values = made.values
    wrong = [name for name, kind in _KINDS.items() if type(values.get(name, kind())) is not kind]
    # JSON has one type for integers and other numbers.
    wrong += [name for name in _NUMBERS if type(values.get(name, 1)) not in {int, float}]
    problem = f"what it says of {wrong} is of another kind." if wrong else ""
    try:
        if values and not wrong:
            problem = _find_problem(made)
    except ValueError as error:
        problem = str(error)
    if problem:
        raise ValueError(
            f"{index_path(made.path)!r} must be as create_pretraining_data.py wrote it: {problem} "
            f"Delete it to read {made.path!r} without, or make the records again."
        )


def _find_problem(made: RecordDescription) -> str:
    """Returns the first value that is impossible, as a sentence; "" where there is none."""
    values = made.values
    draws = Draws.of(values)
    draws.validate()
    for name in LENGTHS:
        if getattr(draws, name) > _LONGEST:
            return f"`{name}` must be at most {_LONGEST}. Received {values[name]}."
    if missing := [name for name in _NEEDED if values.get(_LATE) and name not in values]:
        return f"Records that are masked as they are read need {missing}."
    check_options(made.cutting)
    switches = [value for name, value in made.cutting.items() if name != _ADDED]
    if made.cutting.keys() - _CUTTINGS or not all(type(value) is bool for value in switches):
        return f"What it says of the tokenizer must be of {sorted(_CUTTINGS)}, each true or false."
    if not all("id" in token for token in made.cutting.get(_ADDED, ())):
        return f"Each of its `{_ADDED}` must have an `id`."
    if _VOCABULARY in values and max(made.vocab.values()) >= values.get("vocab_size", math.inf):
        return "The vocabulary has more tokens than `vocab_size`."
    return ""


def _check_alike(one: RecordDescription, other: RecordDescription) -> None:
    for name in _SHARED:
        usual: Any = {} if name == _CUTTING else None
        a, b = one.values.get(name, usual), other.values.get(name, usual)
        if a is None or b is None or a == b or (name == _VOCABULARY and one.vocab == other.vocab):
            continue
        differs = f"`{name}` {a!r:.300} and {b!r:.300}"
        if name == _VOCABULARY:
            count = len(one.vocab.items() ^ other.vocab.items())
            differs = (
                f"vocabularies of {len(one.vocab):,} and {len(other.vocab):,} tokens that differ "
                f"in {count:,} entries"
            )
        raise ValueError(
            "Records that are read together must be made with the same tokenizer and lengths. "
            f"{one.path!r} and {other.path!r} were made with {differs}. Read them in "
            f"separate runs, or make one of them again; {index_path(other.path)!r} says how it was "
            "made."
        )


def _ends_blank(vocab: Mapping[str, int]) -> bool:
    """Returns whether the last token is a blank line, which counts as in the original."""
    return vocab.get("") == max(vocab.values(), default=0)


def describe_options(options: Mapping[str, Any], do_lower_case: bool) -> dict[str, Any]:
    """Returns the tokenizer options that change the tokens of records, to be compared and shown."""
    tokens = [AddedToken.from_dict(token) for token in options.get(_ADDED, ())]
    added = {
        token.content: ", ".join(name for name, value in token.to_dict().items() if value is True)
        for token in tokens
        if token.content not in SPECIAL_TOKENS
    }
    described = sorted(f"{content} ({flags})" for content, flags in added.items())
    cutting = splitting_options(options, do_lower_case)
    return {**cutting, **({_ADDED: described} if added else {})}


def open_tokenizer(
    vocab_file: str, *, do_lower_case: bool | None, words: str
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a text, with the options of the model of the vocabulary.

    Args:
      vocab_file: The vocabulary.
      do_lower_case: Whether texts are lowercased; None for what the folder of the vocabulary says,
        or else true.
      words: What counts as a word, as `Masking.words`.

    Raises:
      ValueError: where the vocabulary lacks a token that instances need, or its folder says the
        other casing.
    """
    stored = read_casing(os.path.dirname(vocab_file))
    if do_lower_case is None:
        do_lower_case = stored is None or stored[0]
    check_casing(do_lower_case, stored)
    options = read_options_beside(vocab_file)
    # Special tokens in a text are text: a [SEP] would end a segment.
    added = [t for t in options.get(_ADDED, ()) if t["content"] not in SPECIAL_TOKENS]
    options[_ADDED] = added
    if cutting := describe_options(options, do_lower_case):
        logger.info("Tokenizer options of the model of %r: %s.", vocab_file, cutting)
    vocab = tokenization.load_vocab(vocab_file)
    tokenizer = make_of_vocab(vocab, do_lower_case, options)
    if words == SPACES:
        tokenizer = SpacedTokenizer.of(tokenizer)
    warn_of_casing(tokenizer.vocab, vocab_file, do_lower_case)
    if _ends_blank(vocab):
        logger.warning(
            "Line %d of %r is blank, and counts as a token, as in the original. A model without "
            "a row for it cannot be trained on the records: delete the line for such a model.",
            vocab[""] + 1,
            vocab_file,
        )
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
        vocab = self.tokenizer.vocab
        vocabulary = read_file(self.vocab_file)
        if is_tokenizer_json(self.vocab_file):
            vocabulary = vocab_text(self.tokenizer.wordpiece_tokenizer.vocab)
        options = options_of(self.tokenizer)
        cutting: dict[str, Any] = {**splitting_options(options, self.do_lower_case)}
        if added := options.get(_ADDED):
            cutting[_ADDED] = sorted(added, key=lambda token: token["id"])
        return {
            **dataclasses.asdict(self.draws),
            _CASING: self.do_lower_case,
            "streaming": self.streaming,
            **({_CUTTING: cutting} if cutting else {}),
            "vocab_size": max(vocab.values()) + 1,
            _VOCABULARY: vocabulary.decode(),
            _TEXT: self.input_files.digest,
            "num_files": len(self.output_files),
        }

    def estimate(self) -> tuple[float, float]:
        """Returns about how many bytes of text there are, and how many instances they give."""
        files = self.input_files
        text = sum(file_size(path) * (_PACKED if is_gzip(path) else 1) for path in files)
        size = _TEXT_PER_TOKEN * self.draws.max_seq_length
        return text, text * self.draws.dupe_factor / size

    def log_memory(self, memory: int | None) -> None:
        """Logs how much memory the work takes, and warns where less is free.

        Args:
          memory: The limit of all processes; None to hold text and records in memory.
        """
        if memory is not None:
            logger.info("Memory: at most %s.", size_text(memory))
            return
        text, num_instances = self.estimate()
        table = InstanceTable(self.tokenizer, self.draws.max_seq_length, self.draws.most_masks)
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
