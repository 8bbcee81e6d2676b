r"""Pre-trains BERT on masked-LM and next-sentence prediction, and evaluates it (paper, 3.1).

    python run_pretraining.py --input_file=train.tfrecord --output_dir=pretrained \
      --bert_config_file=bert_config.json --do_train --do_eval --eval_input_file=held_out.tfrecord

Reads the records of create_pretraining_data.py. Run again, it goes on from the last checkpoint in
--output_dir. Old commands of the original's run_pretraining.py work unchanged.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert.command_line import flags as common_flags
from bert.command_line.checks import FAILED, Checks, start
from bert.command_line.console import run_script
from bert.command_line.flags import REQUIRED, flag
from bert.command_line.lines import show_lines
from bert.command_line.names import serve
from bert.command_line.settings import TrainingSettings
from bert.files import fingerprints, manifest
from bert.files.outputs import make_folder
from bert.files.paths import match_files
from bert.files.weight_names import step_of
from bert.tasks.pretraining import making
from bert.tasks.pretraining.making import Making

if TYPE_CHECKING:
    import keras

    import modeling
    from bert.reports.sections import Section
    from bert.training import loop
    from bert.training.batches import Batches, Feature, Records
    from bert.training.plan import Plan
    from bert.weights import checkpoint
    from bert.weights.folder import ModelFolder

KIND = "pre-training"
# Records that the page of a run shows.
LOOKED_AT = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TrainingSettings):
    """The flags of this script, by name."""

    # None until the index beside the records is read.
    max_seq_length: int = flag(
        None,
        "Tokens per sequence of the records; absent, as the index beside them says, or else "
        f"{making.LENGTHS['max_seq_length']}.",
        low=1,
        group="data",
    )
    max_predictions_per_seq: int = flag(
        None,
        "Masked tokens per sequence of the records at most; absent, as the index beside them says, "
        f"or else {making.LENGTHS['max_predictions_per_seq']}.",
        low=1,
        group="data",
    )
    input_file: str = flag(
        REQUIRED, "TFRecord files to train on: a comma-separated list of paths or patterns."
    )
    eval_input_file: str | None = flag(
        None,
        "TFRecord files to evaluate on, best of text that training does not see. Where absent, "
        "--input_file, as the original did.",
    )
    do_eval: bool = flag(False, "Evaluate, after training where both are asked for.", group="steps")
    train_batch_size: int = flag(
        32,
        "Sequences per training step, over all devices.",
        low=1,
        shapes_training=True,
        group="training",
    )
    eval_batch_size: int = flag(
        8, "Sequences per evaluation step, over all devices.", low=1, group="training"
    )
    num_train_steps: int = flag(
        100000,
        "Steps to train in all, those of earlier runs in --output_dir included; the learning "
        "rate falls to 0 there.",
        low=1,
        shapes_training=True,
        group="training",
    )
    num_warmup_steps: int = flag(
        10000,
        "Steps over which the learning rate rises.",
        low=0,
        shapes_training=True,
        group="training",
    )
    max_eval_steps: int = flag(
        100, "Batches to evaluate at most; each record counts once.", low=1, group="training"
    )


def define_flags() -> None:
    """Defines the flags (original: run_pretraining.py)."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, float]:
    """Trains and evaluates as the settings say.

    Returns:
      What `eval_results.txt` holds; empty without evaluation.

    Raises:
      ValueError: before the expensive part, where the settings, the data and the model do not fit.
    """
    from bert.command_line import quiet_import  # noqa: F401
    from bert.tasks.pretraining import heads as pretraining_heads
    from bert.training import loop
    from bert.training.evaluation import evaluate, save_results
    from bert.training.fit import check_length
    from bert.weights.folder import ModelFolder

    show_lines()
    _check_verbs(settings)
    made = _find_making(settings)
    settings = _complete(settings, made)
    folder = ModelFolder.of(settings)
    strategy = loop.strategy_of(settings)
    config = folder.config
    init = _find_init(settings, folder, config)
    _check_making(made, folder, config)
    check_length(settings.max_seq_length, config)
    _check_batch_sizes(settings, strategy.num_replicas_in_sync)
    features = _features(settings, config)
    train_batches = _open_training(settings, features) if settings.do_train else None
    eval_batches = _open_evaluation(settings, features) if settings.do_eval else None
    _check_same(settings, config, made)
    filled = _make_output(settings)
    writes = loop.is_chief(strategy)
    held = settings.do_train and writes
    with manifest.lock(filled.path) if held else contextlib.nullcontext(), strategy.scope():
        model = pretraining_heads.pretraining_model(config, dtype=settings.precision)
        loop.log_set_up(model, strategy, settings)
        if settings.do_train:
            assert train_batches is not None
            keep = functools.partial(_keep, filled, config, made)
            step = _train(settings, keep, model, train_batches, init)
        else:
            step = _restore(settings, model, init)
        if not settings.do_eval:
            if writes:
                _write_pages(settings, step, {}, [])
            return {}
        assert eval_batches is not None
        results = evaluate(model, pretraining_heads.metrics, eval_batches, settings.max_eval_steps)
        sections = _look(settings, folder, model, eval_batches) if writes else []
    # Departs: the original's `loss` is a mean over batches; this one does not depend on their size.
    results["loss"] = results["masked_lm_loss"] + results["next_sentence_loss"]
    if writes:
        save_results(settings.output_dir, step, results)
        _write_pages(settings, step, results, sections)
        frequent = _explain(results, eval_batches, settings.max_eval_steps)
        if settings.do_train:
            _tell_whether_learned(settings, results["masked_lm_accuracy"], *frequent)
    return results


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    from bert.training import checks as training_checks
    from bert.training.fit import check_length
    from bert.weights.checks import check_model

    verbs = training_checks.verbs_text(settings)
    checks("flags", _check_verbs, settings, tells=lambda _: verbs)
    strategy, num_replicas = training_checks.check_devices(checks, settings)
    made = checks("made with", _find_making, settings, tells=Making.tell)
    settings = _complete(settings, Making({}, "") if made is FAILED else made)
    source, config = check_model(checks, settings)
    told = "can be the model's"
    checks("vocabulary", _check_making, made, source, config, tells=lambda _: told)
    init = checks("weights", _find_init, settings, source, config, tells=_describe_init)
    length, size = settings.max_seq_length, settings.train_batch_size
    checks("lengths", check_length, length, config, tells=lambda _: f"up to {length} tokens")
    told = f"{size} sequences, in {settings.precision}"
    checks("batch", _check_batch_sizes, settings, num_replicas, tells=lambda _: told)
    features = FAILED if config is FAILED else _features(settings, config)
    batches = None
    if settings.do_train:
        batches = checks("records", _open_training, settings, features, tells=_describe_records)
    if settings.do_eval:
        checks("held-out records", _open_evaluation, settings, features, tells=_describe_records)
    training_checks.check_folder(checks, settings, _make_output)
    told = "of the same shape, if there is any"
    checks("model there", _check_same, settings, config, made, tells=lambda _: told)
    if not settings.do_train:
        checks("model", _restore_model, settings, config, init, strategy, tells=_describe_step)
        return
    plan = checks("steps", _plan, settings, init, tells=training_checks.describe_plan)
    plans = FAILED if plan is FAILED else [plan]
    if training_checks.check_needs(checks, settings, config, num_replicas, plans):
        checks("time", _try, settings, config, batches, plan, strategy, tells=str)


