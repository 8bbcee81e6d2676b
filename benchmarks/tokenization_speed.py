"""Measures how fast text becomes ids, beside tokenizing without a memo and Hugging Face tokenizers.

    python benchmarks/tokenization_speed.py --text='books/*.txt' --vocab=vocab.txt [--megabytes=40]

The text is read line by line, again from the start until there are so many megabytes of it. All
take turns on pieces of it, each tokenizer keeping what it remembers, so that what else the machine
does meets all alike. Hugging Face tokenizers are measured where `tokenizers` can be imported.
"""

import argparse
import glob
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

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


def make_tokenizers(vocab_file: str) -> dict[str, Callable[[str], list[int]]]:
    """Returns by name what makes ids of a line."""
    tokenizer = tokenization.FullTokenizer(vocab_file)

    def without_memo(line: str) -> list[int]:
        words = tokenizer.basic_tokenizer.tokenize(line)
        pieces = itertools.chain.from_iterable(map(tokenizer.wordpiece_tokenizer.split_word, words))
        return tokenizer.convert_tokens_to_ids(pieces)

    tokenizers = {"tokenize_to_ids": tokenizer.tokenize_to_ids, "without memo": without_memo}
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        import tokenizers as peers  # type: ignore[import-not-found]  # noqa: PLC0415
    except ImportError:
        return tokenizers
    peer = peers.BertWordPieceTokenizer(vocab_file)
    tokenizers["Hugging Face"] = lambda line: peer.encode(line, add_special_tokens=False).ids
    return tokenizers


def main() -> None:
    """Prints MB/s of processor time for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--text", required=True, help="Pattern of text files.")
    parser.add_argument("--vocab", required=True, help="Vocabulary for lower-cased text.")
    parser.add_argument("--megabytes", type=float, default=40)
    arguments = parser.parse_args()
    tokenizers = make_tokenizers(arguments.vocab)
    seconds = dict.fromkeys(tokenizers, 0.0)
    megabytes = 0.0
    for lines in read_pieces(arguments.text, int(arguments.megabytes * 1e6)):
        megabytes += sum(len(line.encode()) + 1 for line in lines) / 1e6
        for name, tokenize in tokenizers.items():
            start = time.process_time()
            for line in lines:
                tokenize(line)
            seconds[name] += time.process_time() - start
    for name in tokenizers:
        ratio = seconds[name] / seconds["tokenize_to_ids"]
        print(f"{name:16} {megabytes / seconds[name]:6.2f} MB/s, {ratio:.1f} times as long")


if __name__ == "__main__":
    main()
