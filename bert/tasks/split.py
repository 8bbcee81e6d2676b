"""A dev set that is split off a training file: a function of the examples and a seed alone."""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from bert.files.fingerprints import of_files
from bert.files.paths import describe_folder, is_file, is_folder, list_folder
from bert.files.rows import check_no_workbook
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.tasks.options import DataFiles

# Its key in `task.json`.
_KEY = "dev_split"
# How examples are chosen. The first rule, of folders that name none, ended a label's draw at the
# first text that was too frequent to fit, so that labels could be far from their shares.
_FIRST_RULE, _RULE = 1, 2

Example = TypeVar("Example")


@dataclasses.dataclass(frozen=True)
class DevSplit:
    """How a dev set is split off.

    Attributes:
      fraction: About what part of the examples is for it.
      seed: Another one gives another part.
      sha256: The fingerprint of the training file, of another of which other examples would be
        chosen; None where it is not known.
      rule: How examples are chosen; a folder keeps the one that it was trained with.
    """

    fraction: float
    seed: int
    sha256: str | None = None
    rule: int = _RULE

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
            Of each stratum, the dev set has `fraction` to within the most examples of it that have
            the same texts, and one example at least is trained on. (Where the same texts are of
            several strata, they count for the rarest.)

        Raises:
          ValueError: where a part would be empty.
        """
        plain = [_plain(each) for each in keys]
        places = self._choose(plain, strata)
        train = [example for i, example in enumerate(examples) if i not in places]
        dev = [examples[i] for i in sorted(places)]
        if not train or not dev:
            raise MessageError(
                "%s must hold examples enough to split off %s (%g) of them for the dev set: one "
                "of each label is trained on, and the same texts stay together. %r has %d, with "
                "%d different texts. Give a %s.",
                *(Option("train_file"), Option("dev_fraction"), self.fraction),
                *(path, len(examples), len({*plain}), Option("dev_file")),
            )
        logger.info(
            "There is no %s: %d of the %d examples in %s are split off for it by the seed %d, and "
            "not trained on.",
            Option("dev_file"),
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
        groups = {key: groups[key] for key in sorted(groups, key=self._number)}
        if self.rule == _FIRST_RULE:
            return self._choose_by_first_rule(groups, strata)
        return _Draw(self.fraction, groups, [str(stratum) for stratum in strata])()

    def _choose_by_first_rule(
        self, groups: Mapping[str, list[int]], strata: Sequence[Hashable]
    ) -> set[int]:
        by_stratum: dict[str, list[str]] = collections.defaultdict(list)
        for key, places in groups.items():
            by_stratum[str(strata[places[0]])].append(key)
        chosen: set[int] = set()
        wanted = 0.0
        # What one stratum is too small for, the next one gives, so that the whole is right.
        for _, members in sorted(by_stratum.items(), key=lambda item: (len(item[1]), item[0])):
            wanted += self.fraction * sum(len(groups[key]) for key in members)
            # One stays to train on.
            for key in members[1:]:
                if len(chosen) + len(groups[key]) / 2 > wanted:
                    break
                chosen.update(groups[key])
        return chosen

    def _number(self, key: str) -> bytes:
        return hashlib.sha256(f"{self.seed}:{key}".encode("utf-8", "backslashreplace")).digest()


class _Draw:
    """The choice of examples of each stratum by the second rule.

    Args:
      fraction: About what part of the examples is chosen.
      groups: The places of the examples that have the same texts, in the order of the draw.
      strata: That of each example.
    """

    def __init__(
        self, fraction: float, groups: Mapping[str, list[int]], strata: Sequence[str]
    ) -> None:
        self._fraction = fraction
        self._groups = groups
        # For each group, how many of its examples are of which stratum.
        self._sizes = {
            key: collections.Counter(strata[place] for place in places)
            for key, places in groups.items()
        }
        self._counts = collections.Counter(strata)
        self._chosen: set[int] = set()
        self._held: collections.Counter[str] = collections.Counter()

    def __call__(self) -> set[int]:
        """Returns the places of the chosen examples."""
        trained_on = self._reserve()
        by_stratum: dict[str, list[str]] = collections.defaultdict(list)
        for key, sizes in self._sizes.items():
            by_stratum[min(sizes, key=self._rarity)].append(key)
        passed = 0
        for stratum in sorted(by_stratum, key=self._rarity):
            members = by_stratum[stratum]
            # What one stratum is too small for, the next one gives, as far as its share lets it.
            missing = self._fraction * passed - len(self._chosen)
            most = max(self._sizes[key][stratum] for key in members) / 2
            share = self._fraction * self._counts[stratum]
            free = [key for key in members if key not in trained_on]
            self._fill(stratum, free, share + min(max(missing, -most), most))
            passed += sum(len(self._groups[key]) for key in members)
        return self._chosen

    def _rarity(self, stratum: str) -> tuple[int, str]:
        return self._counts[stratum], stratum

    def _reserve(self) -> set[str]:
        """Returns groups to train on, the first ones that together have all strata."""
        first: dict[str, str] = {}
        for key, sizes in self._sizes.items():
            for stratum in sizes:
                first.setdefault(stratum, key)
        reserved: set[str] = set()
        covered: set[str] = set()
        for stratum in sorted(self._counts, key=self._rarity):
            if stratum not in covered:
                reserved.add(first[stratum])
                covered |= self._sizes[first[stratum]].keys()
        return reserved

    def _fill(self, stratum: str, keys: Sequence[str], wanted: float) -> None:
        """Chooses the groups that fit, and the smallest one that does not where that is nearer."""
        too_large = []
        for key in keys:
            if self._held[stratum] + self._sizes[key][stratum] <= wanted:
                self._take(key)
            else:
                too_large.append(key)
        if too_large:
            smallest = min(too_large, key=lambda key: self._sizes[key][stratum])
            if self._held[stratum] + self._sizes[smallest][stratum] / 2 <= wanted:
                self._take(smallest)

    def _take(self, key: str) -> None:
        self._chosen.update(self._groups[key])
        self._held.update(self._sizes[key])


def _plain(texts: Sequence[str]) -> str:
    return "\0".join(sorted(" ".join(text.casefold().split()) for text in texts))


def find_split(
    files: DataFiles,
    stored: Mapping[str, Any],
    *,
    seed: int,
    is_training: bool,
) -> DevSplit | None:
    """Returns how the dev set is split off the training file; None where it has files of its own.

    Args:
      files: The files of the data set.
      stored: The `task.json` of the trained model that is evaluated, or of the folder in which a
        training run resumes; or {}.
      seed: The seed of the split where the options give none.
      is_training: Whether a model is trained.

    Raises:
      ValueError: where the trained model has no split, or one of another file.
    """
    if files.dev_file or files.data_dir or not files.train_file:
        return None
    sha256 = of_files([files.train_file]) if is_file(files.train_file) else None
    known = stored_split(stored)
    if is_training:
        seed = seed if files.split_seed is None else files.split_seed
        return DevSplit(files.dev_fraction, seed, sha256, known.rule if known else _RULE)
    if known is None:
        raise OptionError(
            "dev_file",
            "be given, for no dev set was split off when the model was trained",
            remedy=Message("%s with %s does it.", Option("do_train"), Option("do_eval")),
        )
    # A folder without a fingerprint and a file that is not there cannot be compared.
    if None not in (known.sha256, sha256) and known.sha256 != sha256:
        raise MessageError(
            "%s must be as it was when the dev set was split off it and the model was trained: of "
            "another file, examples that were trained on would be chosen, too. %r holds something "
            "else. Give the original file, or a file to evaluate on as %s.",
            *(Option("train_file"), files.train_file, Option("dev_file")),
        )
    return known


def split_remedy(split: str) -> Message:
    """Returns what to do where a folder has no file for a split; empty but for the dev set."""
    if split != "dev":
        return Message("")
    return Message(
        " To hold out a part of the training file for it, name that file with %s and leave %s out.",
        *(Option("train_file"), Option("data_dir")),
    )


def check_file(option: str, path: str) -> None:
    """Raises `ValueError` where an option names no file of data, or a workbook."""
    if not is_file(path):
        problem = "is a folder" if is_folder(path) else "does not exist"
        raise OptionError(option, "name a file", Message("%r, which %s", path, problem))
    check_no_workbook(path)


def find_in_folder(
    folder: str | None, split: str, endings: Collection[str], shown: Collection[str]
) -> str:
    """Returns the path of the one file of a split in a folder.

    Args:
      folder: The folder; None where none is given.
      split: "train", "dev" or "test", the name of the file but for its ending.
      endings: The endings that the file may have.
      shown: The endings that an error lists.

    Raises:
      ValueError: where there is no file, or more than one.
    """
    option = Option(f"{split}_file")
    if folder is None:
        raise MessageError("%s or %s must be given.", Option("data_dir"), option)
    names = {split + ending for ending in endings}
    found = [name for name in list_folder(folder) if name in names]
    if len(found) > 1:
        must = f"hold one file for the {split} set"
        received = Message("%s in %r", found, folder)
        raise OptionError("data_dir", must, received, Message("Name one with %s.", option))
    if not found:
        raise MessageError(
            "%s must hold %r with one of the endings %s, or %s name the file. Received %s.%s",
            *(Option("data_dir"), split, list(shown), option, describe_folder(folder)),
            split_remedy(split),
        )
    return os.path.join(folder, found[0])


def split_fields(dev_split: DevSplit | None) -> dict[str, Any]:
    """Returns what `task.json` keeps of how the dev set was split off, {} where it was not."""
    if dev_split is None:
        return {}
    fields = dataclasses.asdict(dev_split)
    if dev_split.rule == _FIRST_RULE:
        del fields["rule"]
    return {_KEY: {name: value for name, value in fields.items() if value is not None}}


def stored_split(stored: Mapping[str, Any]) -> DevSplit | None:
    """Returns how the dev set was split off when the model was trained, None where it was not."""
    kept = stored.get(_KEY)
    if kept is None:
        return None
    try:
        sha256 = kept.get("sha256")
        rule = kept.get("rule", _FIRST_RULE)
        split = DevSplit(float(kept["fraction"]), int(kept["seed"]), sha256 and str(sha256), rule)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"`{_KEY}` must have a fraction and a seed. It is {kept!r:.80}.") from None
    if rule not in (_FIRST_RULE, _RULE):
        raise ValueError(
            f"`rule` of `{_KEY}` must be at most {_RULE}. It is {rule!r}: a newer version of this "
            "project has trained the model, and may evaluate it."
        )
    return split
