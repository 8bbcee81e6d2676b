"""Whether flags, records, model and folder of a pre-training belong together."""

import collections
import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert.commands.checks import is_checking
from bert.files import owned
from bert.files.durations import duration_text
from bert.files.outputs import check_folder, make_folder
from bert.files.paths import file_size, index_path, is_file, is_remote, match_files
from bert.files.processes import in_threads
from bert.files.records import find_making as find_making_of
from bert.files.records import has_feature
from bert.pretraining import making
from bert.pretraining.heads import pretraining_features
from bert.pretraining.late_masking import MASKS, LateMasking
from bert.pretraining.making import Making
from bert.pretraining.masked_batches import plain_features
from bert.pretraining.objectives import OBJECTIVES
from bert.pretraining.settings import SHORTEST_BUDGET, STEPS, WARMUP_PROPORTION, Settings
from bert.training.batches import Batches, Feature, Records
from bert.weights import tokenizers
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.kept import VOCAB_FILE
from modeling import BertConfig

# How `bert.files.outputs.name_shards` numbers files.
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)", re.DOTALL)
# Missing shards that a message names.
_SHOWN = 3


def check_verbs(settings: Settings) -> None:
    """Checks that something is to be done, and for how long."""
    if not settings.do_train and not settings.do_eval:
        raise ValueError("At least one of `--do_train` and `--do_eval` must be given.")
    if settings.time_budget is not None:
        _check_budget(settings)
    elif settings.warmup_proportion is not None:
        raise ValueError(
            "`--warmup_proportion` must be given with `--time_budget`, of which it is a part. Give "
            "`--num_warmup_steps` without."
        )


def _check_budget(settings: Settings) -> None:
    seconds = settings.seconds or 0.0
    budget = duration_text(seconds)
    if seconds < SHORTEST_BUDGET:
        raise ValueError(
            f"`--time_budget` must be at least {duration_text(SHORTEST_BUDGET)}. Received "
            f"{settings.time_budget!r}."
        )
    remedies = {
        "num_train_steps": "Give one of them",
        "num_warmup_steps": "Give `--warmup_proportion`, a part of the time",
    }
    for name, remedy in remedies.items():
        if (value := getattr(settings, name)) != STEPS[name]:
            raise ValueError(
                f"`--time_budget` must be without `--{name}`, which counts steps. Received "
                f"{budget!r} and {value}. {remedy}."
            )
    if settings.strategy == "multi_worker":
        raise ValueError(
            "`--time_budget` must be counted by one process, for several have no clock in common. "
            "Received `--strategy=multi_worker`; give `--num_train_steps` there."
        )


def find_making(settings: Settings) -> Making:
    """Returns how the records were made, those to evaluate on included; checks the lengths."""
    files = _match_records(settings.input_file, "input_file")
    if settings.eval_input_file:
        files += _match_records(settings.eval_input_file, "eval_input_file")
    made = making.read(files)
    made.check_goal(OBJECTIVES[settings.objective])
    complete(settings, made)
    return made


def _match_records(patterns: str, flag: str) -> list[str]:
    """Returns the files of records; no pattern may match those of two runs that made them."""
    files = []
    for pattern in patterns.split(","):
        matched = match_files(pattern, flag)
        totals: dict[str, set[str]] = collections.defaultdict(set)
        for path in matched:
            shard = _SHARD.fullmatch(path)
            totals[shard[1] if shard else path].add(shard[3] if shard else "")
        for name, found in totals.items():
            if len(found) > 1:
                sets = [f"{name}-*-of-{total}" if total else name for total in sorted(found)]
                raise ValueError(
                    f"`--{flag}` must match records of one making. {pattern!r} matches {sets}, as "
                    "runs with different `--num_shards` leave them. Delete the older ones, or give "
                    f"{sets[-1]!r}."
                )
        # A file that is named by itself is what its user wants.
        if matched != [pattern.strip()]:
            _check_shards(matched, flag)
        files += matched
    _check_files(files, flag)
    return files


