"""Opens the task of a recipe, with its teacher."""

from collections.abc import Sequence
from typing import Any

import tokenization
from bert.export.formats import read_exports
from bert.runs.recipes import FineTuning
from bert.tasks.classification.options import ClassificationData
from bert.tasks.squad.options import SquadData
from bert.tasks.swag.options import SwagData
from bert.tasks.task import Task, TaskContext
from bert.weights import tokenizers
from bert.weights.folder import ModelFolder
from bert.weights.model_files import TOKENIZER
from modeling import BertConfig


def open_task(
    recipe: FineTuning,
    config: BertConfig,
    tokenizer: tokenization.FullTokenizer,
    scored: Sequence[str] = (),
    fetches: bool = True,
    files: None = None,
) -> Task:
    """Returns the task of a recipe, checked against the model.

    Args:
      recipe: The recipe.
      config: The shape of the model.
      tokenizer: The tokenizer of the model.
      scored: The options in use that need scores.
      fetches: Whether a teacher of the hub that is not in the local cache is fetched.
      files: What must be right before.
    """
    del files
    context = _make_context(recipe, config, tokenizer)
    task = _open(recipe, context, scored)
    if not recipe.steps.do_train or recipe.teacher is None or not recipe.teacher.teacher:
        return task
    from bert.runs.teachers import teach  # noqa: PLC0415 (few runs open another model)

    batch_size = recipe.evaluation.predict_batch_size
    folder = recipe.output.output_dir
    return teach(task, recipe.teacher, folder, batch_size, fetches=fetches)


def _open(recipe: FineTuning, context: TaskContext, scored: Sequence[str]) -> Any:
    lengths, encoder, data = recipe.lengths, recipe.encoder, recipe.data
    # A run loads the task of its own kind alone.
    if isinstance(data, ClassificationData):
        from bert.tasks.classification.open import open_classification  # noqa: PLC0415

        return open_classification(context, data, lengths, encoder)
    if isinstance(data, SwagData):
        from bert.tasks.swag.open import open_swag  # noqa: PLC0415

        return open_swag(context, data, lengths, encoder)
    if isinstance(data, SquadData):
        from bert.tasks.squad.question_answering import QuestionAnswering  # noqa: PLC0415

        assert recipe.decoding
        patience = ["early_stopping_patience"] * (recipe.evaluation.early_stopping_patience > 0)
        scored = [*patience, *scored]
        return QuestionAnswering.open(context, data, recipe.decoding, lengths, encoder, scored)
    from bert.tasks.tagging.open import open_tagging  # noqa: PLC0415

    assert recipe.tags and recipe.features
    return open_tagging(
        context, data, recipe.tags, recipe.features, lengths, encoder, recipe.schedule
    )


def _make_context(
    recipe: FineTuning, config: BertConfig, tokenizer: tokenization.FullTokenizer
) -> TaskContext:
    trains = recipe.steps.do_train
    output_dir, overwrites = recipe.output.output_dir, recipe.output.overwrite_output_dir
    return TaskContext(
        config=config,
        tokenizer=tokenizer,
        splits=[split for split, is_wanted in recipe.steps.splits.items() if is_wanted],
        stored=ModelFolder.read_source_task(recipe.model, output_dir, trains=trains),
        resumed=ModelFolder.read_resumed_task(output_dir, resumes=trains and not overwrites),
        seed=recipe.seed,
        export_formats=(
            [export.format for export in read_exports(recipe.export)]
            if recipe.steps.do_export
            else []
        ),
    )


def fixed_options(task: Task, *, is_training: bool) -> dict[str, Any]:
    """Returns what of `task.json` may not change from one run in a folder to the next."""
    stored = stored_task(task)
    return {key: stored[key] for key in (*task.fixed(is_training=is_training), TOKENIZER)}


def stored_task(task: Task) -> dict[str, Any]:
    """Returns what `task.json` holds."""
    return {**task.stored(), TOKENIZER: tokenizers.options_of(task.tokenizer)}
