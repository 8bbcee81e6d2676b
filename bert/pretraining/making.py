"""How the records of pre-training were made, which the index beside each of their files keeps.

So that what is trained on them, and its folder, has their vocabulary, casing and lengths.
"""

import dataclasses
import functools
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tokenization
from bert.files import fingerprints
from bert.files.paths import index_path
from bert.files.processes import in_threads
from bert.files.records import find_making, has_feature
from bert.pretraining.draws import RANGES, check_range
from bert.pretraining.goals import Goal
from bert.pretraining.late_masking import LateMasking, Masker
from bert.pretraining.masking import RATIOS, parse_ratios
from bert.text.vocabulary import check_size

# What the original takes where nothing is said.
LENGTHS: Mapping[str, int] = {"max_seq_length": 128, "max_predictions_per_seq": 20}

# To begin a message.
NOUN = "The vocabulary of the records"

_VOCABULARY = "vocabulary"
_CASING = "do_lower_case"
# How words are cut, where that differs from how the original cuts them.
_CUTTING = "tokenizer"
# A digest of the text, and the number of files among which its records are dealt.
TEXT, NUM_FILES = "text", "num_files"
_LATE = "mask_at_training"
_NEXT_SENTENCE = "next_sentence"
# Of which types the values are; those of numbers have ranges, too.
_KINDS: Mapping[str, type] = {
    **{_VOCABULARY: str, "mask_ratios": str, "words": str, _CUTTING: dict},
    **dict.fromkeys((_CASING, _LATE, _NEXT_SENTENCE, "do_whole_word_mask"), bool),
    **dict.fromkeys(("vocab_size", "random_seed", *LENGTHS), int),
}
# What `tokenizers.cutting_of` returns.
_CUTTINGS = frozenset({"strip_accents", "tokenize_chinese_chars"})
# What masks records as they are read.
_NEEDED = (
    *(_VOCABULARY, "max_predictions_per_seq", "masked_lm_prob", "do_whole_word_mask"),
    "random_seed",
)
# What all files that are read together must have been made with.
_SHARED = (_VOCABULARY, "vocab_size", _CASING, _CUTTING, *LENGTHS)


def describe(
    values: Mapping[str, Any], vocabulary: bytes, vocab_size: int, cutting: Mapping[str, bool]
) -> dict[str, Any]:
    """Returns what an index keeps of how records were made.

    Args:
      values: By flag; `do_lower_case` and the lengths are among them.
      vocabulary: The text of the `vocab.txt`.
      vocab_size: Its tokens.
      cutting: As `tokenizers.cutting_of`.
    """
    told = {_CUTTING: dict(cutting)} if cutting else {}
    return {**values, **told, "vocab_size": vocab_size, _VOCABULARY: vocabulary.decode()}


@dataclasses.dataclass(frozen=True)
class Making:
    """How the records of some files were made, as far as it is known.

    Attributes:
      values: What `describe` gave; {} where nothing says so.
      path: The file whose index has them, for messages.
      late: How those files that hold no masks are to be masked, by path.
      single: Those files whose records have one segment, and so no next sentence.
    """

    values: Mapping[str, Any]
    path: str
    late: Mapping[str, LateMasking] = dataclasses.field(default_factory=dict)
    single: Sequence[str] = ()

    @property
    def vocabulary(self) -> bytes | None:
        """The text of the `vocab.txt`, where it is known."""
        text = self.values.get(_VOCABULARY)
        return None if text is None else text.encode()

    @property
    def do_lower_case(self) -> bool | None:
        """Whether the text was lower-cased, where it is known."""
        return self.values.get(_CASING)

    @property
    def cutting(self) -> dict[str, bool]:
        """How words were cut, as `tokenizers.cutting_of`."""
        return dict(self.values.get(_CUTTING, {}))

    @functools.cached_property
    def vocab(self) -> dict[str, int]:
        """The id of every token."""
        return tokenization.load_vocab(io.BytesIO(self.vocabulary or b""))

    def length(self, flag: str, given: int | None) -> int:
        """Returns a length of the records: as they were made, or as is given, or the original's.

        Args:
          flag: One of `LENGTHS`.
          given: Its value; None where it is not given.

        Raises:
          ValueError: where they were made with another one.
        """
        made_with = self.values.get(flag)
        if given is not None and made_with is not None and given != made_with:
            raise ValueError(
                f"`--{flag}` must be {made_with}, with which the records in {self.path!r} were "
                f"made. Received {given}. Leave the flag out, or make other records."
            )
        return next(each for each in (given, made_with, LENGTHS[flag]) if each is not None)

    def check_size(self, vocab_size: int) -> None:
        """Checks that the vocabulary can be that of a model whose table has so many rows.

        Raises:
          ValueError: where it cannot.
        """
        if size := self.values.get("vocab_size"):
            check_size(size, vocab_size, NOUN, self.path)

    def check_goal(self, goal: Goal) -> None:
        """Checks that the records have what is to be learned from them.

        Raises:
          ValueError: where the next sentence is asked for, and they have none.
        """
        if goal.has_next_sentence and self.single:
            raise ValueError(
                "`--objective` must be without next sentences, such as masked_lm, for records of "
                f"one segment. Received {goal.name!r}, and {self.single[0]!r} was made with "
                "`--nonext_sentence`. Give another objective, or make records without that flag."
            )

    def masking(self, files: Sequence[str]) -> LateMasking | None:
        """Returns how files that are read together are masked then; None where they hold masks.

        Raises:
          ValueError: where some are masked, and others not or in another way.
        """
        late = [path for path in files if path in self.late]
        if not late:
            return None
        masking = self.late[late[0]]
        for path in files:
            if path not in self.late:
                raise ValueError(
                    "Records that are read together must all be made with `--mask_at_training`, or "
                    f"none. {late[0]!r} was; nothing in {index_path(path)!r} says so of {path!r}. "
                    "Read them in separate runs, or make one of them again."
                )
            # As they are told, whatever was typed, and with whichever seed.
            if str(self.late[path]) != str(masking):
                raise ValueError(
                    "Records that are read together must be made to be masked alike. "
                    f"{late[0]!r} is for {masking}; {path!r} is for {self.late[path]}. Make one of "
                    "them again."
                )
        return masking

    def masker(self, files: Sequence[str]) -> Masker | None:
        """Returns what masks files as they are read; as `masking`."""
        masking = self.masking(files)
        return None if masking is None else Masker(masking, self.vocab)

    def tell(self) -> str:
        """Returns what is known, for a line."""
        if self.vocabulary is None:
            return "nothing beside the records tells their vocabulary"
        casing = "uncased" if self.do_lower_case else "cased"
        told = [f"a vocabulary of {len(self.vocab):,} tokens, {casing}"]
        told += ["one segment each"] * bool(self.single)
        told += [f"masked as they are read: {each}" for each in list(self.late.values())[:1]]
        return "; ".join(told)


