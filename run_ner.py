r"""Fine-tunes, evaluates and applies models that label words, such as names (paper, section 5.3).

    python run_ner.py --data_dir=conll2003 --output_dir=tagger --do_train --do_eval --do_predict \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

Reads columns like those of CoNLL-2003, in any order, with tags in IOB1, IOB2, IOBES or BMES; with
--scheme=none, tags that are no entities, such as parts of speech. A model whose folder does not say
is taken to be cased, unless --do_lower_case is given.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import FAILED, Checks, start
from bert.commands.console import run_script
from bert.commands.settings import DistilledSettings
from bert.files.owned import model_folder
from bert.files.process import import_tensorflow
from bert.files.split import find_split
from bert.options import option, read_grid, several
from bert.tasks.layers import FEATURE_LAYERS, check_layers
from bert.tasks.options import MAX_TOKENS
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import words as tagging_words
from bert.tasks.tagging.sentences import ENDINGS, Columns, Sentence, TaggedFiles
from bert.weights.options import LOWERS

if TYPE_CHECKING:
    import numpy as np

    import modeling
    from bert.tasks.tagging.task import Tagging
    from bert.tasks.tagging.teacher import Teacher

# What is not given is as the model in `--output_dir` was trained, or else this.
_DEFAULTS: Mapping[str, Any] = {
    "scheme": "iob2",
    "unit": "word",
    "document_context": False,
    "feature_based": False,
    "feature_layers": "concat_last_four",
    "lstm_size": 768,
}
_AS_TRAINED = "Default: as the model in --output_dir was trained, or else"
# That of all scripts that fine-tune.
_LEARNING_RATE = 5e-5
# What a BiLSTM that begins at random wants; the paper names no rate.
_LSTM_LEARNING_RATE = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(DistilledSettings):
    """The flags of this script, by name."""

    LOWERS_BY_DEFAULT: ClassVar[bool] = False
    do_lower_case: bool | None = option(
        None,
        f"{LOWERS} Default: as the model's folder says, or else false.",
        alias="do_lower",
        group="model",
    )
    learning_rate: float = several(
        option(
            None,
            f"Peak learning rate. Default: {_LEARNING_RATE:g}, or {_LSTM_LEARNING_RATE:g} with "
            "--feature_based.",
            low=0.0,
            shapes_training=True,
            group="training",
        )
    )
    max_seq_length: int = option(
        128,
        f"{MAX_TOKENS}; longer sentences are split into overlapping windows.",
        low=4,
        group="data",
    )
    eval_batch_size: int = option(8, "Sentences per evaluation step.", low=1, group="training")
    data_dir: str | None = option(
        None,
        f"Folder with train, dev and test, each ending in {', '.join(ENDINGS)}; may be gzipped.",
    )
    text_column: int = option(0, "Column of the words: a number from 0, or from the end with -1.")
    label_column: int = option(-1, "Column of the tags: a number from 0, or from the end with -1.")
    separator: str | None = option(
        None,
        "Column separator: tab, space, comma or any other text. Default: any number of spaces and "
        "tabs.",
    )
    input_scheme: str | None = option(
        None,
        "Tagging scheme of the files. Default: the one that all tags of a file fit.",
        choices=tagging_entities.SCHEMES,
    )
    output_scheme: str | None = option(
        None,
        "Tagging scheme of the predictions. Default: that of the model's labels.",
        choices=tagging_entities.SCHEMES,
        group="output",
    )
    scheme: str | None = option(
        None,
        "Tagging scheme of the model's labels; with none, tags are no entities: each is a class "
        "of its own. Default: as the model in --output_dir was trained; or else bmes if the "
        f"files have it, as for word segmentation; or else {_DEFAULTS['scheme']}.",
        choices=(*tagging_entities.SCHEMES, tagging_entities.NONE),
        group="model",
    )
    unit: str | None = option(
        None,
        "What has a label: words, or characters for text without spaces, such as Chinese. "
        f"{_AS_TRAINED} word.",
        choices=tagging_words.UNITS,
        group="model",
    )
    document_context: bool | None = option(
        None,
        "Fill each window with the sentences before and after it in the document, as the paper "
        f"did. {_AS_TRAINED} false.",
        group="model",
    )
    feature_based: bool | None = option(
        None,
        f"Train a BiLSTM on BERT's layers instead of BERT itself. {_AS_TRAINED} false.",
        group="model",
    )
    feature_layers: str | None = option(
        None,
        "With --feature_based, the layers to use; weighted learns a weight for each. "
        f"{_AS_TRAINED} {_DEFAULTS['feature_layers']}.",
        choices=FEATURE_LAYERS,
        group="model",
    )
    lstm_size: int | None = option(
        None,
        f"With --feature_based, units of each of the two LSTMs in each direction. {_AS_TRAINED} "
        f"{_DEFAULTS['lstm_size']}.",
        low=1,
        group="model",
    )
    word_vectors: str | None = option(
        None,
        "With --feature_based, file of vectors of whole words to use instead of BERT's layers: "
        "word2vec or GloVe text format, such as create_word_vectors.py writes. No "
        "--init_checkpoint is needed.",
        group="model",
    )
    features_dir: str | None = option(
        None,
        "With --feature_based, folder for the features, which several runs may share. Default: "
        "--output_dir.",
        group="model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learning_rate is None:
            rate = _LSTM_LEARNING_RATE if self.feature_based else _LEARNING_RATE
            object.__setattr__(self, "learning_rate", rate)


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def run(settings: Settings) -> dict[str, Any]:
    """Trains, evaluates, predicts and exports as the settings say.

    Returns:
      The scores of the dev set, with `loss` and `baseline`, and those of the test set, where it has
      tags, as `test_f1` and so on; with several runs, what `bert.runs.repeats.run` gives.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    import_tensorflow()
    from bert.runs import repeats

    is_several = settings.num_runs > 1 or read_grid(settings)
    if is_several and settings.feature_based and settings.features_dir is None:
        settings = dataclasses.replace(settings, features_dir=settings.output_dir)
    with model_folder() as folder:
        return repeats.run(_with_word_vectors(settings, folder), open_task)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.runs.checks import check_fine_tuning

    with model_folder() as folder:
        if settings.word_vectors:
            arguments, path = (settings, folder), settings.word_vectors
            complete = checks("word vectors", _with_word_vectors, *arguments, tells=lambda _: path)
            if complete is FAILED:
                return
            settings = complete
        check_fine_tuning(checks, settings, open_task, takes_steps=not settings.feature_based)


