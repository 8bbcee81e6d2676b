"""What flags are called here that people know from elsewhere, such as transformers' run_glue."""

import dataclasses
import re
from collections.abc import Collection, Mapping

_FLAG = re.compile(r"--(\w+)")


@dataclasses.dataclass(frozen=True)
class Other:
    """A flag of other projects.

    Attributes:
      ours: What to type here, the first of which the script has the flags; behind `=` stands the
        value that was typed, where none is given.
      remark: What is different, or what is done without a flag.
    """

    ours: tuple[str, ...] = ()
    remark: str = ""


def _same(*ours: str, remark: str = "") -> Other:
    return Other(tuple(f"--{each}" for each in ours), remark)


_TOTAL = "It is the total over all devices."
_CLIPPED = "Gradients are clipped to a global norm of 1, as in the paper; no flag changes that."
_DECAY = "It is 0.01 here, as in the paper; no flag changes that."
_ADAM = "The optimizer is the original's: beta 0.9 and 0.999, epsilon 1e-6; no flag changes that."
_SCHEDULE = "The learning rate rises and then falls to 0 in lines, as in the paper."
_CURVES = "TensorBoard opens on --output_dir; no flag turns that on."
_BY_ITSELF = "The same command goes on with a training by itself."
_DEVICE = "A GPU is used where TensorFlow sees one; CUDA_VISIBLE_DEVICES= hides it."
_LOWER = _same("do_lower_case")
_CASED = _same("nodo_lower_case")
_CHECKPOINT = _same("init_checkpoint=", "model_dir=", "checkpoint=", "input=")
_TRAIN_SIZE = _same("train_batch_size=", "batch_size=", remark=_TOTAL)
_EVAL_SIZE = _same("eval_batch_size=", "predict_batch_size=", "batch_size=", remark=_TOTAL)
_EPOCHS = _same("num_train_epochs=", "num_train_steps", "dupe_factor=")
_RATE = _same("learning_rate=")
_LENGTH = _same("max_seq_length=")
_TRAIN_FILE = _same("train_file=", "data_dir", "input_file=")
_DEV_FILE = _same("dev_file=", "predict_file=", "eval_input_file=", "data_dir")
_TEST_FILE = _same("test_file=", "predict_file=", "data_dir")
_EVALUATION = _same("do_eval", "do_predict")
_EVAL_STEPS = _same("save_checkpoints_steps=", remark="Checkpoints and evaluations come together.")
_EXACT = "On a CPU, the same command gives the same bytes; on a GPU, the order of some sums varies."
_COMPILED = "What gains from XLA is compiled with it by itself; no flag changes that."
_OLD = "Only scripts that train delete what earlier runs have made; else, give another path."
_WINDOWS = (
    "Only run_squad.py and run_classifier.py read a long text in windows that begin so many tokens "
    "apart. Elsewhere, raise --max_seq_length, for most models up to 512; run_ner.py needs no "
    "flag for it."
)
_NONE_FETCHED = "Data sets are files or folders here; none is fetched."
_LABELS = "Labels and their kind are read from the training set."
_ALL = "All examples are used here; give a shorter file for fewer."
_ONE_FOLDER = _same("output_dir=", remark="The folder names the run.")
_NOT_UPLOADED = "Nothing is uploaded; --output_dir is the model."
_CACHED = "Models of the hub are fetched as huggingface_hub is configured, such as by HF_TOKEN."
_SHUFFLED = "--seed alone decides how the examples are shuffled."
_READ_AHEAD = "Batches are read ahead by themselves; no flag changes that."
_BARS = "Progress is a bar on a terminal and a line every 10 seconds elsewhere."
_PYTORCH = "It is an option of PyTorch's."
_MIXED = "--precision=mixed_float16"
_BEST = _same(
    "early_stopping_patience",
    remark="With it, training goes back to the weights of the best evaluation.",
)
_METRIC = _same(
    "metric=",
    "early_stopping_patience",
    remark="best/ has the weights of the best evaluation; with --early_stopping_patience, training "
    "goes back to them.",
)

