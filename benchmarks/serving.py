"""Measures a server on loopback, beside the same model asked directly, with good and bad requests.

    python benchmarks/serving.py [--text=sentences.txt --vocab=vocab.txt] [--rounds=3] [--seconds=5]

The model is a classifier of L=4, H=256 with random weights, the texts are lines of the file, one a
request. In turns, `bert.load(...).predict` answers them by the thousand, in a process of its own,
and `serve.py` answers them over so many connections at once as it is told, each of which asks again
when it has its answer; this process asks. The table has the medians over the rounds of requests per
second, and of the times from a request to its answer, of which 99 % are below p99.

With `--other`, the folder of another revision, its `serve.py` takes turns with this one, and the
table has the ratio of the medians, too. `--precision` is of this revision alone, since older ones
have no engines.

Then half of the connections send what is no good request, in between: no JSON, wrong fields, other
addresses, bodies that are too long or cut off. Each is to be refused with 4xx, and each good one to
be answered as the direct call does; the memory is told before and after.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turns import ROOT, SAMPLE_TEXT, SAMPLE_VOCABULARY, describe, format_table

CONFIG = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
# Makes the folder of the model; answers what is asked directly by the thousand.
MAKE = """
import sys; from pathlib import Path
import modeling, tokenization, json
from bert.tasks.classification.examples import ClassificationTask
from bert.tasks.classification.classifier import Classification
from bert.weights import checkpoint, saving
from bert.weights.folder import ModelFolder
folder, vocab_file = sys.argv[1:]
tokenizer = tokenization.FullTokenizer(vocab_file)
config = modeling.BertConfig.from_dict(json.loads(sys.stdin.read() or "{}"))
task = Classification(config, tokenizer, 128, ClassificationTask(
    name="custom", task_type="classification", labels=("no", "yes"), is_pair=False,
    metric="accuracy"))
ModelFolder(folder).save(config, Path(vocab_file).read_bytes(), task.stored())
model = task.make_model("float32")
saving.save_tensors(folder + "/bert_model.ckpt", {v.path: v.numpy() for v in model.weights})
"""
DIRECT = """
import json, sys, time
import bert
model = bert.load(sys.argv[1], engine="auto", precision=sys.argv[2])
for line in sys.stdin:
    texts, size = json.loads(line)
    begun = time.perf_counter()
    parts = [model.predict(texts[start : start + size]) for start in range(0, len(texts), size)]
    seconds = time.perf_counter() - begun
    answers = [each for part in parts for each in part]
    print(json.dumps([seconds, [each["probabilities"]["yes"] for each in answers]]), flush=True)
