"""The files and examples of a data set, and a dev set that is split off the training file.

The split depends on the examples and a seed alone.
"""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from bert.files.fingerprints import of_files
from bert.files.paths import check_no_workbook, describe_folder, is_file, is_folder, list_folder
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.tasks.options import DataFiles

# The key of a split in `task.json`.
_KEY = "dev_split"
# The rules by which examples are chosen. The first one, of folders that name none, ended the draw
# of a label at the first text that was too frequent to fit, so that labels could miss their shares.
_FIRST_RULE, _RULE = 1, 2

Example = TypeVar("Example")


@dataclasses.dataclass(frozen=True)
class DevSplit:
    """The split of a dev set from the training file.

    Attributes:
      fraction: The approximate fraction of the examples in the dev set.
      seed: The seed that selects the examples.
      sha256: The fingerprint of the training file, since another file would be split differently;
        None where it is unknown.
      rule: The rule by which examples are chosen; a trained folder keeps its rule.
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
        noun: str = "texts",
    ) -> tuple[list[Example], list[Example]]:
        """Returns the training set and the dev set, both in the order of the examples.

        Args:
          path: The path of the training file, for messages.
          examples: All examples of the file.
          keys: The texts of each example. Examples of the same texts stay together, also where the
            texts differ in case, spaces and order.
          strata: The stratum of each example, such as its label. Where the same texts have one, the
            dev set has `fraction` of each stratum, up to the largest number of its examples with
            the same texts; texts of several count for the rarest. One of each is trained on.
          noun: What the keys are, for messages.

        Raises:
          ValueError: where a part would be empty.
        """
        plain = [_plain(texts) for texts in keys]
        places = self._choose(plain, strata)
        train = [example for i, example in enumerate(examples) if i not in places]
        dev = [examples[i] for i in sorted(places)]
        if not train or not dev:
            raise MessageError(
                "%s must hold examples enough to split off %s (%g) of them for the dev set: one "
                "of each label is trained on, and the same %s stay together. %r has %d, with %d "
                "different %s. Give a %s.",
                Option("train_file"),
                Option("dev_fraction"),
                self.fraction,
                noun,
                path,
                len(examples),
                len({*plain}),
                noun,
                Option("dev_file"),
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
        # The next stratum makes up for one that is too small.
        for _, members in sorted(by_stratum.items(), key=lambda item: (len(item[1]), item[0])):
            wanted += self.fraction * sum(len(groups[key]) for key in members)
            # One group stays in the training set.
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
      fraction: The approximate fraction of the examples that is chosen.
      groups: The places of the examples with the same texts, in the order of the draw.
      strata: The stratum of each example.
    """

    def __init__(
        self, fraction: float, groups: Mapping[str, list[int]], strata: Sequence[str]
    ) -> None:
        self._fraction = fraction
        self._groups = groups
        # The number of examples of each stratum, by group.
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
            # The next stratum makes up for one that is too small, as far as its share allows.
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
        """Returns the first groups that together have all strata, which are trained on."""
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
        """Chooses the groups that fit, and the smallest other one if that comes nearer."""
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
    """Returns the split of the dev set from the training file; None where it has its own file.

    Args:
      files: The files of the data set.
      stored: The `task.json` of the trained model that is evaluated, or of the folder in which a
        training run resumes; or {}.
      seed: The seed of the split where the options give none.
      is_training: Whether a model is trained.

    Raises:
      ValueError: where the trained model has no split, or a split of another file.
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
            Option("train_file"),
            files.train_file,
            Option("dev_file"),
        )
    return known


def split_remedy(split: str) -> Message:
    """Returns the remedy for a missing dev file; empty for other splits."""
    if split != "dev":
        return Message("")
    return Message(
        " To hold out a part of the training file for it, name that file with %s and leave %s out.",
        Option("train_file"),
        Option("data_dir"),
    )


def find_given(files: DataFiles, split: str) -> str | None:
    """Returns the file that an option names for a split; None where `data_dir` holds it.

    Raises:
      ValueError: where neither is given, or the option names no file, or a workbook.
    """
    option = Option(f"{split}_file")
    path: str | None = getattr(files, option.name)
    if not path:
        if files.data_dir is None:
            raise MessageError("%s or %s must be given.", Option("data_dir"), option)
        return None
    if not is_file(path):
        problem = "is a folder" if is_folder(path) else "does not exist"
        raise OptionError(option.name, "name a file", Message("%r, which %s", path, problem))
    check_no_workbook(path)
    return path


def find_file(
    files: DataFiles, split: str, endings: Collection[str], shown: Collection[str]
) -> str:
    """Returns the path of the one file of a split, given or in `data_dir`.

    Args:
      files: The files of the data set.
      split: "train", "dev" or "test", the name of a file in `data_dir` without its ending.
      endings: The endings that the file may have.
      shown: The endings that an error lists.

    Raises:
      ValueError: where there is no file, more than one, or a folder of its name.
    """
    if path := find_given(files, split):
        return path
    found = list_files(files, split, endings)
    folder, option = files.data_dir or "", Option(f"{split}_file")
    must = f"hold one file for the {split} set"
    if len(found) > 1:
        received = Message("%s in %r", found, folder)
        raise OptionError("data_dir", must, received, Message("Name one with %s.", option))
    if not found:
        raise MessageError(
            "%s must hold %r with one of the endings %s, or %s name the file. Received %s.%s",
            Option("data_dir"),
            split,
            list(shown),
            option,
            describe_folder(folder),
            split_remedy(split),
        )
    if is_folder(path := os.path.join(folder, found[0])):
        raise OptionError("data_dir", must, Message("%r, which is a folder", path))
    return path


def list_files(files: DataFiles, split: str, endings: Collection[str]) -> list[str]:
    """Returns the names of the files of a split in `data_dir`."""
    names = {split + ending for ending in endings}
    return [name for name in list_folder(files.data_dir or "") if name in names]


def split_fields(dev_split: DevSplit | None) -> dict[str, Any]:
    """Returns the fields of `task.json` about the split of the dev set; {} without a split."""
    if dev_split is None:
        return {}
    fields = dataclasses.asdict(dev_split)
    if dev_split.rule == _FIRST_RULE:
        del fields["rule"]
    return {_KEY: {name: value for name, value in fields.items() if value is not None}}


def stored_split(stored: Mapping[str, Any]) -> DevSplit | None:
    """Returns the split of the dev set in `task.json`; None without a split."""
    fields = stored.get(_KEY)
    if fields is None:
        return None
    try:
        sha256 = fields.get("sha256")
        rule = fields.get("rule", _FIRST_RULE)
        split = DevSplit(
            float(fields["fraction"]), int(fields["seed"]), sha256 and str(sha256), rule
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"`{_KEY}` must have a fraction and a seed. It is {fields!r:.80}."
        ) from None
    if rule not in (_FIRST_RULE, _RULE):
        raise ValueError(
            f"`rule` of `{_KEY}` must be at most {_RULE}. It is {rule!r}: a newer version of this "
            "project has trained the model, and may evaluate it."
        )
    return split
