r"""Measures prediction beside torch, ONNX Runtime and OpenVINO: latency, speed, size of the models.

    python benchmarks/prediction.py [--sizes=base] [--batches=1,8] [--systems=ours,torch] \
      [--forms=ids] [--rounds=3] [--seconds=1]

    python benchmarks/prediction.py --saved_model=folder --saved_model=other=folder2 --systems=torch

A classifier of random weights, the same ones in every program, of BERT-Base or L=4 H=256, is asked
in batches of 1, 8 and 32: ids in and logits out, at the full length of 128 (`ids/full`) and at the
lengths of real sentences, padded to the longest of a batch (`ids/mixed`); texts in and labels out
(`texts/full`, `texts/mixed`). Every program runs in a process of its own with threads for all
cores; they take turns, and each turn asks the same batches. Speeds are medians over rounds, ratios
are to torch in float32, eager, of the same round; shares are of the peak of matrix products
(peak.py), in the program's precision but for int8, where it is that of float32. They count the
products that the answers need, of real tokens: in the last layer, keys and values, and the rest for
[CLS] alone.

Models are made once, in --models; SavedModels again where the project's code has changed.
--prepare only makes them, which takes minutes, so that a measurement need not. A SavedModel of
one's own joins by --saved_model, if it has the signatures `features` and `serving_default` as
classifiers of one text have; make it from <models>/<size>/transformers and the outputs are
compared, too.
"""

import argparse
import dataclasses
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from peak import PRECISIONS
from prediction_models import (
    ACTIVATIONS,
    FORMS,
    REFERENCE,
    SIZES,
    SYSTEMS,
    VOCAB_SIZE,
    Models,
    Size,
    System,
    choose_systems,
    own_system,
)
from turns import (
    ROOT,
    SAMPLE_TEXT,
    SAMPLE_VOCABULARY,
    Worker,
    describe,
    format_table,
    median_ratio,
    peer_python,
)

LENGTH = 128
# As many different texts are asked of a case, in batches.
NUM_TEXTS = 64
BATCHES = (1, 8, 32)


