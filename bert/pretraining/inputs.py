"""Finds and opens the records of pre-training; checks that options, model and folder fit them."""

import collections
import contextlib
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bert.files import owned
from bert.files.display import duration_text
from bert.files.machine import in_threads
from bert.files.paths import (
    file_size,
    index_path,
    is_file,
    match_files,
    open_file,
    real_path,
    split_patterns,
)
from bert.files.records import has_feature, read_description
from bert.log import logger
from bert.options import Message, Option, OptionError
from bert.pretraining.masking import Masking
from bert.pretraining.objectives import (
    MASKS,
    OBJECTIVES,
    Masker,
    plain_features,
    pretraining_features,
)
from bert.pretraining.options import (
    LENGTHS,
    SHORTEST_BUDGET,
    STEPS,
    WARMUP_PROPORTION,
    PretrainingSchedule,
    RecordFiles,
)
from bert.pretraining.records import (
    NOUN,
    RecordDescription,
    describe_options,
    read_descriptions,
)
from bert.training.batches import Batches
from bert.training.options import Compute, check_step
from bert.training.records import Feature, Records
from bert.weights.folder import ModelFolder
from bert.weights.model_files import VOCAB_FILE
from modeling import BertConfig
from tokenization import load_vocab

# How `bert.files.outputs.name_shards` numbers files.
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)", re.DOTALL)
# Missing shards that a message names.
_SHOWN = 3


def check_schedule(schedule: PretrainingSchedule, strategy: str) -> None:
    """Checks that steps or a time budget say how long to train, and not both."""
    if schedule.time_budget is not None:
        _check_budget(schedule, strategy)
    elif schedule.warmup_proportion is not None:
        raise OptionError(
            "warmup_proportion",
            Message("be given with %s, of which it is a part", Option("time_budget")),
            remedy=Message("Give %s without.", Option("num_warmup_steps")),
        )


def _check_budget(schedule: PretrainingSchedule, strategy: str) -> None:
    seconds = schedule.seconds or 0.0
    budget = duration_text(seconds)
    if seconds < SHORTEST_BUDGET:
        must = f"be at least {duration_text(SHORTEST_BUDGET)}"
        raise OptionError("time_budget", must, schedule.time_budget)
    remedies: dict[str, str | Message] = {
        "num_train_steps": "Give one of them.",
        "num_warmup_steps": Message("Give %s, a part of the time.", Option("warmup_proportion")),
    }
    for name, give in remedies.items():
        if (value := getattr(schedule, name)) != STEPS[name]:
            without = Message("be without %s, which counts steps", Option(name))
            raise OptionError("time_budget", without, Message("%r and %s", budget, value), give)
    if strategy == "multi_worker":
        raise OptionError(
            "time_budget",
            "be counted by one process, for several have no clock in common",
            Message("%s; give %s there", Option("strategy", strategy), Option("num_train_steps")),
        )


def complete_schedule(schedule: PretrainingSchedule) -> PretrainingSchedule:
    """Returns the schedule by steps, or by a time budget alone."""
    if schedule.time_budget is None:
        return schedule
    proportion = schedule.warmup_proportion
    completed: dict[str, Any] = {
        **dict.fromkeys(STEPS),
        "warmup_proportion": WARMUP_PROPORTION if proportion is None else proportion,
    }
    return dataclasses.replace(schedule, **completed)


def find_description(files: RecordFiles, objective: str) -> RecordDescription:
    """Returns the description of the records to train and evaluate on; checks their lengths."""
    paths = _match_records(files.input_file, "input_file")
    if files.eval_input_file:
        paths += _match_records(files.eval_input_file, "eval_input_file")
    made = read_descriptions(paths)
    made.check_goal(OBJECTIVES[objective])
    complete_files(files, made)
    return made


def complete_files(files: RecordFiles, made: RecordDescription) -> RecordFiles:
    """Returns the options of the records with their lengths."""
    lengths: dict[str, Any]
    lengths = {name: made.length(name, getattr(files, name)) for name in LENGTHS}
    return dataclasses.replace(files, **lengths)


def _match_records(patterns: str, flag: str) -> list[str]:
    """Returns the files of records; no pattern may match the files of two runs."""
    files = []
    for pattern in split_patterns(patterns):
        matched = match_files(pattern, flag)
        totals: dict[str, set[str]] = collections.defaultdict(set)
        for path in matched:
            shard = _SHARD.fullmatch(path)
            totals[shard[1] if shard else path].add(shard[3] if shard else "")
        for name, found in totals.items():
            if len(found) > 1:
                sets = [f"{name}-*-of-{total}" if total else name for total in sorted(found)]
                raise OptionError(
                    flag,
                    "match records of one description",
                    remedy=Message(
                        "%r matches %s, as runs with different %s leave them. Delete the older "
                        "ones, or give %r.",
                        pattern,
                        sets,
                        Option("num_shards"),
                        sets[-1],
                    ),
                )
        # A file that is named without a pattern may be one of several shards.
        if matched != [pattern]:
            _check_shards(matched, flag)
        files += matched
    _check_files(files, flag)
    return files


