"""The law of flags: every field of every `Settings` changes something that can be seen.

A field has one or several cases: the value that it is changed to, and what then differs between
two runs that are otherwise the same. To add a flag is to add a line to the table of its script, or
of `FINE_TUNING` where all scripts that fine-tune share it. What may be looked at leaves out the
settings that a run logs or writes down, which differ whatever the flag reaches.
"""

import atexit
import contextlib
import dataclasses
import functools
import importlib
import json
import logging
import operator
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from conftest import GOLDEN, eagerly, free_ports
from helpers import paper_plans, served_models, squad_runs, tagging_runs, tfhub_runs
from helpers.script_worlds import (
    WORDS,
    classifier_world,
    module_world,
    ner_world,
    pretraining_world,
    squad_world,
    swag_world,
    trained_weights,
    with_dropout,
    write_config,
)

import bert
import convert_checkpoint
import run_classifier
import run_ner
from bert.commands.checks import start
from bert.commands.training import EvaluatedSettings, FineTuningSettings
from bert.files.machine import Workers
from bert.files.records import decode_index
from bert.models import pretrained as pretrained_models
from bert.models.fine_tuned import LoadedModel
from bert.tasks import features as tasks_features
from bert.training.batches import Batches
from bert.weights import checkpoint, saving
from bert.weights.variables import GLOBAL_STEP, SLOTS


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What can be seen of a run."""

    folder: Path
    result: Any
    error: str
    messages: list[str]
    work: list[Any]
    examples: list[str]
    num_layer_calls: int

    @property
    def out(self) -> Path:
        return self.folder / "out"


See = Callable[[Outcome], Any]


class Case:
    """A value to which a field is changed, or a function of a run's folder that gives it."""

    def __init__(
        self,
        value: Any,
        see: See,
        *,
        fails: bool = False,
        is_slow: bool = False,
        has_ended: bool | None = None,
        **given: Any,
    ) -> None:
        self.value = value
        self.see = see
        self.is_slow = is_slow
        # Whether the run with the value, or the one without, ends with an error.
        self.fails = fails
        # Whether it is seen where the training has ended, too, so that none is needed.
        self.has_ended = see in _BESIDE_TRAINING if has_ended is None else has_ended
        self.given = given


# What to look at.


def weights(outcome: Outcome) -> dict[str, bytes]:
    """The weights that a training leaves, optimizer and step apart."""
    stored = checkpoint.Stored.open(str(outcome.out))
    tensors = stored.read()
    slots = (*SLOTS, GLOBAL_STEP)
    return {
        name: (value.shape, value.tobytes())
        for name, value in tensors.items()
        if name.rpartition("/")[2] not in slots
    }


def checkpoints(outcome: Outcome) -> list[str]:
    return sorted(path.name for path in outcome.out.glob("model.ckpt-*.index"))


def names(outcome: Outcome) -> list[str]:
    return sorted(path.name for path in outcome.out.iterdir() if "tfevents" not in path.name)


error = operator.attrgetter("error")
work = operator.attrgetter("work")
order_of_examples = operator.attrgetter("examples")
layer_calls = operator.attrgetter("num_layer_calls")


def result(outcome: Outcome) -> str:
    return repr(outcome.result)


def shapes_of_predictions(outcome: Outcome) -> list[str]:
    """The shapes of the batches of two."""
    batches = [dict(item) for item in outcome.work if isinstance(item, list)]
    shapes = [batch["input_ids"] for batch in batches]
    return [shape for shape in shapes if shape.startswith("(2, ")]


def content(name: str) -> See:
    def see(outcome: Outcome) -> bytes:
        return (outcome.folder / name).read_bytes()

    return see


def task(outcome: Outcome) -> Any:
    return json.loads((outcome.out / "task.json").read_text())["task"]


def told(pattern: str) -> See:
    """The lines of the log that match."""

    def see(outcome: Outcome) -> list[str]:
        return [message for message in outcome.messages if re.search(pattern, message)]

    return see


def iterations_kept(outcome: Outcome) -> bool:
    return b'"--iterations_per_loop=1"' in content("out/run.json")(outcome)


def memory_told(outcome: Outcome) -> list[str]:
    """What is needed, without what is free at the moment."""
    return [line.partition(" in all, of ")[0] for line in told("^Memory: ")(outcome)]


def steps_told(outcome: Outcome) -> list[str]:
    lines = (re.match(r"Step (\d+)/\d+ ", message) for message in outcome.messages)
    return [line[1] for line in lines if line]


def first_step(outcome: Outcome) -> str:
    return (outcome.out / "train_log.jsonl").read_text().splitlines()[0]


TRAIN_RECORDS = content("out/train.tf_record")
EVAL_RECORDS = content("out/eval.tf_record")
PREDICT_RECORDS = content("out/predict.tf_record")
# All of them are written after a training that has ended, as after one that goes on.
_BESIDE_TRAINING = (TRAIN_RECORDS, EVAL_RECORDS, PREDICT_RECORDS, task)


def summaries(outcome: Outcome) -> int:
    """The number of TensorBoard's files."""
    return len([*outcome.out.glob("events.out.tfevents.*")])


def index_of(outcome: Outcome) -> Any:
    return decode_index((outcome.folder / ".out.index").read_bytes())


def names_of_tensors(outcome: Outcome) -> list[str]:
    return sorted(checkpoint.Stored.open(str(outcome.out)).shapes)


# The worlds in which scripts run: each writes its files and returns the settings of a run.

OTHER_WORDS = [*WORDS[:5], *reversed(WORDS[5:])]


def smaller(folder: Path) -> str:
    return write_config(folder, "other.json", intermediate_size=20)


def other_vocabulary(folder: Path) -> str:
    """Returns the path of a vocabulary with some words, less than half, in another order."""
    words = (folder / "vocab.txt").read_text().splitlines()
    end = 4 + len(words) * 2 // 5
    words[4:end] = reversed(words[4:end])
    (folder / "other.txt").write_text("\n".join(words) + "\n")
    return str(folder / "other.txt")


def elsewhere(folder: Path) -> str:
    return str(folder / "elsewhere")


def teacher(folder: Path) -> str:
    """Returns the folder of a classifier of the same labels."""
    shutil.copytree(trained_by("run_classifier"), folder / "teacher")
    return str(folder / "teacher")


def teacher_of_answers(folder: Path) -> str:
    """Returns the folder of a model that answers questions; writes questions, too."""
    question = {"question": "which", "context": "a red ."}
    (folder / "questions.jsonl").write_text(json.dumps(question) + "\n")
    shutil.copytree(trained_by("run_squad"), folder / "teacher")
    return str(folder / "teacher")


def pretrained(folder: Path) -> str:
    """Returns the folder of a pre-trained model of the same vocabulary."""
    shutil.copytree(trained_by("run_pretraining"), folder / "teacher")
    return str(folder / "teacher")


def teacher_cases(teacher: Any, texts: str | None = None) -> dict[str, Case]:
    """Returns the cases of a teacher; `texts` names a file of unlabelled ones that it writes."""
    unlabeled = {"unlabeled_file": Case(file_in(texts), TRAIN_RECORDS, teacher=teacher)}
    return {
        "teacher": Case(teacher, weights),
        **(unlabeled if texts else {}),
        "teacher_weight": Case(0.9, weights, teacher=teacher),
        "distillation_temperature": Case(9.0, weights, teacher=teacher),
        "distill_layers": Case("uniform", weights, teacher=teacher),
        "distill_layers_weight": Case(9.0, weights, teacher=teacher, distill_layers="uniform"),
    }


