"""Opens the task of a tagger from the options of a run."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from bert.options import Message, MessageError, Option, OptionError
from bert.tasks.layers import check_layers
from bert.tasks.options import Encoder, Lengths, Schedule
from bert.tasks.tagging.feature_tagging import FeatureTagging
from bert.tasks.tagging.options import DEFAULTS, FeatureOptions, TaggingData, TagOptions
from bert.tasks.tagging.sentences import TaggedFiles
from bert.tasks.tagging.tagger import Tagging
from bert.tasks.tagging.tags import PLAIN, TagSet
from bert.tasks.tagging.text_tagger import has_crf
from bert.tasks.task import TaskContext, check_lstm_export

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
    """Returns the task of the options, checked against the model.

    Missing options have the values of the trained model.

    Raises:
      ValueError: if options, files and model do not fit together.
    """
    stored = context.stored
    if stored and stored.get("kind") != Tagging.kind:
        raise MessageError(
            "The model in %s, or else of %s, must be a tagger if none is trained. It is one of %r.",
            Option("output_dir"),
            Option("init_checkpoint"),
            stored.get("kind"),
        )
    given, tags = tags, _complete(tags, stored)
    kind, own = _open_features(features, context, encoder, schedule)
    _check_schemes(data, tags)
    assert tags.scheme and tags.unit
    files = TaggedFiles(
        data=data,
        scheme=tags.scheme if tags.scheme in PLAIN else data.input_scheme,
        unit=tags.unit,
        dev_split=context.find_split(data),
        # The dev set is split off as it was for the training.
        whole_documents=bool(stored.get("document_context", tags.document_context)),
    )
    # A model that is not trained yet has the tags of the training set.
    needed = {*context.splits, *([] if stored else ["train"])}
    sentences = files.read_all([split for split in ("train", "dev", "test") if split in needed])
    if stored:
        known = TagSet.from_dict(stored.get("task", {}))
        tag_set = dataclasses.replace(known, scheme=tags.scheme, unit=tags.unit)
    else:
        is_bmes = given.scheme is None and files.found["train"] == "bmes"
        # A type of entity may be in the part that is held out alone.
        parts = ["train", *["dev"] * bool(files.dev_split and tags.scheme not in PLAIN)]
        trained = [sentence.tags or () for part in parts for sentence in sentences[part]]
        tag_set = TagSet.from_tags(trained, "bmes" if is_bmes else tags.scheme, tags.unit)
    return kind.for_run(
        context,
        lengths,
        encoder,
        tag_set=tag_set,
        document_context=bool(tags.document_context),
        files=files,
        sentences=sentences,
        output_scheme=tags.output_scheme,
        add_crf=_find_crf(context, tags.crf),
        **own,
    )


def _find_crf(context: TaskContext, given: bool | None) -> bool:
    """Returns whether the model has a CRF, by the option or as the model was trained."""
    trained = context.stored or context.resumed
    there = has_crf(trained)
    if trained and given is not None and given != there:
        raise OptionError(
            "crf",
            f"be {there} for a model that was trained with{'' if there else 'out'} it",
            given,
            Message(
                "Leave it out; or to train another model, give another %s, or %s.",
                Option("output_dir"),
                Option("overwrite_output_dir"),
            ),
        )
    return there if given is None else given


def _complete(options: Options, stored: Mapping[str, Any]) -> Options:
    """Returns the options with the trained model's values, or defaults, for missing ones."""
    trained = {**stored.get("task", {}), **stored}
    missing = [name for name in DEFAULTS if getattr(options, name, "") is None]
    values: dict[str, Any] = {
        name: DEFAULTS[name] if trained.get(name) is None else trained[name] for name in missing
    }
    return dataclasses.replace(options, **values)


def _open_features(
    given: FeatureOptions, context: TaskContext, encoder: Encoder, schedule: Schedule
) -> tuple[type[Tagging], dict[str, Any]]:
    """Returns the class of the task, and its fields that only a feature-based tagger has.

    Raises:
      ValueError: where the options do not fit together, or an export cannot be written.
    """
    features = _complete(given, context.stored)
    if not features.feature_based:
        for name in ("feature_layers", "lstm_size", "features_dir"):
            if (value := getattr(given, name)) is not None:
                message = "%s needs %s. Received %r."
                raise MessageError(message, Option(name), _FEATURE_BASED, value)
        return Tagging, {}
    config = context.config
    assert features.feature_layers
    if config.is_word_vectors and features.feature_layers != "embeddings":
        raise OptionError(
            "feature_layers",
            "be embeddings for word vectors, which have no other layers",
            features.feature_layers,
        )
    check_layers(features.feature_layers, config)
    if encoder.add_bilstm:
        raise MessageError(
            "%s must not be given with %s, which has two LSTMs of %s on the layers already.",
            Option("add_bilstm"),
            _FEATURE_BASED,
            Option("lstm_size"),
        )
    if schedule.freeze_layers is not None or schedule.layerwise_lr_decay != 1.0:
        raise MessageError(
            "%s and %s are for training BERT, which %s does not. Received %s and %s.",
            Option("freeze_layers"),
            Option("layerwise_lr_decay"),
            _FEATURE_BASED,
            schedule.freeze_layers,
            schedule.layerwise_lr_decay,
        )
    if context.export_formats and config.is_word_vectors:
        raise MessageError(
            "%s must not be given for a tagger on word vectors, whose words are not split as those "
            "of a BERT. predict.py and bert.load read its folder.",
            Option("do_export"),
        )
    # ONNX supports the tagger's own LSTMs, which are Keras's, but not those of an encoder.
    check_lstm_export(context.export_formats, ["saved_model", "onnx"])
    return FeatureTagging, {
        "layers": features.feature_layers,
        "lstm_size": features.lstm_size,
        "features_dir": features.features_dir,
    }


def _check_schemes(data: TaggingData, tags: TagOptions) -> None:
    schemes = {"input_scheme": data.input_scheme, "output_scheme": tags.output_scheme}
    for name, value in schemes.items():
        if tags.scheme in PLAIN and value:
            raise MessageError(
                "%s needs tags that are entities, which those of %s are not. Received %r.",
                Option(name),
                Option("scheme", tags.scheme),
                value,
            )