def _with_word_vectors(settings: Settings, folder: str) -> Settings:
    """Returns the settings with the model that `--word_vectors` are, made in a folder."""
    if settings.word_vectors is None:
        return settings
    if not settings.feature_based:
        raise ValueError(
            f"`--word_vectors` needs `--feature_based`. Received {settings.word_vectors!r}."
        )
    others = ("init_checkpoint", "bert_config_file", "vocab_file", "do_lower_case")
    if given := [name for name in others if getattr(settings, name) not in (None, "")]:
        raise ValueError(
            f"`--{given[0]}` must not be given with `--word_vectors`, which take the place of a "
            f"BERT. Received {getattr(settings, given[0])!r}."
        )
    from bert.files.word_vectors import read_word_vectors
    from bert.weights.word_vectors import save_as_model

    # Messages tell of its name.
    model = os.path.join(folder, os.path.basename(settings.word_vectors))
    save_as_model(read_word_vectors(settings.word_vectors), model)
    layers = settings.feature_layers or "embeddings"
    return dataclasses.replace(settings, init_checkpoint=model, feature_layers=layers)


def open_task(
    settings: Settings, config: "modeling.BertConfig", tokenizer: tokenization.FullTokenizer
) -> "Tagging":
    """Returns the task that the settings name, for a model of this shape.

    What is not given is as the model in `--output_dir` was trained.
    """
    import_tensorflow()
    from bert.tasks.bilstm import check_export, find_bilstm
    from bert.tasks.tagging.task import Features, FeatureTagging, Tagging
    from bert.tasks.tagging.windows import Task, make_task
    from bert.weights.folder import ModelFolder

    stored = _read_stored_task(settings)
    settings, given = _complete(settings, stored), settings
    _check_features(settings, given, config)
    assert settings.scheme and settings.unit
    _check_schemes(settings)
    of_split = stored or ModelFolder.read_resumed_task(
        settings.output_dir, resumes=settings.do_train and not settings.overwrite_output_dir
    )
    files = _open_files(settings, settings.unit, of_split)
    sentences = _read_sentences(settings, files, needs_labels=stored is None)
    if stored is None:
        is_bmes = given.scheme is None and files.found["train"] == "bmes"
        scheme = "bmes" if is_bmes else settings.scheme
        task = make_task(sentences["train"], scheme, settings.unit)
    else:
        known = Task.from_dict(stored.get("task", {}))
        task = dataclasses.replace(known, scheme=settings.scheme, unit=settings.unit)
    common: dict[str, Any] = {
        "config": config,
        "tokenizer": tokenizer,
        "max_seq_length": settings.max_seq_length,
        "task": task,
        "document_context": bool(settings.document_context),
        "files": files,
        "sentences": sentences,
        "output_scheme": settings.output_scheme,
    }
    if not settings.feature_based:
        tagging = Tagging(**common, add_bilstm=find_bilstm(settings, config))
        if not settings.do_train:
            return tagging
        return dataclasses.replace(tagging, teacher=_open_teacher(settings, tagging))
    if settings.teacher:
        raise ValueError(
            "`--teacher` must not be given with `--feature_based`, whose features are computed "
            f"before. Received {settings.teacher!r}; the teacher itself may be one on features."
        )
    assert settings.feature_layers and settings.lstm_size
    if settings.do_export and config.is_word_vectors:
        raise ValueError(
            "`--do_export` must not be given for a tagger on word vectors, whose words are not cut "
            "as those of a BERT. predict.py and bert.load read its folder."
        )
    # Its own LSTMs are Keras's, which ONNX can hold; those of an encoder are not.
    check_export(settings, "saved_model", *["onnx"] * (not config.is_bilstm))
    features = Features(settings.feature_layers, settings.lstm_size, settings.features_dir)
    return FeatureTagging(**common, features=features)