def tagger(folder: Path) -> str:
    """Returns the folder of a tagger of the same labels, trained a little; writes texts, too."""
    (folder / "text.txt").write_text("Ada saw Oslo .\nRome in\n")
    settings = {**ner_world(folder), "output_dir": str(folder / "teacher")}
    run_ner.run(run_ner.Settings(**settings))
    return str(folder / "teacher")


def same_examples(folder: Path) -> str:
    (folder / "same").mkdir()
    (folder / "same/train.tsv").write_text("text\tlabel\n" + 20 * "red a b c\tyes\n")
    return str(folder / "same")


def all_weights(script: str) -> Callable[[Path], str]:
    """Returns what gives the weights of a model of the script, those of its head included."""
    return lambda _: str(trained_by(script))


@functools.cache
def trained_by(script: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bert-test-"))
    atexit.register(shutil.rmtree, folder)
    return run(script, folder, {}, {}).out


@functools.cache
def ended(script: str) -> Mapping[str, Any]:
    """Returns the settings of a run in whose folder the training has ended."""

    def copy(folder: Path) -> str:
        shutil.copytree(trained_by(script), folder / "out")
        return str(folder / "out")

    return {"output_dir": copy, "resume_with_changes": True}


def seed_cases(script: str, **same: Any) -> tuple[Case, ...]:
    """Returns a case for each thing that a seed decides, seen where the others do not count.

    Args:
      script: The script.
      **same: Settings of examples that are all the same, so that their order is.
    """
    initial_weights = Case(5, weights, learning_rate=0.0)
    order = Case(5, order_of_examples)
    masks = Case(
        5, weights, init_checkpoint=all_weights(script), bert_config_file=with_dropout, **same
    )
    return initial_weights, order, masks


def theirs(folder: Path) -> str:
    """Returns the path of a file that is no output of a script."""
    (folder / "theirs").write_text("mine")
    return str(folder / "theirs")


def with_their_exports(folder: Path) -> str:
    """Returns an output folder with folders, where exports go, that no script has written."""
    for name in ("saved_model", "saved_model_bfloat16", "tflite"):
        (folder / "out" / name).mkdir(parents=True)
        (folder / "out" / name / "theirs").write_text("mine")
    return str(folder / "out")


CHECK = Case(True, lambda o: o.out.exists())
# A folder with a training of another task is refused.
NEW_TASK = {"has_ended": False}
CHECK_OF_TRAINING = Case(True, names, has_ended=True, do_eval=True)
# Of scripts that write one file, or one for each shard.
WRITING = {
    "check": CHECK,
    "overwrite": Case(True, error, fails=True, output_file=theirs),
    "output_file": Case(elsewhere, lambda o: (o.folder / "elsewhere").exists()),
}


def half_a_character(folder: Path) -> str:
    (folder / "half.jsonl").write_text('{"text_a": "red"}\n{"text_a": "\\ud800"}\n')
    return str(folder / "half.jsonl")


def other_data(folder: Path) -> str:
    """Returns a folder with the same files, the first of the examples missing."""
    (folder / "other").mkdir()
    for path in (*folder.glob("*.tsv"), *folder.glob("*.jsonl")):
        first, *lines = path.read_text().splitlines()
        kept = lines[1:] if path.suffix == ".jsonl" else [first, *lines[1:]]
        (folder / "other" / path.name).write_text("\n".join(kept) + "\n")
    return str(folder / "other")


def endings_table(folder: Path) -> str:
    row = "red,0,green,a\n"
    (folder / "endings.csv").write_text("context,label,ending0,ending1\n" + 8 * row)
    return str(folder / "endings.csv")


def other_file(name: str) -> Callable[[Path], str]:
    """Returns what gives a file of a split, the first of its examples missing."""

    def find(folder: Path) -> str:
        [path] = Path(other_data(folder)).glob(f"{name}.*")
        return str(path)

    return find


def file_cases(train: str, dev: str, others: bool = True) -> dict[str, Case]:
    """Returns the cases of files that are given one by one, `train` being the name of one."""
    alone = {"do_eval": True, "data_dir": None, "train_file": file_in(train)}
    # Half of the examples of SWAG are fewer than a batch.
    alone["train_batch_size"] = 4
    split = {
        "dev_fraction": Case(0.5, EVAL_RECORDS, **alone),
        "split_seed": Case(7, EVAL_RECORDS, **alone, dev_fraction=0.5),
    }
    files = {
        "train_file": Case(other_file("train"), TRAIN_RECORDS),
        "dev_file": Case(other_file(dev), EVAL_RECORDS, do_eval=True),
        "test_file": Case(other_file("test"), PREDICT_RECORDS, do_predict=True),
    }
    return {**split, **(files if others else {})}


def other_questions(folder: Path) -> str:
    rng = np.random.RandomState(5)
    paragraphs = [squad_runs.make_question(rng, f"dev-{i}") for i in range(16)]
    squad_runs.write_squad(folder / "other.json", paragraphs)
    return str(folder / "other.json")


def short_questions(folder: Path) -> str:
    """Returns questions whose windows are short, and whose words have characters without width."""
    question = {"question": "Which?", "answers": [{"text": "red", "answer_start": 0}]}
    paragraphs = [
        {"context": "red\u200b a\u200b", "qas": [{**question, "id": str(number)}]}
        for number in range(4)
    ]
    squad_runs.write_squad(folder / "short.json", paragraphs)
    return str(folder / "short.json")


def unlike_questions(folder: Path) -> str:
    """Returns questions whose windows are long and short by turns: sorted, two are of a length."""
    question = {"question": "Which?", "answers": [{"text": "red", "answer_start": 0}]}
    paragraphs = [
        {
            "context": "red a" if number % 2 else "red a b c d e f",
            "qas": [question | {"id": str(number)}],
        }
        for number in range(8)
    ]
    squad_runs.write_squad(folder / "unlike.json", paragraphs)
    return str(folder / "unlike.json")


def other_sentences(folder: Path) -> str:
    tagging_runs.write_conll(folder / "other.txt", tagging_runs.make_sentences(16, 9))
    return str(folder / "other.txt")


def other_sentences_folder(folder: Path) -> str:
    (folder / "other").mkdir()
    for name in ("train", "dev", "test"):
        sentences = tagging_runs.make_sentences(16, 9)
        tagging_runs.write_conll(folder / f"other/{name}.txt", sentences)
    return str(folder / "other")


def tabbed(folder: Path) -> str:
    """Returns sentences whose columns are words, words again, tags and other tags, with tabs."""
    lines = []
    for sentence in tagging_runs.make_sentences(16, 4):
        tags = [tag for _, tag in sentence]
        for (word, tag), other in zip(sentence, reversed(tags), strict=True):
            shown = other if other.startswith("B") else "O"
            lines.append(f"{word}\t{word.lower()}x\t{shown}\t{tag}")
        lines.append("")
    (folder / "tabbed.txt").write_text("\n".join(lines))
    return str(folder / "tabbed.txt")


def chinese(folder: Path) -> str:
    """Returns sentences of words that have several characters."""
    (folder / "chinese.txt").write_text("我 O\n北京 B-LOC\n在 O\n\n李明 B-PER\n在 O\n\n" * 4)
    return str(folder / "chinese.txt")


def deeper(folder: Path) -> str:
    return write_config(folder, "deeper.json", num_hidden_layers=4)


ON_FEATURES = {"feature_based": True, "feature_layers": "last"}


def file_in(name: str) -> Callable[[Path], str]:
    return lambda folder: str(folder / name)


TEXT = """The cat sat here, there and everywhere. Nobody knew. It was unbelievably cold.
She went to the sea, and it was cold.

One day, a man came.
He was old.



Nobody knew his unbelievable name. He told nobody. He went away at once.
"""


def text_world(folder: Path) -> dict[str, Any]:
    (folder / "text.txt").write_text(TEXT)
    (folder / "other.txt").write_text(TEXT.upper() * 2)
    return {"input_file": str(folder / "text.txt"), "output_file": str(folder / "out")}


def records_world(folder: Path) -> dict[str, Any]:
    words = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "vocab.txt").write_text("\n".join([*words, "He"]) + "\n")
    lengths = {"max_seq_length": 32, "max_predictions_per_seq": 5, "dupe_factor": 3}
    return {**text_world(folder), **lengths, "vocab_file": str(folder / "vocab.txt")}


