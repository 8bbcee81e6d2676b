"""Options that name a model, and what options of trained and of queried models have in common."""

import dataclasses
from typing import ClassVar

from bert.options import Message, Option, OptionGroup, option

# What the help of several options has in common.
BESIDE = " Default: the one next to the checkpoint."
CHECKPOINT_FORMS = (
    "its prefix (.../bert_model.ckpt), .index file or folder; a Hugging Face folder, or its "
    "weights, model.safetensors, tf_model.h5 or pytorch_model.bin; or the name of a model on the "
    "Hugging Face hub, owner/model"
)
LOWERS = "Lowercase the text and strip accents: true for uncased models, false for cased ones."
MAX_TOKENS = "Maximum tokens per sequence, including [CLS] and [SEP]"
PRECISION = "Numeric precision of the network's computations."
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
# The value of `precision` that stands for the faster one of two.
AUTO = "auto"

# Architectures of transformers by their heads, as these are named in a TF1 checkpoint; the first
# one of which a checkpoint has all. A head of the name `output_weights` has several meanings.
ARCHITECTURES = {
    "BertForPreTraining": ("cls/predictions/output_bias", "cls/seq_relationship/output_weights"),
    "BertForMaskedLM": ("cls/predictions/output_bias",),
    "BertForNextSentencePrediction": ("cls/seq_relationship/output_weights",),
    "BertForQuestionAnswering": ("cls/squad/output_weights",),
    "BertForSequenceClassification": ("output_weights",),
    "BertForTokenClassification": ("output_weights",),
    "BertForMultipleChoice": ("output_weights",),
    "BertModel": (),
}

# Of a fine-tuned model, by the `kind` in `task.json`.
FINE_TUNED = {
    "classification": "BertForSequenceClassification",
    "question_answering": "BertForQuestionAnswering",
    "tagging": "BertForTokenClassification",
    "multiple_choice": "BertForMultipleChoice",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigSource(OptionGroup):
    """Where the configuration of a model is."""

    GROUP = "model"

    bert_config_file: str = option("", f"The model's configuration, bert_config.json.{BESIDE}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySource(OptionGroup):
    """Which vocabulary splits texts into word pieces, and with which casing."""

    GROUP = "model"

    vocab_file: str = option("", f"WordPiece vocabulary, one entry per line.{BESIDE}")
    # The original's README tells users of cased models to pass --do_lower=False.
    do_lower_case: bool | None = option(
        None,
        f"{LOWERS} Default: as the model's folder says, or else true.",
        alias="do_lower",
    )
    # What it is where neither the flag nor the folder of the model says anything.
    LOWERS_BY_DEFAULT: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource(ConfigSource):
    """The model that a training run starts from."""

    GROUP = "model"

    init_checkpoint: str | None = option(
        None,
        Message(
            f"Checkpoint to start from: {CHECKPOINT_FORMS}. Not used if %s already holds a "
            "checkpoint of this run: leave it out if it is no longer there. Without %s, one in "
            "%s is used as named.",
            Option("output_dir"),
            Option("do_train"),
            Option("output_dir"),
        ),
    )