def _write_pages(
    settings: Settings, step: int, results: dict[str, float], sections: "list[Section]"
) -> None:
    """Writes the report and the model card."""
    from bert.training.report import write_report
    from bert.weights import model_card

    metric = "masked_lm_accuracy" if results else ""
    write_report(settings, KIND, step, results, sections, metric)
    model_card.update(settings.output_dir)


def _describe_init(init: "checkpoint.Stored | None") -> str:
    return "of the shape that the configuration asks for" if init else ""


def _describe_records(batches: "Batches") -> str:
    return f"{len(batches.records):,}, of which the first of each file is as it should be"


def _describe_step(step: int) -> str:
    return f"step {step}"


def _restore_model(
    settings: Settings,
    config: "modeling.BertConfig",
    init: "checkpoint.Stored | None",
    strategy: Any,
) -> int:
    from bert.tasks.pretraining import heads as pretraining_heads

    with strategy.scope():
        model = pretraining_heads.pretraining_model(config, dtype=settings.precision)
        return _restore(settings, model, init)


def _try(
    settings: Settings,
    config: "modeling.BertConfig",
    batches: "Batches",
    plan: "Plan",
    strategy: Any,
) -> str:
    """Begins the training and takes a few steps; returns how long it takes."""
    from bert.tasks.pretraining import heads as pretraining_heads
    from bert.training import checks as training_checks
    from bert.training.batches import Batches

    size = training_checks.rows_to_try(settings, config, strategy.num_replicas_in_sync)
    few = Batches(batches.records, batches.features, size, settings.seed)
    with strategy.scope():
        model = pretraining_heads.pretraining_model(config, dtype=settings.precision)
        return training_checks.time_text(settings, _begin(settings, model, plan), plan, few)