def vocabulary_world(folder: Path) -> dict[str, Any]:
    return {**text_world(folder), "vocab_size": 60, "num_unused": 0, "num_processes": 1}


def vectors_world(folder: Path) -> dict[str, Any]:
    return {**text_world(folder), "vector_size": 5, "min_count": 1}


def vectors_of_words(folder: Path) -> str:
    (folder / "vectors.txt").write_text("Ada 1 2\nOslo 3 4\n")
    return str(folder / "vectors.txt")


def read_golden() -> dict[str, np.ndarray]:
    """Returns the weights of the original's small model."""
    return checkpoint.Stored.open(str(GOLDEN / "bert_model.ckpt")).read()


def write_golden(folder: Path, tensors: Mapping[str, np.ndarray] | None = None) -> str:
    """Writes the files of the original's small model, and the given weights; returns the folder."""
    folder.mkdir(exist_ok=True)
    for name in ("vocab.txt", "bert_config.json"):
        (folder / name).write_bytes((GOLDEN / name).read_bytes())
    if tensors:
        saving.save_tensors(str(folder / "bert_model.ckpt"), tensors)
    return str(folder)


def golden_world(folder: Path) -> dict[str, Any]:
    """Files that are given in place of those beside the original's small model."""
    write_golden(folder)
    (folder / "config.json").write_bytes((GOLDEN / "bert_config.json").read_bytes())
    (folder / "text.txt").write_text("the Old man ||| told\nwho\nit was the old man who told\n")
    (folder / "other.txt").write_text("it [MASK]\n")
    return {}


def another_activation(folder: Path) -> str:
    return write_config(folder, "other.json", hidden_act="relu")


def encoder_alone(folder: Path) -> str:
    """Returns the folder of the original's small model without the heads of pre-training."""
    tensors = read_golden()
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    return write_golden(folder / "encoder", encoder)


# A table of vectors that is read off the original's small model instead of learned from text.
READ_OFF = {
    "input_file": None,
    "min_count": 5,
    "init_checkpoint": str(GOLDEN / "bert_model.ckpt"),
}


def other_golden(folder: Path) -> str:
    """Returns the prefix of the original's small model with all weights halved."""
    tensors = read_golden()
    halves = {name: value / np.asarray(2, value.dtype) for name, value in tensors.items()}
    return write_golden(folder / "halves", halves) + "/bert_model.ckpt"


def fill_world(folder: Path) -> dict[str, Any]:
    golden_world(folder)
    (folder / "text.txt").write_text("the Old [MASK] told a [MASK]\nwho heard it [MASK]\n")
    return {
        "checkpoint": str(GOLDEN / "bert_model.ckpt"),
        "input_file": str(folder / "text.txt"),
        "output_file": str(folder / "out"),
        "format": "jsonl",
    }


def features_world(folder: Path) -> dict[str, Any]:
    golden_world(folder)
    (folder / "two.tsv").write_text("text\tb\nthe old\thouse\n")
    (folder / "two.csv").write_text("text\tb,text\nthe old\thouse,the cat\n")
    return {
        "init_checkpoint": str(GOLDEN / "bert_model.ckpt"),
        "bert_config_file": str(folder / "bert_config.json"),
        "vocab_file": str(folder / "vocab.txt"),
        "input_file": str(folder / "text.txt"),
        "output_file": str(folder / "out"),
        "layers": "-1",
        "max_seq_length": 16,
    }


def parts_world(folder: Path) -> dict[str, Any]:
    for number in (1, 2):
        (folder / f"part-{number}.txt").write_text(f"{number}\n")
    files = {"input_file": str(folder / "part-*.txt"), "output_file": str(folder / "out")}
    return {**files, "unverified": True}


def neighbours_world(folder: Path) -> dict[str, Any]:
    world = features_world(folder)
    del world["layers"]
    return {**world, "query": "the Old house, who?"}


PORT = free_ports(1)[0]


def serving_world(folder: Path) -> dict[str, Any]:
    """Returns the settings of a server of the model that predictions are made with."""
    world = prediction_world(folder)
    return {"model_dir": world["model_dir"], "port": 0, "engine": "tensorflow"}


def ask_server(script: Any, settings: Any, _: Path) -> Any:
    """Asks a server for what it is and for answers, while half a request holds a place."""
    with (
        script.open_server(settings) as server,
        socket.create_connection((server.host, server.port)) as half,
    ):
        page = str(served_models.fetch(server, "/").body)
        found = re.search('"name":"([^"]+)"', page)
        name = found[1] if found else "none"
        address = f"/v1/models/{name}:predict"
        head = f"POST {address} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        half.sendall(head.encode())
        rows = ["red a b c d e f g h"] * 5 if '"kind":"fill_mask"' not in page else ["the [MASK]"]
        one, other = (
            served_models.fetch(server, address, {"instances": each}) for each in (rows, rows[:1])
        )
        named = served_models.fetch(server, "/", headers={"Host": "ask.example"}).status
        half.settimeout(0.5)
        said = b""
        with contextlib.suppress(TimeoutError):
            said = half.recv(99)
        return server.host, server.port, name, one[:2], other[:2], said, named


def answered(number: int) -> See:
    """A part of what `ask_server` gives."""
    return lambda outcome: repr(outcome.result and outcome.result[number])


def paper_world(folder: Path) -> dict[str, Any]:
    """A plan of the smallest size, all of which has run."""
    paper_plans.fill(folder)
    write_sentences(folder / "sentences")
    paper_plans.write_glue(folder / "glue")
    paper_plans.write_weights(folder / "model")
    for number in range(2):
        (folder / "texts").mkdir(exist_ok=True)
        (folder / "texts" / f"{number}.txt").write_text(f"A book, {number}.")
    return {"output_dir": str(folder / "out"), "budget": "1s", "precision": "float32"}


