"""The plan of a pre-training run, and the run: it trains and evaluates (paper, section 3.1)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import optimization
from bert.files import fingerprints
from bert.files.display import clock as time_of
from bert.files.display import duration_text
from bert.files.outputs import make_folder
from bert.files.paths import match_files
from bert.log import logger
from bert.options import Option
from bert.parts import FAILED
from bert.pretraining import inputs, outcome
from bert.pretraining.objectives import OBJECTIVES, MaskedBatches
from bert.pretraining.options import GOALS, PretrainingSchedule, RecordFiles, count_predictions
from bert.pretraining.records import RecordDescription
from bert.reports.page import Section
from bert.reports.pretraining import make_sections
from bert.reports.run import make_figures, title_of, write_report
from bert.runs import identity, teachers
from bert.runs.identity import FolderState, Training, find_weights, plan_training
from bert.runs.plans import Opening, Plan, Result, check_steps, list_files
from bert.runs.recipes import PreTraining, PreTrainingSteps
from bert.runs.training import TrainingRun, count_tried_examples, prepare_folder
from bert.tasks.distillation import Teacher, teacher_name
from bert.training import devices, strategies
from bert.training.batches import Batches
from bert.training.clock import TrainingClock
from bert.training.evaluation import evaluate
from bert.training.loop import Objective, Observer
from bert.training.muon import OPTIMIZERS
from bert.training.options import Compute, Output
from bert.training.progress import save_results, save_scores
from bert.training.trackers import Trackers
from bert.training.trainer import Trainer
from bert.weights import model_card
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.model_files import make_files, projector_files
from bert.weights.variables import check_length
from modeling import BertConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreTrainingPlan(Plan):
    """The verified plan of a pre-training run.

    Attributes:
      recipe: The recipe, with the lengths of the records, the schedule and the precision.
      source: The folder of the model to start from.
      config: The shape of the model.
      description: The description of the records.
      init: The weights to start from, if any.
      train_batches: The batches to train on, if any.
      eval_batches: The batches to evaluate on, if any.
      teacher: The model to learn from, if any.
    """

    recipe: PreTraining
    source: ModelFolder
    config: BertConfig
    description: RecordDescription
    init: Stored | None
    train_batches: Batches | None
    eval_batches: Batches | None
    teacher: Teacher | None

    def make_model(self) -> keras.Model:
        """Returns the model with its heads."""
        make = OBJECTIVES[self.recipe.schedule.objective].make_model
        in_step = self.teacher.in_step if self.teacher else None
        gives_layers = bool(in_step and in_step.layers)
        model = make(self.config, self.recipe.compute.precision, gives_layers=gives_layers)
        return in_step.extend(model) if in_step else model

    def objective(self) -> Objective:
        """Returns what training minimizes."""
        name = teacher_name("masked_lm_logits")
        blend = self.teacher.blend(name=name) if self.teacher else None
        loss = OBJECTIVES[self.recipe.schedule.objective].make_loss(blend)
        in_step = self.teacher.in_step if self.teacher else None
        return Objective(*in_step.objective(loss.weights, loss.losses)) if in_step else loss

    def start(self, model: keras.Model) -> TrainingRun:
        """Returns the training run before its first step, with its initial weights."""
        recipe, schedule = self.recipe, self.recipe.schedule
        assert self.training is not None
        clock = TrainingClock(schedule.seconds) if schedule.seconds else None
        rate, kind = schedule.learning_rate, OPTIMIZERS[schedule.optimizer]
        if clock:
            optimizer = clock.optimizer(rate, schedule.warmup_proportion or 0.0, kind)
        else:
            steps, warmup = schedule.num_train_steps or 0, schedule.num_warmup_steps or 0
            optimizer = optimization.bert_optimizer(rate, steps, warmup, kind=kind)
        trainer = Trainer.of(recipe.compute, model, optimizer, self.objective(), seed=recipe.seed)
        trainer.clock = clock
        return TrainingRun(recipe.output, trainer, self.training, "num_train_steps")

    def restore(self) -> int:
        """Returns the step of the weights that a run without training would use."""
        return self.load(self.make_model())

    def load(self, model: keras.Model) -> int:
        """Sets the weights of a model that is not trained; returns their step.

        Raises:
          ValueError: where the weights were not trained for the objective.
        """
        output, init = self.recipe.output, self.init
        weights = find_weights(output, init) or init
        # The plan has found some.
        assert weights is not None
        OBJECTIVES[self.recipe.schedule.objective].check_trained(model, weights)
        return identity.load_weights(output, self.source, model, is_given=init is not None)

    def try_steps(self) -> str:
        """Takes a few steps of training; returns an estimate of the time that training takes."""
        recipe, batches = self.recipe, self.train_batches
        assert self.training is not None and batches is not None
        if self.training.has_ended:
            return "the training there has ended: nothing to train"
        size, length = recipe.schedule.train_batch_size, recipe.data.max_seq_length
        few = OBJECTIVES[recipe.schedule.objective].make_batches(
            batches.records,
            batches.features,
            count_tried_examples(recipe.compute, size, length, self.config),
            recipe.seed,
            masker=batches.masker if isinstance(batches, MaskedBatches) else None,
        )
        return self.start(self.make_model()).time_steps(size, few)


def plan(
    recipe: PreTraining, limit: int | None = None, strategy: tf.distribute.Strategy | None = None
) -> PreTrainingPlan:
    """Returns the plan of a pre-training run; as `bert.runs.plan.plan`."""
    opening = Opening(limit)
    parts, steps, schedule, output = opening.parts, recipe.steps, recipe.schedule, recipe.output
    parts("flags", _check_steps, steps, schedule, recipe.compute, shows=steps.describe())
    opening.open_devices(recipe.compute, recipe.options(), strategy)
    description = parts(
        "made with",
        inputs.find_description,
        recipe.data,
        schedule.objective,
        shows=RecordDescription.summary,
    )
    opening.open_model(recipe.model, None, output.output_dir)
    compute = opening.choose_precision(recipe.compute, [output], steps)
    known = RecordDescription({}, "") if description is FAILED else description
    data = inputs.complete_files(recipe.data, known)
    schedule = inputs.complete_schedule(schedule)
    recipe = dataclasses.replace(recipe, data=data, schedule=schedule, compute=compute)
    name, source = schedule.objective, opening.source
    opening.config = config = parts("objective", OBJECTIVES[name].fit, opening.config, shows=name)
    fits = "can be the model's"
    parts("vocabulary", inputs.check_description, description, source, config, shows=fits)
    init = opening.find_init(recipe.model, output.output_dir, steps)
    parts(
        "lengths",
        # A wrong index beside the records does not say how long they are.
        lambda length, config, _: check_length(length, config),
        data.max_seq_length,
        config,
        description,
        shows=f"up to {data.max_seq_length} tokens",
    )
    teacher, options = None, recipe.teacher
    if steps.do_train and options and options.teacher:
        teacher = parts(
            "teacher",
            teachers.open_pretraining,
            options,
            output.output_dir,
            OBJECTIVES[name],
            config,
            description,
            data.max_seq_length,
            limit is None,
        )
    parts(
        "batch",
        inputs.check_batch_sizes,
        schedule.train_batch_size if steps.do_train else None,
        recipe.evaluation.eval_batch_size if steps.do_eval else None,
        compute,
        opening.num_replicas,
        shows=f"{schedule.train_batch_size} sequences, in {compute.precision}",
    )
    if limit is None:
        # What reads all records comes last.
        parts.check()
    features = FAILED if config is FAILED else inputs.features_of(data, config)
    train_batches = eval_batches = training = None
    if steps.do_train:
        train_batches = parts(
            "records",
            inputs.open_training,
            data,
            schedule,
            features,
            description,
            recipe.seed,
            shows=_describe_records,
        )
    if steps.do_eval:
        eval_batches = parts(
            "held-out records",
            inputs.open_evaluation,
            data,
            name,
            features,
            description,
            recipe.evaluation.eval_batch_size,
            steps.do_train,
            shows=_describe_records,
        )
    opening.add_folder(output, steps)
    parts(
        "model there",
        _check_model_there,
        output,
        steps,
        config,
        description,
        shows="of the same shape, if there is any",
    )
    state = FolderState.of(output.output_dir)
    if steps.do_train:
        training = parts(
            "steps",
            _plan_training,
            output,
            schedule,
            data,
            recipe.shaping_options(),
            init,
            description,
            teacher,
            shows=Training.describe,
        )
        opening.add_needs(
            compute,
            [output],
            FAILED if training is FAILED else [training],
            num_sequences=schedule.train_batch_size,
            length=data.max_seq_length,
            num_predictions=count_predictions(name, data),
            teacher=getattr(teacher, "step_config", None),
        )
    parts.check(later="time" if steps.do_train else "model")
    opening.check_same(
        description.vocabulary or b"", training, output.output_dir, lambda: _digest_records(data)
    )
    return PreTrainingPlan(
        recipe=recipe,
        lines=tuple(parts.lines),
        strategy=opening.strategy,
        limit=limit,
        state=state,
        has_memory=opening.has_memory,
        source=source,
        config=config,
        description=description,
        init=init,
        training=training,
        train_batches=train_batches,
        eval_batches=eval_batches,
        teacher=teacher,
    )


def _check_steps(steps: PreTrainingSteps, schedule: PretrainingSchedule, compute: Compute) -> None:
    """Checks that something is to be done, and for how long."""
    check_steps(steps)
    inputs.check_schedule(schedule, compute.strategy)


def _describe_records(batches: Batches) -> str:
    return f"{len(batches.records):,}, of which the first of each file is as it should be"


def _check_model_there(
    output: Output, steps: PreTrainingSteps, config: BertConfig, description: RecordDescription
) -> None:
    """Checks that a model in the output folder is of the same shape and vocabulary."""
    if not (output.overwrite_output_dir and steps.do_train):
        ModelFolder(output.output_dir).check_same(config)
        inputs.check_vocabulary_there(output.output_dir, description)


def _digest_records(data: RecordFiles) -> dict[str, str]:
    """Returns digests of the records by flag; workers may have them at different paths."""
    patterns = {"input_file": data.input_file, "eval_input_file": data.eval_input_file}
    return {
        f"--{name}": fingerprints.of_files(match_files(pattern, name))
        for name, pattern in patterns.items()
        if pattern
    }


def _plan_training(
    output: Output,
    schedule: PretrainingSchedule,
    data: RecordFiles,
    shaping: Mapping[str, Any],
    init: Stored | None,
    description: RecordDescription,
    teacher: Teacher | None,
) -> Training:
    """Returns the training run, checked against the one in the folder."""
    steps, warmup = schedule.num_train_steps, schedule.num_warmup_steps
    if steps is not None and warmup is not None and warmup >= steps:
        logger.warning(
            "The learning rate never reaches %s: %s are not fewer than %s. About a tenth is usual.",
            Option("learning_rate"),
            Option("num_warmup_steps", warmup),
            Option("num_train_steps", steps),
        )
    if schedule.warmup_proportion == 1.0:
        logger.warning(
            "The learning rate only rises with %s. 0.1 is usual.", Option("warmup_proportion", 1)
        )
    paths = match_files(data.input_file, "input_file")
    described: dict[str, Any] = {
        "input_file": {"files": data.input_file, "sha256": fingerprints.of_files(paths)}
    }
    if masking := inputs.find_masking(data, description):
        described["the masking of the records"] = str(masking)
    described["teacher"] = teacher.weights if teacher else None
    # However it is typed.
    described["time_budget"] = schedule.seconds and duration_text(schedule.seconds)
    described["warmup_proportion"] = schedule.warmup_proportion
    return plan_training(
        output,
        schedule.num_train_steps,
        init,
        identity.of_training(shaping, init, described),
        {"input_file": data.input_file, "teacher": teacher.path if teacher else None},
    )


def run(plan: PreTrainingPlan, observers: Sequence[Observer] = ()) -> Result:
    """Trains and evaluates as planned; as `bert.runs.run.run`."""
    recipe, training, description = plan.recipe, plan.training, plan.description
    schedule, folder = recipe.schedule, recipe.output.output_dir
    changed = recipe.changed_options()
    writes = strategies.is_chief(plan.strategy)
    make_folder(folder)
    for opened in filter(None, (plan.train_batches, plan.eval_batches)):
        opened.records.leave_indexes()
    with plan.locked(folder), Trackers() as trackers, plan.strategy.scope():
        # All workers make the variables together.
        with strategies.together(plan.strategy):
            model = plan.make_model()
        devices.log_set_up(model, recipe.compute, changed)
        if training is not None and not training.has_ended and plan.train_batches is not None:
            # Weights that do not fit are found before anything is deleted.
            with strategies.together(plan.strategy):
                started = plan.start(model)
            started.trackers = trackers
            if writes:
                prepare_folder(
                    recipe.output,
                    trackers,
                    recipe.options(),
                    make_files(plan.config, description.vocabulary),
                )
                options = description.complete_options(plan.source.tokenizer_options)
                _save_model_files(ModelFolder(folder), plan.config, description, options)
            environment = identity.describe(recipe.options(), plan.strategy)
            step = _train(started, schedule, plan.train_batches, environment, observers)
            if writes:
                counts = {"train": len(plan.train_batches.records)}
                model_card.record(folder, changed, recipe.model.init_checkpoint, counts=counts)
        else:
            step = plan.load(model)
        objective, limits, batches = schedule.objective, recipe.evaluation, plan.eval_batches
        results: dict[str, float] = {}
        scores: dict[str, float] = {}
        baselines: dict[str, float] = {}
        sections: list[Section] = []
        if batches is not None:
            results = _evaluate(objective, limits.max_eval_steps, model, batches)
            if writes:
                own = ModelFolder(folder)
                vocab_file = own.find("vocab_file") or plan.source.find("vocab_file")
                save_results(folder, step, results)
                scores = {**results, "perplexity": outcome.perplexity_of(objective, results)}
                save_scores(folder, step, scores)
                guesses = outcome.guess_first_records(objective, limits, vocab_file, model, batches)
                sections = make_sections(*guesses)
                baselines = _explain(
                    schedule, limits.max_eval_steps, results, batches, is_trained=bool(training)
                )
        if writes:
            trackers.log("final", step, scores)
            title = title_of("pre-training", recipe.data.input_file)
            shown = recipe.options() if training else {}
            figures = make_figures(results, GOALS[objective].accuracy, baselines=baselines)
            write_report(folder, title, shown, step, figures, sections, baselines)
            model_card.update(folder)
    return Result(results, step, list_files(folder))


def _train(
    run: TrainingRun,
    schedule: PretrainingSchedule,
    batches: Batches,
    environment: Mapping[str, Any],
    observers: Sequence[Observer],
) -> int:
    """Trains to the end, and logs how many epochs that is; returns the last step."""
    num_records, size, clock = len(batches.records), schedule.train_batch_size, run.trainer.clock
    records = f"{num_records} records in batches of {size}"
    if clock:
        logger.info(
            "Training on %s until %s are spent, from %s on.",
            records,
            duration_text(clock.budget),
            time_of(clock.spent),
        )
    else:
        steps = schedule.num_train_steps or 0
        epochs = steps * size / num_records
        logger.info("Training to step %d, %.1f epochs of %s.", steps, epochs, records)
    run.train(batches, environment, observers)
    run.end()
    step = run.trainer.step
    if clock:
        budget, epochs = schedule.time_budget, step * size / num_records
        logger.info("In %s, it has made %d steps, %.1f epochs.", budget, step, epochs)
    return step


def _evaluate(
    objective: str, max_eval_steps: int, model: keras.Model, batches: Batches
) -> dict[str, float]:
    results = evaluate(model, OBJECTIVES[objective].metrics, batches, max_eval_steps)
    # Departs: the original's `loss` is a mean over batches; this one does not depend on their size.
    results["loss"] = sum(value for name, value in results.items() if name.endswith("_loss"))
    return results


def _explain(
    schedule: PretrainingSchedule,
    max_eval_steps: int,
    results: Mapping[str, float],
    batches: Batches,
    *,
    is_trained: bool,
) -> dict[str, float]:
    """Logs what the scores mean, and warns where a trained model has learned nothing.

    Returns:
      The baselines, by score.
    """
    frequent = outcome.explain(schedule.objective, max_eval_steps, results, batches)
    if is_trained:
        accuracy = results[OBJECTIVES[schedule.objective].accuracy]
        outcome.warn_if_not_learned(schedule, accuracy, *frequent[:2])
    return frequent.baselines(GOALS[schedule.objective])


def _save_model_files(
    folder: ModelFolder,
    config: BertConfig,
    description: RecordDescription,
    options: Mapping[str, Any],
) -> None:
    """Saves the files of the model beside the weights, and those of TensorBoard's projector."""
    casing = description.do_lower_case if description.vocabulary else None
    folder.save(config, description.vocabulary, do_lower_case=casing, options=options)
    if description.vocabulary is not None:
        folder.write(projector_files(description.vocabulary, config.vocab_size))