def _check_verbs(settings: Settings) -> None:
    if not settings.do_train and not settings.do_eval:
        raise ValueError("At least one of `--do_train` and `--do_eval` must be given.")


def _find_init(
    settings: Settings, folder: "ModelFolder", config: "modeling.BertConfig"
) -> "checkpoint.Stored | None":
    if not settings.init_checkpoint:
        return None
    folder.stored.check_fit(config)
    return folder.stored


def _check_batch_sizes(settings: Settings, num_replicas: int) -> None:
    for name in ("train_batch_size", "eval_batch_size"):
        if getattr(settings, name) % num_replicas:
            raise ValueError(
                f"`--{name}` must be a multiple of the {num_replicas} devices. Received "
                f"{getattr(settings, name)}."
            )
    if settings.train_batch_size // num_replicas % settings.gradient_accumulation_steps:
        raise ValueError(
            "`--train_batch_size` must be a multiple of `--gradient_accumulation_steps` on each "
            f"device. Received {settings.train_batch_size} and "
            f"{settings.gradient_accumulation_steps}."
        )


def _find_making(settings: Settings) -> Making:
    """Returns how the records were made, those to evaluate on included; checks the lengths."""
    files = match_files(settings.input_file, "input_file")
    if settings.eval_input_file:
        files += match_files(settings.eval_input_file, "eval_input_file")
    made = making.read(files)
    _complete(settings, made)
    return made


def _complete(settings: Settings, made: Making) -> Settings:
    """Returns the settings with the lengths of the records."""
    lengths: dict[str, Any]
    lengths = {name: made.length(name, getattr(settings, name)) for name in making.LENGTHS}
    return dataclasses.replace(settings, **lengths)


def _check_making(made: Making, folder: "ModelFolder", config: "modeling.BertConfig") -> None:
    """Checks that vocabulary and casing of the records can be those of the model."""
    made.check_size(config.vocab_size)
    if made.vocabulary is None:
        logging.info(
            "Nothing beside %s tells the vocabulary of the records, so the model's folder will not "
            "have it: give --vocab_file where the model is used.",
            made.path,
        )
        return
    folder.check_given(made.vocab, making.NOUN, made.path)
    if folder.stored_casing not in (None, made.do_lower_case):
        logging.warning(
            "The records in %r were made with --do_lower_case=%s, but the model in %r is %s.",
            made.path,
            made.do_lower_case,
            folder.path,
            "uncased" if folder.stored_casing else "cased",
        )


def _features(settings: Settings, config: "modeling.BertConfig") -> dict[str, "Feature"]:
    from bert.tasks.pretraining.heads import pretraining_features

    return pretraining_features(
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )


def _open_training(settings: Settings, features: dict[str, "Feature"]) -> "Batches":
    from bert.training.batches import Batches

    files = match_files(settings.input_file, "input_file")
    records = _open_records(files, features)
    return Batches(records, features, settings.train_batch_size, seed=settings.seed)


def _open_evaluation(settings: Settings, features: dict[str, "Feature"]) -> "Batches":
    from bert.training.batches import Batches

    train_files = match_files(settings.input_file, "input_file")
    files = train_files
    if settings.eval_input_file:
        files = match_files(settings.eval_input_file, "eval_input_file")
    batches = Batches(_open_records(files, features), features, settings.eval_batch_size)
    if files == train_files:
        logging.warning(
            "Evaluation reads --input_file, as the original's did; --eval_input_file with text "
            "that was not trained on tells how good the model is."
        )
    return batches


