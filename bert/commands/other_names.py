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
      holds_alone: Whether the remark also holds for scripts without those flags.
    """

    ours: tuple[str, ...] = ()
    remark: str = ""
    holds_alone: bool = False


def _same(*ours: str, remark: str = "", holds_alone: bool = False) -> Other:
    return Other(tuple(f"--{each}" for each in ours), remark, holds_alone)


def _named(*groups: tuple[Other, str]) -> dict[str, Other]:
    """Returns what to say of each flag; those of a group have spaces between them."""
    return {name: other for other, names in groups for name in names.split()}


_TOTAL = "It is the total over all devices."
_CLIPPED = "Gradients are clipped to a global norm of 1, as in the paper; no flag changes that."
_DECAY = "It is 0.01 here, as in the paper; no flag changes that."
_ADAM = "Adam is the original's: beta 0.9 and 0.999, epsilon 1e-6; no flag changes that."
_SCHEDULE = "The learning rate rises and then falls to 0 in lines, as in the paper."
_CURVES = "TensorBoard opens on --output_dir; no flag turns that on."
_BY_ITSELF = "The same command goes on with a training by itself."
_DEVICE = "A GPU is used where TensorFlow sees one; CUDA_VISIBLE_DEVICES= hides it."
_CHECKPOINT = _same("init_checkpoint=", "model_dir=", "checkpoint=", "input=")
_TRAIN_SIZE = _same("train_batch_size=", "batch_size=", remark=_TOTAL)
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
_LABELS = "Labels are read from the training set."
_ALL = "All examples are used here; give a shorter file for fewer."
_PREDICTED = (
    "Only run_squad.py predicts fewer examples than there are, with --max_eval_samples; elsewhere, "
    "give a shorter file."
)
_NOT_UPLOADED = "Nothing is uploaded; --output_dir is the model."
_REVISION = "It stands behind the name of a model of the hub, as in owner/model@main."
_CACHED = "Models of the hub are fetched as huggingface_hub is configured, such as by HF_TOKEN."
_SHUFFLED = "--seed alone decides how the examples are shuffled."
_READ_AHEAD = "Batches are read ahead by themselves; no flag changes that."
_BARS = "Progress is a bar on a terminal and a line every 10 seconds elsewhere."
_PYTORCH = "It is an option of PyTorch's."
_MIXED = "--precision=mixed_float16"

# The flags of run_glue, run_qa, run_ner, run_swag and run_mlm, as they are or were once.
TRANSFORMERS: Mapping[str, Other] = _named(
    (_CHECKPOINT, "model_name_or_path"),
    (_same("bert_config_file="), "config_name"),
    (_same("vocab_file="), "tokenizer_name"),
    (Other(remark="Every model here is a BERT."), "model_type"),
    (Other(remark="Models of the hub are kept where HF_HOME says."), "cache_dir"),
    (Other(remark="There is one tokenizer, and it is fast."), "use_fast_tokenizer"),
    (
        _same("task_name", "data_dir", "input_file", remark=_NONE_FETCHED, holds_alone=True),
        "dataset_name",
    ),
    (_TRAIN_FILE, "train_file"),
    (_DEV_FILE, "validation_file"),
    (_TEST_FILE, "test_file"),
    (_LENGTH, "max_length block_size"),
    (_same("text_a_column=", "text_column="), "text_column_name"),
    (_same("label_column="), "label_column_name"),
    (
        Other(
            ("--overwrite_output_dir",),
            "What is kept of the data is made anew by itself where data or flags have changed.",
        ),
        "overwrite_cache",
    ),
    (Other(remark=_ALL), "max_train_samples"),
    (_same("max_eval_steps"), "max_eval_samples"),
    (Other(remark=_PREDICTED), "max_predict_samples"),
    (Other(remark=_NONE_FETCHED), "dataset_config_name"),
    (Other(("--task_type=regression",)), "do_regression"),
    (Other(remark=_LABELS), "label_names"),
    (_same("metric="), "metric_name"),
    (_same("dev_fraction", remark="It is a fraction, as in 0.05."), "validation_split_percentage"),
    (_same("num_workers=", "num_processes="), "preprocessing_num_workers"),
    (Other(remark=_SHUFFLED), "data_seed shuffle_seed"),
    (_same("masked_lm_prob="), "mlm_probability"),
    (_TRAIN_SIZE, "per_device_train_batch_size per_gpu_train_batch_size"),
    (
        _same("eval_batch_size=", "predict_batch_size=", "batch_size=", remark=_TOTAL),
        "per_device_eval_batch_size per_gpu_eval_batch_size",
    ),
    (_same("num_train_steps=", "num_train_epochs"), "max_steps"),
    (_same("warmup_proportion=", "num_warmup_steps"), "warmup_ratio"),
    (_same("num_warmup_steps=", "warmup_proportion"), "warmup_steps"),
    (Other(remark=_DECAY), "weight_decay"),
    (Other(remark=_CLIPPED), "max_grad_norm"),
    (Other(remark=_ADAM), "adam_epsilon adam_beta1 adam_beta2"),
    (_same("optimizer", remark=_ADAM, holds_alone=True), "optim adafactor"),
    (Other(remark=_SCHEDULE), "lr_scheduler_type"),
    (Other(remark="Only run_classifier.py smooths labels."), "label_smoothing_factor"),
    (Other(remark=_READ_AHEAD), "dataloader_num_workers dataloader_pin_memory"),
    (Other(remark="The metric says by itself which score is better."), "greater_is_better"),
    (_EVALUATION, "evaluation_strategy eval_strategy evaluate_during_training"),
    (_EVAL_STEPS, "eval_steps"),
    (
        _same(
            "early_stopping_patience",
            remark="With it, training goes back to the weights of the best evaluation.",
        ),
        "load_best_model_at_end",
    ),
    (
        _same(
            "metric=",
            "early_stopping_patience",
            remark="best/ has the weights of the best evaluation; with "
            "--early_stopping_patience, training goes back to them.",
        ),
        "metric_for_best_model",
    ),
    (_same("save_checkpoints_steps="), "save_steps"),
    (_same("save_checkpoints_steps"), "save_strategy"),
    (_same("keep_checkpoint_max="), "save_total_limit"),
    (_same("log_every_steps="), "logging_steps"),
    (Other(remark=_CURVES), "logging_dir"),
    (Other(remark=_BY_ITSELF), "resume_from_checkpoint"),
    (_same("output_dir=", remark="The folder names the run."), "run_name"),
    (_same("log_every_steps"), "logging_strategy"),
    (Other(("--verbosity=1",)), "log_level"),
    (Other(remark=_BARS), "disable_tqdm"),
    (Other(remark=_NOT_UPLOADED), "push_to_hub hub_model_id hub_token"),
    (Other(remark=_CACHED), "token use_auth_token"),
    (Other(remark=_REVISION), "model_revision"),
    (Other(remark=_PYTORCH), "torch_compile torch_dtype ddp_backend deepspeed fsdp"),
    (Other(remark=_EXACT), "full_determinism"),
    (Other((_MIXED,)), "fp16"),
    (Other(("--precision=mixed_bfloat16",)), "bf16"),
    (Other(("--strategy=mirrored",), "It takes all devices of the machine."), "n_gpu"),
    (Other(("--strategy=multi_worker",), "The machines are those in TF_CONFIG."), "local_rank"),
    (Other(remark=_DEVICE), "no_cuda use_cpu"),
)
OTHERS: Mapping[str, Other] = {
    **TRANSFORMERS,
    **_named(
        (_CHECKPOINT, "model_name model_path checkpoint model pretrained_model bert_model"),
        (_CHECKPOINT, "init_checkpoint"),
        (_same("bert_config_file="), "config_file config"),
        (_same("vocab_file="), "tokenizer vocab"),
        (_same("do_lower_case"), "lower_case do_lowercase lowercase uncased do_uncased"),
        (_same("nodo_lower_case"), "cased do_cased"),
        (Other(remark="Text is always cut into words before word pieces."), "do_basic_tokenize"),
        (_same("task_name="), "task"),
        (_same("data_dir=", "input_file="), "data_path data"),
        (_TRAIN_FILE, "train_data_file train_path"),
        (_DEV_FILE, "eval_file eval_data_file dev_file dev_path"),
        (_TEST_FILE, "test_path predict_file"),
        (_LENGTH, "max_len max_seq_len"),
        (_same("text_a_column="), "text_column sentence1_key"),
        (_same("text_b_column="), "sentence2_key"),
        (_same("separator="), "delimiter sep"),
        (_same("version_2_with_negative"), "version_2"),
        (Other(remark=_WINDOWS), "doc_stride"),
        (_same("pad_to_max_length"), "pad_to_max_len"),
        (_same("do_whole_word_mask"), "wwm whole_word_mask"),
        (Other(("--nonext_sentence", "--objective=masked_lm")), "no_nsp"),
        (_TRAIN_SIZE, "batch_size"),
        (
            _same("num_train_epochs=", "num_train_steps", "dupe_factor="),
            "num_epochs epochs num_train_epochs",
        ),
        (_same("num_train_steps=", "num_train_epochs"), "num_steps"),
        (_same("learning_rate="), "lr"),
        (Other(("--warmup_proportion=0.1",)), "num_warmup_steps"),
        (Other(remark=_ADAM), "optimizer"),
        (_same("gradient_accumulation_steps="), "gradient_accumulation"),
        (_same("seed="), "random_seed"),
        (_same("num_runs="), "num_seeds"),
        (_same("random_seed="), "seed"),
        (_same("do_train"), "train"),
        (_same("do_predict"), "predict do_test"),
        (_EVALUATION, "eval do_eval"),
        (_EVAL_STEPS, "eval_every"),
        (_same("early_stopping_patience="), "early_stopping"),
        (_same("output_dir=", "output_file="), "output output_path"),
        (_same("output_dir=", "checkpoint=", "init_checkpoint="), "model_dir"),
        (_same("do_export"), "export"),
        (Other(("--overwrite",), _OLD, holds_alone=True), "overwrite_output_dir"),
        (Other(("--verbosity=1",)), "verbose"),
        (Other(remark=_COMPILED), "xla use_xla"),
        (Other(remark=_EXACT), "deterministic"),
        (Other((_MIXED,)), "use_fp16 amp mixed_precision"),
        (Other(("--precision=float32",)), "fp32"),
        (Other(("--strategy=mirrored",), "It takes all devices of the machine."), "num_gpus"),
        (Other(remark=_DEVICE), "use_gpu device gpu"),
    ),
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
    if other.ours and not ours and not other.holds_alone:
        return ""
    if ours.endswith("="):
        ours = f"{ours}{value}" if value else ours.rstrip("=")
    here = f"Here: `{ours}`." if ours else ""
    is_theirs = theirs in TRANSFORMERS
    said = f"`--{name}` is transformers' name." if is_theirs else f"There is no `--{name}`."
    return " ".join(filter(None, (said, here, other.remark)))
