r"""Adds the words of a domain to a vocabulary and to the model that was pre-trained with it.

    python extend_vocab.py --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --new_words=words.txt \
      --output_dir=my_bert

Each word replaces an [unusedN] entry or is appended. Its embedding starts as the mean of those of
the pieces that it was split into before, and so does its bias in the masked-LM head: a guess of the
right size, which training on text of the domain then improves. A longer word that begins with a new
one may now be split differently; otherwise, a text without new words keeps its IDs, and these keep
their weights.

A word in brackets, such as [E1] or <e1>, marks a place in a text: it stays whole wherever a text
has it, as the special tokens of a Hugging Face tokenizer do.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import FAILED, Checks, start
from bert.commands.console import run_script
from bert.commands.settings import ModelSettings, VocabularySettings
from bert.files.huggingface import vocab_text
from bert.files.outputs import check_folder, check_outputs, make_folder
from bert.files.paths import is_file, read_lines
from bert.files.process import import_tensorflow
from bert.files.rows import decode_line
from bert.files.weight_names import WEIGHTS
from bert.options import REQUIRED, option
from bert.weights.options import CHECKPOINT_FORMS
from bert.weights.tokenizers import cutting_of

if TYPE_CHECKING:
    import modeling
    from bert.weights import checkpoint
    from bert.weights.folder import ModelFolder

EMBEDDINGS = "bert/embeddings/word_embeddings"
# A row for each entry of the vocabulary; a fine-tuned model has no masked-LM head.
TABLES = (EMBEDDINGS, "cls/predictions/output_bias")
NUM_LOGGED = 20

_UNUSED = re.compile(r"\[unused\d+\]")
# What marks a place in a text, and is no word of it.
_MARK = re.compile(r"\[\S+\]|<\S+>")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings, VocabularySettings):
    """The flags of this script, by name."""

    init_checkpoint: str = option(
        REQUIRED,
        f"Checkpoint of the model to extend: {CHECKPOINT_FORMS}.",
        group="model",
    )
    new_words: str = option(REQUIRED, "File with one word per line, or words separated by commas.")
    output_dir: str = option(
        REQUIRED,
        "Folder for the extended bert_model.ckpt, bert_config.json and vocab.txt.",
        group="output",
    )
    use_unused: bool = option(
        True,
        "Fill [unusedN] entries first, which keeps the model's shape, and add rows only for words "
        "that do not fit; false adds a row for every word.",
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> dict[str, int]:
    """Writes the extended model, and returns the ids of the new words.

    Raises:
      ValueError: where words cannot be added, or files do not fit each other; nothing is written.
    """
    import_tensorflow()
    from bert.weights.folder import ModelFolder

    folder = ModelFolder.of(settings)
    config = folder.config
    vocab = _load_vocab(folder, config.vocab_size)
    lower = folder.do_lower_case is not False
    cutting = cutting_of(folder.tokenizer_options, lower)
    words = check_words(settings.new_words, vocab, lower, **cutting)
    places = place(words, vocab, use_unused=settings.use_unused)
    _check_output(settings.output_dir, folder)
    make_folder(settings.output_dir)
    _check_embeddings(folder, config)
    pieces = _pieces(words, vocab, tokenization.BasicTokenizer(lower, **cutting))
    size = max(config.vocab_size, *(index + 1 for index in places.values()))
    rows = {places[word]: [vocab[piece] for piece in pieces[word]] for word in words}
    tensors = _extended_tensors(folder.stored, config, rows, size)
    _log_words(places, pieces, vocab)
    extended = dataclasses.replace(config, vocab_size=size)
    entries = {index: token for token, index in vocab.items()}
    entries |= {index: word for word, index in places.items()}
    casing, options = folder.known_casing, _with_marks(folder.tokenizer_options, places)
    _write(settings.output_dir, tensors, extended, entries, lower if options else casing, options)
    return places


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.weights.checks import check_model
    from bert.weights.folder import ModelFolder

    folder, config = check_model(checks, settings)
    lower = folder is FAILED or folder.do_lower_case is not False
    casing = "texts are lower-cased" if lower else "cased"
    checks("casing", ModelFolder.check_casing, folder, tells=lambda _: casing)
    vocab = checks(
        "vocabulary",
        lambda folder, config: _load_vocab(folder, config.vocab_size),
        folder,
        config,
        tells=lambda vocab: f"{len(vocab):,} entries",
    )
    told = "of the shape that the configuration asks for"
    checks("weights", _check_embeddings, folder, config, tells=lambda _: told)
    checks(
        "words",
        lambda folder, vocab: check_words(
            settings.new_words, vocab, lower, **cutting_of(folder.tokenizer_options, lower)
        ),
        folder,
        vocab,
        tells=", ".join,
    )
    checks("output folder", _check_output, settings.output_dir, folder, tells=lambda _: "is free")


def _load_vocab(folder: "ModelFolder", vocab_size: int) -> dict[str, int]:
    vocab_file = folder.vocab_file
    vocab = tokenization.load_vocab(vocab_file)
    # They have rows, too, which no word may take.
    for token in folder.tokenizer_options.get("added_tokens", ()):
        if "id" in token:
            vocab.setdefault(token["content"], token["id"])
    if "[UNK]" not in vocab or len(vocab) != max(vocab.values()) + 1:
        raise ValueError(
            "`--vocab_file` must hold '[UNK]' and each entry once, to be extended. "
            f"{vocab_file!r}, with added tokens beside it, has {max(vocab.values()) + 1} lines "
            f"with {len(vocab)} different entries."
        )
    if len(vocab) > vocab_size:
        raise ValueError(
            f"`--vocab_file` must have at most as many entries as `vocab_size` in "
            f"`--bert_config_file` says, {vocab_size}. {vocab_file!r} has {len(vocab)}."
        )
    return vocab


def check_words(
    new_words: str, vocab: Mapping[str, int], do_lower_case: bool, **cutting: bool
) -> list[str]:
    """Returns the words of --new_words as the tokenizer cuts them out of a text.

    Args:
      new_words: The path of a file with a word a line, or words separated by commas.
      vocab: The vocabulary that is to be extended.
      do_lower_case: As for texts.
      **cutting: As `tokenizers.cutting_of`.

    Raises:
      ValueError: naming every word that cannot be added, with its reason.
    """
    basic_tokenizer = tokenization.BasicTokenizer(do_lower_case, **cutting)
    longest = tokenization.WordpieceTokenizer(vocab).max_input_chars_per_word
    places: dict[str, str] = {}
    problems = []
    for written, place_of in _read_words(new_words):
        cut = basic_tokenizer.tokenize(written)
        word = cut[0] if len(cut) == 1 else written if _MARK.fullmatch(written) else ""
        if not word:
            problems.append(f"{written!r} ({place_of}) is cut into {cut}, and may be no entry")
        elif len(word) > longest:
            problems.append(f"{written!r} ({place_of}) has over {longest} characters")
        elif word in vocab:
            problems.append(f"{written!r} ({place_of}) is in the vocabulary, as {vocab[word]}")
        elif word in places:
            problems.append(f"{written!r} ({place_of}) is the same as that of {places[word]}")
        elif len(cut) > 1 and word.upper() in vocab:
            problems.append(f"{written!r} ({place_of}) is {word.upper()!r} in another case")
        else:
            places[word] = place_of
    if problems:
        raise ValueError(
            "`--new_words` must name new words, each once, that the tokenizer cuts at neither "
            "punctuation nor CJK characters, or marks such as [E1] or <e1>. Received "
            f"{len(problems)} others: {'; '.join(problems)}. Leave them out."
        )
    if not places:
        raise ValueError(f"`--new_words` must name at least one word. Received {new_words!r}.")
    return list(places)


def _read_words(new_words: str) -> list[tuple[str, str]]:
    """Returns each word as it is written, and where."""
    if is_file(new_words):
        lines = enumerate(read_lines(new_words), 1)
        texts = [(number, decode_line(new_words, number, line)) for number, (line, _) in lines]
        return [(text.strip(), f"line {number}") for number, text in texts if text.strip()]
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
    """Returns what each word has been cut into so far."""
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


def _check_output(output_dir: str, folder: "ModelFolder") -> None:
    from bert.weights.kept import CONFIG_FILE, VOCAB_FILE

    check_folder(output_dir)
    written = [
        os.path.join(output_dir, name) for name in (CONFIG_FILE, VOCAB_FILE, f"{WEIGHTS}.index")
    ]
    read = [folder.bert_config_file, folder.vocab_file, f"{folder.stored.prefix}.index"]
    check_outputs(written, read, "output_dir")
    if there := [path for path in written if is_file(path)]:
        raise ValueError(
            f"`--output_dir` must hold no other model. Received one with {there}. Give another "
            "folder, or delete these."
        )


def _check_embeddings(folder: "ModelFolder", config: "modeling.BertConfig") -> None:
    stored = folder.stored
    expected = [config.vocab_size, config.hidden_size]
    found = stored.shapes.get(EMBEDDINGS, ())
    if list(found) != expected:
        raise ValueError(
            f"`--init_checkpoint` must hold `{EMBEDDINGS}` of the shape {expected} that "
            f"`--bert_config_file` gives. {stored.prefix!r} has {found or 'none'}."
        )


def _extended_tensors(
    stored: "checkpoint.Stored",
    config: "modeling.BertConfig",
    rows: Mapping[int, Sequence[int]],
    size: int,
) -> dict[str, np.ndarray]:
    """Returns the weights of the checkpoint, those with a row for each entry extended."""
    from bert.pretraining.goals import find_untrained
    from bert.weights.checkpoint import is_slot

    shapes = stored.shapes
    slots = [name for name in shapes if is_slot(name)]
    if slots:
        logging.info("Weights only: %d optimizer slots are left out.", len(slots))
    left_out = {*slots, *find_untrained(stored.folder, shapes)}
    tensors = stored.read(sorted(shapes.keys() - left_out))
    for name in TABLES:
        if name in tensors:
            tensors[name] = extend(tensors[name], rows, size)
    return tensors


def extend(table: np.ndarray, rows: Mapping[int, Sequence[int]], size: int) -> np.ndarray:
    """Returns `table` with `size` rows, those in `rows` the mean of the old rows they name.

    Args:
      table: [V] or [V, H].
      rows: By the number of a row, new or old, the numbers of old ones.
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
    logging.info(
        "%d words take [unusedN] entries, %d get new ones.", num_slots, len(places) - num_slots
    )
    for word in list(places)[:NUM_LOGGED]:
        logging.info("%s: entry %d, so far %s", word, places[word], " ".join(pieces[word]))
    if unknown := [word for word in places if {*pieces[word]} == {"[UNK]"}]:
        logging.warning(
            "%d words were [UNK] so far, whose weights they start from: %s.",
            len(unknown),
            ", ".join(unknown[:NUM_LOGGED]),
        )


def _write(
    output_dir: str,
    tensors: Mapping[str, np.ndarray],
    config: "modeling.BertConfig",
    entries: Mapping[int, str],
    do_lower_case: bool | None,
    options: Mapping[str, Any],
) -> None:
    from bert.weights import checkpoint
    from bert.weights.folder import ModelFolder

    vocabulary = vocab_text(entries[index] for index in range(len(entries)))
    ModelFolder(output_dir).keep(config, vocabulary, do_lower_case=do_lower_case, options=options)
    # Last, for without its weights the folder is no model.
    prefix = os.path.join(output_dir, WEIGHTS)
    checkpoint.save_tensors(prefix, tensors)
    logging.info(
        "Wrote %s with %d entries. `vocab_size` is %d.", prefix, len(entries), config.vocab_size
    )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