def _check_same(settings: Settings, config: "modeling.BertConfig", made: Making) -> None:
    """Checks that what is in `--output_dir` belongs to a model of this shape and vocabulary."""
    from bert.weights.folder import ModelFolder
    from bert.weights.kept import VOCAB_FILE

    there = ModelFolder(settings.output_dir)
    there.check_kept(config)
    own = VOCAB_FILE in manifest.read_names(settings.output_dir)
    if own and made.vocabulary not in (None, there.vocabulary):
        raise ValueError(
            "`--output_dir` must hold a model of the same vocabulary, if any. That of "
            f"{made.path!r} is not the one in {there.vocab_file!r}. Give another `--output_dir`."
        )


def _make_output(settings: Settings) -> "ModelFolder":
    from bert.weights.folder import ModelFolder

    filled = ModelFolder(settings.output_dir)
    make_folder(settings.output_dir)
    if settings.do_train:
        filled.check_fillable(overwrites=False)
    return filled


def _open_records(files: list[str], features: dict[str, "Feature"]) -> "Records":
    from bert.training.batches import Records

    records = Records(files)
    records.check_first(features)
    return records


def _plan(settings: Settings, init: "checkpoint.Stored | None") -> "Plan":
    from bert.training.plan import make_plan

    if settings.num_warmup_steps >= settings.num_train_steps:
        logging.warning(
            "The learning rate never reaches --learning_rate: --num_warmup_steps=%d are not fewer "
            "than --num_train_steps=%d. About a tenth is usual.",
            settings.num_warmup_steps,
            settings.num_train_steps,
        )
    data = {"--input_file": _describe(settings)}
    return make_plan(settings, settings.num_train_steps, init, data)


def _begin(settings: Settings, model: "keras.Model", plan: "Plan") -> "loop.Run":
    """Returns the training before its first step, its weights read."""
    import optimization
    from bert.tasks.pretraining import heads as pretraining_heads
    from bert.training import loop

    optimizer = optimization.bert_optimizer(
        settings.learning_rate, settings.num_train_steps, settings.num_warmup_steps
    )
    run = loop.Run(
        settings, loop.Trainer.of(settings, model, pretraining_heads.OBJECTIVE, optimizer), plan
    )
    if run.first_step > settings.num_train_steps:
        raise ValueError(
            f"`--num_train_steps` must be at least {run.first_step}, where "
            f"{settings.output_dir!r} is. Received {settings.num_train_steps}; give more steps or "
            "another `--output_dir`."
        )
    return run


def _keep(filled: "ModelFolder", config: "modeling.BertConfig", made: Making) -> None:
    """Stores what goes with the weights, and what TensorBoard's projector needs to show words."""
    from bert.weights.projector import projector_files

    casing = made.do_lower_case if made.vocabulary else None
    filled.keep(config, made.vocabulary, do_lower_case=casing)
    if made.vocabulary is not None:
        filled.write(projector_files(made.vocabulary, config.vocab_size))


def _train(
    settings: Settings,
    keep: Callable[[], None],
    model: "keras.Model",
    batches: "Batches",
    init: "checkpoint.Stored | None",
) -> int:
    from bert.training import loop
    from bert.weights import model_card

    run = _begin(settings, model, _plan(settings, init))
    logging.info(
        "Training to step %d, %.1f epochs of %d records in batches of %d.",
        settings.num_train_steps,
        settings.num_train_steps * settings.train_batch_size / len(batches.records),
        len(batches.records),
        settings.train_batch_size,
    )
    if loop.is_chief(run.trainer.strategy):
        keep()
    run.train(batches)
    run.end()
    if loop.is_chief(run.trainer.strategy):
        model_card.tell(settings, counts={"train": len(batches.records)})
    return settings.num_train_steps


def _describe(settings: Settings) -> dict[str, str]:
    files = match_files(settings.input_file, "input_file")
    return {"files": settings.input_file, "sha256": fingerprints.of_files(files)}


