"""Answers with LiteRT or ONNX Runtime, as the model does that was exported for it."""

from collections.abc import Mapping

import numpy as np

from bert.export.portable import Runtime, open_runtime
from bert.models.answering import AnsweringModel
from bert.models.fine_tuned import open_stored_task
from bert.options import Option
from bert.tasks.task import Arrays, Task
from bert.weights.folder import ModelFolder


class PortableModel(AnsweringModel):
    """A fine-tuned model that another runtime computes; texts are read as in training.

    Args:
      task: The task of the model.
      runtime: What computes its outputs.
      batch_size: Maximum sequences that go through the model together; a single one where the
        runtime mixes rows, so that answers do not depend on the batch.
    """

    def __init__(self, task: Task, runtime: Runtime, batch_size: int = 32) -> None:
        super().__init__(task, runtime.ranks, batch_size)
        self._runtime = runtime
        if runtime.mixes_rows:
            self._max_rows = 1

    @classmethod
    def open(cls, folder: ModelFolder, form: str, batch_size: int = 32) -> "PortableModel":
        """Returns the model of an export's folder.

        Args:
          folder: The folder, with `task.json`, configuration and vocabulary.
          form: The format, one of `bert.export.portable.FILES`.
          batch_size: As for the class.

        Raises:
          ValueError: where files are missing or damaged, or the runtime is not installed.
        """
        task = open_stored_task(folder, folder.task)
        what = Option(folder.option, folder.path)
        return cls(task, open_runtime(folder.path, form, what), batch_size)

    def _compute(self, batch: Arrays) -> Mapping[str, np.ndarray]:
        return self._runtime(batch)
