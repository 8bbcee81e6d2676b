"""A dev set that is split off a training file: a function of the examples and a seed alone."""

import collections
import dataclasses
import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from bert.command_line.settings import FileSettings
from bert.files.fingerprints import of_files
from bert.files.paths import is_file

# Its key in `task.json`.
_KEY = "dev_split"

Example = TypeVar("Example")


@dataclasses.dataclass(frozen=True)
class DevSplit:
    """How a dev set is split off.

    Attributes:
      fraction: About what part of the examples is for it.
      seed: Another one gives another part.
      sha256: The fingerprint of the training file, of another of which other examples would be
        chosen; None where it is not known.
    """

    fraction: float
    seed: int
    sha256: str | None = None

    def divide(
        self,
        path: str,
        examples: Sequence[Example],
        keys: Sequence[Sequence[str]],
        strata: Sequence[Hashable],
    ) -> tuple[list[Example], list[Example]]:
        """Returns the examples to train on and those of the dev set, each in their order.

        Args:
          path: Of the training file, for messages.
          examples: All that it holds.
          keys: The texts of each; those of the same texts stay together, wherever case, spaces and
            the order of the texts alone differ.
          strata: What of each is to be as frequent in the one part as in the other, such as labels.

        Raises:
          ValueError: where a part would be empty.
        """
        plain = [_plain(each) for each in keys]
        places = self._choose(plain, strata)
        train = [example for i, example in enumerate(examples) if i not in places]
        dev = [examples[i] for i in sorted(places)]
        if not train or not dev:
            raise ValueError(
                f"`--train_file` must hold examples enough to split off `--dev_fraction` "
                f"({self.fraction:g}) of them for the dev set: one of each label is trained on, "
                f"and the same texts stay together. {path!r} has {len(examples)}, with "
                f"{len({*plain})} different texts. Give a `--dev_file`."
            )
        logging.info(
            "There is no --dev_file: %d of the %d examples in %s are split off for it by the seed "
            "%d, and not trained on.",
            len(dev),
            len(examples),
            path,
            self.seed,
        )
        return train, dev

    def _choose(self, keys: Sequence[str], strata: Sequence[Hashable]) -> set[int]:
        """Returns the places of the examples for the dev set."""
        groups: dict[str, list[int]] = collections.defaultdict(list)
        for place, key in enumerate(keys):
            groups[key].append(place)
        by_stratum: dict[str, list[str]] = collections.defaultdict(list)
        for key, places in groups.items():
            by_stratum[str(strata[places[0]])].append(key)
        chosen: set[int] = set()
        wanted = 0.0
        # What one stratum is too small for, the next one gives, so that the whole is right.
        for _, members in sorted(by_stratum.items(), key=lambda item: (len(item[1]), item[0])):
            wanted += self.fraction * sum(len(groups[key]) for key in members)
            # One stays to train on.
            for key in sorted(members, key=self._number)[1:]:
                if len(chosen) + len(groups[key]) / 2 > wanted:
                    break
                chosen.update(groups[key])
        return chosen

    def _number(self, key: str) -> bytes:
        return hashlib.sha256(f"{self.seed}:{key}".encode("utf-8", "backslashreplace")).digest()


def _plain(texts: Sequence[str]) -> str:
    return "\0".join(sorted(" ".join(text.casefold().split()) for text in texts))


def find_split(settings: FileSettings, stored: Mapping[str, Any]) -> DevSplit | None:
    """Returns how the dev set is split off the training file; None where it is not.

    Args:
      settings: Those of the script.
      stored: The `task.json` of the model that is asked, or {}: one that is evaluated later is so
        on what was split off when it was trained.

    Raises:
      ValueError: where nothing was, or of another file.
    """
    if not settings.do_eval or settings.dev_file or settings.data_dir or not settings.train_file:
        return None
    sha256 = of_files([settings.train_file]) if is_file(settings.train_file) else None
    if settings.do_train:
        seed = settings.seed if settings.split_seed is None else settings.split_seed
        return DevSplit(settings.dev_fraction, seed, sha256)
    if kept := stored_split(stored):
        # Of a folder without a fingerprint, and of a file that is not there, this tells nothing.
        if None in (kept.sha256, sha256) or kept.sha256 == sha256:
            return kept
        raise ValueError(
            "`--train_file` must be as it was when the dev set was split off it and the model was "
            "trained: of another file, examples that were trained on would be chosen, too. "
            f"{settings.train_file!r} holds something else. Give the file of then, or what to "
            "evaluate on as `--dev_file`."
        )
    raise ValueError(
        "`--dev_file` must be given, for no dev set was split off when the model was trained. "
        "`--do_train --do_eval` does it."
    )


def split_remedy(split: str) -> str:
    """Returns what to do, of a folder without a file for a split, so that one is split off."""
    if split != "dev":
        return ""
    return (
        " To hold out a part of the training file for it, name that file with `--train_file` "
        "and leave `--data_dir` out."
    )


def split_fields(dev_split: DevSplit | None) -> dict[str, Any]:
    """Returns what `task.json` keeps of how the dev set was split off, {} where it was not."""
    if dev_split is None:
        return {}
    fields = dataclasses.asdict(dev_split)
    return {_KEY: {name: value for name, value in fields.items() if value is not None}}


def stored_split(stored: Mapping[str, Any]) -> DevSplit | None:
    """Returns how the dev set was split off when the model was trained, None where it was not."""
    kept = stored.get(_KEY)
    if kept is None:
        return None
    try:
        sha256 = kept.get("sha256")
        return DevSplit(float(kept["fraction"]), int(kept["seed"]), sha256 and str(sha256))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"`{_KEY}` must have a fraction and a seed. It is {kept!r:.80}.") from None