def is_again(path: str, made_with: Mapping[str, Any]) -> bool:
    """Returns whether records that are to be written are in a file already.

    Args:
      path: A file; False where it holds no records.
      made_with: What the index of the new records is to hold.

    Raises:
      ValueError: where the file holds records of another text or other flags, or of unknown ones.
    """
    if not has_feature(path, "next_sentence_labels"):
        return False
    there = find_making(path)
    if there == made_with:
        return True
    raise ValueError(
        "`--output_file` must name new files, or records of the same text and flags. Received "
        f"{path!r}, of which {_describe_difference(there, made_with)}. Give another name, or "
        "`--overwrite` to replace it."
    )


def _describe_difference(there: Mapping[str, Any], made_with: Mapping[str, Any]) -> str:
    if TEXT not in there:
        return "nothing beside it says what it is made of"
    words = {TEXT: "the text is another one", _VOCABULARY: "the vocabulary is another one"}
    return fingerprints.describe_differences(there, made_with, words, ", not ")


def read(paths: Sequence[str]) -> Making:
    """Returns how the records of files that are read together were made.

    Files without an index are taken for records of the same making.

    Raises:
      ValueError: where they were made differently, naming two files and what differs.
    """
    known: Making | None = None
    late = {}
    single = []
    files = list(dict.fromkeys(paths))
    for path, values in zip(files, in_threads(find_making, files), strict=True):
        other = Making(values, path)
        # Hardly ever twice: the vocabulary takes a while for each of a thousand shards.
        if known is None or values != known.values:
            _check_values(other)
        if values.get(_LATE):
            late[path] = LateMasking.of(values)
        if values.get(_NEXT_SENTENCE) is False:
            single.append(path)
        if known is None and other.values:
            known = other
        elif known is not None and other.values:
            _check_alike(known, other)
    return dataclasses.replace(known or Making({}, paths[0]), late=late, single=single)


def _check_values(made: Making) -> None:
    """Checks that what an index says of its records can be of records at all.

    Raises:
      ValueError: where somebody else has written it.
    """
    values = made.values
    wrong = [name for name, kind in _KINDS.items() if type(values.get(name, kind())) is not kind]
    # JSON has no word for a whole number among others.
    wrong += [name for name in RANGES if type(values.get(name, 1)) not in {int, float}]
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


def _find_problem(made: Making) -> str:
    """Returns what cannot be, "" where all can."""
    values = made.values
    for name, bounds in RANGES.items():
        check_range(name, values.get(name, bounds[0]), *bounds)
    for name in LENGTHS:
        # Beyond, there are no tensors.
        check_range(name, values.get(name, 1), 1, 2**31 - 1)
    parse_ratios(values.get("mask_ratios", RATIOS))
    if missing := [name for name in _NEEDED if values.get(_LATE) and name not in values]:
        return f"Records that are masked as they are read need {missing}."
    if made.cutting.keys() - _CUTTINGS or not all(type(v) is bool for v in made.cutting.values()):
        return f"What it says of the tokenizer must be of {sorted(_CUTTINGS)}, each true or false."
    if _VOCABULARY in values and max(made.vocab.values()) >= values.get("vocab_size", math.inf):
        return "The vocabulary has more tokens than `vocab_size`."
    return ""


def _check_alike(one: Making, other: Making) -> None:
    for name in _SHARED:
        usual: Any = {} if name == _CUTTING else None
        a, b = one.values.get(name, usual), other.values.get(name, usual)
        if a is None or b is None or a == b or (name == _VOCABULARY and one.vocab == other.vocab):
            continue
        differs = f"`{name}` {a!r} and {b!r}"
        if name == _VOCABULARY:
            differs = f"vocabularies {_differences(one.vocab, other.vocab)}"
        raise ValueError(
            "Records that are read together must be made with the same tokenizer and lengths. "
            f"{one.path!r} and {other.path!r} were made with {differs}. Read them in "
            f"separate runs, or make one of them again; {index_path(other.path)!r} says how it was "
            "made."
        )


def _differences(one: Mapping[str, int], other: Mapping[str, int]) -> str:
    count = len(one.items() ^ other.items())
    return f"of {len(one):,} and {len(other):,} tokens that differ in {count:,} entries"
