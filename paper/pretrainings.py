"""The commands up to a pre-trained model: text, vocabulary, records, and the two phases."""

import dataclasses
import math
from collections.abc import Iterator

from paper.inputs import Part
from paper.jobs import OWN, Job
from paper.recipe import LONG, SHORT, Recipe, Size

# Of --mask_ratios: what the paper does.
MASKS = "80,10,10"
# The peak of the learning rate, and steps until it. At twice as much, or with a shorter warm-up,
# larger models did not learn to look at their context (docs/hour.md).
_RATE = 5e-4
_WARMUP = 400
_PREDICTED = {SHORT: 5, LONG: 20}
# Of the same text, masked anew each time (the original: create_pretraining_data.py).
_MOST_TIMES = 10
# Share of the tokens that is predicted, each over the whole vocabulary.
_MASKED_SHARE = 0.15
# An LSTM's steps wait for each other: so much longer a token takes than its operations say.
_LSTM_SLOWNESS = 4.0
VOCAB, TEXT, HELD_OUT = "vocabulary", "text", "held_out_text"


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """A model to pre-train.

    Attributes:
      name: By which others begin with it.
      size: Its shape.
      objective: As `run_pretraining.py --objective`.
      masks: As `create_pretraining_data.py --mask_ratios`.
      keeps: Whether checkpoints on the way stay, for figure 5.
      repetition: 0, or 1 for the same model with the next seed.
    """

    name: str
    size: Size
    objective: str = "masked_lm_nsp"
    masks: str = MASKS
    keeps: bool = False
    repetition: int = 0

    def repeated(self) -> "Pretraining":
        """Returns the same model with the next seed, without checkpoints on the way."""
        return dataclasses.replace(
            self, name=again(self.name), keeps=False, repetition=self.repetition + 1
        )


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The text of the plan.

    Attributes:
      text: To pre-train on.
      held_out: To measure perplexity on.
      is_split: Whether it has a sentence a line already.
    """

    text: Part
    held_out: Part
    is_split: bool

    @property
    def tokens(self) -> float:
        """How many there are to pre-train on, about."""
        return self.text.tokens["train"]


def prepare(corpus: Corpus, recipe: Recipe) -> Iterator[Job]:
    """Yields what every pre-training needs."""
    gflop = corpus.tokens / 1e5
    for name, part in ((TEXT, corpus.text), (HELD_OUT, corpus.held_out)):
        if not corpus.is_split:
            flags = (f"--input_file=<{part.name}>/*.txt", f"--output_file={OWN}/text.txt")
            yield Job(name, "text", "split_sentences", flags, gflop, "text.txt", has_scores=False)
    learned = (
        f"--input_file={_sentences(corpus)}",
        f"--output_file={OWN}/vocab.txt",
        f"--vocab_size={recipe.vocab_size}",
        "--num_unused=0",
        "--nodo_lower_case",
    )
    yield Job(VOCAB, "text", "create_vocab", learned, gflop, "vocab.txt", has_scores=False)
    yield _records(corpus, recipe, LONG, MASKS, held_out=True)


def _sentences(corpus: Corpus, *, held_out: bool = False) -> str:
    part, job = (corpus.held_out, HELD_OUT) if held_out else (corpus.text, TEXT)
    return f"<{part.name}>/*.txt" if corpus.is_split else f"<{job}>/text.txt"


def _records_name(length: int, masks: str, *, held_out: bool = False) -> str:
    kind = "held_out_records" if held_out else "records"
    return f"{kind}-{masks.replace(',', '-')}-{length}"


def _records(
    corpus: Corpus, recipe: Recipe, length: int, masks: str, *, held_out: bool = False
) -> Job:
    """Returns what makes the records of one phase.

    There are so many that none is seen more than twice, but no more than ten for each place in the
    text.
    """
    steps = recipe.steps[length == LONG]
    times = 1 if held_out else math.ceil(steps * recipe.tokens / max(corpus.tokens, 1) / 2)
    times = max(min(times, _MOST_TIMES), 1)
    flags = (
        f"--input_file={_sentences(corpus, held_out=held_out)}",
        f"--output_file={OWN}/records.tfrecord",
        f"--vocab_file=<{VOCAB}>/vocab.txt",
        "--nodo_lower_case",
        f"--max_seq_length={length}",
        f"--max_predictions_per_seq={_PREDICTED[length]}",
        f"--dupe_factor={times}",
        *([f"--mask_ratios={masks}"] if masks != MASKS else []),
    )
    return Job(
        _records_name(length, masks, held_out=held_out),
        "text",
        "create_pretraining_data",
        flags,
        corpus.tokens * times / 1e5,
        "records.tfrecord",
        has_scores=False,
    )


def pretrain(
    model: Pretraining, corpus: Corpus, recipe: Recipe, precision: str, seed: int
) -> Iterator[Job]:
    """Yields the two phases of a pre-training, with the records of each before it.

    Records are the same for every seed, which draws initial weights and their order.
    """
    seed += model.repetition
    for length, steps in zip((SHORT, LONG), recipe.steps, strict=True):
        yield _records(corpus, recipe, length, model.masks)
        is_last = length == LONG
        every = _every_of(steps, recipe) if model.keeps else steps
        begin = f"--bert_config_file=<data:{model.size.name}>/bert_config.json"
        if is_last:
            begin = f"--init_checkpoint=<{phase_of(model.name)}>"
        held_out = _records_name(LONG, MASKS, held_out=True)
        evaluates: tuple[str, ...] = (
            "--do_eval",
            f"--eval_input_file=<{held_out}>/records.tfrecord",
            "--eval_batch_size=32",
            f"--max_eval_steps={max(recipe.held_out // 32, 1)}",
        )
        flags = (
            f"--input_file=<{_records_name(length, model.masks)}>/records.tfrecord",
            f"--output_dir={OWN}",
            begin,
            *([f"--objective={model.objective}"] if model.objective != "masked_lm_nsp" else []),
            "--do_train",
            f"--train_batch_size={recipe.batch_size(length)}",
            f"--num_train_steps={steps}",
            f"--num_warmup_steps={min(max(steps // 10, _WARMUP), steps // 2)}",
            f"--learning_rate={_RATE:g}",
            f"--precision={precision}",
            f"--seed={seed}",
            f"--save_checkpoints_steps={every}",
            f"--keep_checkpoint_max={0 if model.keeps else 1}",
            *(evaluates if is_last else ()),
        )
        yield Job(
            model.name if is_last else phase_of(model.name),
            "pretraining",
            "run_pretraining",
            flags,
            steps * recipe.tokens * _gflop_of_token(model, recipe),
            f"model.ckpt-{steps}.index",
            has_scores=is_last,
            seed=seed,
        )


def again(name: str) -> str:
    """Returns the name of a model that is pre-trained with the next seed."""
    return f"{name}/again"


def phase_of(name: str) -> str:
    """Returns the name of the first phase of a pre-training."""
    return f"{name}/short"


def _every_of(steps: int, recipe: Recipe) -> int:
    """Returns the steps of a phase between two checkpoints that stay."""
    return max(steps // recipe.points, 1)


def points_of(name: str, recipe: Recipe) -> list[tuple[int, str]]:
    """Returns the steps of both phases at which figure 5 looks, and where the weights then lie."""
    places = []
    before = 0
    for place, steps in zip((phase_of(name), name), recipe.steps, strict=True):
        for number in range(1, recipe.points + 1):
            step = steps if number == recipe.points else number * _every_of(steps, recipe)
            places.append((before + step, f"<{place}>/model.ckpt-{step}"))
        before += steps
    return [*places[:-1], (before, f"<{name}>")]


def _gflop_of_token(model: Pretraining, recipe: Recipe) -> float:
    is_everywhere = model.objective in ("left_to_right", "bilstm_lm")
    share = 1.0 if is_everywhere else _MASKED_SHARE
    width = model.size.hidden
    slowness = _LSTM_SLOWNESS if model.objective == "bilstm_lm" else 1.0
    weights = slowness * model.size.parameters + share * recipe.vocab_size * width
    return 6e-9 * weights
