"""Opens the task of a classifier from its options."""

import dataclasses

from bert.options import MessageError, Option
from bert.tasks.bilstm import find_bilstm
from bert.tasks.classification import glue
from bert.tasks.classification.classifier import Classification, stored_temperature
from bert.tasks.classification.examples import DataSet
from bert.tasks.classification.options import CUSTOM, ClassificationData
from bert.tasks.classification.own_files import CustomDataSet
from bert.tasks.options import Encoder, Lengths
from bert.tasks.split import DevSplit
from bert.tasks.task import TaskContext
from bert.weights.variables import require_segments


def open_classification(
    context: TaskContext, data: ClassificationData, lengths: Lengths, encoder: Encoder
) -> Classification:
    """Returns the task that the options name, checked against the model.

    Raises:
      ValueError: where options, files and model do not fit.
    """
    if data.calibrate and "dev" not in context.splits:
        raise MessageError("%s needs %s.", *map(Option, ("calibrate", "do_eval")))
    dev_split = context.find_split(data)
    data_set = _open_data_set(context, data, dev_split)
    if data_set.task.is_pair:
        require_segments(context.config, "a pair of texts")
    return Classification(
        context.config,
        context.tokenizer,
        lengths.max_seq_length,
        data_set.task,
        data_set,
        data.class_weights,
        data_set.columns,
        dev_split,
        add_bilstm=find_bilstm(context, add_bilstm=encoder.add_bilstm),
        temperature=1.0 if context.is_training else stored_temperature(context.stored),
        calibrates=data.calibrate,
    )


def _open_data_set(
    context: TaskContext, data: ClassificationData, dev_split: DevSplit | None
) -> DataSet:
    name = (data.task_name or (CUSTOM if data.files else "")).lower()
    if name != CUSTOM:
        data.check_known(name)
        assert data.data_dir is not None
        return glue.open_data_set(name, data.data_dir, data.xnli_language)
    labels = None
    if not context.is_training:
        known = context.stored.get("task", {})
        if data.labels is None:
            # The training file of the model may be gone.
            labels = known.get("labels") or None
        if data.metric is None and known.get("task_type") == data.task_type:
            data = dataclasses.replace(data, metric=known.get("metric"))
    return CustomDataSet(data, dev_split, labels)
