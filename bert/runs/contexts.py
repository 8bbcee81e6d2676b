"""The context of a task: the model of a run, and what the run does with it."""

from typing import Any

import modeling
import tokenization
from bert.export.formats import read_exports
from bert.tasks.task import TaskContext
from bert.weights.folder import ModelFolder


def make_context(
    settings: Any, config: modeling.BertConfig, tokenizer: tokenization.FullTokenizer
) -> TaskContext:
    """Returns the context of the task of a fine-tuning run.

    Args:
      settings: The flat options of a script that fine-tunes.
      config: The shape of the model.
      tokenizer: The tokenizer of the model.
    """
    source = ModelFolder.read_source_task(settings, settings.output_dir, trains=settings.do_train)
    resumes = settings.do_train and not settings.overwrite_output_dir
    return TaskContext(
        config=config,
        tokenizer=tokenizer,
        splits=[split for split, is_wanted in settings.splits().items() if is_wanted],
        stored=source,
        resumed=ModelFolder.read_resumed_task(settings.output_dir, resumes=resumes),
        seed=settings.seed,
        export_formats=(
            [export.format for export in read_exports(settings)] if settings.do_export else []
        ),
    )