def write_sentences(folder: Path) -> None:
    """Writes what takes the place of the sample's sentences and questions."""
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"{part}.txt").write_text("Anna B-PER\nsleeps O\n\n")
    for part in ("train", "dev"):
        (folder / f"{part}.json").write_text('{"data": [{"paragraphs": [{"qas": [{"id": "1"}]}]}]}')


def num_planned(outcome: Outcome) -> int:
    return len(outcome.result.missing)


def extension_world(folder: Path) -> dict[str, Any]:
    golden_world(folder)
    return {
        "init_checkpoint": str(GOLDEN / "bert_model.ckpt"),
        "new_words": "Kilogram",
        "output_dir": str(folder / "out"),
    }


def conversion_world(folder: Path) -> dict[str, Any]:
    golden_world(folder)
    tensors = read_golden()
    slot = {"cls/predictions/output_bias/adam_m": tensors["cls/predictions/output_bias"]}
    return {
        "input": write_golden(folder / "source", {**tensors, **slot}),
        "output": str(folder / "out"),
        "format": "huggingface",
        "do_lower_case": True,
    }


def fine_tuned(folder: Path, variables: str) -> str:
    """Returns the folder with a model whose head of two outputs has variables of a name."""
    tensors = {name: value for name, value in read_golden().items() if name.startswith("bert/")}
    width = len(tensors["bert/pooler/dense/bias"])
    tensors |= {
        f"{variables}output_weights": np.ones((2, width), np.float32),
        f"{variables}output_bias": np.zeros(2, np.float32),
    }
    return write_golden(folder, tensors)


def classifier_source(folder: Path) -> str:
    """Returns the folder of a classifier of transformers."""
    convert_checkpoint.run(
        convert_checkpoint.Settings(
            input=fine_tuned(folder / "tf", ""),
            output=str(folder / "hf"),
            format="huggingface",
            architecture="BertForSequenceClassification",
            do_lower_case=True,
        )
    )
    # transformers writes none.
    (folder / "hf/task.json").unlink()
    return str(folder / "hf")


def answerer(folder: Path) -> str:
    """Returns the folder of a model that gives an answer to each question."""
    made = fine_tuned(folder / "answerer", "cls/squad/")
    task = {
        "kind": "question_answering",
        "do_lower_case": True,
        "n_best_size": 20,
        "max_seq_length": 32,
        "doc_stride": 8,
        "max_query_length": 8,
        "max_answer_length": 30,
        "version_2_with_negative": False,
        "null_score_diff_threshold": 0.0,
    }
    (folder / "answerer/task.json").write_text(json.dumps(task))
    return made


def without_vocabulary(folder: Path) -> str:
    """Returns the folder of a model that has no vocabulary."""
    shutil.copytree(GOLDEN, folder / "bare", ignore=shutil.ignore_patterns("vocab.txt"))
    return str(folder / "bare")


@functools.cache
def trained_models() -> Path:
    """Returns a folder with two classifiers, whose labels are of two columns."""
    folder = Path(tempfile.mkdtemp(prefix="bert-test-"))
    atexit.register(shutil.rmtree, folder)
    for name, column in (("model", "label"), ("other_model", "kind")):
        (folder / name).mkdir()
        values = {**classifier_world(folder / name), "label_column": column}
        run_classifier.run(run_classifier.Settings(**values))
    return folder


def prediction_world(folder: Path) -> dict[str, Any]:
    shutil.copytree(trained_models(), folder, dirs_exist_ok=True)
    (folder / "text.txt").write_text("text\nred a b\nred c\ngreen d e f\n")
    (folder / "other.txt").write_text("red\n")
    (folder / "table.tsv").write_text("text_a\tother\nred a\tgreen b\nred c\tgreen d\n")
    return {
        "model_dir": str(folder / "model/out"),
        "input_file": str(folder / "text.txt"),
        "output_file": str(folder / "out"),
    }


def inspection_world(folder: Path) -> dict[str, Any]:
    shutil.copytree(trained_models(), folder, dirs_exist_ok=True)
    return {"model_dir": str(folder / "model/out"), "output_file": str(folder / "out")}


def untold(folder: Path) -> str:
    """Returns a Hugging Face folder of the model, without what this project says of it."""
    output = folder / "untold"
    values = {"input": str(folder / "model/out"), "output": str(output), "format": "huggingface"}
    convert_checkpoint.run(convert_checkpoint.Settings(**values, verify=False))
    (output / "task.json").unlink()
    return str(output)


def opening_cases(see: See) -> dict[str, Case]:
    """Returns the cases of how a classifier is opened, which refuses the options of questions."""
    return {
        "precision": Case("mixed_bfloat16", see),
        "bert_config_file": Case(lambda folder: another_activation(folder / "model"), see),
        "vocab_file": Case(lambda folder: other_vocabulary(folder / "model"), see),
        "do_lower_case": Case(False, error, fails=True, model_dir=untold),
        "architecture": Case("BertForQuestionAnswering", error, fails=True, model_dir=untold),
        "task_name": Case("cola", see, model_dir=untold),
        "labels": Case("one", error, fails=True, model_dir=untold),
        "is_pair": Case(True, see, model_dir=untold),
        "version_2_with_negative": Case(True, error, fails=True),
        "null_score_diff_threshold": Case(1.0, error, fails=True),
    }


# Of predict.py, where it is to answer questions.
QUESTIONS = {"model_dir": answerer, "input_file": file_in("table.tsv"), "columns": "text_a,other"}

# The table: script, field, what to change it to and where to look.

# Each is seen where none of the others shows, so that one run of two steps has all of them.
TOGETHER = {
    "save_checkpoints_steps": Case(1, checkpoints),
    "log_every_steps": Case(2, steps_told),
    "report_to": Case("tensorboard", summaries),
    "strategy": Case("mirrored", told("^Devices: .* used by MirroredStrategy")),
    "all_reduce_precision": Case("bfloat16", told("bfloat16.* has no effect on one device")),
    # It changes nothing that is trained.
    "iterations_per_loop": Case(1, iterations_kept),
}

# Of the pre-training and the fine-tuning scripts.
TRAINING = {
    **TOGETHER,
    # The weights are the same bit for bit; layers are called once more to compute them again.
    "gradient_checkpointing": (Case(True, memory_told), Case(True, layer_calls)),
    "check": CHECK_OF_TRAINING,
    "bert_config_file": Case(smaller, weights),
    "init_checkpoint": Case(trained_weights, weights, learning_rate=0.0),
    "output_dir": Case(elsewhere, lambda o: (o.folder / "elsewhere/checkpoint").exists()),
    "do_train": Case(False, error, fails=True),
    "learning_rate": Case(0.02, weights),
    "keep_checkpoint_max": Case(1, checkpoints),
    # The masks of dropout depend on the number of parts.
    "gradient_accumulation_steps": Case(2, weights, bert_config_file=with_dropout),
    "precision": (Case("mixed_bfloat16", weights), Case("auto", told("^Precision: "))),
    "resume_with_changes": Case(False, error, fails=True, has_ended=True, seed=3),
    "use_tpu": Case(True, error, fails=True),
    "tpu_name": Case("local", error, fails=True, use_tpu=True),
    "train_batch_size": Case(2, weights),
}

