"""The methods of every model that `bert.load` returns."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.files.process import is_script

if TYPE_CHECKING:
    import keras

    import modeling
    import tokenization

# A text, or a pair of texts, for an encoder.
Text = str | Sequence[str]
# What a fine-tuned model is asked: one input, or several.
Queries = str | Mapping[str, Any] | Sequence[Any]
Between = Callable[[], None]

# The models that have a method, for messages.
_NEEDED = {
    **dict.fromkeys(("fill_mask", "score", "next_sentence"), "a pre-trained model"),
    **dict.fromkeys(
        ("encode", "encoder", "inputs"), "a model with an encoder, which an export does not show"
    ),
    "predict": "a fine-tuned model or an export of one",
}
# The number of labels that are listed at most.
_LABELS_SHOWN = 9
# The variable of TensorFlow for `assume_frozen_weights`.
VARIABLE = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


@dataclasses.dataclass(frozen=True, slots=True)
class Guess:
    """A token, and its probability at a [MASK]."""

    token: str
    probability: float


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """How likely a text is.

    Attributes:
      pseudo_log_likelihood: Natural logarithm, a sum over tokens.
      num_tokens: Tokens, [CLS] and [SEP] left out.
    """

    pseudo_log_likelihood: float
    num_tokens: int

    @property
    def perplexity(self) -> float:
        """The perplexity per token, bounded to a finite number."""
        return math.exp(min(-self.pseudo_log_likelihood / self.num_tokens, 700))


def as_list(inputs: Queries) -> Sequence[Any]:
    """Returns inputs as a list; a single text or dictionary is a list of one."""
    return [inputs] if isinstance(inputs, str | Mapping) else inputs


class Model:
    """A model in memory: fine-tuned, pre-trained or exported.

    A method that the model lacks raises a `ValueError` that names those it has. In all methods,
    `between` is called after each batch; an exception of it ends the work.

    Attributes:
      kind: The kind of the model, such as "classification" or "pre-trained".
      labels: The names of the outputs of a classifier or tagger; [] for other models.
      methods: The names of the methods that the model has.
      model: A Keras model of `input_ids`, `input_mask` and `segment_ids`; an export has none.
      tokenizer: The tokenizer of the model; an export has none.
    """

    kind: str
    labels: list[str]
    methods: tuple[str, ...]
    model: "keras.Model"
    tokenizer: "tokenization.FullTokenizer"

    def __repr__(self) -> str:
        more = " …" * (len(self.labels) > _LABELS_SHOWN)
        shown = f", labels {', '.join(self.labels[:_LABELS_SHOWN])}{more}" if self.labels else ""
        return f"<{type(self).__name__}: {self.kind}{shown}; methods: {', '.join(self.methods)}>"

    @property
    def encoder(self) -> "modeling.BertModel":
        """The encoder, a Keras layer from a dictionary of inputs to a dictionary of outputs."""
        raise self._lack("encoder")

    def predict(self, inputs: Queries, *, between: Between = lambda: None) -> list[dict[str, Any]]:
        """Returns an answer for each input of a fine-tuned model, in their order.

        Args:
          inputs: A list of dictionaries of the model's fields, or of tuples of their values; for a
            model of one field, also of its values. A single text or dictionary is a list of one.
            A column of the training files may have its name there.
          between: As for all methods.

        Raises:
          ValueError: where an input has another form, naming its place.
        """
        raise self._lack("predict")

    def fill_mask(
        self, texts: Sequence[Text], top_k: int = 5, *, between: Between = lambda: None
    ) -> list[list[list[Guess]]]:
        """Returns for each text, for each [MASK] in it, the best tokens.

        Args:
          texts: Strings or pairs of strings, which are not truncated. A single string is a list of
            one.
          top_k: Number of tokens for each [MASK].
          between: As for all methods.

        Raises:
          ValueError: where a text has no [MASK], or the model no masked-LM head.
        """
        raise self._lack("fill_mask")

    def score(self, texts: Sequence[Text], *, between: Between = lambda: None) -> list[Score]:
        """Returns how likely each text is; the model reads a text once for each of its tokens.

        Args:
          texts: As for `fill_mask`.
          between: As for all methods.

        Raises:
          ValueError: where a text has a [MASK], or the model no masked-LM head.
        """
        raise self._lack("score")

    def next_sentence(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Returns for each pair of texts the probability that the second follows the first.

        Raises:
          ValueError: where a text is no pair, or the model lacks the heads of pre-training.
        """
        raise self._lack("next_sentence")

    def encode(
        self,
        texts: Sequence[Text],
        layer: int | str = "last",
        pooling: str | None = None,
        *,
        normalize: bool | None = None,
        max_seq_length: int | None = None,
        between: Between = lambda: None,
    ) -> np.ndarray:
        """Returns a vector for each text, float32 [N, W], in their order.

        A folder of sentence-transformers gives the defaults of `pooling`, `normalize` and
        `max_seq_length`; without one, it is the mean over tokens of texts of any length.
        extract_features.py writes the same vectors to the last bit for the same lengths and
        batches. In other batches, vectors differ by rounding.

        Args:
          texts: Strings or pairs of strings. A single string is a list of one.
          layer: A number, from 0 or from the end with -1, or one of
            `bert.tasks.layers.COMBINATIONS`.
          pooling: "mean" or "max" over tokens, [CLS] and [SEP] included, or "cls".
          normalize: Whether to scale each vector to length 1.
          max_seq_length: Maximum tokens, including [CLS] and [SEP]; longer texts are truncated.
            None for the value with which the model was loaded, or what its folder says, or else all
            that the model takes.
          between: As for all methods.

        Raises:
          ValueError: where the layer or pooling does not exist, or an input is no text.
        """
        raise self._lack("encode")

    def inputs(
        self, texts: Sequence[Text], max_seq_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns texts as `input_ids`, `input_mask` and `segment_ids`, int32 [N, S].

        These are the inputs of a Keras model of the encoder.

        Args:
          texts: As for `encode`.
          max_seq_length: As for `encode`.
        """
        raise self._lack("inputs")

    def _lack(self, method: str) -> ValueError:
        return ValueError(f"`{method}` needs {_NEEDED[method]}. Received {self!r}.")


def assume_frozen_weights(precision: str) -> None:
    """Promises TensorFlow that no weight changes once a graph has run with it.

    On a CPU, TensorFlow multiplies matrices with oneDNN, whose fastest kernels read weights in an
    order of their own. Where weights may change, they are reordered at each call.

    The promise must come before the first graph runs. It is made in scripts of this project alone,
    since another program may still train. The user's own setting of the variable stays.

    Args:
      precision: Name of the dtype policy that the model computes in. In float32 no promise is made:
        there the order depends on the number of rows, so that weights would still be reordered.
    """
    if is_script() and precision.endswith("bfloat16"):
        os.environ.setdefault(VARIABLE, "1")
