"""Adds words to a vocabulary, and their rows to the model that was pre-trained with it."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import modeling
import tokenization
from bert.files.outputs import check_folder
from bert.files.paths import is_file, real_path
from bert.files.rows import text_lines
from bert.files.stored_models import WEIGHTS
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.text.vocabulary import vocab_text
from bert.weights import checkpoint, readers, saving
from bert.weights.folder import ModelFolder
from bert.weights.model_files import CONFIG_FILE, VOCAB_FILE
from bert.weights.provenance import find_untrained
from bert.weights.tokenizers import splitting_options
from bert.weights.variables import WORD_TABLE, is_slot

# A row for each entry of the vocabulary; a fine-tuned model has no masked-LM head.
TABLES = (WORD_TABLE, "cls/predictions/output_bias")
NUM_LOGGED = 20

_UNUSED = re.compile(r"\[unused\d+\]")
# A mark of a place in a text, which is no word of it.
_MARK = re.compile(r"\[\S+\]|<\S+>")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extension:
    """Words to add to a model.

    Attributes:
      folder: The model.
      vocab: The id of each entry of its vocabulary.
      words: The new words.
    """

    folder: ModelFolder
    vocab: Mapping[str, int]
    words: Sequence[str]

    def write(self, output_dir: str, *, use_unused: bool) -> dict[str, int]:
        """Writes the extended model; returns the ids of the new words.

        Args:
          output_dir: A folder, which exists.
          use_unused: Whether words take [unusedN] entries first.
        """
        folder, vocab, config = self.folder, self.vocab, self.folder.config
        places = place(self.words, vocab, use_unused=use_unused)
        pieces = _pieces(self.words, vocab, basic_tokenizer(folder))
        size = max(config.vocab_size, *(index + 1 for index in places.values()))
        rows = {places[word]: [vocab[piece] for piece in pieces[word]] for word in self.words}
        tensors = _extended_tensors(folder.stored, rows, size)
        _log_words(places, pieces, vocab)
        entries = {index: token for token, index in vocab.items()}
        entries |= {index: word for word, index in places.items()}
        options = _with_marks(folder.tokenizer_options, places)
        ModelFolder(output_dir).save(
            dataclasses.replace(config, vocab_size=size),
            vocab_text(entries[index] for index in range(len(entries))),
            do_lower_case=is_lower(folder) if options else folder.known_casing,
            options=options,
        )
        # Last, for without its weights the folder is no model.
        prefix = os.path.join(output_dir, WEIGHTS)
        saving.save_tensors(prefix, tensors)
        logger.info("Wrote %s with %d entries. `vocab_size` is %d.", prefix, len(entries), size)
        return places


def is_lower(folder: ModelFolder) -> bool:
    """Returns whether texts are lowercased, which is the default."""
    return folder.do_lower_case is not False


def basic_tokenizer(folder: ModelFolder) -> tokenization.BasicTokenizer:
    """Returns the tokenizer that splits a text into the words of a model."""
    lower = is_lower(folder)
    return tokenization.BasicTokenizer(lower, **splitting_options(folder.tokenizer_options, lower))


def load_vocab(folder: ModelFolder, vocab_size: int) -> dict[str, int]:
    """Returns the vocabulary of a model, which must be one that can be extended."""
    vocab_file = folder.vocab_file
    vocab = tokenization.load_vocab(vocab_file)
    # Added tokens have rows, too, which no word may take.
    for token in folder.tokenizer_options.get("added_tokens", ()):
        if "id" in token:
            vocab.setdefault(token["content"], token["id"])
    if "[UNK]" not in vocab or len(vocab) != max(vocab.values()) + 1:
        raise MessageError(
            "%s must hold '[UNK]' and each entry once, to be extended. %r, with added tokens "
            "beside it, has %d lines with %d different entries.",
            Option("vocab_file"),
            vocab_file,
            max(vocab.values()) + 1,
            len(vocab),
        )
    if len(vocab) > vocab_size:
        raise MessageError(
            "%s must have at most as many entries as `vocab_size` in %s says, %d. %r has %d.",
            Option("vocab_file"),
            Option("bert_config_file"),
            vocab_size,
            vocab_file,
            len(vocab),
        )
    return vocab


def check_words(
    new_words: str, vocab: Mapping[str, int], tokenizer: tokenization.BasicTokenizer
) -> list[str]:
    """Returns the new words as the tokenizer splits them from a text.

    Args:
      new_words: The path of a file with a word a line, or words separated by commas.
      vocab: The vocabulary that is to be extended.
      tokenizer: Splits a text into words.

    Raises:
      OptionError: naming every word that cannot be added, with its reason.
    """
    longest = tokenization.WordpieceTokenizer(vocab).max_input_chars_per_word
    places: dict[str, str] = {}
    problems = []
    for written, position in _read_words(new_words):
        split = tokenizer.tokenize(written)
        word = split[0] if len(split) == 1 else written if _MARK.fullmatch(written) else ""
        if not word:
            problems.append(f"{written!r} ({position}) is split into {split}, and may be no entry")
        elif len(word) > longest:
            problems.append(f"{written!r} ({position}) has over {longest} characters")
        elif word in vocab:
            problems.append(f"{written!r} ({position}) is in the vocabulary, as {vocab[word]}")
        elif word in places:
            problems.append(f"{written!r} ({position}) is the same as that of {places[word]}")
        elif len(split) > 1 and word.upper() in vocab:
            problems.append(f"{written!r} ({position}) is {word.upper()!r} in another case")
        else:
            places[word] = position
    if problems:
        raise OptionError(
            "new_words",
            "name new words, each once, that the tokenizer splits at neither punctuation nor CJK "
            "characters, or marks such as [E1] or <e1>",
            Message("%d others: %s", len(problems), "; ".join(problems)),
            "Leave them out."
            if is_file(new_words)
            else "Leave them out, or give a file that is there.",
        )
    if not places:
        raise OptionError("new_words", "name at least one word", new_words)
    return list(places)


def _read_words(new_words: str) -> list[tuple[str, str]]:
    """Returns each word as it is written, and its position."""
    if is_file(new_words):
        lines = [(number, text.strip()) for number, text in text_lines(new_words)]
        return [(text, f"line {number}") for number, text in lines if text]
    words = [word.strip() for word in new_words.split(",")]
    return [(word, f"word {number}") for number, word in enumerate(words, 1) if word]


def place(words: Sequence[str], vocab: Mapping[str, int], *, use_unused: bool) -> dict[str, int]:
    """Returns the id of each word: those of [unusedN] entries first, or all after the last one."""
    slots = [index for token, index in vocab.items() if _UNUSED.fullmatch(token)]
    ids = sorted(slots)[: len(words)] if use_unused else []
    ids += range(len(vocab), len(vocab) + len(words) - len(ids))
    return dict(zip(words, ids, strict=True))


def _pieces(
    words: Sequence[str], vocab: Mapping[str, int], basic_tokenizer: tokenization.BasicTokenizer
) -> dict[str, list[str]]:
    """Returns the pieces that each word has been split into so far."""
    tokenizer = tokenization.WordpieceTokenizer(vocab)
    return {
        word: [
            piece for part in basic_tokenizer.tokenize(word) for piece in tokenizer.split_word(part)
        ]
        for word in words
    }


def _with_marks(options: Mapping[str, Any], places: Mapping[str, int]) -> dict[str, Any]:
    """Returns the options of the tokenizer, with the marks among the words as added tokens."""
    marks = [
        {"content": word, "id": index, "normalized": False, "special": True}
        for word, index in places.items()
        if _MARK.fullmatch(word)
    ]
    added = [*options.get("added_tokens", ()), *marks]
    return {**options, **({"added_tokens": added} if added else {})}


def check_output(output_dir: str, folder: ModelFolder) -> None:
    """Checks that the output folder can be written and holds no model."""
    check_folder(output_dir)
    written = [
        os.path.join(output_dir, name) for name in (CONFIG_FILE, VOCAB_FILE, f"{WEIGHTS}.index")
    ]
    read = [folder.bert_config_file, folder.vocab_file, f"{folder.stored.prefix}.index"]
    for path in written:
        if real_path(path) in map(real_path, read):
            raise OptionError("output_dir", "not name an input file", path)
    weights = [os.path.join(output_dir, name) for name in readers.weight_files(output_dir)]
    if there := sorted({*filter(is_file, written), *weights}):
        raise OptionError(
            "output_dir",
            "hold no other model",
            Message("one with %s", there),
            "Give another folder, or delete these.",
        )


def check_embeddings(folder: ModelFolder, config: modeling.BertConfig) -> None:
    """Checks that the weights have an embedding for each entry of the vocabulary."""
    stored = folder.stored
    expected = [config.vocab_size, config.hidden_size]
    found = stored.shapes.get(WORD_TABLE, ())
    if list(found) != expected:
        raise MessageError(
            "%s must hold `%s` of the shape %s that %s gives. %r has %s.",
            Option("init_checkpoint"),
            WORD_TABLE,
            expected,
            Option("bert_config_file"),
            stored.prefix,
            found or "none",
        )


def _extended_tensors(
    stored: checkpoint.Stored, rows: Mapping[int, Sequence[int]], size: int
) -> dict[str, np.ndarray]:
    """Returns the weights of the checkpoint; the tables of the vocabulary are extended."""
    shapes = stored.shapes
    slots = [name for name in shapes if is_slot(name)]
    if slots:
        logger.info("Weights only: %d optimizer slots are left out.", len(slots))
    left_out = {*slots, *find_untrained(stored.folder, shapes)}
    tensors = stored.read(sorted(shapes.keys() - left_out))
    for name in TABLES:
        if name in tensors:
            tensors[name] = extend(tensors[name], rows, size)
    return tensors


def extend(table: np.ndarray, rows: Mapping[int, Sequence[int]], size: int) -> np.ndarray:
    """Returns `table` with `size` rows; each row in `rows` is the mean of the old rows it names.

    Args:
      table: [V] or [V, H].
      rows: The numbers of old rows by the number of a row, new or old.
      size: At least V.
    """
    extended = np.zeros((size, *table.shape[1:]), table.dtype)
    extended[: len(table)] = table
    for row, parts in rows.items():
        extended[row] = table[parts].astype(np.float64).mean(axis=0)
    return extended


def _log_words(
    places: Mapping[str, int], pieces: Mapping[str, Sequence[str]], vocab: Mapping[str, int]
) -> None:
    num_slots = sum(index < len(vocab) for index in places.values())
    logger.info(
        "%d words take [unusedN] entries, %d get new ones.", num_slots, len(places) - num_slots
    )
    for word in list(places)[:NUM_LOGGED]:
        logger.info("%s: entry %d, so far %s", word, places[word], " ".join(pieces[word]))
    if unknown := [word for word in places if {*pieces[word]} == {"[UNK]"}]:
        logger.warning(
            "%d words were [UNK] so far, whose weights they start from: %s.",
            len(unknown),
            ", ".join(unknown[:NUM_LOGGED]),
        )