# The flags of run_glue, run_qa, run_ner, run_swag and run_mlm, as they are or were once.
TRANSFORMERS: Mapping[str, Other] = {
    "model_name_or_path": _CHECKPOINT,
    "config_name": _same("bert_config_file="),
    "tokenizer_name": _same("vocab_file="),
    "model_type": Other(remark="Every model here is a BERT."),
    "cache_dir": Other(remark="Models of the hub are kept where HF_HOME says."),
    "use_fast_tokenizer": Other(remark="There is one tokenizer, and it is fast."),
    "dataset_name": _same("task_name", "data_dir", "input_file", remark=_NONE_FETCHED),
    "train_file": _TRAIN_FILE,
    "validation_file": _DEV_FILE,
    "test_file": _TEST_FILE,
    "max_length": _LENGTH,
    "block_size": _LENGTH,
    "text_column_name": _same("text_a_column=", "text_column="),
    "label_column_name": _same("label_column="),
    "overwrite_cache": Other(
        ("--overwrite_output_dir",),
        "What is kept of the data is made anew by itself where data or flags have changed.",
    ),
    "max_train_samples": Other(remark=_ALL),
    "max_eval_samples": Other(remark=_ALL),
    "max_predict_samples": Other(remark=_ALL),
    "dataset_config_name": Other(remark=_NONE_FETCHED),
    "do_regression": Other(remark=_LABELS),
    "label_names": Other(remark=_LABELS),
    "metric_name": _same("metric="),
    "validation_split_percentage": _same("dev_fraction", remark="It is a fraction, as in 0.05."),
    "preprocessing_num_workers": _same("num_processes="),
    "data_seed": Other(remark=_SHUFFLED),
    "shuffle_seed": Other(remark=_SHUFFLED),
    "mlm_probability": _same("masked_lm_prob="),
    "per_device_train_batch_size": _TRAIN_SIZE,
    "per_gpu_train_batch_size": _TRAIN_SIZE,
    "per_device_eval_batch_size": _EVAL_SIZE,
    "per_gpu_eval_batch_size": _EVAL_SIZE,
    "max_steps": _same("num_train_steps=", "num_train_epochs"),
    "warmup_ratio": _same("warmup_proportion=", "num_warmup_steps"),
    "warmup_steps": _same("num_warmup_steps=", "warmup_proportion"),
    "weight_decay": Other(remark=_DECAY),
    "max_grad_norm": Other(remark=_CLIPPED),
    "adam_epsilon": Other(remark=_ADAM),
    "adam_beta1": Other(remark=_ADAM),
    "adam_beta2": Other(remark=_ADAM),
    "optim": Other(remark=_ADAM),
    "lr_scheduler_type": Other(remark=_SCHEDULE),
    "adafactor": Other(remark=_ADAM),
    "label_smoothing_factor": Other(remark="Only run_classifier.py smooths labels."),
    "dataloader_num_workers": Other(remark=_READ_AHEAD),
    "dataloader_pin_memory": Other(remark=_READ_AHEAD),
    "greater_is_better": Other(remark="The metric says by itself which score is better."),
    "evaluation_strategy": _EVALUATION,
    "eval_strategy": _EVALUATION,
    "evaluate_during_training": _EVALUATION,
    "eval_steps": _EVAL_STEPS,
    "load_best_model_at_end": _BEST,
    "metric_for_best_model": _METRIC,
    "save_steps": _same("save_checkpoints_steps="),
    "save_strategy": _same("save_checkpoints_steps"),
    "save_total_limit": _same("keep_checkpoint_max="),
    "logging_steps": _same("log_every_steps="),
    "logging_dir": Other(remark=_CURVES),
    "resume_from_checkpoint": Other(remark=_BY_ITSELF),
    "run_name": _ONE_FOLDER,
    "logging_strategy": _same("log_every_steps"),
    "log_level": Other(("--verbosity=1",)),
    "disable_tqdm": Other(remark=_BARS),
    **dict.fromkeys(["push_to_hub", "hub_model_id", "hub_token"], Other(remark=_NOT_UPLOADED)),
    **dict.fromkeys(["token", "use_auth_token", "model_revision"], Other(remark=_CACHED)),
    **dict.fromkeys(
        ["torch_compile", "torch_dtype", "ddp_backend", "deepspeed", "fsdp"],
        Other(remark=_PYTORCH),
    ),
    "full_determinism": Other(remark=_EXACT),
    "fp16": Other((_MIXED,)),
    "bf16": Other(("--precision=mixed_bfloat16",)),
    "n_gpu": Other(("--strategy=mirrored",), "It takes all devices of the machine."),
    "local_rank": Other(("--strategy=multi_worker",), "The machines are those in TF_CONFIG."),
    "no_cuda": Other(remark=_DEVICE),
    "use_cpu": Other(remark=_DEVICE),
}
OTHERS: Mapping[str, Other] = {
    **TRANSFORMERS,
    "model_name": _CHECKPOINT,
    "model_path": _CHECKPOINT,
    "checkpoint": _CHECKPOINT,
    "model": _CHECKPOINT,
    "pretrained_model": _CHECKPOINT,
    "bert_model": _CHECKPOINT,
    "config_file": _same("bert_config_file="),
    "config": _same("bert_config_file="),
    "tokenizer": _same("vocab_file="),
    "vocab": _same("vocab_file="),
    "lower_case": _LOWER,
    "do_lowercase": _LOWER,
    "lowercase": _LOWER,
    "uncased": _LOWER,
    "do_uncased": _LOWER,
    "cased": _CASED,
    "do_cased": _CASED,
    "do_basic_tokenize": Other(remark="Text is always cut into words before word pieces."),
    "task": _same("task_name="),
    "data_path": _same("data_dir=", "input_file="),
    "data": _same("data_dir=", "input_file="),
    "train_data_file": _TRAIN_FILE,
    "train_path": _TRAIN_FILE,
    "eval_file": _DEV_FILE,
    "eval_data_file": _DEV_FILE,
    "dev_file": _DEV_FILE,
    "dev_path": _DEV_FILE,
    "test_path": _TEST_FILE,
    "predict_file": _TEST_FILE,
    "max_len": _LENGTH,
    "max_seq_len": _LENGTH,
    "text_column": _same("text_a_column="),
    "sentence1_key": _same("text_a_column="),
    "sentence2_key": _same("text_b_column="),
    "delimiter": _same("separator="),
    "sep": _same("separator="),
    "version_2": _same("version_2_with_negative"),
    "doc_stride": Other(remark=_WINDOWS),
    "pad_to_max_len": _same("pad_to_max_length"),
    "wwm": _same("do_whole_word_mask"),
    "whole_word_mask": _same("do_whole_word_mask"),
    "no_nsp": Other(("--nonext_sentence", "--objective=masked_lm")),
    "batch_size": _TRAIN_SIZE,
    "num_epochs": _EPOCHS,
    "epochs": _EPOCHS,
    "num_train_epochs": _EPOCHS,
    "num_steps": _same("num_train_steps=", "num_train_epochs"),
    "lr": _RATE,
    "num_warmup_steps": Other(("--warmup_proportion=0.1",)),
    "optimizer": Other(remark=_ADAM),
    "gradient_accumulation": _same("gradient_accumulation_steps="),
    "random_seed": _same("seed="),
    "num_seeds": _same("num_runs="),
    "seed": _same("random_seed="),
    "train": _same("do_train"),
    "predict": _same("do_predict"),
    "eval": _EVALUATION,
    "do_test": _same("do_predict"),
    "do_eval": _EVALUATION,
    "eval_every": _EVAL_STEPS,
    "early_stopping": _same("early_stopping_patience="),
    "output": _same("output_dir=", "output_file="),
    "output_path": _same("output_dir=", "output_file="),
    "model_dir": _same("output_dir=", "checkpoint=", "init_checkpoint="),
    "export": _same("do_export"),
    "overwrite_output_dir": Other(("--overwrite",), _OLD),
    "verbose": Other(("--verbosity=1",)),
    "xla": Other(remark=_COMPILED),
    "use_xla": Other(remark=_COMPILED),
    "deterministic": Other(remark=_EXACT),
    "use_fp16": Other((_MIXED,)),
    "amp": Other((_MIXED,)),
    "mixed_precision": Other((_MIXED,)),
    "fp32": Other(("--precision=float32",)),
    "num_gpus": Other(("--strategy=mirrored",), "It takes all devices of the machine."),
    "use_gpu": Other(remark=_DEVICE),
    "device": Other(remark=_DEVICE),
    "gpu": Other(remark=_DEVICE),
}


def answer(name: str, value: str, known: Collection[str]) -> str:
    """Returns what to type in place of a flag of another project, or "" where nobody knows it.

    Args:
      name: Of the flag, without dashes.
      value: That was typed, "" where none was.
      known: The names of the script's flags, with those that switch off.
    """
    theirs = name.lower().replace("-", "_")
    other = OTHERS.get(theirs)
    if other is None:
        return ""
    ours = next((each for each in other.ours if _FLAG.findall(each)[0] in known), "")
    if other.ours and not ours and not other.remark:
        return ""
    if ours.endswith("="):
        ours = f"{ours}{value}" if value else ours.rstrip("=")
    here = f"Here: `{ours}`." if ours else ""
    is_theirs = theirs in TRANSFORMERS
    said = f"`--{name}` is transformers' name." if is_theirs else f"There is no `--{name}`."
    return " ".join(filter(None, (said, here, other.remark)))
