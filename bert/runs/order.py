"""The order of options in `run.json`, in the model card and in the command of a run."""

from collections.abc import Mapping
from typing import Any

# Options that are not listed follow.
_FIRST = (
    *("check", "bert_config_file", "init_checkpoint", "output_dir", "do_train", "learning_rate"),
    *("save_checkpoints_steps", "keep_checkpoint_max", "log_every_steps"),
    *("gradient_accumulation_steps", "gradient_checkpointing", "seed", "resume_with_changes"),
    *("precision", "strategy", "all_reduce_precision", "iterations_per_loop", "use_tpu"),
    "tpu_name",
)
_ORDERS = {
    "pre-training": (
        *_FIRST,
        *("max_seq_length", "max_predictions_per_seq", "input_file", "eval_input_file"),
        *("shuffle_block", "do_eval", "objective", "train_batch_size", "eval_batch_size"),
        *("num_train_steps", "num_warmup_steps", "time_budget", "warmup_proportion"),
        *("max_eval_steps", "overwrite_output_dir"),
    ),
    "fine-tuning": (
        *_FIRST,
        *("vocab_file", "do_lower_case", "max_seq_length", "do_predict", "do_export"),
        *("export_format", "export_precision", "max_score_loss", "train_batch_size"),
        *("predict_batch_size", "num_train_epochs", "warmup_proportion"),
        *("max_train_samples", "max_eval_samples"),
        *("early_stopping_patience", "num_runs", "freeze_layers", "layerwise_lr_decay"),
        *("add_bilstm", "pad_to_max_length", "overwrite_output_dir", "do_eval"),
        *("eval_batch_size", "data_dir", "train_file", "dev_file", "test_file", "dev_fraction"),
        *("split_seed", "teacher", "unlabeled_file", "teacher_weight"),
        *("distillation_temperature", "distill_layers", "distill_layers_weight"),
    ),
}


def in_order(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options in their order in files."""
    order = _ORDERS["pre-training" if "objective" in options else "fine-tuning"]
    return {name: options[name] for name in dict.fromkeys([*order, *options]) if name in options}
