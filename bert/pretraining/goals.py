"""The pre-training objectives: the paper's two tasks, and its ablations (section 5.1)."""

import dataclasses
from collections.abc import Iterable, Mapping

from bert.weights import provenance

PAIR_HEAD = "cls/seq_relationship/"


@dataclasses.dataclass(frozen=True)
class Goal:
    """An objective for records of create_pretraining_data.py.

    Attributes:
      name: The value of the option `objective`.
      has_next_sentence: Whether next-sentence prediction is an objective.
      is_decoder: Whether a token attends to earlier tokens only.
      encoder_type: The encoder of the model, one of `modeling.ENCODER_TYPES`.
    """

    name: str
    has_next_sentence: bool = False
    is_decoder: bool = False
    encoder_type: str = "transformer"

    @property
    def directions(self) -> tuple[int, ...]:
        """The neighbors that every token predicts: the next (1), the previous (-1) token, or both.

        Empty where masked tokens are predicted instead.
        """
        if self.encoder_type == "bilstm":
            return (1, -1)
        return (1,) if self.is_decoder else ()

    @property
    def tokens(self) -> str:
        """The prefix of the names of metrics of predicted tokens."""
        return "language_model" if self.directions else "masked_lm"

    @property
    def accuracy(self) -> str:
        """The name of the accuracy of predicted tokens."""
        return f"{self.tokens}_accuracy"

    @property
    def token_loss(self) -> str:
        """The name of the mean loss of predicted tokens."""
        return f"{self.tokens}_loss"


BERT = Goal("masked_lm_nsp", has_next_sentence=True)
GOALS: Mapping[str, Goal] = {
    goal.name: goal
    for goal in (
        BERT,
        Goal("masked_lm"),
        Goal("left_to_right", is_decoder=True),
        Goal("bilstm_lm", encoder_type="bilstm"),
    )
}


def find_learned(folder: str) -> str:
    """Returns the objective of the model in a folder; BERT's where the folder records none."""
    return provenance.read(folder).get("made_of", {}).get("--objective", BERT.name)


def find_untrained(folder: str, names: Iterable[str]) -> set[str]:
    """Returns the names of a folder's tensors that its training run has not trained.

    These are of the next-sentence head. A copy of the model must not have them, since it does not
    record the objective.
    """
    if find_learned(folder) == BERT.name:
        return set()
    return {name for name in names if name.startswith(PAIR_HEAD)}