FINE_TUNING = {
    **TRAINING,
    "seed": seed_cases("run_classifier", data_dir=same_examples, labels="no,yes"),
    "vocab_file": Case(other_vocabulary, TRAIN_RECORDS, **NEW_TASK),
    "do_lower_case": Case(False, TRAIN_RECORDS, **NEW_TASK),
    "max_seq_length": Case(10, TRAIN_RECORDS, **NEW_TASK),
    "do_predict": Case(True, names, has_ended=True),
    "do_export": (
        Case(True, error, fails=True, output_dir=with_their_exports),
        Case(True, names, is_slow=True),
    ),
    "export_format": (
        Case("tflite", error, fails=True, do_export=True, output_dir=with_their_exports),
        Case("tflite", names, is_slow=True, do_export=True),
    ),
    "export_precision": (
        Case("bfloat16", error, fails=True, do_export=True, output_dir=with_their_exports),
        Case("bfloat16", names, is_slow=True, do_export=True),
    ),
    "export_tokenizer": Case(
        "tensorflow_text", content("out/saved_model/saved_model.pb"), is_slow=True, do_export=True
    ),
    # tests/test_runs_exports.py shows what is refused.
    "max_score_loss": Case(
        0.5, content("out/saved_model/parity.json"), is_slow=True, do_export=True, do_eval=True
    ),
    "predict_batch_size": Case(3, work, has_ended=True, do_predict=True),
    "num_train_epochs": Case(1.0, checkpoints),
    "warmup_proportion": Case(0.7, weights, num_train_epochs=1.0),
    "early_stopping_patience": Case(
        1,
        checkpoints,
        do_eval=True,
        num_train_epochs=1.5,
        learning_rate=0.0,
        save_checkpoints_steps=1,
        keep_checkpoint_max=0,
    ),
    "max_train_samples": Case(18, TRAIN_RECORDS),
    "max_eval_samples": Case(3, EVAL_RECORDS, do_eval=True),
    # tests/test_runs_search.py shows what several runs do.
    "num_runs": (Case(2, error, fails=True), Case(2, names, is_slow=True, do_eval=True)),
    "freeze_layers": Case(1, weights),
    "layerwise_lr_decay": Case(0.5, weights),
    "add_bilstm": Case(True, names_of_tensors),
    "pad_to_max_length": Case(True, work, max_seq_length=16, num_train_epochs=1.0),
    "overwrite_output_dir": Case(
        True, told("^No checkpoint"), has_ended=True, resume_with_changes=False
    ),
    "do_eval": Case(True, result, has_ended=True),
    "eval_batch_size": Case(3, work, has_ended=True, do_eval=True),
}

# Of scripts that compute vectors of texts.
OF_TEXTS = {
    **WRITING,
    "vocab_file": Case(other_vocabulary, content("out")),
    "do_lower_case": Case(False, content("out")),
    "bert_config_file": Case(another_activation, content("out")),
    "input_file": Case(file_in("other.txt"), content("out")),
    "init_checkpoint": Case(other_golden, content("out")),
    "batch_size": Case(1, work),
    "input_format": Case("lines", content("out"), input_file=file_in("two.tsv")),
    "text_column": Case("b", content("out"), input_file=file_in("two.tsv")),
    "id_column": Case("b", content("out"), input_file=file_in("two.tsv")),
    "separator": Case("tab", content("out"), input_file=file_in("two.csv")),
}