def _check_shards(paths: Sequence[str], flag: str) -> None:
    """Checks that all shards exist of each set of which a pattern matches some.

    The other shards need not match the pattern: they may be held out.
    """
    found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for path in paths:
        if shard := _SHARD.fullmatch(path):
            found[shard[1], shard[3]].add(shard[2])
    for (name, total), texts in found.items():
        if missing := [*itertools.islice(_find_missing(name, total, texts), _SHOWN)]:
            raise OptionError(
                flag,
                "match a complete set of shards",
                remedy=f"{int(total)} are expected; these are missing: {missing}. Make the records "
                "again, or name the files themselves, with commas between.",
            )


def _find_missing(name: str, total: str, texts: Collection[str]) -> Iterator[str]:
    """Yields the shards of a set that are not there, where those of some numbers are."""
    numbers, count = {*map(int, texts)}, int(total)

    def missing(number: int) -> str:
        # A number has as many digits as those of the other shards, or as many as it needs.
        spellings = (f"{number:0{len(min(texts))}}", str(number))
        paths = [f"{name}-{text}-of-{total}" for text in spellings]
        return "" if number in numbers or any(map(is_file, paths)) else paths[0]

    # Numbers begin at 0; where the last one is the total, they begin at 1.
    first = 0 if missing(count) else 1
    return filter(None, map(missing, range(first, first + count)))


def _check_files(paths: Sequence[str], flag: str) -> None:
    """Checks that each file is named once, holds records, and is not text."""
    seen: dict[str, str] = {}
    for path, size in zip(paths, in_threads(file_size, paths), strict=True):
        place = real_path(path)
        if place in seen:
            same = Message("%r and %r, which are the same file", seen[place], path)
            raise OptionError(flag, "name each file once", same)
        seen[place] = path
        # An index says where there are more shards than records.
        if not size and not read_description(path):
            remedy = f"{path!r} is empty. Make the records again, or leave it out."
            raise OptionError(flag, "hold records in each of its files", remedy=remedy)
    for path, is_text in zip(paths, in_threads(_is_text, paths), strict=True):
        if is_text:
            remedy = "Make records of a text with create_pretraining_data.py."
            received = Message("%r, which holds none", path)
            raise OptionError(flag, "name TFRecord files", received, remedy)


def _is_text(path: str) -> bool:
    """Returns whether a file begins with 8 bytes that cannot be the length of a record."""
    # A file that cannot be read is an error where its records are opened.
    with contextlib.suppress(OSError), open_file(path) as file:
        length = file.read(8)
        return bool(length) and b"\0" not in length
    return False


def check_description(made: RecordDescription, folder: ModelFolder, config: BertConfig) -> None:
    """Checks that vocabulary and casing of the records fit the model."""
    made.check_size(config.vocab_size)
    if made.vocabulary is None:
        logger.info(
            "No index beside %s names the vocabulary of the records, so the model's folder will "
            "not have it: give %s where the model is used.",
            made.path,
            Option("vocab_file"),
        )
        if path := folder.find("vocab_file"):
            # The report reads it after training.
            load_vocab(path)
        return
    folder.check_given(made.vocab, NOUN, made.path)
    if folder.stored_casing not in (None, made.do_lower_case):
        logger.warning(
            "The records in %r were made with %s, but the model in %r is %s.",
            made.path,
            Option("do_lower_case", made.do_lower_case),
            folder.path,
            "uncased" if folder.stored_casing else "cased",
        )
    casing = bool(made.do_lower_case)
    own = describe_options(folder.tokenizer_options, casing)
    cutting = describe_options(made.cutting, casing)
    if own != cutting and folder.find("vocab_file"):
        logger.warning(
            "The words of the records in %r were split with %s, but the model in %r splits words "
            "with %s. Make the records with the %s in its folder.",
            made.path,
            cutting or "nothing special",
            folder.path,
            own or "nothing special",
            Option("vocab_file"),
        )


def check_batch_sizes(
    train_batch_size: int | None,
    eval_batch_size: int | None,
    compute: Compute,
    num_replicas: int,
) -> None:
    """Checks that the devices can share the batches that are read, and train in the precision."""
    sizes = {"train_batch_size": train_batch_size, "eval_batch_size": eval_batch_size}
    for name, size in sizes.items():
        if size is not None and size % num_replicas:
            raise OptionError(name, f"be a multiple of the {num_replicas} devices", size)
    if train_batch_size is not None:
        check_step(train_batch_size, compute, num_replicas)


def features_of(files: RecordFiles, config: BertConfig) -> dict[str, Feature]:
    """Returns the features of each record."""
    return pretraining_features(
        max_seq_length=files.max_seq_length,
        max_predictions_per_seq=files.max_predictions_per_seq,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )


