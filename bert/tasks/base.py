"""The part of the tasks that is the same for texts, questions, endings and words."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras

import modeling
import tokenization
from bert.export.formats import CORE
from bert.network.heads import Losses, Weights
from bert.tasks.distillation import Teacher, without_layers
from bert.tasks.task import stored_bilstm, stored_field
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
    def restore(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
        **own: Any,
    ) -> "Self":
        """Returns the task of a `task.json`; `own` are the fields of the subclass."""
        length, add_bilstm = stored_field(stored, "max_seq_length", int), stored_bilstm(stored)
        return cls(config, tokenizer, length, add_bilstm=add_bilstm, **own)

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
        gives_layers = bool(self.teacher and self.teacher.layers)
        given |= {"gives_layers": gives_layers, "add_bilstm": self.add_bilstm}
        model = make(self.config, *sizes, **given)
        return self.teacher.extend(model) if self.teacher else model

    def whole_model(self, model: keras.Model) -> keras.Model:
        return without_layers(model)

    def teach(self, weights: Weights, losses: Losses) -> Objective:
        """Returns the objective of some parts, and of a teacher's."""
        parts = (weights, losses)
        return Objective(*(self.teacher.teach(*parts) if self.teacher else parts))

    def export(self, folder: str, model: keras.Model, wordpiece: str = CORE) -> None:
        # Importing what writes graphs takes time, which predictions do not need.
        from bert.export.tokenizer import GraphTokenizer  # noqa: PLC0415

        self.export_text(folder, model, GraphTokenizer(self.tokenizer, wordpiece))

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        """Writes a SavedModel that takes text, which the tokenizer splits in the graph."""
        raise NotImplementedError
