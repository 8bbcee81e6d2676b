r"""Writes the values of BERT's layers for each line of a text (paper, section 5.3).

    python extract_features.py --input_file=text.txt --output_file=features.jsonl \
      --vocab_file=vocab.txt --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

A line is a text `A` or a pair `A ||| B`. Memory use does not depend on the size of the files: they
are read, computed and written in chunks, within which lines of similar length are computed
together. Old commands for the original's extract_features.py work unchanged.

    python extract_features.py --input_file=reviews.csv --text_column=review \
      --output_file=vectors.npy --init_checkpoint=my_bert

writes one vector for each row of a table, as a single matrix.
"""

import array
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.flags import changed_flags
from bert.commands.lines import show_lines
from bert.commands.names import serve
from bert.commands.settings import OutputSettings
from bert.files import fingerprints
from bert.files.durable import replace_files
from bert.files.outputs import check_outputs, try_outputs
from bert.files.paths import is_file
from bert.files.process import import_tensorflow
from bert.files.rows import describe_files, find_texts
from bert.files.texts import Texts
from bert.files.vectors import is_features
from bert.scale.batches import check_machines, describe_part, folder_of, key_of, made_files
from bert.scale.beam import BeamSettings
from bert.scale.joining import join
from bert.scale.parts import write_description
from bert.scale.settings import ExtractedSettings, only
from bert.scale.shards import Shard, ShardSettings
from bert.tasks.layers import check_encoder, parse_layers, width

if TYPE_CHECKING:
    import modeling
    from bert.scale.features import Lines
    from bert.tasks.features import Extractor
    from bert.weights.folder import ModelFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ExtractedSettings, OutputSettings, ShardSettings, BeamSettings):
    """The flags of this script, by name."""


def define_flags() -> None:
    """Defines the flags (original: extract_features.py)."""
    without_effect = ("use_one_hot_embeddings", "master", "num_tpu_cores")
    common_flags.define(Settings, without_effect=without_effect)


def run(settings: Settings) -> None:
    """Writes the features of all lines.

    Raises:
      ValueError: before the expensive part, where the settings, the text and the model do not fit.
    """
    import_tensorflow()
    from bert.scale import features
    from bert.training.devices import tell_gpus
    from bert.weights.folder import ModelFolder

    show_lines()
    logging.info("Flags: %s; the others are as by default.", " ".join(changed_flags(settings)))
    check_machines(settings)
    folder = ModelFolder.of(settings)
    config = folder.config
    settings = settings.followed(folder.text_vectors)
    _find_layers(settings, config)
    _check_weights(folder, config)
    texts = _find_texts(settings)
    _check_output(settings, texts.files, folder)
    try_outputs([settings.output_file], "output_file")
    lines = features.Lines.of(texts, folder.load_tokenizer(), settings.tokens_at_most())
    tell_gpus()
    extractor = features.make_extractor(settings, config)
    if settings.runner:
        _write_those_of_machines(settings, folder, lines, extractor)
        return
    if settings.part:
        lines = lines.only(_find_span(lines, extractor, settings.part, config))
    lengths = features.survey(lines, config)
    if not lengths and not settings.part:
        raise _nothing_to_read(lines)
    described = _describe_part(settings, texts, folder)
    folder.stored.assign(extractor.model.weights)
    with replace_files([settings.output_file]) as [file]:
        features.write(file, extractor, lines, lengths, settings, shows=True)
    if part := settings.part:
        write_description(settings.output_file, part.number, part.count, described)
    logging.info("Wrote features of %d lines to %s.", len(lengths), settings.output_file)


def _describe_part(settings: Settings, texts: Texts, folder: "ModelFolder") -> dict[str, Any]:
    """Returns what a part has in common with the others; {} where all of the work is done."""
    if not settings.part:
        return {}
    return describe_part(settings, settings.written_format(), texts.files, folder.files)


def _find_starts(
    lines: "Lines", extractor: "Extractor", config: "modeling.BertConfig"
) -> list[int]:
    """Returns where the chunks begin within which lines are computed together, and their end.

    Raises:
      ValueError: where there is no line, or a pair that the model cannot take.
    """
    from bert.models import encoding
    from bert.scale.features import survey

    if extractor.pooling == "none":
        # With which line a chunk ends depends on how many tokens those in it have.
        lengths = survey(lines, config)
    else:
        lengths = array.array("I", [0]) * sum(1 for _ in lines.given())
    if not lengths:
        raise _nothing_to_read(lines)
    return encoding.chunk_starts(extractor, lengths)


def _find_span(
    lines: "Lines", extractor: "Extractor", part: Shard, config: "modeling.BertConfig"
) -> range:
    """Returns which lines a part has: whole chunks, so that all are rounded alike."""
    starts = _find_starts(lines, extractor, config)
    count = len(starts) - 1
    chunks = part.pick(count)
    logging.info("Part %s: %d of the %d chunks of %d lines.", part, len(chunks), count, starts[-1])
    return range(starts[chunks.start], starts[chunks.stop])


