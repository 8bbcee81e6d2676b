"""Measures how fast SQuAD's questions become records, beside transformers' fast tokenizer.

    python benchmarks/squad_features_speed.py [--file=train-v1.1.json --vocab=vocab.txt] \
      [--rounds=3] [--processes=1]

Here it is all that run_squad.py does before training: from a new process with nothing imported to
the file of records, 384 tokens a window, stride 128. The peer's figure is for its windows alone,
tokens and offsets in memory, without imports, reading, positions of answers or a file. Both take
turns; figures are processor time.
"""

import argparse
import copy
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from turns import (
    ROOT,
    SAMPLE_VOCABULARY,
    describe,
    format_table,
    median_ratio,
    peer_python,
    run_quietly,
)

QUESTIONS = str(ROOT / "sample" / "questions" / "train.json")


def repeat(path: str, output: str, least: int) -> None:
    """Writes the questions of a file so often that there are at least so many, with ids apart."""
    articles = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
    count = sum(len(p["qas"]) for article in articles for p in article["paragraphs"])
    copies = []
    for number in range(-(-least // count)):
        for article in copy.deepcopy(articles):
            for question in (each for p in article["paragraphs"] for each in p["qas"]):
                question["id"] = f"{question['id']}-{number}"
            copies.append(article)
    Path(output).write_text(json.dumps({"version": "1.1", "data": copies}), encoding="utf-8")


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
    printed = run_quietly(command)
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system, printed


def main() -> None:
    """Prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--file", default=QUESTIONS, help="Questions to train on, SQuAD's JSON.")
    parser.add_argument("--vocab", default=SAMPLE_VOCABULARY, help="Of lower-cased text.")
    parser.add_argument("--peer_python", help="Python that can import transformers.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--questions", type=int, default=2000, help="At least; else repeated.")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--worker", choices=["here", "peer"], help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        {"here": make_records, "peer": make_peer_windows}[arguments.worker](arguments)
        return
    python = peer_python(arguments.peer_python)
    here, peer, counts = [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        repeat(arguments.file, f"{folder}/questions.json", arguments.questions)
        arguments.file = f"{folder}/questions.json"
        for _ in range(arguments.rounds):
            seconds, printed = run(sys.executable, "here", arguments, f"{folder}/records")
            here.append(seconds)
            counts.add(printed.strip())
            _, printed = run(python, "peer", arguments, "")
            peer.append(float(printed.split()[1]))
            counts.add(printed.split()[0])
    rows = [
        ("ours, from start to file", f"{statistics.median(here):.2f}", "1.00"),
        (
            "transformers, windows alone",
            f"{statistics.median(peer):.2f}",
            f"{median_ratio(peer, here):.2f}",
        ),
    ]
    print(f"{describe(arguments.rounds)}Windows: {', '.join(sorted(counts))}.\n")
    print(format_table(("SQuAD's windows", "CPU s", "times as long"), rows))


if __name__ == "__main__":
    main()
