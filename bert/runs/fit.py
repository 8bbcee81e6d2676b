"""Whether the settings of a script that trains fit the model and the devices."""

from bert.commands.settings import FineTuningSettings
from bert.training.validation import check_batch_size, check_length, check_precision
from bert.weights.folder import ModelFolder
from modeling import BertConfig


def check_frozen_layers(settings: FineTuningSettings, config: BertConfig) -> None:
    """Checks that there are as many layers as are not to be trained.

    Raises:
      ValueError: where there are not.
    """
    if settings.freeze_layers is not None and settings.freeze_layers > config.num_hidden_layers:
        raise ValueError(
            f"`--freeze_layers` must be at most {config.num_hidden_layers}, the "
            f"`num_hidden_layers` in --bert_config_file. Received {settings.freeze_layers}."
        )


def check_weights(settings: FineTuningSettings, source: ModelFolder, config: BertConfig) -> None:
    """Checks that there are weights of this shape to begin with, or none are needed.

    Raises:
      ValueError: where they are of another shape, or absent and nothing is trained.
    """
    if settings.init_checkpoint:
        source.stored.check_fit(config)
    is_random = not settings.init_checkpoint and not settings.do_train
    if is_random and ModelFolder(settings.output_dir).find_weights() is None:
        raise ValueError(
            "`--output_dir` must hold a trained model, or `--init_checkpoint` name one, unless "
            f"`--do_train` is given. Received {settings.output_dir!r}, which holds none."
        )


def check_settings(settings: FineTuningSettings, source: ModelFolder, num_replicas: int) -> None:
    """Checks what all fine-tuning scripts share, before any data is read.

    Args:
      settings: Those of the script.
      source: The folder of the model to begin with.
      num_replicas: Devices to train on.

    Raises:
      ValueError: naming the flag.
    """
    check_length(settings.max_seq_length, source.config)
    check_weights(settings, source, source.config)
    if settings.do_train:
        parts = settings.gradient_accumulation_steps
        check_batch_size(settings.train_batch_size, parts, num_replicas)
        check_precision(settings.precision, num_replicas)
    check_frozen_layers(settings, source.config)