def _nothing_to_read(lines: "Lines") -> ValueError:
    return ValueError(f"`--input_file` must hold text. Received {lines.files}.")


def _write_those_of_machines(
    settings: Settings, folder: "ModelFolder", lines: "Lines", extractor: "Extractor"
) -> None:
    """Writes what a pipeline makes of the lines."""
    from bert.scale.features import FeatureWork

    # Wholly, for no line that is found there is compared with its text again.
    model = [*filter(is_file, folder.files)]
    made_of = fingerprints.of_whole_files(lines.files), fingerprints.of_files(model)
    parts = folder_of(settings.output_file, key_of(settings, *made_of))
    starts = _find_starts(lines, extractor, folder.config)
    work = FeatureWork.plan(only(ExtractedSettings, settings), starts, parts)
    with made_files(settings, work) as paths, replace_files([settings.output_file]) as [file]:
        join(paths, settings.written_format(), file)
    logging.info("Wrote features of %d lines to %s.", work.num_lines, settings.output_file)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.weights.checks import check_model, check_vocabulary

    folder, config = check_model(checks, settings)
    check_vocabulary(checks, settings, folder, config)
    told = settings.written_layers()
    checks("layers", _check_layers, settings, folder, config, tells=lambda _: told)
    fits = "of the shape that the configuration asks for"
    checks("weights", _check_weights, folder, config, tells=lambda _: fits)
    checks("runner", check_machines, settings, tells=lambda _: settings.runner or "none")
    texts = checks("text", _find_texts, settings, tells=lambda found: describe_files(found.files))
    output = repr(settings.output_file)
    checks("output file", _check_kept, settings, texts, folder, tells=lambda _: output)


def _find_texts(settings: Settings) -> Texts:
    """Returns the texts, where the files and the columns are there."""
    if settings.id_column and settings.written_format() == "npy":
        raise ValueError(
            "`--id_column` must go with a form that has room for ids, npz or jsonl. Received "
            f"{settings.id_column!r} for a matrix, {settings.output_file!r}, whose rows are those "
            "of the table in their order."
        )
    files = find_texts(settings.input_file)
    return Texts.of(settings, files)


def _check_kept(settings: Settings, texts: Texts, folder: "ModelFolder") -> None:
    _check_output(settings, texts.files, folder)


def _check_weights(folder: "ModelFolder", config: "modeling.BertConfig") -> None:
    folder.stored.check_fit(config)


def _check_output(settings: Settings, files: Sequence[str], folder: "ModelFolder") -> None:
    # Faithful: features of an earlier run are replaced.
    check_outputs(
        [settings.output_file],
        [*files, *folder.files],
        "output_file",
        lambda path: settings.overwrite or is_features(path),
    )


def _check_layers(settings: Settings, folder: "ModelFolder", config: "modeling.BertConfig") -> None:
    _find_layers(settings.followed(folder.text_vectors), config)


def _find_layers(settings: Settings, config: "modeling.BertConfig") -> list[int | str]:
    """Returns the layers to write, the settings checked against the model."""
    check_encoder(config)
    layers = parse_layers(settings.written_layers(), config, flag="layers")
    limit = config.max_position_embeddings
    if not 3 <= settings.tokens_at_most() <= limit:
        raise ValueError(
            f"`--max_seq_length` must be at least 3 and at most {limit}, the "
            "`max_position_embeddings` in --bert_config_file. Received "
            f"{settings.tokens_at_most()}."
        )
    form = settings.written_format()
    widths = {width(layer, config) for layer in layers}
    if form == "npz" and len(widths) > 1:
        raise ValueError(
            "`--layers` must all have the same number of values for `--format=npz`. Received "
            f"{settings.layers!r}; ask for concat_last_four in a run of its own."
        )
    if form == "npy" and len(layers) > 1:
        raise ValueError(
            "`--layers` must name a single one for a matrix, `--format=npy`. Received "
            f"{settings.layers!r}; npz has room for several, and concat_last_four is one."
        )
    _check_pooling(settings)
    if settings.use_tpu:
        logging.warning("--use_tpu has no effect: features are computed on a GPU or the CPU.")
    return layers


def _check_pooling(settings: Settings) -> None:
    if settings.written_pooling() != "none":
        return
    if settings.written_format() == "npy":
        raise ValueError(
            "`--pooling` must be mean, max or cls for a matrix, `--format=npy`, with a row for "
            "each line. Received 'none'; npz has room for every token."
        )
    if settings.normalize:
        raise ValueError(
            "`--normalize` must go with `--pooling`, mean, max or cls. Received a pooling of "
            "'none', which has no vector for each line."
        )


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


# What people import from the original's extract_features.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "tokenization": (),
            "bert.original.extraction": (
                "InputExample",
                "InputFeatures",
                "read_examples",
                "convert_examples_to_features",
                "input_fn_builder",
                "model_fn_builder",
            ),
            "bert.original.processors": ("truncate_seq_pair as _truncate_seq_pair",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