TABLE: Mapping[str, Mapping[str, Any]] = {
    "split_sentences": {
        **WRITING,
        "input_file": Case(file_in("other.txt"), content("out")),
        "input_format": Case("paragraphs", content("out"), min_sentences=1),
        "document_gap": Case(1, content("out"), min_sentences=1),
        "min_sentences": Case(1, content("out")),
    },
    "create_pretraining_data": {
        **WRITING,
        "input_file": Case(file_in("other.txt"), content("out")),
        "vocab_file": Case(other_vocabulary, content("out")),
        "do_lower_case": Case(False, content("out")),
        "max_seq_length": Case(24, content("out")),
        "max_predictions_per_seq": Case(2, content("out")),
        "do_whole_word_mask": Case(True, content("out")),
        "next_sentence": Case(False, content("out")),
        "random_seed": Case(5, content("out")),
        "dupe_factor": Case(4, lambda o: len(index_of(o).ends)),
        "masked_lm_prob": Case(0.05, content("out")),
        "words": Case("spaces", content("out"), do_whole_word_mask=True),
        "mask_ratios": Case("0,20,80", content("out")),
        "mask_at_training": Case(True, content("out")),
        "short_seq_prob": Case(1.0, content("out")),
        "streaming": Case(True, content("out")),
        "num_shards": Case(1, lambda o: (o.folder / "out-00000-of-00001").exists()),
        "num_workers": Case(2, work),
        "memory_gb": Case(1.0, error, fails=True),
        # With other packages than these, Beam makes the same records: tests/beam.
        "runner": Case("DirectRunner", error, fails=True),
        "beam_options": Case("--direct_num_workers=2", error, fails=True),
    },
    "run_pretraining": {
        **TRAINING,
        "seed": seed_cases("run_pretraining", input_file=file_in("same.tfrecord")),
        "max_seq_length": Case(11, error, fails=True),
        "max_predictions_per_seq": Case(2, error, fails=True),
        "input_file": Case(file_in("other.tfrecord"), weights),
        "eval_input_file": Case(file_in("other.tfrecord"), result, has_ended=True, do_eval=True),
        "shuffle_block": Case(2, weights),
        "do_eval": Case(True, result, has_ended=True),
        "objective": Case("masked_lm", weights),
        "optimizer": Case("muon", weights),
        **teacher_cases(pretrained),
        "eval_batch_size": Case(5, work, has_ended=True, do_eval=True),
        "num_train_steps": Case(2, checkpoints),
        "num_warmup_steps": Case(3, weights),
        # Beside a number of steps, it is refused: tests/test_training_clock.py.
        "time_budget": Case("1h", error, fails=True),
        "warmup_proportion": Case(
            0.0, first_step, time_budget="0.0001s", num_train_steps=100000, num_warmup_steps=10000
        ),
        "max_eval_steps": Case(1, result, has_ended=True, do_eval=True),
        "overwrite_output_dir": Case(
            True, told("^No checkpoint"), has_ended=True, resume_with_changes=False
        ),
    },
    "fill_mask": {
        **WRITING,
        "vocab_file": Case(other_vocabulary, content("out")),
        "do_lower_case": Case(False, content("out")),
        "bert_config_file": Case(another_activation, content("out")),
        "checkpoint": Case(other_golden, content("out")),
        "input_file": Case(file_in("other.txt"), content("out")),
        "format": Case("text", content("out")),
        "top_k": Case(2, content("out")),
        "score": Case(True, error, fails=True),
        "next_sentence": Case(True, error, fails=True),
        "batch_size": Case(1, work),
    },
    "inspect_text": {
        **WRITING,
        "model_dir": Case(file_in("other_model/out"), content("out")),
        "text_b": Case("b", content("out"), model_dir=str(GOLDEN), do_lower_case=True),
        "top_k": Case(2, content("out"), model_dir=str(GOLDEN), do_lower_case=True),
        **opening_cases(content("out")),
        "max_seq_length": Case(5, error, fails=True),
    },
    "create_vocab": {
        **WRITING,
        "input_file": Case(file_in("other.txt"), content("out")),
        "vocab_size": Case(50, content("out")),
        "do_lower_case": Case(False, content("out")),
        "num_unused": Case(3, content("out")),
        "coverage": Case(0.5, content("out")),
        "limit_alphabet": Case(10, content("out")),
        "min_frequency": Case(5, content("out")),
        "num_processes": Case(2, work),
    },
    "create_word_vectors": {
        **WRITING,
        "input_file": Case(file_in("other.txt"), content("out")),
        "init_checkpoint": Case(other_golden, content("out"), **READ_OFF),
        "words": Case("spaces", content("out")),
        "vector_size": Case(7, content("out")),
        "window": Case(1, content("out")),
        "negative": Case(2, content("out")),
        "min_count": Case(2, content("out")),
        "epochs": Case(2, content("out")),
        "do_lower_case": Case(True, content("out")),
        "seed": Case(3, content("out")),
        "num_workers": Case(2, told("threads")),
    },
    "extend_vocab": {
        "check": CHECK,
        "vocab_file": Case(other_vocabulary, content("out/vocab.txt")),
        "do_lower_case": Case(False, content("out/vocab.txt")),
        "bert_config_file": Case(another_activation, content("out/bert_config.json")),
        "init_checkpoint": Case(other_golden, weights),
        "new_words": Case("kilogram,bookkeeper", content("out/vocab.txt")),
        "output_dir": Case(elsewhere, lambda o: (o.folder / "elsewhere").exists()),
        "use_unused": Case(False, content("out/vocab.txt")),
    },
    "run_classifier": {
        **file_cases("train.tsv", "dev"),
        "separator": Case(";", error, fails=True),
        "data_dir": Case(other_data, TRAIN_RECORDS),
        "task_name": Case("cola", error, fails=True),
        "xnli_language": Case("en", error, fails=True, task_name="xnli"),
        "class_weights": Case("balanced", weights),
        "label_smoothing_factor": Case(0.5, weights),
        "truncation": Case("tail", TRAIN_RECORDS),
        "doc_stride": Case(2, TRAIN_RECORDS),
        "window_pooling": Case("max", result, has_ended=True, do_eval=True, doc_stride=2),
        "max_windows": Case(1, TRAIN_RECORDS, doc_stride=2),
        # A dev set of ten examples is too small for it.
        "calibrate": Case(True, error, fails=True, do_eval=True),
        **teacher_cases(teacher, "train.tsv"),
        "metric": Case("matthews", task, **NEW_TASK),
        "task_type": Case("multi_label", task, **NEW_TASK),
        "labels": Case("yes,no", TRAIN_RECORDS, **NEW_TASK),
        "text_a_column": Case("other", TRAIN_RECORDS),
        "text_b_column": Case("other", TRAIN_RECORDS, **NEW_TASK),
        "label_column": Case("kind", TRAIN_RECORDS),
        "id_column": Case("id", content("out/predictions.tsv"), has_ended=True, do_predict=True),
        "on_missing_label": Case("skip", error, fails=True, label_column="gaps"),
        "label_separator": Case(
            ";", task, **NEW_TASK, task_type="multi_label", label_column="tags"
        ),
        "has_header": Case(True, error, fails=True, text_a_column="0", label_column="1"),
    },
    "run_classifier_with_tfhub": {
        "bert_hub_module_handle": Case(file_in("other_module"), TRAIN_RECORDS),
    },
    "run_squad": {
        **teacher_cases(teacher_of_answers, "questions.jsonl"),
        "max_seq_length": Case(14, TRAIN_RECORDS, **NEW_TASK),
        "train_file": Case(other_questions, TRAIN_RECORDS),
        "predict_file": Case(other_questions, EVAL_RECORDS, do_predict=True),
        "doc_stride": Case(3, TRAIN_RECORDS, **NEW_TASK),
        "max_query_length": Case(1, TRAIN_RECORDS, **NEW_TASK),
        "n_best_size": Case(
            2, content("out/nbest_predictions.json"), has_ended=True, do_predict=True
        ),
        "max_answer_length": Case(
            1, content("out/nbest_predictions.json"), has_ended=True, do_predict=True
        ),
        "verbose_logging": Case(
            True,
            told("(?i)length not equal"),
            has_ended=True,
            predict_file=short_questions,
            do_predict=True,
        ),
        "version_2_with_negative": Case(True, content("out/task.json"), **NEW_TASK),
        "null_score_diff_threshold": Case(
            1000.0, content("out/task.json"), **NEW_TASK, version_2_with_negative=True
        ),
        "bucket_predictions": Case(
            True,
            shapes_of_predictions,
            has_ended=True,
            predict_file=unlike_questions,
            do_predict=True,
            predict_batch_size=2,
        ),
    },
    "run_swag": {
        **file_cases("train.jsonl", "val"),
        "max_seq_length": Case(12, TRAIN_RECORDS, **NEW_TASK),
        "data_dir": Case(other_data, TRAIN_RECORDS),
        "separator": Case(";", error, fails=True, train_file=endings_table),
    },
    "run_ner": {
        **file_cases("train.txt", "dev", others=False),
        "max_seq_length": Case(16, TRAIN_RECORDS, **NEW_TASK),
        "do_lower_case": Case(True, TRAIN_RECORDS, **NEW_TASK),
        "eval_batch_size": Case(3, work, has_ended=True, do_eval=True),
        "data_dir": Case(other_sentences_folder, TRAIN_RECORDS),
        "train_file": Case(other_sentences, TRAIN_RECORDS),
        "dev_file": Case(other_sentences, EVAL_RECORDS, do_eval=True),
        "test_file": Case(other_sentences, PREDICT_RECORDS, do_predict=True),
        "text_column": Case(1, TRAIN_RECORDS, train_file=tabbed),
        "label_column": Case(2, TRAIN_RECORDS, train_file=tabbed),
        "separator": Case("comma", error, fails=True, train_file=tabbed),
        "input_scheme": Case("iobes", error, fails=True),
        "output_scheme": Case("iobes", content("out/predictions.txt"), do_predict=True),
        **teacher_cases(tagger, "text.txt"),
        "scheme": Case("iobes", task, **NEW_TASK),
        "crf": Case(True, names_of_tensors),
        "unit": Case("character", TRAIN_RECORDS, train_file=chinese, **NEW_TASK),
        "document_context": Case(True, TRAIN_RECORDS, **NEW_TASK),
        "feature_based": Case(True, weights, bert_config_file=deeper),
        "feature_layers": Case("embeddings", weights, **ON_FEATURES),
        "lstm_size": Case(5, weights, **ON_FEATURES),
        "word_vectors": Case(
            vectors_of_words,
            error,
            fails=True,
            feature_based=True,
            bert_config_file="",
            vocab_file="",
        ),
        "features_dir": Case(elsewhere, names, **ON_FEATURES),
    },
    "predict": {
        **WRITING,
        "on_error": Case("skip", error, fails=True, input_file=half_a_character),
        "model_dir": Case(file_in("other_model/out"), content("out")),
        "input_file": Case(file_in("other.txt"), content("out")),
        "input_format": Case("tsv", content("out")),
        "columns": Case("other", content("out"), input_file=file_in("table.tsv")),
        "separator": Case(";", error, fails=True, input_file=file_in("table.tsv")),
        "min_probability": Case(1.0, content("out")),
        "batch_size": Case(1, work),
        "engine": Case("onnx", told("Converting the model for onnx")),
        "shard": Case("2/2", content("out")),
        # With Beam, the answers are the same: tests/beam.
        "runner": Case("DirectRunner", error, fails=True),
        "beam_options": Case("--direct_num_workers=2", error, fails=True),
        **opening_cases(content("out")),
        "is_pair": Case(True, error, fails=True, model_dir=untold),
        "max_seq_length": Case(5, content("out")),
        "version_2_with_negative": Case(True, content("out"), **QUESTIONS),
        "null_score_diff_threshold": Case(
            -1000.0,
            content("out"),
            **QUESTIONS,
            version_2_with_negative=True,
            null_score_diff_threshold=1000.0,
        ),
    },
    "serve": {
        "check": Case(True, answered(0)),
        "model_dir": Case(file_in("other_model/out"), answered(3)),
        "model_name": Case("mine", answered(2)),
        "host": Case("localhost", answered(0), host="0.0.0.0"),
        "allowed_hosts": Case("ask.example", answered(6)),
        "port": Case(PORT, lambda o: o.result[1] == PORT),
        "top_k": Case(2, answered(3), model_dir=str(GOLDEN), do_lower_case=True),
        "pooling": Case("max", answered(3), model_dir=encoder_alone, do_lower_case=True),
        "rerank_label": Case("none", error, fails=True),
        "max_batch_size": Case(1, work),
        "batch_wait_ms": Case(60_000.0, answered(4), request_timeout=1.0),
        "max_request_bytes": Case(60, answered(3)),
        "max_inputs": Case(4, answered(3)),
        "max_characters": Case(4, answered(3)),
        "max_waiting": Case(4, error, fails=True),
        "max_requests": Case(1, answered(4)),
        "max_connections": Case(1, answered(2)),
        "log_format": Case("json", told("POST /v1/models/")),
        "read_timeout": Case(0.1, answered(5)),
        "request_timeout": Case(0.001, answered(4), batch_wait_ms=10.0),
        "engine": Case("onnx", error, fails=True, precision="bfloat16"),
        **opening_cases(answered(3)),
        "max_seq_length": Case(5, answered(3)),
    },
    "extract_features": {
        **OF_TEXTS,
        "layers": Case("-2", content("out")),
        "pooling": Case("mean", content("out")),
        "format": Case("npz", content("out")),
        "max_seq_length": Case(6, content("out")),
        "normalize": Case(True, content("out"), pooling="mean"),
        "use_tpu": Case(True, told("use_tpu.* has no effect")),
        "shard": Case("2/2", content("out")),
        # With Beam, the features are the same: tests/beam.
        "runner": Case("DirectRunner", error, fails=True),
        "beam_options": Case("--direct_num_workers=2", error, fails=True),
    },
    "join_shards": {
        **WRITING,
        "input_file": Case(file_in("part-2.txt"), content("out")),
        "num_parts": Case(3, error, fails=True),
        "unverified": Case(False, error, fails=True),
    },
    "neighbours": {
        **OF_TEXTS,
        "query": Case("heard", content("out")),
        "word_vectors": Case(vectors_of_words, error, fails=True),
        "word": Case("house", error, fails=True),
        "context": Case("the old House told", error, fails=True),
        "top_k": Case(1, content("out")),
        "layer": Case("0", content("out")),
        "pooling": Case("max", content("out")),
        "center": Case(True, content("out")),
        "max_seq_length": Case(4, content("out")),
        "format": Case("text", content("out")),
    },
    "reproduce_paper": {
        "check": Case(True, lambda o: (o.out / "paper.html").exists()),
        "output_dir": Case(elsewhere, num_planned, plan=True),
        "budget": Case("9999999h", num_planned, plan=True),
        "only": Case("table5", lambda o: (o.out / "figures" / "table6.svg").exists()),
        "plan": Case(True, lambda o: (o.out / "paper.html").exists()),
        "text_dir": Case(file_in("texts"), num_planned, plan=True),
        "glue_dir": Case(file_in("glue"), num_planned, plan=True),
        "conll_dir": Case(file_in("sentences"), num_planned, plan=True),
        "squad_dir": Case(file_in("sentences"), num_planned, plan=True),
        "weights": Case(file_in("model"), num_planned, plan=True),
        "ledger": Case(file_in("out/ledger.json"), num_planned, plan=True, output_dir=elsewhere),
        "seed": Case(7, num_planned, plan=True),
        "precision": Case("mixed_bfloat16", num_planned, plan=True),
        "num_workers": Case(2, told("at once"), plan=True, output_dir=elsewhere),
        "delete_weights": Case(True, told("weights stay"), plan=True, output_dir=elsewhere),
    },
    "convert_checkpoint": {
        "check": CHECK,
        "input": Case(classifier_source, names_of_tensors),
        "output": Case(elsewhere, lambda o: (o.folder / "elsewhere").exists()),
        "format": Case("tf", names),
        "architecture": Case("BertModel", lambda o: len(content("out/model.safetensors")(o))),
        "weights_only": Case(True, names_of_tensors, format="tf"),
        "verify": Case(False, told("(?i)verif|same|differ")),
        "bert_config_file": Case(another_activation, content("out/config.json")),
        "vocab_file": Case(other_vocabulary, content("out/vocab.txt")),
        "do_lower_case": Case(False, content("out/tokenizer_config.json")),
        "without_vocabulary": Case(True, error, fails=True, input=without_vocabulary),
        "is_pair": Case(True, task, **NEW_TASK, input=classifier_source, format="tf"),
        "version_2_with_negative": Case(
            True, content("out/task.json"), input=answerer, format="tf", verify=False
        ),
        "null_score_diff_threshold": Case(
            1.0,
            content("out/task.json"),
            input=answerer,
            format="tf",
            verify=False,
            version_2_with_negative=True,
        ),
    },
}


