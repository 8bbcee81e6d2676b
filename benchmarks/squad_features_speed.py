"""Measures how fast SQuAD's questions become records, beside transformers' fast tokenizer.

    python benchmarks/squad_features_speed.py --file=train-v1.1.json --vocab=vocab.txt \
      [--peer_python=/path/to/python-with-transformers] [--rounds=3] [--processes=1]

Here it is all that run_squad.py does before training: from a new process with nothing imported to
the file of records, 384 tokens a window, stride 128. The peer's figure is for its windows alone,
tokens and offsets in memory, without imports, reading, positions of answers or a file. Both take
turns; figures are processor time.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make_records(arguments: argparse.Namespace) -> None:
    """Writes the records of the file's questions."""
    sys.path.insert(0, str(ROOT))
    import tokenization  # noqa: PLC0415
    from bert.tasks.squad import questions as squad_questions  # noqa: PLC0415
    from bert.tasks.squad import windows as squad_windows  # noqa: PLC0415

    tokenizer = tokenization.FullTokenizer(arguments.vocab)
    examples = squad_questions.read_squad_examples(arguments.file, is_training=True)
    random.Random(12345).shuffle(examples)
    table = squad_windows.make_features(
        examples, tokenizer, 384, 128, 64, True, arguments.processes
    )
    squad_windows.write_features(arguments.output, table, arguments.processes)
    print(len(table))


def make_peer_windows(arguments: argparse.Namespace) -> None:
    """Prints the number of the peer's windows and the seconds that they took."""
    from transformers import BertTokenizerFast  # type: ignore  # noqa: PLC0415

    tokenizer = BertTokenizerFast(vocab=arguments.vocab, do_lower_case=True)
    articles = json.loads(Path(arguments.file).read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    pairs = [(each["question"], p["context"]) for p in paragraphs for each in p["qas"]]
    start = time.process_time()
    windows = tokenizer(
        [question for question, _ in pairs],
        [context for _, context in pairs],
        truncation="only_second",
        max_length=384,
        stride=384 - 128,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
    )
    print(len(windows["input_ids"]), time.process_time() - start)


def run(python: str, worker: str, arguments: argparse.Namespace, output: str) -> tuple[float, str]:
    """Returns the processor time of a new process, and what it printed."""
    command = [python, __file__, f"--worker={worker}", f"--output={output}"]
    for name in ("file", "vocab", "processes"):
        command.append(f"--{name}={getattr(arguments, name)}")
    before = os.times()
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system, result.stdout


def main() -> None:
    """Prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--file", required=True, help="Questions to train on, in SQuAD's JSON.")
    parser.add_argument("--vocab", required=True, help="Vocabulary for lower-cased text.")
    parser.add_argument("--peer_python", help="Python that can import transformers.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--worker", choices=["here", "peer"], help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        {"here": make_records, "peer": make_peer_windows}[arguments.worker](arguments)
        return
    here, peer = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            seconds, printed = run(sys.executable, "here", arguments, f"{folder}/records")
            here.append((seconds, int(printed)))
            if arguments.peer_python:
                _, printed = run(arguments.peer_python, "peer", arguments, "")
                count, own = printed.split()
                peer.append((float(own), int(count)))
    for name, results in (("this project", here), ("transformers", peer)):
        if results:
            times = [seconds for seconds, _ in results]
            spread = f"{min(times):.2f} to {max(times):.2f}"
            print(
                f"{name:13} {statistics.median(times):5.2f} s ({spread}), {results[0][1]} windows"
            )


if __name__ == "__main__":
    main()