def read_texts(path: Path, count: int) -> list[str]:
    """Returns random lines of a text, or of the first column of a .tsv file with a header."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".tsv":
        lines = [line.split("\t")[0].strip() for line in lines[1:]]
    lines = [line for line in lines if line]
    return random.Random(0).choices(lines, k=count)


def fill_vocabulary(vocab_file: str, folder: Path, size: int) -> str:
    """Returns the path of a vocabulary with as many tokens as the models have rows.

    So few as the sample's would be taken for another model's.
    """
    tokens = Path(vocab_file).read_text(encoding="utf-8").split("\n")
    tokens = [token.rstrip("\r") for token in tokens if token.rstrip("\r")]
    tokens += [f"[filling{number}]" for number in range(size - len(tokens))]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return str(path)


def pad(rows: Sequence[Sequence[int]]) -> dict[str, list[list[int]]]:
    """Returns the inputs of a batch, padded to its longest."""
    longest = max(map(len, rows))
    return {
        "input_ids": [[*ids, *[0] * (longest - len(ids))] for ids in rows],
        "input_mask": [[1] * len(ids) + [0] * (longest - len(ids)) for ids in rows],
        "segment_ids": [[0] * longest for _ in rows],
    }


def make_cases(
    texts: Sequence[str], vocab_file: str, forms: Sequence[str], batches: Sequence[int]
) -> tuple[dict[str, list[Any]], list[int]]:
    """Returns the batches of each case, and the lengths of the texts, in tokens with specials."""
    sys.path.insert(0, str(ROOT))
    import tokenization

    tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case=True)
    first, last = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    rows = [[first, *tokenizer.tokenize_to_ids(text)[: LENGTH - 2], last] for text in texts]
    rng = random.Random(1)
    limit = len(tokenizer.vocab)
    cases: dict[str, list[Any]] = {}
    for size in batches:
        parts = range(0, len(texts), size)
        full = [[rng.randrange(limit) for _ in range(LENGTH)] for _ in range(size)]
        cases[f"ids/full/{size}"] = [pad(full)]
        cases[f"ids/mixed/{size}"] = [pad(rows[start : start + size]) for start in parts]
        words = [rng.choices(" ".join(texts).split(), k=LENGTH) for _ in range(size)]
        cases[f"texts/full/{size}"] = [[" ".join(each) for each in words]]
        cases[f"texts/mixed/{size}"] = [list(texts[start : start + size]) for start in parts]
    chosen = {name: each for name, each in cases.items() if name.rpartition("/")[0] in forms}
    return chosen, list(map(len, rows))


@dataclasses.dataclass
class Figures:
    """What was measured of a system in a case: for each round, the seconds of each call."""

    calls: list[list[float]] = dataclasses.field(default_factory=list)

    def speeds(self, batch: int) -> list[float]:
        """Returns the examples per second of each round."""
        return [batch * len(turn) / sum(turn) for turn in self.calls]

    def milliseconds(self) -> tuple[float, float]:
        """Returns the median and the 95th percentile of all calls."""
        ordered = sorted(1e3 * second for turn in self.calls for second in turn)
        return statistics.median(ordered), ordered[max(0, -(-95 * len(ordered) // 100) - 1)]


@dataclasses.dataclass
class Measured:
    """What was measured of a size: figures by case and system, peaks by precision."""

    figures: dict[str, dict[str, Figures]]
    peaks: dict[str, dict[str, list[float]]]
    differences: dict[str, dict[str, float]]


def measure(
    workers: Mapping[str, Worker],
    forms: Mapping[str, Sequence[str]],
    peak: Worker,
    cases: Sequence[str],
    rounds: int,
    seconds: float,
) -> Measured:
    """Returns what the workers reach in turns."""
    result = Measured({}, {}, {})
    for case in cases:
        names = [name for name in workers if case.rpartition("/")[0] in forms[name]]
        answers = {name: workers[name].ask("answers", case=case) for name in names}
        result.differences[case] = {
            name: _difference(answers[REFERENCE], answers[name]) for name in names
        }
        figures = result.figures[case] = {name: Figures() for name in names}
        peaks: dict[str, list[float]] = {name: [] for name in PRECISIONS}
        result.peaks[case] = peaks
        for turn in range(rounds):
            for precision, each in peaks.items():
                each.append(peak.ask(precision))
            # Nobody always comes after the same one.
            for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
                taken = workers[name].ask("seconds", case=case, at_least=seconds)
                figures[name].calls.append(taken)
    return result


def _difference(reference: Any, answers: Any) -> float:
    """Returns the largest difference of logits, or the share of labels that are others."""
    pairs = [
        (a, b)
        for left, right in zip(reference, answers, strict=True)
        for a, b in zip(left, right, strict=True)
    ]
    if isinstance(pairs[0][0], str):
        return sum(a != b for a, b in pairs) / len(pairs)
    return max(abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True))


def case_table(
    case: str, measured: Measured, size: Size, lengths: Sequence[int], precisions: Mapping[str, str]
) -> str:
    """Returns the table of a case."""
    form, batch = case.rpartition("/")[0], int(case.rpartition("/")[2])
    counted = [LENGTH] if form.endswith("/full") else lengths
    flops = size.flops(counted) / len(counted)
    figures = measured.figures[case]
    reference = figures[REFERENCE].speeds(batch)
    rows = []
    for name, each in figures.items():
        speeds = each.speeds(batch)
        median, late = each.milliseconds()
        peaks = measured.peaks[case]["bfloat16" if precisions[name] == "bfloat16" else "float32"]
        share = flops * median_ratio(speeds, peaks)
        differing = measured.differences[case][name]
        rows.append(
            (
                name,
                f"{median:.1f}",
                f"{late:.1f}",
                f"{statistics.median(speeds):.1f}",
                f"{median_ratio(speeds, reference):.2f}",
                f"{share:.0%}",
                f"{differing:.1%}" if form.startswith("texts") else f"{differing:.1e}",
            )
        )
    differ = "other labels" if form.startswith("texts") else "logits differ by"
    titles = (case, "ms", "p95 ms", "examples/s", "ratio", "of peak", differ)
    return format_table(titles, rows)


def parse() -> argparse.Namespace:
    """Returns the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def words(*known: str) -> Callable[[str], list[str]]:
        def read(text: str) -> list[str]:
            unknown = sorted({*text.split(",")} - {*known})
            if unknown:
                raise argparse.ArgumentTypeError(
                    f"must be among {', '.join(known)}, with commas between. Received {unknown}."
                )
            return text.split(",")

        return read

    def sizes(text: str) -> list[int]:
        found = [int(word) for word in text.split(",")]
        # Else the last batch of a round would be smaller than what speeds are computed with.
        if wrong := [size for size in found if size < 1 or NUM_TEXTS % size]:
            raise argparse.ArgumentTypeError(f"must divide {NUM_TEXTS}. Received {wrong}.")
        return found

    add = parser.add_argument
    systems = list(dict.fromkeys(name for each in SYSTEMS for name in each.names))
    forms = list(dict.fromkeys([*FORMS, *(each.split("/")[0] for each in FORMS)]))
    ours = ["ours", "peers"]
    add("--systems", type=words(*systems), default=ours, help=f"Among {', '.join(systems)}.")
    add("--sizes", type=words(*SIZES), default=list(SIZES), help=f"Among {', '.join(SIZES)}.")
    add("--forms", type=words(*forms), default=list(FORMS), help=f"Among {', '.join(forms)}.")
    add("--batches", type=sizes, default=list(BATCHES), help="Examples a call: 1,8,32.")
    add("--rounds", type=int, default=3, help="Turns of each program.")
    add("--seconds", type=float, default=1.0, help="A turn lasts so long at least.")
    add("--saved_model", action="append", default=[], help="Folder, or name=folder; repeatable.")
    add("--texts", type=Path, default=Path(SAMPLE_TEXT), help="A text a line, or .tsv.")
    add("--vocab_file", default=SAMPLE_VOCABULARY, help="Of lower-cased text.")
    add("--activation", choices=ACTIVATIONS, default="erf", help="The form of GELU, in all.")
    add("--models", type=Path, default=ROOT / "benchmark_output" / "models", help="Their folder.")
    add("--prepare", action="store_true", help="Only make the models.")
    add("--peer_python", help="A Python that has benchmarks/requirements.txt.")
    return parser.parse_args()