"""
# Equal to rounding in batches of other lengths.
TOLERANCE = 1e-4


class Connection:
    """A connection that asks, and asks again on another one where the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: Any = None
        self.writer: Any = None

    async def ask(self, request: bytes, is_whole: bool = True) -> tuple[int, bytes]:
        """Returns the status and the body of the answer; 0 where there is none."""
        if self.writer is None or self.writer.is_closing() or self.reader.at_eof():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(request)
        if not is_whole:
            self.close()
            return 0, b""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            body = await self.reader.readexactly(int(length[1]) if length else 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return 0, b""
        if b"onnection: close" in head or head.startswith(b"HTTP/1.0"):
            self.close()
        return int(head[9:12]), body

    def close(self) -> None:
        """Closes it."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def post(body: bytes, path: str = "/v1/models/m:predict", method: str = "POST") -> bytes:
    """Returns a request."""
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
        method.encode(),
        path.encode(),
        len(body),
        body,
    )


def good(text: str) -> bytes:
    """Returns a request about a text."""
    return post(json.dumps({"instances": [{"text_a": text}]}).encode())


# Each with whether it is whole; what is cut off gets no answer.
BAD = (
    (post(b""), True),
    (post(b'{"instances": ['), True),
    (post(b'{"instances": [{"text": "a"}]}'), True),
    (post(b'{"instances": [7]}'), True),
    (post(b'{"instances": ["\\ud800"]}'), True),
    (post(b"[" * 100_000), True),
    (post(b"\xff\xfe"), True),
    (post(b'{"inputs": {"text_a": "a"}}'), True),
    (post(json.dumps({"instances": ["a"] * 5000}).encode()), True),
    (post(b'{"instances": ["a"]}', "/v1/models/other:predict"), True),
    (post(b"", "/v1/models/m:predict", "GET"), True),
    (post(b" " * 2_000_000), True),
    (b"what is no HTTP\r\n\r\n", True),
    (post(b'{"instances": ["a"]}')[:-5], False),
)


async def load(port: int, texts: Sequence[str], connections: int, seconds: float) -> dict[str, Any]:
    """Returns what came of asking over and over: times, and the last answer for each text."""
    times: list[float] = []
    answers: dict[int, float] = {}
    lost = 0
    numbers = itertools.cycle(range(len(texts)))
    requests = [good(text) for text in texts]
    end = time.perf_counter() + seconds

    async def ask() -> None:
        nonlocal lost
        connection = Connection(port)
        while (begun := time.perf_counter()) < end:
            number = next(numbers)
            status, body = await connection.ask(requests[number])
            times.append(time.perf_counter() - begun)
            if status == 200:
                answers[number] = json.loads(body)["predictions"][0]["probabilities"]["yes"]
            else:
                lost += 1
        connection.close()

    begun = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(connections)))
    rate = len(times) / (time.perf_counter() - begun)
    return {"rate": rate, "times": sorted(times), "answers": answers, "lost": lost}


async def disturb(port: int, texts: Sequence[str], num_bad: int) -> tuple[Any, dict[int, float]]:
    """Returns how often each status came for bad requests, and the answers to the good ones."""
    statuses: collections.Counter[int] = collections.Counter()
    bad = iter(list(itertools.islice(itertools.cycle(BAD), num_bad)))
    left = iter(range(len(texts)))
    answers: dict[int, float] = {}

    async def ask_badly() -> None:
        connection = Connection(port)
        for request, is_whole in bad:
            status, body = await connection.ask(request, is_whole)
            statuses[status] += 1
            if b"Traceback" in body:
                statuses[-1] += 1
        connection.close()

    async def ask_well() -> None:
        connection = Connection(port)
        for number in left:
            status, body = await connection.ask(good(texts[number]))
            if status == 200:
                answers[number] = json.loads(body)["predictions"][0]["probabilities"]["yes"]
        connection.close()

    await asyncio.gather(*(each() for each in (ask_badly, ask_well) for _ in range(16)))
    return statuses, answers


@contextlib.contextmanager
def serving(folder: str, options: Sequence[str], root: Path | str = ROOT) -> Iterator[int]:
    """Serves the model with the `serve.py` of a revision's folder; gives the port."""
    command = [sys.executable, "serve.py", f"--model_dir={folder}", "--port=0", "--model_name=m"]
    with subprocess.Popen(
        [*command, *options], cwd=root, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, "")
            match = next(m for line in lines if (m := re.search(r"http://[\d.]+:(\d+)/", line)))
            yield int(match[1])
        finally:
            process.terminate()
            process.stderr.read()


async def read_memory(port: int) -> float:
    """Returns the megabytes that the server has in memory."""
    connection = Connection(port)
    _, body = await connection.ask(post(b"", "/metrics", "GET"))
    connection.close()
    match = re.search(rb"(?m)^process_resident_memory_bytes (\S+)", body)
    return float(match[1]) / 1e6 if match else float("nan")


class Direct:
    """The model in a process of its own."""

    def __init__(self, folder: str, precision: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DIRECT, folder, precision],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, texts: Sequence[str], size: int) -> tuple[float, list[float]]:
        """Returns texts per second, so many at a time, and the answers."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([texts, size]) + "\n")
        self.process.stdin.flush()
        seconds, answers = json.loads(self.process.stdout.readline())
        return len(texts) / seconds, answers


def differences(expected: Sequence[float], answers: dict[int, float]) -> int:
    """Returns how many answers are not as expected."""
    return sum(abs(expected[number] - each) > TOLERANCE for number, each in answers.items())


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--text", default=SAMPLE_TEXT, help="A text a line, or a .tsv.")
    parser.add_argument("--vocab", default=SAMPLE_VOCABULARY)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", default="1,4,16,32,64,128")
    parser.add_argument("--bad", type=int, default=1000)
    parser.add_argument("--other", help="Folder of another revision, to take turns with.")
    parser.add_argument("--precision", default="float32", help="Of this revision: float32 or int8.")
    parser.add_argument("--serve_flags", default="", help="For serve.py, with blanks between.")
    options = parser.parse_args()
    lines = Path(options.text).read_text(encoding="utf-8").splitlines()
    if options.text.endswith(".tsv"):
        lines = [line.partition("\t")[0] for line in lines[1:]]
    texts = [line for line in lines if line.strip()][:1000]
    vocab_size = len(Path(options.vocab).read_text(encoding="utf-8").splitlines())
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        # What engines have converted is kept no longer than the model.
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        config = json.dumps({**CONFIG, "vocab_size": vocab_size})
        subprocess.run(
            [sys.executable, "-c", MAKE, folder, options.vocab],
            cwd=ROOT,
            input=config,
            text=True,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        direct = Direct(folder, options.precision)
        flags = options.serve_flags.split()
        own = [*flags, f"--precision={options.precision}"]
        ports = [servers.enter_context(serving(folder, own))]
        if options.other:
            ports.append(servers.enter_context(serving(folder, flags, options.other)))
        measure(direct, ports, texts, options)
        direct.process.kill()
        direct.process.wait()


def measure(
    direct: Direct, ports: Sequence[int], texts: Sequence[str], options: argparse.Namespace
) -> None:
    """Lets all take turns, and prints what came of it."""
    port = ports[0]
    connections = [int(each) for each in options.connections.split(",")]
    _, expected = direct.ask(texts, len(texts))
    for each in ports:
        asyncio.run(load(each, texts, 32, 1.0))
    sizes = (len(texts), 32, 1)
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    found: dict[int, list[dict[str, Any]]] = {each: [] for each in connections}
    others: dict[int, list[dict[str, Any]]] = {each: [] for each in connections}
    for number in range(options.rounds):
        for size in sizes:
            rates[size].append(direct.ask(texts[: max(size, 300)], size)[0])
        for each in connections:
            turns = list(zip(ports, (found, others), strict=False))
            for other, runs_of in turns if number % 2 else turns[::-1]:
                runs_of[each].append(asyncio.run(load(other, texts, each, options.seconds)))
    rate = _median(rates[len(texts)])
    told = ", ".join(f"{_median(rates[size]):.0f} ({size} at a time)" for size in sizes)
    print(describe(options.rounds))
    print(f"A direct call answers in texts/s: {told}.\n")
    names = ["connections", "requests/s", "of direct", "median ms", "p99 ms", "lost", "wrong"]
    names += (
        ["other requests/s", "other median ms", "other p99 ms", "ratio"] if len(ports) > 1 else []
    )
    rows = []
    for each in connections:
        runs = found[each]
        answered = _median(run["rate"] for run in runs)
        row = [
            f"{answered:.0f}",
            f"{answered / rate:.2f}",
            *_milliseconds(runs),
            sum(run["lost"] for run in runs),
            sum(differences(expected, run["answers"]) for run in runs),
        ]
        if others[each]:
            pairs = zip(runs, others[each], strict=True)
            ratio = _median(_part(a["times"], 0.5) / _part(b["times"], 0.5) for a, b in pairs)
            rate_of_other = _median(run["rate"] for run in others[each])
            row += [f"{rate_of_other:.0f}", *_milliseconds(others[each]), f"{ratio:.2f}"]
        rows.append([str(each), *map(str, row)])
    print(format_table(names, rows))
    before = asyncio.run(read_memory(port))
    for _ in range(options.rounds):
        statuses, answers = asyncio.run(disturb(port, texts, options.bad))
        print(
            f"* {options.bad} bad requests among {len(texts)} good ones: "
            f"{len(answers)} answered, {differences(expected, answers)} wrong; statuses of the bad "
            f"ones {dict(sorted(statuses.items()))}; memory "
            f"{before:.0f} MB before, {asyncio.run(read_memory(port)):.0f} MB after"
        )


def _milliseconds(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the median and p99 of the times of requests, each the median over runs."""
    return [f"{1000 * _median(_part(run['times'], q) for run in runs):.2f}" for q in (0.5, 0.99)]


def _median(values: Any) -> float:
    return statistics.median(values)


def _part(times: Sequence[float], part: float) -> float:
    return times[min(int(part * len(times)), len(times) - 1)]


if __name__ == "__main__":
    main()
