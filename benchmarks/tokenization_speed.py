"""Measures how fast text becomes ids, beside tokenizing without a memo and Hugging Face tokenizers.

    python benchmarks/tokenization_speed.py [--text='books/*.txt' --vocab=vocab.txt]

The text is read again from the start until there are so many megabytes of it. All take turns on
pieces of 2 MB of it, line by line and all lines of a piece at once, each tokenizer keeping what it
remembers, so that what else the machine does meets all alike. Hugging Face tokenizers, in a single
thread, are measured where `tokenizers` can be imported.
"""

import argparse
import functools
import glob
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from turns import ROOT, SAMPLE_TEXT, SAMPLE_VOCABULARY, describe, format_table, median_ratio

sys.path.insert(0, str(ROOT))

import tokenization

PIECE = 2_000_000


def read_pieces(pattern: str, num_bytes: int) -> Iterator[list[str]]:
    """Yields lists of lines of about `PIECE` bytes."""
    lines, size = [], 0
    for path in itertools.cycle(sorted(glob.glob(pattern))):
        with open(path, encoding="utf-8", errors="ignore") as file:
            for line in file:
                lines.append(line.rstrip("\n"))
                size += len(line.encode())
                if size >= PIECE:
                    yield lines
                    num_bytes -= size
                    lines, size = [], 0
                    if num_bytes <= 0:
                        return


def make_tokenizers(vocab_file: str) -> dict[str, Callable[[list[str]], object]]:
    """Returns by name what makes ids of lines."""
    tokenizer = tokenization.FullTokenizer(vocab_file)
    # Neither remembers what the other has met.
    at_once = tokenization.FullTokenizer(vocab_file)

    def without_memo(line: str) -> list[int]:
        words = tokenizer.basic_tokenizer.tokenize(line)
        pieces = itertools.chain.from_iterable(map(tokenizer.wordpiece_tokenizer.split_word, words))
        return tokenizer.convert_tokens_to_ids(pieces)

    tokenizers: dict[str, Callable[[list[str]], object]] = {
        "tokenize_lines_to_ids": at_once.tokenize_lines_to_ids,
        "tokenize_to_ids": lambda lines: list(map(tokenizer.tokenize_to_ids, lines)),
        "without memo": lambda lines: list(map(without_memo, lines)),
    }
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        import tokenizers as peers  # type: ignore[import-not-found]  # noqa: PLC0415
    except ImportError:
        return tokenizers
    peer = peers.BertWordPieceTokenizer(vocab_file)
    encode = functools.partial(peer.encode, add_special_tokens=False)
    encode_batch = functools.partial(peer.encode_batch, add_special_tokens=False)
    tokenizers["Hugging Face, a line"] = lambda lines: [encode(line).ids for line in lines]
    tokenizers["Hugging Face, a batch"] = lambda lines: [each.ids for each in encode_batch(lines)]
    return tokenizers


def measure(
    tokenizers: dict[str, Callable[[list[str]], object]], pieces: Iterator[list[str]]
) -> dict[str, list[float]]:
    """Returns of each piece of the text the MB/s of processor time of each tokenizer."""
    speeds: dict[str, list[float]] = {name: [] for name in tokenizers}
    for lines in pieces:
        megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
        for name, tokenize in tokenizers.items():
            start = time.process_time()
            tokenize(lines)
            speeds[name].append(megabytes / (time.process_time() - start))
    return speeds


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--text", default=SAMPLE_TEXT, help="Pattern of text files.")
    parser.add_argument("--vocab", default=SAMPLE_VOCABULARY, help="Of lower-cased text.")
    parser.add_argument("--megabytes", type=float, default=40, help="Read at least; 2 a round.")
    arguments = parser.parse_args()
    size = sum(os.path.getsize(path) for path in glob.glob(arguments.text)) / 1e6
    if not size:
        parser.error(f"--text must match files with text. Received {arguments.text!r}.")
    tokenizers = make_tokenizers(arguments.vocab)
    speeds = measure(tokenizers, read_pieces(arguments.text, int(arguments.megabytes * 1e6)))
    ours = next(iter(speeds.values()))
    rows = [
        (name, f"{statistics.median(each):.2f}", f"{median_ratio(ours, each):.2f}")
        for name, each in speeds.items()
    ]
    times = max(1, round(len(ours) * PIECE / 1e6 / size))
    print(describe(len(ours)))
    print(f"{size:.2f} MB of text, read {times} times: what it says again is remembered.\n")
    print(format_table(("tokenizer", "MB/s", "times as long"), rows))


if __name__ == "__main__":
    main()