def find_masking(files: RecordFiles, made: RecordDescription) -> Masking | None:
    """Returns the masking of training records without masks; None where they hold masks."""
    return made.masking(match_files(files.input_file, "input_file"))


def open_training(
    files: RecordFiles,
    schedule: PretrainingSchedule,
    features: Mapping[str, Feature],
    made: RecordDescription,
    seed: int,
) -> Batches:
    """Returns the batches to train on.

    Args:
      files: The records.
      schedule: The objective, and the size of a batch.
      features: As `features_of` returns them.
      made: How the records were made.
      seed: The seed of the order of the records.
    """
    paths = match_files(files.input_file, "input_file")
    masker = _find_masker(paths, made)
    objective = OBJECTIVES[schedule.objective]
    if masker and not objective.directions:
        logger.info(
            "Masks of %s are drawn as it is read, others in each pass: %s.",
            Option("input_file"),
            masker.masking,
        )
    records = _open(paths, features, masker)
    size, block = schedule.train_batch_size, files.shuffle_block
    return objective.make_batches(records, features, size, seed, shuffle_block=block, masker=masker)


def open_evaluation(
    files: RecordFiles,
    objective: str,
    features: Mapping[str, Feature],
    made: RecordDescription,
    batch_size: int,
    is_training: bool = False,
) -> Batches:
    """Returns the batches to evaluate on; arguments as `open_training`.

    Where the run trains, too, it warns if it evaluates on a file that it trains on.
    """
    pattern, name = files.eval_input_file, "eval_input_file"
    if not pattern:
        pattern, name = files.input_file, "input_file"
    paths = match_files(pattern, name)
    trained = match_files(files.input_file, "input_file") if is_training else []
    known = {*map(real_path, trained)}
    if common := [path for path in paths if real_path(path) in known]:
        read = Message("%s, as the original's did", Option("input_file"))
        if files.eval_input_file:
            read = Message("%r, which is also among %s", common[0], Option("input_file"))
        logger.warning(
            "Evaluation reads %s; %s with text that was not trained on shows how good the model "
            "is.",
            read,
            Option("eval_input_file"),
        )
    masker = _find_masker(paths, made)
    if masker and not OBJECTIVES[objective].directions:
        _log_held_out_masks(masker.masking, {made.late[path].random_seed for path in paths})
    records = _open(paths, features, masker)
    block = files.shuffle_block
    return OBJECTIVES[objective].make_batches(
        records, features, batch_size, shuffle_block=block, masker=masker
    )


def _find_masker(paths: Sequence[str], made: RecordDescription) -> Masker | None:
    """Returns the masker of records without masks; None where they hold masks."""
    masking = made.masking(paths)
    if masking is not None:
        return Masker(masking, made.vocab)
    # Before the records are opened, which leaves an index beside them.
    for path in paths:
        _check_masked(path)
    return None


def _open(paths: Sequence[str], features: Mapping[str, Feature], masker: Masker | None) -> Records:
    """Returns the records of files, after a check of the first record of each file."""
    records = Records(paths)
    records.check_first(plain_features(features) if masker else features)
    return records


def _log_held_out_masks(masking: Masking, seeds: set[int]) -> None:
    """Logs how held-out records are masked, and warns where the seeds of files differ."""
    seed = masking.random_seed
    logger.info(
        "Masks of held-out records are drawn as they are read, with the %s of their description: "
        "%s.",
        Option("random_seed", seed),
        masking,
    )
    if others := sorted(seeds - {seed}):
        logger.warning(
            "Of the held-out files, some were made with %s and others with %s. All are masked "
            "with %d, that of the first: their masks are others than where each file is read "
            "alone.",
            Option("random_seed", seed),
            ", ".join(map(str, others)),
            seed,
        )


def _check_masked(path: str) -> None:
    """Checks that records without a description of their masking hold masks."""
    is_plain = False
    # A file that cannot be read is an error where its records are opened.
    with contextlib.suppress(OSError):
        is_plain = has_feature(path, "next_sentence_labels") and not has_feature(path, MASKS[0])
    if is_plain:
        raise ValueError(
            f"{path!r} has records without masks, whose index must be beside it and says how to "
            f"mask them. There is no {index_path(path)!r} that fits. Copy it there, too, or make "
            "the records again."
        )


def check_vocabulary_there(output_dir: str, made: RecordDescription) -> None:
    """Checks that a model in the output folder, if any, has the vocabulary of the records."""
    there = ModelFolder(output_dir)
    own = VOCAB_FILE in owned.read_names(output_dir)
    if own and made.vocabulary not in (None, there.vocabulary):
        raise OptionError(
            "output_dir",
            "hold a model of the same vocabulary, if any",
            remedy=Message(
                "That of %r is not the one in %r. Give another %s.",
                made.path,
                there.vocab_file,
                Option("output_dir"),
            ),
        )
