"""Learns a WordPiece vocabulary from text (paper, section 3: "WordPiece embeddings").

The words of `BasicTokenizer` are counted first. The rest depends on the counts alone, not on the
order of the text: an alphabet that spells almost every word, then pieces that the trainer of
Hugging Face's `tokenizers` joins from it, the most frequent pair first, and of these the pieces
into which the words are split most often.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tokenization
from bert.files.display import Progress, counted
from bert.files.machine import Workers, usable_cores
from bert.files.paths import LineChunk, file_size, read_chunks
from bert.log import logger
from bert.options import Message, Option, OptionError
from bert.text.characters import Vocabulary

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The number of [unusedN] entries between [PAD] and [UNK] in the released uncased vocabulary.
UNUSED_IN_FRONT = 99
# Longer words are [UNK] with any vocabulary.
LONGEST_WORD = tokenization.WordpieceTokenizer({}).max_input_chars_per_word

# Bytes of text that are worth another process.
BYTES_PER_PROCESS = 1 << 23

_CHUNK_BYTES = 1 << 20
# The number of pieces joined for each that is needed, and some in any case. Many of them only
# serve to join longer ones.
_JOINED_PER_PIECE = 1.25
_JOINED_IN_ANY_CASE = 100
# Half of the trainer's largest count, since rounding up adds to it.
_MOST_PAIRS = 1 << 30
# Words that the trainer gets in one string.
_WORDS_AT_ONCE = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """How a vocabulary splits the words that it was learned from.

    Attributes:
      num_entries: Lines of the vocabulary.
      num_words: Words of the text, repetitions counted.
      pieces_per_word: The mean number of pieces, [UNK] counted as one.
      unknown_rate: The share of the pieces that are [UNK], from 0 to 1.
    """

    num_entries: int
    num_words: int
    pieces_per_word: float
    unknown_rate: float


def count_words(
    input_files: Sequence[str], do_lower_case: bool, num_processes: int | None = None
) -> collections.Counter[str]:
    """Returns how often each word occurs in the files; memory grows only with different words.

    Args:
      input_files: The paths of the text.
      do_lower_case: Whether to lowercase the text.
      num_processes: None for as many as there are cores and work for them.

    Raises:
      ValueError: where there is no text.
    """
    counts: collections.Counter[str] = collections.Counter()
    num_damaged = 0
    size = sum(map(file_size, input_files))
    progress = Progress("Counting words", size)
    if num_processes is None:
        # A process takes as long to begin as to count some megabytes.
        num_processes = min(usable_cores(), 1 + size // BYTES_PER_PROCESS)
    chunks = read_chunks(input_files, _CHUNK_BYTES)
    with Workers(num_processes, do_lower_case) as workers:
        for words, damaged, position in workers.map(_count_chunk, chunks):
            counts.update(words)
            num_damaged += damaged
            progress(position)
    if not counts:
        raise ValueError(f"The input files must hold text. Received {list(input_files)}.")
    if num_damaged:
        logger.warning("What is not UTF-8 was left out of %s.", counted(num_damaged, "line"))
    return counts


def _count_chunk(
    do_lower_case: bool, chunk: LineChunk
) -> tuple[collections.Counter[str], int, int]:
    """Returns the words of some lines, the number of lines that are not UTF-8, and the position."""
    tokenizer = tokenization.BasicTokenizer(do_lower_case)
    counts = collections.Counter(tokenizer.tokenize(b"".join(chunk.lines)))
    num_damaged = sum(line.decode("utf-8", "ignore").encode() != line for line in chunk.lines)
    return counts, num_damaged, chunk.position


def learn(
    counts: Mapping[str, int],
    *,
    vocab_size: int,
    do_lower_case: bool,
    num_unused: int = 0,
    coverage: float = 1.0,
    limit_alphabet: int | None = None,
    min_frequency: int = 2,
) -> list[str]:
    """Returns the entries of a vocabulary: the same ones for the same counts in any order.

    Args:
      counts: How often each word occurs.
      vocab_size: The number of entries; fewer where the text gives no more.
      do_lower_case: Whether the words were lowercased.
      num_unused: The number of entries [unused0], [unused1] and so on, for words added later.
      coverage: The share of the words that the alphabet must spell, from 0 to 1.
      limit_alphabet: The most characters of the alphabet, for any coverage.
      min_frequency: How often two pieces must occur together to be joined.

    Raises:
      ValueError: where `vocab_size` leaves no room for the alphabet.
    """
    head = special_entries(num_unused)
    words = {word: count for word, count in counts.items() if len(word) <= LONGEST_WORD}
    alphabet = choose_alphabet(words, coverage, limit_alphabet)
    letters = spell(alphabet, do_lower_case)
    room = vocab_size - len(head) - len(letters)
    if room < 0:
        needed = Message(
            "be at least %d: %d special tokens, %d of %s and %d for %d characters, most of them "
            "twice, as x and ##x",
            vocab_size - room,
            len(SPECIAL_TOKENS),
            num_unused,
            Option("num_unused"),
            len(letters),
            len(alphabet),
        )
        remedy = Message(
            "Raise it, or lower %s or %s.", Option("coverage"), Option("limit_alphabet")
        )
        raise OptionError("vocab_size", needed, vocab_size, remedy)
    spelled = {word: count for word, count in words.items() if alphabet.issuperset(word)}
    num_joined = int(room * _JOINED_PER_PIECE) + _JOINED_IN_ANY_CASE
    pieces = _join(spelled, letters, num_joined, min_frequency)
    return head + letters + _most_used(pieces, letters, room, spelled)


def check_room(vocab_size: int, num_unused: int) -> None:
    """Checks that a vocabulary has room for more than its special entries."""
    smallest = len(special_entries(num_unused)) + 1
    if vocab_size < smallest:
        reason = Message(
            "be at least %d, to hold more than the special tokens and %s",
            smallest,
            Option("num_unused", num_unused),
        )
        raise OptionError("vocab_size", reason, vocab_size)


def special_entries(num_unused: int) -> list[str]:
    """Returns the first entries of a vocabulary, ordered as in the released uncased one.

    From 99 unused entries on, the special tokens have the released ids.
    """
    unused = [f"[unused{index}]" for index in range(num_unused)]
    pad, *others = SPECIAL_TOKENS
    return [pad, *unused[:UNUSED_IN_FRONT], *others, *unused[UNUSED_IN_FRONT:]]


def choose_alphabet(
    counts: Mapping[str, int], coverage: float = 1.0, limit: int | None = None
) -> set[str]:
    """Returns the most frequent characters, as few as spell a share `coverage` of the words.

    Args:
      counts: How often each word occurs.
      coverage: The share from 0 to 1; a word counts as often as it occurs.
      limit: The most characters.
    """
    frequencies: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for char in word:
            frequencies[char] += count
    ranked = sorted(frequencies, key=lambda char: (-frequencies[char], char))
    ranks = {char: rank for rank, char in enumerate(ranked)}
    # A word can be spelled once its rarest character is in the alphabet.
    spelled_from = [0] * len(ranked)
    for word, count in counts.items():
        spelled_from[max(map(ranks.__getitem__, word))] += count
    missing = sum(spelled_from)
    allowed = missing - coverage * missing
    size = 0
    while missing > allowed:
        missing -= spelled_from[size]
        size += 1
    return set(ranked[:size] if limit is None else ranked[: min(size, limit)])


def spell(alphabet: Iterable[str], do_lower_case: bool) -> list[str]:
    """Returns the entries of single characters: each x, then ##x for those that continue a word."""
    tokenizer = tokenization.BasicTokenizer(do_lower_case)
    firsts = sorted(alphabet)
    inner = [char for char in firsts if len(tokenizer.tokenize(f"a{char}a")) == 1]
    return firsts + [f"##{char}" for char in inner]


