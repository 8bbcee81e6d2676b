"""The commands that begin with a pre-trained model, and score what it is worth."""

import dataclasses
import re
from collections.abc import Sequence

from paper.inputs import Part
from paper.jobs import OWN, Job
from paper.recipe import Recipe, Size

# Of the BiLSTM on a frozen model (docs/results.md), and of that on a trained one.
_LSTM_SIZE = 256
# So many times as long a BiLSTM learns on a frozen model: it begins with random weights, and the
# vectors that it reads are computed once.
FROZEN_EPOCHS = 4
_RATE = "--learning_rate="
# Examples of a step, where there are enough for several steps.
_BATCH = 32


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set, how a model is fine-tuned for it, and its score.

    Attributes:
      title: As a column has it.
      part: Its data.
      script: That fine-tunes.
      flags: Of its own.
      score: By which name the script's scores hold it.
      scale: What it is multiplied by to be of a hundred.
    """

    title: str
    part: Part
    script: str
    flags: tuple[str, ...]
    score: str
    scale: float = 100.0

    @property
    def name(self) -> str:
        """The part's, without what all of them begin with."""
        return self.part.name.removeprefix("data:")


# Of GLUE, the score that the paper's table 1 has (section 4.1).
_METRICS = {"CoLA": "matthews", "MRPC": "f1", "STS-B": "spearman"}


def glue_task(part: Part, score: str | None = None) -> Task:
    """Returns a task of GLUE, or the sample's; without a score, that of the paper's table 1."""
    name = part.name.removeprefix("data:")
    known = name != "remarks"
    flags = (
        f"--task_name={name if known else 'custom'}",
        f"--data_dir=<{part.name}>",
        "--do_eval",
        "--max_seq_length=128",
        "--learning_rate=1e-4",
    )
    score = score or _METRICS.get(name, "accuracy")
    return Task(name if known else "Remarks", part, "run_classifier", flags, score)


def squad_task(part: Part) -> Task:
    """Returns the questions of SQuAD, whose scores are of a hundred as they are."""
    flags = (
        f"--train_file=<{part.name}>/train.json",
        f"--predict_file=<{part.name}>/dev.json",
        "--do_predict",
        "--max_seq_length=128",
        "--doc_stride=64",
        "--learning_rate=3e-4",
        "--bucket_predictions",
    )
    return Task("SQuAD", part, "run_squad", flags, "f1", 1.0)


def conll_task(part: Part, *, on_test: bool = False) -> Task:
    """Returns the names of CoNLL-2003."""
    flags = (
        f"--data_dir=<{part.name}>",
        "--do_eval",
        "--do_predict",
        "--max_seq_length=128",
    )
    return Task("CoNLL", part, "run_ner", flags, "test_f1" if on_test else "f1")


@dataclasses.dataclass(frozen=True)
class Model:
    """What a task begins with.

    Attributes:
      name: For the names of its jobs.
      source: The weights, as a flag has them, such as `<base>`.
      size: Its shape.
      flags: That make a task use it otherwise, such as `--add_bilstm`.
      rate: The learning rate that it is fine-tuned at, or several with commas, of which the best
        on the dev set counts; "" for that of the task.
    """

    name: str
    source: str
    size: Size
    flags: tuple[str, ...] = ()
    rate: str = ""


def features(model: Model, layers: str) -> Model:
    """Returns the model frozen, with a BiLSTM on such of its layers."""
    flags = ("--feature_based", f"--feature_layers={layers}", f"--lstm_size={_LSTM_SIZE}")
    return dataclasses.replace(model, name=f"{model.name}/features-{layers}", flags=flags)


def fine_tune(
    task: Task, model: Model, recipe: Recipe, precision: str, seeds: Sequence[int]
) -> list[Job]:
    """Returns a fine-tuning for each seed."""
    return [_fine_tuning(task, model, recipe, precision, seed) for seed in seeds]


def _fine_tuning(task: Task, model: Model, recipe: Recipe, precision: str, seed: int) -> Job:
    kind = re.sub("^run_", "", task.script)
    is_frozen = "--feature_based" in model.flags
    if is_frozen:
        kind = "features"
    elif model.flags:
        kind = f"{kind}_bilstm"
    tokens = task.part.tokens
    epochs = recipe.epochs * (FROZEN_EPOCHS if is_frozen else 1)
    trained = 0.0 if is_frozen else epochs * tokens["train"]
    seen = sum(tokens.values()) - (0 if is_frozen else tokens["train"])
    weights = model.size.parameters
    gflop = 1e-9 * weights * (6 * trained + 2 * seen)
    if any("lstm" in flag for flag in model.flags):
        gflop += 6e-9 * epochs * tokens["train"] * 24 * _LSTM_SIZE**2
    gflop *= len(model.rate.split(","))
    own = [flag for flag in task.flags if not (model.rate and flag.startswith(_RATE))]
    rate = "1e-3" if is_frozen else model.rate or ("3e-4" if task.script == "run_ner" else "")
    flags = (
        *own,
        *((f"{_RATE}{rate}",) if rate else ()),
        *((f"--init_checkpoint={model.source}",) if model.source else ()),
        *model.flags,
        f"--output_dir={OWN}",
        "--do_train",
        f"--train_batch_size={min(_BATCH, max(task.part.examples['train'] // 4, 1))}",
        f"--num_train_epochs={epochs:g}",
        f"--precision={precision}",
        f"--seed={seed}",
        # At its end alone.
        "--save_checkpoints_steps=1000000",
        "--keep_checkpoint_max=1",
        "--eval_batch_size=32" if task.script != "run_squad" else "--predict_batch_size=32",
    )
    name = f"{model.name}/{task.name}/{seed}"
    return Job(name, kind, task.script, flags, gflop, "eval_results.json", seed=seed)
