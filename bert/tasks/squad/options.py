"""Options of question answering: files of questions, windows over paragraphs, and decoding."""

import dataclasses

from bert.export.formats import ExportOptions
from bert.files.paths import open_file
from bert.options import Message, MessageError, Option, OptionError, OptionGroup, option
from bert.tasks.options import Lengths
from bert.weights.options import MAX_TOKENS

# The tokens of a window that are of no text: [CLS] and two [SEP].
NUM_SPECIAL = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadLengths(Lengths):
    """The length of windows over paragraphs."""

    GROUP = "data"

    max_seq_length: int = option(
        384,
        Message(
            f"{MAX_TOKENS}; longer paragraphs are split into windows (see %s).",
            Option("doc_stride"),
        ),
        low=4,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadData(OptionGroup):
    """The files of questions, and the splitting of paragraphs and questions into windows."""

    GROUP = "data"

    train_file: str | None = option(None, "Questions to train on, in SQuAD's JSON format.")
    predict_file: str | None = option(
        None,
        "Questions to answer, in SQuAD's JSON format; if it contains the answers, it is also "
        "scored.",
    )
    doc_stride: int = option(
        128,
        "Tokens from the start of one window over a long paragraph to the start of the next.",
        low=1,
    )
    max_query_length: int = option(
        64, "Maximum tokens per question; longer questions are truncated.", low=1
    )

    def check_file(self, verb: str) -> None:
        """Checks that a file of questions can be read.

        Args:
          verb: "train" or "predict".

        Raises:
          ValueError: if the option or the file is missing, naming the option.
        """
        name = f"{verb}_file"
        path = getattr(self, name)
        if not path:
            raise MessageError("%s needs %s.", Option(f"do_{verb}"), Option(name))
        try:
            with open_file(path) as file:
                file.read(1)
        except OSError as error:
            received = Message("%r (%s)", path, error.strerror or error)
            raise OptionError(name, "name a readable file", received) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadExport(ExportOptions):
    """How a model is exported whose scores are of a hundred."""

    max_score_loss: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingOptions(OptionGroup):
    """The choice of answers among spans of the paragraph."""

    GROUP = "output"

    n_best_size: int = option(20, "Answers per question in nbest_predictions.json.", low=1)
    max_answer_length: int = option(30, "Maximum tokens per answer.", low=1)
    verbose_logging: bool = option(
        False, "Log each answer that cannot be found in the paragraph's words."
    )
    version_2_with_negative: bool = option(
        False, "Allow questions without an answer, as in SQuAD 2.0.", group="data"
    )
    null_score_diff_threshold: float = option(
        0.0,
        "With SQuAD 2.0, predict no answer if that scores higher than the best answer by more "
        "than this.",
    )
    bucket_predictions: bool = option(
        False,
        Message(
            "Predict on windows of similar length together, without padding. Faster, but where "
            "padding is among the %s best positions, the lists differ from the original's.",
            Option("n_best_size"),
        ),
    )


def check_windows(data: SquadData, decoding: DecodingOptions, lengths: Lengths) -> None:
    """Checks that the options of windows fit together.

    Raises:
      ValueError: if they do not, naming the option.
    """
    check_lengths(lengths.max_seq_length, data.doc_stride, data.max_query_length)
    if decoding.bucket_predictions and lengths.pad_to_max_length:
        raise MessageError(
            "%s must not be given together with %s, which does the opposite.",
            Option("bucket_predictions"),
            Option("pad_to_max_length"),
        )


def check_lengths(max_seq_length: int, doc_stride: int, max_query_length: int) -> None:
    """Checks that a window has room for a question and a part of the paragraph.

    Raises:
      OptionError: for a length that is too small.
    """
    for name, value in (("max_query_length", max_query_length), ("doc_stride", doc_stride)):
        if value < 1:
            raise OptionError(name, "be at least 1", value)
    needed = max_query_length + NUM_SPECIAL
    if max_seq_length <= needed:
        must = Message(
            f"be greater than {needed}, which is %s + {NUM_SPECIAL}, to leave room for the "
            "paragraph",
            Option("max_query_length"),
        )
        raise OptionError("max_seq_length", must, max_seq_length)
