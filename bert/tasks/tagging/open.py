"""Opens the task of a tagger from its options, completed as the trained model says."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import modeling
from bert.options import MessageError, Option, OptionError
from bert.tasks.bilstm import check_lstm_export, find_bilstm
from bert.tasks.layers import check_layers
from bert.tasks.options import Encoder, Lengths, Schedule
from bert.tasks.tagging.entities import PLAIN
from bert.tasks.tagging.options import DEFAULTS, FeatureOptions, TaggingData, TagOptions
from bert.tasks.tagging.sentences import Sentence, TaggedFiles
from bert.tasks.tagging.task import Features, FeatureTagging, Tagging
from bert.tasks.tagging.windows import Task, make_task
from bert.tasks.task import TaskContext

Options = TypeVar("Options", TagOptions, FeatureOptions)

_FEATURE_BASED = Option("feature_based")


def open_tagging(
    context: TaskContext,
    data: TaggingData,
    tags: TagOptions,
    features: FeatureOptions,
    lengths: Lengths,
    encoder: Encoder,
    schedule: Schedule,
) -> Tagging:
    """Returns the task that the options name, checked against the model.

    Options that are not given are as the model was trained.

    Raises:
      ValueError: where options, files and model do not fit.
    """
    stored = context.stored
    if stored and stored.get("kind") != Tagging.kind:
        raise MessageError(
            "The model in %s, or else of %s, must be a tagger where none is trained. It is one of "
            "%r.",
            *(Option("output_dir"), Option("init_checkpoint"), stored.get("kind")),
        )
    given_scheme = tags.scheme
    tags, completed = _complete(tags, stored), _complete(features, stored)
    if completed.feature_based:
        _check_features(completed, context.config, encoder, schedule)
    else:
        _check_no_features(features)
    features = completed
    _check_schemes(data, tags)
    files = _open_files(context, data, tags)
    # A model that is not trained yet has the labels of the training set.
    wanted = {**dict.fromkeys([*([] if stored else ["train"]), *context.splits])}
    sentences = files.read_all([split for split in ("train", "dev", "test") if split in wanted])
    common: dict[str, Any] = {
        "config": context.config,
        "tokenizer": context.tokenizer,
        "max_seq_length": lengths.max_seq_length,
        "task": _find_task(stored, tags, files, sentences, given_scheme),
        "document_context": bool(tags.document_context),
        "files": files,
        "sentences": sentences,
        "output_scheme": tags.output_scheme,
    }
    if not features.feature_based:
        bilstm = find_bilstm(context, add_bilstm=encoder.add_bilstm)
        return Tagging(**common, add_bilstm=bilstm)
    _check_feature_export(context)
    assert features.feature_layers and features.lstm_size
    return FeatureTagging(
        **common,
        features=Features(features.feature_layers, features.lstm_size, features.features_dir),
    )


def _complete(options: Options, stored: Mapping[str, Any]) -> Options:
    """Returns the options; a missing one is as the trained model has it, or the default."""
    there = {**stored.get("task", {}), **stored}
    known = {**DEFAULTS, **{name: value for name, value in there.items() if value is not None}}
    missing = [
        field.name
        for field in dataclasses.fields(options)
        if field.name in DEFAULTS and getattr(options, field.name) is None
    ]
    return dataclasses.replace(options, **{name: known[name] for name in missing})


def _check_no_features(given: FeatureOptions) -> None:
    """Checks that no option is given that only a feature-based tagger has."""
    for name in ("feature_layers", "lstm_size", "features_dir"):
        if (value := getattr(given, name)) is not None:
            message = "%s needs %s. Received %r."
            raise MessageError(message, Option(name), _FEATURE_BASED, value)


def _check_features(
    features: FeatureOptions, config: modeling.BertConfig, encoder: Encoder, schedule: Schedule
) -> None:
    """Checks the options of a feature-based tagger."""
    assert features.feature_layers
    if config.is_word_vectors and features.feature_layers != "embeddings":
        raise OptionError(
            "feature_layers",
            "be embeddings for word vectors, which have no others",
            features.feature_layers,
        )
    check_layers(features.feature_layers, config)
    if encoder.add_bilstm:
        raise MessageError(
            "%s must not be given with %s, which has two LSTMs of %s on the layers already.",
            *(Option("add_bilstm"), _FEATURE_BASED, Option("lstm_size")),
        )
    if schedule.freeze_layers is not None or schedule.layerwise_lr_decay != 1.0:
        raise MessageError(
            "%s and %s are for training BERT, which %s does not. Received %s and %s.",
            *(Option("freeze_layers"), Option("layerwise_lr_decay"), _FEATURE_BASED),
            *(schedule.freeze_layers, schedule.layerwise_lr_decay),
        )


def _check_feature_export(context: TaskContext) -> None:
    """Checks that a feature-based tagger is exported only where an export can hold it."""
    if context.export_formats and context.config.is_word_vectors:
        raise MessageError(
            "%s must not be given for a tagger on word vectors, whose words are not cut as those "
            "of a BERT. predict.py and bert.load read its folder.",
            Option("do_export"),
        )
    # ONNX can hold the tagger's own LSTMs, which are Keras's, but not those of an encoder.
    has_lstms = context.config.is_bilstm
    check_lstm_export(context.export_formats, ["saved_model", *["onnx"] * (not has_lstms)])


def _check_schemes(data: TaggingData, tags: TagOptions) -> None:
    for name, value in {
        "input_scheme": data.input_scheme,
        "output_scheme": tags.output_scheme,
    }.items():
        if tags.scheme in PLAIN and value:
            raise MessageError(
                "%s needs tags that are entities, which those of %s are not. Received %r.",
                *(Option(name), Option("scheme", tags.scheme), value),
            )


def _open_files(context: TaskContext, data: TaggingData, tags: TagOptions) -> TaggedFiles:
    assert tags.unit
    return TaggedFiles(
        data=data,
        scheme=tags.scheme if tags.scheme in PLAIN else data.input_scheme,
        unit=tags.unit,
        dev_split=context.find_split(data),
        document_context=bool(tags.document_context),
    )


def _find_task(
    stored: Mapping[str, Any],
    tags: TagOptions,
    files: TaggedFiles,
    sentences: Mapping[str, list[Sentence]],
    given_scheme: str | None,
) -> Task:
    """Returns the task of the trained model, or the one of the training set."""
    assert tags.scheme and tags.unit
    if stored:
        known = Task.from_dict(stored.get("task", {}))
        return dataclasses.replace(known, scheme=tags.scheme, unit=tags.unit)
    is_bmes = given_scheme is None and files.found["train"] == "bmes"
    return make_task(sentences["train"], "bmes" if is_bmes else tags.scheme, tags.unit)