def _join(
    counts: Mapping[str, int], letters: Sequence[str], num_pieces: int, min_frequency: int
) -> list[str]:
    """Returns up to `num_pieces` pieces of several characters, in the order of their joining."""
    # Loading takes longer than a small text, and other uses of this module do not need it.
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: PLC0415

    scale = _scale(counts)
    counts = {word: -(-count // scale) for word, count in counts.items()}
    min_frequency = -(-min_frequency // scale)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(letters) + num_pieces,
        min_frequency=min_frequency,
        # The trainer numbers ##x in the order in which it meets them, which differs each time, and
        # the numbers decide among equal pairs. Special tokens are numbered from the start.
        special_tokens=list(letters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeat(counts), trainer)
    numbers = tokenizer.get_vocab(with_added_tokens=False)
    return sorted(numbers, key=numbers.__getitem__)[len(letters) :]


def _scale(counts: Mapping[str, int]) -> int:
    """Returns the divisor for the counts of very large texts; 1 for all others.

    The trainer counts adjacent letters in 32 bits, and would silently never join those that occur
    more often.
    """
    pairs: collections.Counter[str] = collections.Counter()
    # The trainer counts two letters at the beginning of a word apart, so that its counts are lower.
    for word, count in counts.items():
        for pair in map("".join, itertools.pairwise(word)):
            pairs[pair] += count
    return max(pairs.values(), default=0) // _MOST_PAIRS + 1


def _repeat(counts: Mapping[str, int]) -> Iterator[str]:
    """Yields each word as often as it occurs, since the trainer takes text and counts it."""
    progress = Progress("Handing words to the trainer", sum(counts.values()))
    done = 0
    waiting: list[str] = []
    for word, count in counts.items():
        for start in range(0, count, _WORDS_AT_ONCE):
            waiting += [word] * min(count - start, _WORDS_AT_ONCE)
            if len(waiting) >= _WORDS_AT_ONCE:
                yield " ".join(waiting)
                done += len(waiting)
                waiting.clear()
                progress(done)
    yield " ".join(waiting)


def _most_used(
    pieces: list[str], letters: Sequence[str], room: int, counts: Mapping[str, int]
) -> list[str]:
    """Returns `room` of the pieces, without those that are used least to split words.

    Without a piece, words are split differently, so the surplus is removed in steps.
    """
    while (surplus := len(pieces) - room) > 0:
        uses: collections.Counter[str] = collections.Counter()
        for split, count in _split_words([*letters, *pieces], counts):
            for piece in split:
                uses[piece] += count
        # Of equally used pieces, those joined last are removed first.
        order = sorted(pieces, key=lambda piece: -uses[piece])
        dropped = surplus if surplus <= room // 25 else -(-surplus * 3 // 4)
        kept = set(order[: len(pieces) - dropped])
        pieces = [piece for piece in pieces if piece in kept]
    return pieces


def _split_words(
    entries: Iterable[str], counts: Mapping[str, int]
) -> Iterator[tuple[list[str], int]]:
    """Yields the pieces of each word by the project's tokenizer, and how often the word occurs."""
    # Long words, such as those of Thai, are split faster than with a plain dictionary.
    vocab = Vocabulary({entry: index for index, entry in enumerate(entries)})
    split_word = tokenization.WordpieceTokenizer(vocab).split_word
    progress = Progress("Splitting words", len(counts))
    for number, (word, count) in enumerate(counts.items()):
        yield split_word(word), count
        if number % 1000 == 0:
            progress(number)


def measure(entries: Sequence[str], counts: Mapping[str, int]) -> Summary:
    """Returns how the project's tokenizer splits the words with these entries."""
    num_words = num_pieces = num_unknown = 0
    for pieces, count in _split_words(entries, counts):
        num_words += count
        num_pieces += count * len(pieces)
        num_unknown += count * pieces.count("[UNK]")
    return Summary(
        num_entries=len(entries),
        num_words=num_words,
        pieces_per_word=num_pieces / num_words,
        unknown_rate=num_unknown / num_pieces,
    )