def _check_shards(paths: Sequence[str], flag: str) -> None:
    """Checks that of all shards that a pattern matches the others are there, too.

    They need not match it: some may be held out.
    """
    found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for path in paths:
        if shard := _SHARD.fullmatch(path):
            found[shard[1], shard[3]].add(shard[2])
    for (name, total), texts in found.items():
        numbers = {*map(int, texts)}
        # They count from 0, but for those of whoever counts from 1.
        first = 1 if int(total) in numbers else 0
        others = (each for each in range(first, first + int(total)) if each not in numbers)
        # Numbers have as many digits as the others, or as they need.
        names = ((f"{each:0{len(min(texts))}}", str(each)) for each in others)
        paths_of = ([f"{name}-{text}-of-{total}" for text in each] for each in names)
        lacking = (each[0] for each in paths_of if not any(map(is_file, each)))
        if missing := [*itertools.islice(lacking, _SHOWN)]:
            raise ValueError(
                f"`--{flag}` must match a complete set of shards. {total} are expected; these are "
                f"missing: {missing}. Make the records again, or name the files themselves, with "
                "commas between."
            )


def _check_files(paths: Sequence[str], flag: str) -> None:
    """Checks that no file of records comes twice, and that none has lost its records."""
    seen: dict[str, str] = {}
    for path, size in zip(paths, in_threads(file_size, paths), strict=True):
        place = path if is_remote(path) else os.path.realpath(path)
        if place in seen:
            raise ValueError(
                f"`--{flag}` must name each file once. Received {seen[place]!r} and {path!r}, "
                "which are the same file."
            )
        seen[place] = path
        # An index says where there are more shards than records.
        if not size and not find_making_of(path):
            raise ValueError(
                f"`--{flag}` must hold records in each of its files. {path!r} is empty. Make the "
                "records again, or leave it out."
            )


def complete(settings: Settings, made: Making) -> Settings:
    """Returns the settings with the lengths of the records, and with steps or a budget."""
    given: dict[str, Any]
    given = {name: made.length(name, getattr(settings, name)) for name in making.LENGTHS}
    if settings.time_budget is not None:
        given |= dict.fromkeys(STEPS)
        if settings.warmup_proportion is None:
            given["warmup_proportion"] = WARMUP_PROPORTION
    return dataclasses.replace(settings, **given)


def find_init(settings: Settings, folder: ModelFolder, config: BertConfig) -> Stored | None:
    """Returns the weights to begin with, if any are asked for, which are of this shape."""
    if not settings.init_checkpoint:
        return None
    folder.stored.check_fit(config)
    return folder.stored


def check_making(made: Making, folder: ModelFolder, config: BertConfig) -> None:
    """Checks that vocabulary and casing of the records can be those of the model."""
    made.check_size(config.vocab_size)
    if made.vocabulary is None:
        logging.info(
            "Nothing beside %s tells the vocabulary of the records, so the model's folder will not "
            "have it: give --vocab_file where the model is used.",
            made.path,
        )
        return
    folder.check_given(made.vocab, making.NOUN, made.path)
    if folder.stored_casing not in (None, made.do_lower_case):
        logging.warning(
            "The records in %r were made with --do_lower_case=%s, but the model in %r is %s.",
            made.path,
            made.do_lower_case,
            folder.path,
            "uncased" if folder.stored_casing else "cased",
        )
    cutting = tokenizers.cutting_of(folder.tokenizer_options, bool(made.do_lower_case))
    if cutting != made.cutting:
        logging.warning(
            "The words of the records in %r were cut with %s, but those of the model in %r are cut "
            "with %s. Make the records with the --vocab_file in its folder.",
            made.path,
            made.cutting or "nothing special",
            folder.path,
            cutting or "nothing special",
        )


def check_batch_sizes(settings: Settings, num_replicas: int) -> None:
    """Checks that the batches that are read can be dealt to the devices."""
    sizes = {"train_batch_size": settings.do_train, "eval_batch_size": settings.do_eval}
    for name, is_read in sizes.items():
        if is_read and getattr(settings, name) % num_replicas:
            raise ValueError(
                f"`--{name}` must be a multiple of the {num_replicas} devices. Received "
                f"{getattr(settings, name)}."
            )
    share = settings.train_batch_size // num_replicas
    if settings.do_train and share % settings.gradient_accumulation_steps:
        raise ValueError(
            "`--train_batch_size` must be a multiple of `--gradient_accumulation_steps` on each "
            f"device. Received {settings.train_batch_size} and "
            f"{settings.gradient_accumulation_steps}."
        )


