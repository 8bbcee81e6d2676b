"""Models that answer inputs of files, as flags name them; a process opens each once."""

import dataclasses
import functools

from bert.files.inputs import Columns, Inputs, read_inputs
from bert.models.exported import Export, ExportedModel, is_export
from bert.models.kinds import Told, read_task
from bert.models.loaded import LoadedModel, find_folder, open_fine_tuned
from bert.scale.settings import AnsweredSettings
from bert.weights.folder import ModelFolder

Model = LoadedModel | ExportedModel


def find_told(settings: AnsweredSettings) -> Told:
    """Returns what the folder may not say."""
    return Told(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(Told)})


def open_folder(settings: AnsweredSettings) -> ModelFolder | Export:
    """Returns the folder of the model, which is known to decide something."""
    if is_export(settings.model_dir):
        settings.check_untold()
        return Export(settings.model_dir)
    folder = find_folder(
        settings.model_dir,
        "model_dir",
        bert_config_file=settings.bert_config_file,
        vocab_file=settings.vocab_file,
        do_lower_case=settings.do_lower_case,
    )
    read_task(folder, find_told(settings))
    return folder


def load(settings: AnsweredSettings, folder: ModelFolder | Export) -> Model:
    """Returns the model of a folder."""
    if isinstance(folder, Export):
        return ExportedModel(folder.path, settings.batch_size, "model_dir")
    return open_fine_tuned(
        folder,
        find_told(settings),
        batch_size=settings.batch_size,
        precision=settings.precision,
    )


@functools.lru_cache(maxsize=1)
def load_once(settings: AnsweredSettings, made_of: str) -> Model:
    """Returns the model, the same one to all who ask in this process.

    Args:
      settings: Those that name it.
      made_of: What tells it from others that were or will be in the same folder.
    """
    del made_of
    return load(settings, open_folder(settings))


def read(settings: AnsweredSettings, model: Model) -> Inputs:
    """Returns the inputs.

    Raises:
      ValueError: where `--columns` or the header of a table do not fit the task.
    """
    columns = Columns(
        fields=model.fields,
        given=settings.columns,
        known=getattr(model.task, "columns", {}),
        derive=getattr(model.task, "derive", None),
    )
    return read_inputs(settings.input_file, settings.input_format, columns, settings.separator)
