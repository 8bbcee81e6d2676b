"""Options of tagging: files, tags, and the layers of a feature-based tagger."""

import dataclasses

from bert.options import Message, Option, OptionGroup, option
from bert.tasks.layers import FEATURE_LAYERS
from bert.tasks.options import DataFiles, Lengths
from bert.weights.options import MAX_TOKENS

# What has a tag in raw text, and the schemes of tags (`bert.tasks.tagging.tags`).
UNITS = ("word", "character")
SCHEMES = ("iob2", "iob1", "iobes", "bmes")
# The scheme of tags that are not entities, such as parts of speech: each tag is a class.
NONE = "none"
# The endings of the files in a folder, to which .gz may be added.
ENDINGS = (".txt", ".conll", ".bio", ".iob", ".iob2", ".iobes", ".tsv")
# The defaults of options that a trained model may set.
_SCHEME, _UNIT, _LAYERS, _LSTM_SIZE = "iob2", "word", "concat_last_four", 768


def _as_trained(text: str, default: str) -> Message:
    """Returns the help of an option that the trained model may set."""
    message = "%s Default: as the model in %s was trained, or else %s."
    return Message(message, text, Option("output_dir"), default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingLengths(Lengths):
    """The length of windows over sentences."""

    GROUP = "data"

    max_seq_length: int = option(
        128, f"{MAX_TOKENS}; longer sentences are split into overlapping windows.", low=4
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingData(DataFiles):
    """The files of tagged sentences, and their columns."""

    GROUP = "data"

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
        choices=SCHEMES,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagOptions(OptionGroup):
    """The labels of a tagger and the units that they label; None for those of a trained model."""

    GROUP = "model"

    output_scheme: str | None = option(
        None,
        "Tagging scheme of the predictions. Default: the scheme of the model's labels.",
        choices=SCHEMES,
        group="output",
    )
    scheme: str | None = option(
        None,
        Message(
            "Tagging scheme of the model's labels; with none, tags are no entities: each is a "
            "class of its own. Default: as the model in %s was trained; or else bmes if the files "
            f"have it, as for word segmentation; or else {_SCHEME}.",
            Option("output_dir"),
        ),
        choices=(*SCHEMES, NONE),
    )
    crf: bool | None = option(
        None,
        _as_trained(
            "Choose the labels of a sentence together, by a conditional random field that learns "
            "which label follows which.",
            "false",
        ),
    )
    unit: str | None = option(
        None,
        _as_trained(
            "What has a label: words, or characters for text without spaces, such as Chinese.",
            _UNIT,
        ),
        choices=UNITS,
    )
    document_context: bool | None = option(
        None,
        _as_trained(
            "Fill each window with the sentences before and after it in the document, as the "
            "paper did.",
            "false",
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureOptions(OptionGroup):
    """The layers of a feature-based tagger; None for those of a trained model."""

    GROUP = "model"

    feature_based: bool | None = option(
        None, _as_trained("Train a BiLSTM on BERT's layers instead of BERT itself.", "false")
    )
    feature_layers: str | None = option(
        None,
        Message(
            "With %s, the layers to use; %s",
            Option("feature_based"),
            _as_trained("weighted learns a weight for each.", _LAYERS),
        ),
        choices=FEATURE_LAYERS,
    )
    lstm_size: int | None = option(
        None,
        Message(
            "With %s, %s",
            Option("feature_based"),
            _as_trained("units of each of the two LSTMs in each direction.", str(_LSTM_SIZE)),
        ),
        low=1,
    )
    word_vectors: str | None = option(
        None,
        Message(
            "With %s, file of vectors of whole words to use instead of BERT's layers: word2vec or "
            "GloVe text format, such as create_word_vectors.py writes. No %s is needed.",
            Option("feature_based"),
            Option("init_checkpoint"),
        ),
    )
    features_dir: str | None = option(
        None,
        Message(
            "With %s, folder for the features, which several runs may share. Default: %s.",
            Option("feature_based"),
            Option("output_dir"),
        ),
    )


# The defaults by the name of the option.
DEFAULTS = {
    "scheme": _SCHEME,
    "unit": _UNIT,
    "document_context": False,
    "feature_based": False,
    "feature_layers": _LAYERS,
    "lstm_size": _LSTM_SIZE,
}
