"""What a classifier reads of a text that is longer than its sequences."""

import dataclasses

from bert.options import Message, Option, OptionError, OptionGroup, changed_options, option

# The tokens that `head_tail` keeps from the beginning, of 510 (Sun et al., How to Fine-Tune BERT
# for Text Classification?, 2019, section 5.3.1).
_HEAD, _OF = 128, 510


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongTexts(OptionGroup):
    """What a classifier reads of a text that is longer than its sequences."""

    GROUP = "data"

    truncation: str = option(
        "head",
        "What is kept of a text that is too long: head, its beginning; tail, its end; head_tail, "
        f"both, {_HEAD} of {_OF} tokens from its beginning (Sun et al., 2019). Single texts only; "
        "pairs keep their beginnings.",
        choices=("head", "tail", "head_tail"),
        shapes_training=True,
    )
    doc_stride: int | None = option(
        None,
        Message(
            "Split a text that is longer than %s into windows that begin so many tokens apart, "
            "and pool their logits. In training, each window is an example of its text's label, "
            "and all windows of a text together weigh as much as a short text. Single texts only.",
            Option("max_seq_length"),
        ),
        low=1,
        shapes_training=True,
    )
    window_pooling: str = option(
        "mean",
        Message("With %s: the pooling of the logits of a text's windows.", Option("doc_stride")),
        choices=("mean", "max"),
    )
    max_windows: int | None = option(
        None,
        Message(
            "With %s: maximum windows of a text; what comes after them is not read. Default: as "
            "many as it takes.",
            Option("doc_stride"),
        ),
        low=1,
        shapes_training=True,
    )

    def check(self, max_seq_length: int, *, is_pair: bool) -> None:
        """Checks that the options fit together, and the texts.

        Args:
          max_seq_length: The maximum number of tokens of a window, specials included.
          is_pair: Whether the texts are pairs.

        Raises:
          ValueError: naming the option.
        """
        for name, value in changed_options(self).items():
            if is_pair:
                must = "be left out for pairs of texts, which keep their beginnings"
                raise OptionError(name, must, value)
            if name in ("window_pooling", "max_windows") and self.doc_stride is None:
                raise OptionError(name, Message("be given with %s", Option("doc_stride")), value)
        if self.doc_stride is None:
            return
        if self.truncation != "head":
            kept = Message("be left out with %s, which truncates no text", Option("doc_stride"))
            raise OptionError("truncation", kept, self.truncation)
        if self.doc_stride >= max_seq_length - 2:
            less = Message(
                f"be less than {max_seq_length - 2}, the tokens of a text in %s, so that windows "
                "overlap",
                Option("max_seq_length", max_seq_length),
            )
            raise OptionError("doc_stride", less, self.doc_stride)

    def num_kept(self, room: int) -> tuple[int, int]:
        """Returns how many tokens are kept from the beginning and from the end of a long text."""
        head = {"head": room, "tail": 0, "head_tail": room * _HEAD // _OF}[self.truncation]
        return head, room - head

    def num_read(self, max_seq_length: int) -> int | None:
        """Returns how many tokens from the beginning of a text are read at most; None for all."""
        if self.truncation != "head":
            return None
        if self.doc_stride is None:
            return max_seq_length
        if self.max_windows is None:
            return None
        return max_seq_length + (self.max_windows - 1) * self.doc_stride


# The default: texts lose their ends.
CUT_AT_ENDS = LongTexts()