WORLDS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "split_sentences": text_world,
    "create_pretraining_data": records_world,
    "run_pretraining": pretraining_world,
    "fill_mask": fill_world,
    "inspect_text": inspection_world,
    "create_vocab": vocabulary_world,
    "create_word_vectors": vectors_world,
    "extend_vocab": extension_world,
    "run_classifier": classifier_world,
    "run_classifier_with_tfhub": module_world,
    "run_squad": squad_world,
    "run_swag": swag_world,
    "run_ner": ner_world,
    "predict": prediction_world,
    "serve": serving_world,
    "extract_features": features_world,
    "join_shards": parts_world,
    "neighbours": neighbours_world,
    "convert_checkpoint": conversion_world,
    "reproduce_paper": paper_world,
}


def run_with_module(script: Any, settings: Any, folder: Path) -> Any:
    classifier = tfhub_runs.make_settings(folder)
    return script.run(classifier, settings.bert_hub_module_handle)


# Where a script's `run` takes more or less than its settings.
RUN: Mapping[str, Callable[[Any, Any, Path], Any]] = {
    "fill_mask": lambda script, settings, _: script.run(settings, ()),
    "inspect_text": lambda script, settings, _: script.run(settings, ["Red a b [MASK]"]),
    "serve": ask_server,
    "run_classifier_with_tfhub": run_with_module,
}