def features_of(settings: Settings, config: BertConfig) -> dict[str, Feature]:
    """Returns what each record must hold."""
    return pretraining_features(
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )


def find_masking(settings: Settings, made: Making) -> LateMasking | None:
    """Returns how the records to train on are masked as they are read, if they hold no masks."""
    return made.masking(match_files(settings.input_file, "input_file"))


def open_training(settings: Settings, features: dict[str, Feature], made: Making) -> Batches:
    """Returns the batches to train on."""
    files = match_files(settings.input_file, "input_file")
    return _open(settings, files, features, made, settings.train_batch_size, settings.seed)


def open_evaluation(settings: Settings, features: dict[str, Feature], made: Making) -> Batches:
    """Returns the batches to evaluate on."""
    train_files = match_files(settings.input_file, "input_file")
    files = train_files
    if settings.eval_input_file:
        files = match_files(settings.eval_input_file, "eval_input_file")
    batches = _open(settings, files, features, made, settings.eval_batch_size)
    if settings.do_train and files == train_files:
        logging.warning(
            "Evaluation reads --input_file, as the original's did; --eval_input_file with text "
            "that was not trained on tells how good the model is."
        )
    return batches


def _open(
    settings: Settings,
    files: list[str],
    features: dict[str, Feature],
    made: Making,
    batch_size: int,
    seed: int | None = None,
) -> Batches:
    masker = made.masker(files)
    if masker is None:
        # First, for opening records leaves an index beside them.
        for path in files:
            _check_masked(path)
    else:
        features = plain_features(features)
        seeds = {made.late[path].random_seed for path in files}
        if not OBJECTIVES[settings.objective].directions:
            _tell_masks(masker.masking, seeds, is_training=seed is not None)
    records = Records(files, leaves_index=not is_checking())
    records.check_first(features)
    return OBJECTIVES[settings.objective].make_batches(
        records, features, batch_size, seed, shuffle_block=settings.shuffle_block, masker=masker
    )


def _tell_masks(masking: LateMasking, seeds: set[int], *, is_training: bool) -> None:
    """Logs how records without masks are masked, and warns where their seeds differ."""
    if is_training:
        logging.info(
            "Masks of --input_file are drawn as it is read, others in each pass: %s.", masking
        )
        return
    seed = masking.random_seed
    logging.info(
        "Masks of held-out records are drawn as they are read, with the --random_seed=%d of their "
        "making: %s.",
        seed,
        masking,
    )
    if others := sorted(seeds - {seed}):
        logging.warning(
            "Of the held-out files, some were made with --random_seed=%d and others with %s. All "
            "are masked with %d, that of the first: their masks are others than where each file is "
            "read alone.",
            seed,
            ", ".join(map(str, others)),
            seed,
        )


def _check_masked(path: str) -> None:
    """Checks that records of which nothing says how to mask them are masked."""
    is_plain = False
    # What cannot be read is told by what reads it.
    with contextlib.suppress(OSError):
        is_plain = has_feature(path, "next_sentence_labels") and not has_feature(path, MASKS[0])
    if is_plain:
        raise ValueError(
            f"{path!r} has records without masks, whose index must be beside it and says how to "
            f"mask them. There is no {index_path(path)!r} that fits. Copy it there, too, or make "
            "the records again."
        )


def check_same(settings: Settings, config: BertConfig, made: Making) -> None:
    """Checks that what is in `--output_dir` belongs to a model of this shape and vocabulary."""
    if settings.overwrites:
        return
    there = ModelFolder(settings.output_dir)
    there.check_kept(config)
    own = VOCAB_FILE in owned.read_names(settings.output_dir)
    if own and made.vocabulary not in (None, there.vocabulary):
        raise ValueError(
            "`--output_dir` must hold a model of the same vocabulary, if any. That of "
            f"{made.path!r} is not the one in {there.vocab_file!r}. Give another `--output_dir`."
        )


def make_output(settings: Settings) -> ModelFolder:
    """Makes the output folder, if it can be filled."""
    filled = check_output(settings)
    make_folder(settings.output_dir)
    return filled


def check_output(settings: Settings) -> ModelFolder:
    """Checks that the output folder can be filled; writes nothing."""
    filled = ModelFolder(settings.output_dir)
    check_folder(settings.output_dir)
    if settings.do_train:
        filled.check_fillable(overwrites=settings.overwrites)
    return filled