def main() -> None:
    """Prints the tables."""
    arguments = parse()
    python = peer_python(arguments.peer_python)
    arguments.models = arguments.models.resolve()
    # What `bert.load` converts for its engines stays beside the models.
    os.environ["XDG_CACHE_HOME"] = str(arguments.models / "cache")
    systems = choose_systems(arguments.systems) + list(map(own_system, arguments.saved_model))
    forms = [each for each in FORMS if {each, each.split("/")[0]} & {*arguments.forms}]
    texts = read_texts(arguments.texts, NUM_TEXTS)
    vocab_file = fill_vocabulary(arguments.vocab_file, arguments.models, VOCAB_SIZE)
    cases, lengths = make_cases(texts, vocab_file, forms, arguments.batches)
    if not arguments.prepare:
        print(
            f"{describe(arguments.rounds)}The texts have {min(lengths)} to {max(lengths)} tokens, "
            f"{statistics.mean(lengths):.1f} on average.\n"
        )
    for name in arguments.sizes:
        size = SIZES[name]
        models = Models(
            arguments.models / f"{name}_{arguments.activation}",
            size,
            python,
            vocab_file,
            ACTIVATIONS[arguments.activation],
        )
        models.prepare(systems)
        if arguments.prepare:
            continue
        run_size(name, models, systems, cases, lengths, arguments)


def run_size(
    name: str,
    models: Models,
    systems: Sequence[System],
    cases: Mapping[str, Any],
    lengths: Sequence[int],
    arguments: argparse.Namespace,
) -> None:
    """Measures a size and prints its tables."""
    with ExitStack() as stack, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(cases, file)
        file.flush()
        workers = {
            each.name: stack.enter_context(models.start(each, file.name)) for each in systems
        }
        peak = stack.enter_context(
            Worker(sys.executable, "peak.py", {"hidden_size": models.size.hidden_size})
        )
        precisions = {each.name: each.precision for each in systems}
        forms = {each.name: each.forms for each in systems}
        shape = models.size
        peaks: dict[str, list[float]] = {each: [] for each in PRECISIONS}
        print(f"### {name}: L={shape.num_layers} H={shape.hidden_size}\n")
        for case in cases:
            measured = measure(workers, forms, peak, [case], arguments.rounds, arguments.seconds)
            print(case_table(case, measured, shape, lengths, precisions), flush=True)
            for precision, reached in measured.peaks[case].items():
                peaks[precision] += reached
    for precision, reached in peaks.items():
        print(f"Peak in {precision}: {statistics.median(reached) / 1e9:.0f} GFLOP/s.")
    print()
    rows = [(each.name, f"{models.megabytes(each):.0f}") for each in systems]
    print(format_table(("model files", "MB"), rows))


if __name__ == "__main__":
    main()