# Scripts whose training steps run without a graph, which takes longer to build than all the rest.
_EAGER = ("run_classifier", "run_pretraining", "run_squad")


@contextlib.contextmanager
def watch(
    messages: list[str], work: list[Any], examples: list[str], calls: list[None]
) -> Iterator[None]:
    """Collects what is logged, the sizes of what does the work, its examples, and layers' calls."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    iterate, run_model, start = Batches.iterate, LoadedModel._run, Workers.__init__
    pad, call = tasks_features.pad_sequences, keras.layers.Layer.__call__

    def watched_call(self: keras.layers.Layer, *arguments: Any, **named: Any) -> Any:
        calls.append(None)
        return call(self, *arguments, **named)

    def watched_batches(self: Batches, *arguments: Any) -> Iterator[Any]:
        for batch in iterate(self, *arguments):
            work.append([(name, str(values.shape)) for name, values in batch.items()])
            examples.append(str(batch.get("input_ids")))
            yield batch

    def watched_model(self: LoadedModel, *arguments: Any) -> Iterator[Any]:
        for numbers, outputs in run_model(self, *arguments):
            work.append(len(numbers))
            yield numbers, outputs

    def watched_padding(ids: Any, *arguments: Any) -> Any:
        work.append(len(ids))
        return pad(ids, *arguments)

    def watched_start(self: Workers, num_processes: int, state: Any) -> None:
        work.append(num_processes)
        start(self, num_processes, state)

    collector = Collector()
    logger = logging.getLogger("bert")
    level = logger.level
    logger.addHandler(collector)
    logger.setLevel("INFO")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "iterate", watched_batches)
        patch.setattr(LoadedModel, "_run", watched_model)
        patch.setattr(Workers, "__init__", watched_start)
        patch.setattr(keras.layers.Layer, "__call__", watched_call)
        for module in (tasks_features, pretrained_models):
            patch.setattr(module, "pad_sequences", watched_padding)
        yield
    logger.removeHandler(collector)
    logger.setLevel(level)


def run(name: str, folder: Path, given: Mapping[str, Any], change: Mapping[str, Any]) -> Outcome:
    """Runs a script in a new folder; functions among the values are asked for theirs."""
    script = importlib.import_module(name)
    world = WORLDS[name](folder)
    values = {
        key: value(folder) if callable(value) else value
        for key, value in {**world, **given, **change}.items()
    }
    call = RUN.get(name, lambda script, settings, _: script.run(settings))
    result, error = None, ""
    messages: list[str] = []
    work: list[Any] = []
    examples: list[str] = []
    calls: list[None] = []
    settings = script.Settings(**values)
    is_eager = name in _EAGER and not values.get("do_export")
    with watch(messages, work, examples, calls), eagerly(is_eager):
        try:
            if getattr(settings, "check", False):
                start(settings, script.run, script.check)
            else:
                result = call(script, settings, folder)
        except ValueError as caught:
            error = str(caught)
    return Outcome(
        folder=folder,
        result=result,
        error=error.replace(str(folder), ""),
        messages=[message.replace(str(folder), "") for message in messages],
        work=work,
        examples=examples,
        num_layer_calls=len(calls),
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """A function that returns the outcome of a run, which is made once."""

    found: dict[str, Outcome] = {}

    def find(name, given, change):
        key = repr((name, sorted({**given, **change}.items())))
        if key not in found:
            found[key] = run(name, tmp_path_factory.mktemp(name), given, change)
        return found[key]

    return find


def fields_of(script: str) -> set[str]:
    settings = importlib.import_module(script).Settings
    return {field.name for field in dataclasses.fields(settings)}


def shared_by(script: str) -> Mapping[str, Any]:
    """Returns the table of what a script shares with others, {} where it does not fine-tune."""
    settings = importlib.import_module(script).Settings
    return FINE_TUNING if issubclass(settings, FineTuningSettings) else {}


@pytest.mark.parametrize("script", bert.SCRIPTS)
def test_every_field_has_a_case_and_every_case_a_field(script):
    fields, shared = fields_of(script), shared_by(script)
    assert fields - TABLE[script].keys() - shared.keys() == set(), "They need a line in `TABLE`."
    assert TABLE[script].keys() - fields == set()


def test_what_fine_tuning_scripts_share_is_tried_with_one_of_them():
    shown = TABLE["run_classifier"].keys() | FINE_TUNING.keys()
    assert shown == fields_of("run_classifier")
    assert FINE_TUNING.keys() == {field.name for field in dataclasses.fields(EvaluatedSettings)}


# For these of `TRAINING`, pre-training has code of its own.
_OWN = {"bert_config_file", "init_checkpoint", "learning_rate", "train_batch_size"}
_TEACHER = {*teacher_cases("", "texts")}
# Each of their cases trains or loads a model, which takes some minutes in all.
_MANY = (
    "convert_checkpoint",
    "extract_features",
    "fill_mask",
    "inspect_text",
    "neighbours",
    "predict",
    "reproduce_paper",
    "run_classifier_with_tfhub",
    "run_ner",
    "run_swag",
    "serve",
)


def _marks(script: str, field: str = "", case: Case | None = None) -> Any:
    # Where they share the code, a classifier stands for the others.
    is_shared = script == "run_pretraining" and field in {*TRAINING} - _OWN
    is_shared |= script != "run_classifier" and field in _TEACHER
    left_out = script in _MANY or is_shared or (case is not None and case.is_slow)
    return pytest.mark.exhaustive if left_out else ()


CASES = [
    pytest.param(
        script,
        field,
        case,
        id=f"{script}-{field}-{number}" if number else f"{script}-{field}",
        marks=_marks(script, field, case),
    )
    for script in bert.SCRIPTS
    for field, cases in {
        **(FINE_TUNING if script == "run_classifier" else {}),
        **TABLE[script],
    }.items()
    for number, case in enumerate(cases if isinstance(cases, tuple) else (cases,))
]


@pytest.mark.parametrize(("script", "field", "case"), CASES)
def test_every_field_changes_something_that_can_be_seen(outcomes, script, field, case):
    given = {**(ended(script) if case.has_ended else {}), **case.given}
    change = {field: case.value}
    if field in TOGETHER:
        two_steps = {"num_train_steps": 2}, {"num_train_epochs": 1.0}
        given |= two_steps[script != "run_pretraining"]
        change = {name: each.value for name, each in TOGETHER.items()}
    one = outcomes(script, given, {})
    other = outcomes(script, given, change)
    if case.fails:
        assert one.error or other.error
    else:
        assert one.error + other.error == ""
    changes = case.see(one) != case.see(other)
    assert changes, f"--{field}={case.value} reaches nothing that is seen."


@pytest.mark.parametrize(
    "script", [pytest.param(script, marks=_marks(script)) for script in bert.SCRIPTS]
)
def test_the_same_settings_show_the_same(outcomes, tmp_path, script):
    """Without this, the test above would be passed by what differs from run to run."""
    one, other = outcomes(script, {}, {}), run(script, tmp_path, {}, {})
    cases = [param.values[2] for param in CASES if param.values[0] == script]
    for case in cases:
        if not case.given:
            assert case.see(one) == case.see(other)