def _open_teacher(settings: Settings, task: "Tagging") -> "Teacher | None":
    """Returns what is learned from another model, if there is one."""
    from bert.models.teachers import open_teacher
    from bert.tasks import distillation
    from bert.tasks.tagging.predictions import word_logits
    from bert.tasks.tagging.task import Tagging
    from bert.tasks.tagging.teacher import Teacher, order_of_labels
    from bert.tasks.task import collect_padded

    opened = open_teacher(settings, task, task.config)
    if opened is None:
        return None
    model, layers = opened
    assert isinstance(model.task, Tagging)
    order = order_of_labels(task.task, model.task.task, settings.teacher or "")

    def answer(sentences: Sequence[Sentence]) -> "np.ndarray":
        made, outputs = model.compute(sentences)
        shape = made.arrays["label_ids"].shape
        return word_logits(made.arrays, collect_padded(outputs, shape, "logits"))[:, order]

    unlabeled = []
    if settings.unlabeled_file:
        rows = distillation.read_unlabeled(settings.unlabeled_file, task.fields, {})
        unlabeled = task.parse_unlabeled(rows)
    return Teacher(
        answer, unlabeled, settings.teacher_weight, settings.distillation_temperature, layers
    )


def _read_stored_task(settings: Settings) -> dict[str, Any] | None:
    """Returns the `task.json` of the model to use, or None where one is to be trained."""
    from bert.tasks.tagging.task import Tagging
    from bert.weights.folder import ModelFolder

    stored = ModelFolder.read_source_task(settings, settings.output_dir, trains=settings.do_train)
    if not stored:
        return None
    if stored.get("kind") != Tagging.kind:
        raise ValueError(
            "The model in `--output_dir`, or else of `--init_checkpoint`, must be a tagger where "
            f"none is trained. It is one of {stored.get('kind')!r}."
        )
    return stored


def _complete(settings: Settings, stored: Mapping[str, Any] | None) -> Settings:
    """Returns the settings, what is not given being as it is stored, or else the default."""
    there = {**stored.get("task", {}), **stored} if stored else {}
    known = {**_DEFAULTS, **{name: value for name, value in there.items() if value is not None}}
    missing = [name for name in _DEFAULTS if getattr(settings, name) is None]
    return dataclasses.replace(settings, **{name: known[name] for name in missing})


def _check_features(settings: Settings, given: Settings, config: "modeling.BertConfig") -> None:
    """Checks the flags of feature-based tagging, as they were given and as they are completed."""
    names = ("feature_layers", "lstm_size", "features_dir")
    if not settings.feature_based:
        for name in names:
            if getattr(given, name) is not None:
                raise ValueError(
                    f"`--{name}` needs `--feature_based`. Received {getattr(given, name)!r}."
                )
        return
    assert settings.feature_layers
    if config.is_word_vectors and settings.feature_layers != "embeddings":
        raise ValueError(
            "`--feature_layers` must be embeddings for word vectors, which have no others. "
            f"Received {settings.feature_layers!r}."
        )
    check_layers(settings.feature_layers, config)
    if settings.add_bilstm:
        raise ValueError(
            "`--add_bilstm` must not be given with `--feature_based`, which has two LSTMs of "
            "--lstm_size on the layers already."
        )
    if settings.freeze_layers is not None or settings.layerwise_lr_decay != 1.0:
        raise ValueError(
            "`--freeze_layers` and `--layerwise_lr_decay` are for training BERT, which "
            f"`--feature_based` does not. Received {settings.freeze_layers} and "
            f"{settings.layerwise_lr_decay}."
        )


def _check_schemes(settings: Settings) -> None:
    for name in ("input_scheme", "output_scheme"):
        if settings.scheme in tagging_entities.PLAIN and getattr(settings, name):
            raise ValueError(
                f"`--{name}` needs tags that are entities, which those of `--scheme="
                f"{settings.scheme}` are not. Received {getattr(settings, name)!r}."
            )


def _open_files(settings: Settings, unit: str, stored: Mapping[str, Any]) -> TaggedFiles:
    is_plain = settings.scheme in tagging_entities.PLAIN
    return TaggedFiles(
        data_dir=settings.data_dir,
        train_file=settings.train_file,
        dev_file=settings.dev_file,
        test_file=settings.test_file,
        columns=Columns(settings.text_column, settings.label_column, settings.separator),
        scheme=settings.scheme if is_plain else settings.input_scheme,
        unit=unit,
        dev_split=find_split(settings, stored),
        document_context=bool(settings.document_context),
    )


def _read_sentences(
    settings: Settings, files: TaggedFiles, *, needs_labels: bool
) -> dict[str, list[Sentence]]:
    """Returns the sentences that will be needed, by split; the training set also for its labels."""
    wanted = settings.splits()
    wanted["train"] |= needs_labels
    splits = [split for split, is_wanted in wanted.items() if is_wanted]
    return files.read_all(splits)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