def _restore(settings: Settings, model: "keras.Model", init: "checkpoint.Stored | None") -> int:
    from bert.training import loop
    from bert.weights import checkpoint, provenance

    weights = {variable.path: variable for variable in model.weights}
    checkpoints = checkpoint.Checkpoints(settings.output_dir)
    if latest := checkpoints.latest():
        step = step_of(latest)
        provenance.check_trained(settings.output_dir, step, "output_dir")
    elif init is None:
        raise ValueError(
            "`--output_dir` must hold a trained model, or `--init_checkpoint` name one, unless "
            f"`--do_train` is given. Received {settings.output_dir!r}, which holds none."
        )
    return loop.initialize(model, weights, checkpoints, init)


def _look(
    settings: Settings, source: "ModelFolder", model: "keras.Model", batches: "Batches"
) -> list["Section"]:
    """Returns what the page of the run shows of the first records that were evaluated."""
    from bert.tasks.pretraining.guesses import guess
    from bert.tasks.pretraining.report import make_sections
    from bert.weights.folder import ModelFolder
    from tokenization import load_vocab

    most = min(LOOKED_AT, settings.max_eval_steps * settings.eval_batch_size)
    path = ModelFolder(settings.output_dir).find("vocab_file") or source.find("vocab_file")
    tokens = {number: token for token, number in load_vocab(path).items()} if path else None
    return make_sections(guess(model, batches, most), tokens)


def _explain(results: dict[str, float], batches: "Batches", max_eval_steps: int) -> tuple[int, int]:
    """Logs what the figures mean, beside what guessing would reach.

    Returns:
      How often the most frequent hidden token occurs, and how many hidden tokens there are.
    """
    tokens, pairs = [], []
    for batch in batches.iterate(0, min(max_eval_steps, batches.num_batches)):
        ids, weights = (np.asarray(batch[f"masked_lm_{name}"]) for name in ("ids", "weights"))
        tokens.append(ids[weights > 0])
        pairs.append(np.asarray(batch["next_sentence_labels"])[:, 0])
    token_counts, pair_counts = (np.bincount(np.concatenate(each)) for each in (tokens, pairs))
    if token_counts.any():
        logging.info(
            "In words: of %s hidden tokens, the model's first guess was right for %.1f %%; always "
            "guessing the most frequent token would be right for %.1f %%.",
            f"{token_counts.sum():,}",
            100 * results["masked_lm_accuracy"],
            100 * token_counts.max() / token_counts.sum(),
        )
        logging.info(
            "Its perplexity is %.1f: as unsure as between that many equally likely tokens (1 is "
            "certainty; about 4 was reported for BERT-Base, fully trained, on held-out text).",
            math.exp(min(results["masked_lm_loss"], 700)),
        )
    logging.info(
        "Whether the second segment really followed the first, it told right for %.1f %% of %s "
        "pairs; always giving the more frequent answer would be right for %.1f %%.",
        100 * results["next_sentence_accuracy"],
        f"{pair_counts.sum():,}",
        100 * pair_counts.max() / pair_counts.sum(),
    )
    return int(token_counts.max(initial=0)), int(token_counts.sum())


def _tell_whether_learned(
    settings: Settings, accuracy: float, num_frequent: int, num_tokens: int
) -> None:
    """Warns where a model guesses as if it knew no more than how frequent each token is.

    Training that begins at random stands there for a while: its first guess is always the same few
    tokens. Two standard deviations are chance.
    """
    share = num_frequent / max(num_tokens, 1)
    chance = 2.0 * math.sqrt(share * (1.0 - share) / max(num_tokens, 1))
    if num_tokens and accuracy <= share + chance:
        logging.warning(
            "It has learned no more than how frequent tokens are: %.1f %% of its first guesses are "
            "right, and %.1f %% would be if it always guessed the most frequent one. Go on with "
            "more --num_train_steps (after %d; it takes thousands from random weights), try "
            "another --learning_rate, or start from an --init_checkpoint.",
            100 * accuracy,
            100 * share,
            settings.num_train_steps,
        )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    from bert.command_line.quiet_import import keras

    settings = common_flags.read_settings(Settings)
    keras.utils.set_random_seed(settings.seed)
    start(settings, run, check)


# What people import from the original's run_pretraining.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "modeling": (),
            "optimization": (),
            "bert.original.pretraining": (
                "model_fn_builder",
                "get_masked_lm_output",
                "get_next_sentence_output",
                "gather_indexes",
                "input_fn_builder",
                "decode_record as _decode_record",
            ),
            "bert.tasks.pretraining.heads": ("OBJECTIVE",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
