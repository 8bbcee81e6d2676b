"""The tags that a model assigns to words: the labels of its outputs, and their scheme."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert.tasks.tagging.entities import (
    NONE,
    OUTSIDE,
    PLAIN,
    SCHEMES,
    find_entities,
    list_labels,
    split_label,
)
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.words import UNITS


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagSet:
    """The tags that a model assigns to words.

    Attributes:
      labels: Tags, in the order of the model's outputs.
      scheme: The scheme of the labels, one of `entities.SCHEMES` or `entities.PLAIN`.
      unit: The unit of raw text that has a tag, one of `words.UNITS`.
    """

    labels: tuple[str, ...]
    scheme: str
    unit: str = "word"

    def __post_init__(self) -> None:
        for name, values in (("scheme", (*SCHEMES, *PLAIN)), ("unit", UNITS)):
            if getattr(self, name) not in values:
                raise ValueError(
                    f"`{name}` must be one of {list(values)}. Received {getattr(self, name)!r}."
                )
        if len(set(self.labels)) < max(len(self.labels), 2):
            raise ValueError(
                f"`labels` must be at least two, each once. Received {list(self.labels)}."
            )
        for label in self.labels:
            split_label(label, self.scheme)

    @property
    def is_plain(self) -> bool:
        """Whether each label is a class, not a part of an entity."""
        return self.scheme in PLAIN

    @property
    def is_segmentation(self) -> bool:
        """Whether the complete text is split into words, as no label means "outside"."""
        return not self.is_plain and OUTSIDE not in self.labels

    @property
    def answers_with_words(self) -> bool:
        """Whether an answer lists all words of a text with their tags, not entities."""
        return self.is_segmentation or self.scheme == NONE

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as values of JSON."""
        return {**dataclasses.asdict(self), "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TagSet":
        """Returns the tag set with the fields of `to_dict`, all of which are required."""
        names = [field.name for field in dataclasses.fields(cls)]
        if sorted(values) != sorted(names):
            raise ValueError(f"A task must have the keys {names}. Received {list(values)}.")
        labels = values["labels"]
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"`labels` of a task must be a list of tags. Received {labels!r:.80}.")
        return cls(**{**values, "labels": tuple(labels)})

    @classmethod
    def from_sentences(
        cls, sentences: Sequence[Sentence], scheme: str, unit: str = "word"
    ) -> "TagSet":
        """Returns the tag set of the entities, or plain tags, in a training set.

        Args:
          sentences: The sentences, with tags of any scheme.
          scheme: The scheme of the model's labels.
          unit: The unit of raw text that has a tag.

        Raises:
          ValueError: if there is no entity, or fewer than two tags.
        """
        found = {tag for sentence in sentences for tag in sentence.tags or ()}
        if scheme in PLAIN:
            return cls(labels=tuple(sorted(found)), scheme=scheme, unit=unit)
        types = {entity.type for s in sentences for entity in find_entities(s.tags or ())}
        if not types:
            raise ValueError("The sentences to train on must have entities. All tags are O.")
        labels = list_labels(types, scheme)
        if scheme == "bmes" and OUTSIDE not in found:
            labels.remove(OUTSIDE)
        return cls(labels=tuple(labels), scheme=scheme, unit=unit)
