"""The part of the tasks that is the same for texts, questions, endings and words."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras

import modeling
import tokenization
from bert.export.formats import CORE
from bert.network.heads import Losses, Weights
from bert.options import MessageError, Option
from bert.tasks.distillation import Teacher, without_layers
from bert.tasks.options import Encoder, Lengths
from bert.tasks.task import TaskContext, check_lstm_export, stored_field
from bert.training.loop import Objective
from bert.training.records import Feature, encoder_features

if TYPE_CHECKING:
    from typing_extensions import Self

    from bert.export.tokenizer import GraphTokenizer


@dataclasses.dataclass(frozen=True)
class EncoderTask:
    """A task of `bert.tasks.task` on an encoder; a subclass has what its kind needs.

    Attributes:
      config: The shape of the model.
      tokenizer: The tokenizer of the model.
      max_seq_length: The maximum number of tokens of a sequence, specials included.
      add_bilstm: Whether there is a BiLSTM between the encoder and the head.
      teacher: The model to learn from in addition to the data; None without distillation.
    """

    config: modeling.BertConfig
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    add_bilstm: bool = dataclasses.field(default=False, kw_only=True)
    teacher: Teacher | None = dataclasses.field(default=None, kw_only=True)

    kind: ClassVar[str]

    @classmethod
    def for_run(
        cls, context: TaskContext, lengths: Lengths, encoder: Encoder, *own: Any, **others: Any
    ) -> "Self":
        """Returns the task of a run, with a BiLSTM by the options or as the model was trained.

        Args:
          context: The model, and what the run does.
          lengths: The length of sequences.
          encoder: The options of the BiLSTM.
          *own: The first fields of the subclass.
          **others: Its other fields.

        Raises:
          ValueError: where the hidden size is odd, or an export cannot hold the LSTMs.
        """
        config, add_bilstm = context.config, encoder.add_bilstm or _has_bilstm(context.stored)
        if add_bilstm or config.is_bilstm:
            # tf2onnx cannot convert the loop over the tokens.
            check_lstm_export(context.export_formats, ["saved_model"])
        if add_bilstm and config.hidden_size % 2:
            raise MessageError(
                "%s needs an even `hidden_size`, half of it for each direction. Received %s.",
                Option("add_bilstm"),
                config.hidden_size,
            )
        model = (config, context.tokenizer, lengths.max_seq_length)
        return cls(*model, *own, add_bilstm=add_bilstm, **others)

    @classmethod
    def restore(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
        **own: Any,
    ) -> "Self":
        """Returns the task of a `task.json`; `own` are the fields of the subclass."""
        length = stored_field(stored, "max_seq_length", int)
        return cls(config, tokenizer, length, add_bilstm=_has_bilstm(stored), **own)

    def store(self, task: Mapping[str, Any] | None = None, **own: Any) -> dict[str, Any]:
        """Returns the fields of `task.json`: common ones, and those of the subclass among them."""
        return {
            "kind": self.kind,
            **({} if task is None else {"task": task}),
            "do_lower_case": self.tokenizer.basic_tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            **own,
            **({"add_bilstm": True} if self.add_bilstm else {}),
        }

    @property
    def unlabeled(self) -> Sequence[Any]:
        """The examples without labels, which only a teacher answers."""
        return self.teacher.unlabeled if self.teacher else ()

    def can_score(self, examples: Sequence[Any]) -> bool:
        """Returns whether examples of the dev set have the scores that the run needs."""
        del examples
        return True

    def encoder_features(self, rows: int = 0) -> dict[str, Feature]:
        """Returns the features of a record that the encoder reads, of `rows` sequences."""
        return encoder_features(
            max_seq_length=self.max_seq_length,
            vocab_size=self.config.vocab_size,
            type_vocab_size=self.config.type_vocab_size,
            rows=rows,
        )

    def build_model(self, make: Callable[..., keras.Model], *sizes: int, **given: Any) -> Any:
        """Returns a model of `bert.network.heads`, with the layers that a teacher needs."""
        in_step = self.teacher.in_step if self.teacher else None
        given |= {"gives_layers": bool(in_step and in_step.layers), "add_bilstm": self.add_bilstm}
        model = make(self.config, *sizes, **given)
        return in_step.extend(model) if in_step else model

    def whole_model(self, model: keras.Model) -> keras.Model:
        return without_layers(model)

    def teach(self, weights: Weights, losses: Losses) -> Objective:
        """Returns the objective of some parts, and of a teacher's."""
        in_step = self.teacher.in_step if self.teacher else None
        return Objective(*(in_step.objective(weights, losses) if in_step else (weights, losses)))

    def export(self, folder: str, model: keras.Model, wordpiece: str = CORE) -> None:
        # Importing what writes graphs takes time, which predictions do not need.
        from bert.export.tokenizer import GraphTokenizer  # noqa: PLC0415

        self.export_text(folder, model, GraphTokenizer(self.tokenizer, wordpiece))

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        """Writes a SavedModel that takes text, which the tokenizer splits in the graph."""
        raise NotImplementedError


def _has_bilstm(stored: Mapping[str, Any]) -> bool:
    return bool(stored_field({"add_bilstm": False, **stored}, "add_bilstm", bool))
