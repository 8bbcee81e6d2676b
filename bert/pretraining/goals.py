"""What a pre-training may learn: the paper's two tasks, or one of its ablations (section 5.1)."""

import dataclasses
from collections.abc import Iterable, Mapping

from bert.weights import provenance

PAIR_HEAD = "cls/seq_relationship/"


@dataclasses.dataclass(frozen=True)
class Goal:
    """What is learned from records of create_pretraining_data.py.

    Attributes:
      name: By which `--objective` calls it.
      has_next_sentence: Whether the model learns to tell if the second segment follows the first.
      is_decoder: Whether a token sees those before it alone.
      encoder_type: That of the model, one of `modeling.ENCODER_TYPES`.
    """

    name: str
    has_next_sentence: bool = False
    is_decoder: bool = False
    encoder_type: str = "transformer"

    @property
    def directions(self) -> tuple[int, ...]:
        """Where what every token predicts stands, behind it (1) or before it (-1), or both.

        Of none, there are masked tokens, which are predicted where they stand.
        """
        if self.encoder_type == "bilstm":
            return (1, -1)
        return (1,) if self.is_decoder else ()

    @property
    def tokens(self) -> str:
        """What the names of the figures of predicted tokens begin with."""
        return "language_model" if self.directions else "masked_lm"

    @property
    def accuracy(self) -> str:
        """Name of the share of tokens that are predicted right."""
        return f"{self.tokens}_accuracy"

    @property
    def token_loss(self) -> str:
        """Name of the mean loss of the predicted tokens."""
        return f"{self.tokens}_loss"


BERT = Goal("masked_lm_nsp", has_next_sentence=True)
GOALS: Mapping[str, Goal] = {
    each.name: each
    for each in (
        BERT,
        Goal("masked_lm"),
        Goal("left_to_right", is_decoder=True),
        Goal("bilstm_lm", encoder_type="bilstm"),
    )
}


def find_learned(folder: str) -> str:
    """Returns the name of what the model in a folder has learned; BERT's where nothing tells."""
    return provenance.read(folder).get("made_of", {}).get("--objective", BERT.name)


def find_untrained(folder: str, names: Iterable[str]) -> set[str]:
    """Returns those of the tensors in a folder that its training has left as they were drawn.

    They are of the next-sentence head. A copy without them tells what one with them would not.
    """
    if find_learned(folder) == BERT.name:
        return set()
    return {name for name in names if name.startswith(PAIR_HEAD)}
