"""Writes the model card, `README.md` beside the weights: a model's data, scores and use.

The card is computed from `task.json`, `run.json` and the files of scores in the folder, and is the
same for the same folder. The Hugging Face hub reads its head.
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from bert.files import owned
from bert.files.durable import write_text
from bert.files.owned import is_of_model_folder
from bert.files.paths import find_json_object, is_file, parse_json, read_file
from bert.log import logger
from bert.options import typed_flags
from bert.weights import hub, provenance
from bert.weights.model_files import CONFIG_FILE, TASK_FILE
from bert.weights.options import FINE_TUNED
from bert.weights.tokenizers import HUGGINGFACE_CONFIG_FILE, TOKENIZER_CONFIG_FILE

CARD_FILE = "README.md"
# Replaces the folder, which may be anywhere.
_FOLDER = "my_model"
# Options of the output folder, which say nothing about the model.
_OF_THE_FOLDER = ("output_dir", "check", "overwrite_output_dir", "resume_with_changes")
# The number of labels that are listed at most.
_LABELS_SHOWN = 50

# The weights by the library that reads them.
_FORMATS = {
    "tensorflow": "a TensorFlow checkpoint, with the names of the original BERT",
    "transformers": "safetensors, for transformers and for this project",
    "keras": "weights for Keras",
    "sentence-transformers": "safetensors, for sentence-transformers and for this project",
    "onnx": "ONNX, in float32 and with weights of 8 bits",
}
# A use by the library of the weights, with the language, instead of this project's or after it.
_SENTENCES = f"""\
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("{_FOLDER}").encode(["A text."])"""
_JAVASCRIPT = f"""\
import {{ pipeline }} from "@huggingface/transformers";

const model = await pipeline("%s", "{_FOLDER}", {{ dtype: "q8" }});"""

# The names of scores on the hub by the names here.
_METRICS = {
    "accuracy": "accuracy",
    "f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "exact": "exact_match",
    "exact_match": "exact_match",
    "precision": "precision",
    "recall": "recall",
    "perplexity": "perplexity",
}


@dataclasses.dataclass(frozen=True)
class _Kind:
    """The text of a card for a kind of model.

    Attributes:
      title: The first line.
      script: The script that trains the model.
      pipeline: The name of the kind on the hub.
      inputs: A list of inputs in Python.
    """

    title: str
    script: str
    pipeline: str
    inputs: str


# By the `kind` in `task.json`; "" for a pre-trained BERT, which has none.
_KINDS = {
    "classification": _Kind(
        "BERT that classifies texts", "run_classifier.py", "text-classification", '["A text."]'
    ),
    "question_answering": _Kind(
        "BERT that answers questions",
        "run_squad.py",
        "question-answering",
        '[("Who wrote it?", "It was written by Ada.")]',
    ),
    "tagging": _Kind(
        "BERT that tags words", "run_ner.py", "token-classification", '["Ada lives in London."]'
    ),
    "multiple_choice": _Kind(
        "BERT that chooses an ending",
        "run_swag.py",
        "multiple-choice",
        '[("She opens the door.", ["She walks in.", "It rains.", "He sleeps.", "A dog."])]',
    ),
    "": _Kind(
        "Pre-trained BERT",
        "run_pretraining.py",
        "fill-mask",
        '["Paris is the [MASK] of France."]',
    ),
}
_PAIRS = '[("A text.", "Another text.")]'

# Kinds of pre-trained models that fill no [MASK].
_LEFT_TO_RIGHT, _LSTMS, _ENCODER = (
    _Kind(title, "run_pretraining.py", "feature-extraction", '["A text."]')
    for title in (
        "Pre-trained language model that reads from left to right, of the shape of BERT",
        "Pre-trained language model of LSTMs, which read in both directions",
        "BERT without a masked-LM head",
    )
)

# The command and the Python method by the kind on the hub; others predict.
_USES = {
    "fill-mask": (
        f'python fill_mask.py --checkpoint={_FOLDER} "Paris is the [MASK] of France."',
        "fill_mask",
    ),
    "feature-extraction": (
        f"python extract_features.py --init_checkpoint={_FOLDER} --input_file=texts.txt "
        "--output_file=vectors.npy",
        "encode",
    ),
}
_PREDICTS = (f"python predict.py --model_dir={_FOLDER} --input_file=inputs.jsonl", "predict")


def record(
    folder: str,
    options: Mapping[str, Any],
    init: str | None,
    *,
    kind: str = "",
    counts: Mapping[str, int],
    metric: str | None = None,
) -> None:
    """Writes to `run.json` the description of a training run that has ended, for its card.

    Args:
      folder: The output folder of the run.
      options: The options of the run other than defaults, in the order of the command.
      init: The weights or word vectors that the run began with, as given, if any.
      kind: The kind in `task.json`; "" for pre-training.
      counts: The number of examples by part of the data.
      metric: The score that counts.
    """
    shown = {
        name: value
        for name, value in options.items()
        if name not in _OF_THE_FOLDER and not is_of_model_folder(value)
    }
    command = ["python", _KINDS[kind].script, *typed_flags(shown), f"--output_dir={_FOLDER}"]
    provenance.describe(
        folder,
        {
            "command": command,
            "init_checkpoint": init or "",
            "is_on_hub": hub.is_name(init or ""),
            "examples": dict(counts),
            "metric": metric,
        },
    )


def update(folder: str) -> None:
    """Writes the card of a model that was trained in a folder; a user's own card stays."""
    if not provenance.read(folder):
        return
    path = os.path.join(folder, CARD_FILE)
    if is_file(path) and CARD_FILE not in owned.read_names(folder):
        logger.info("%r was not written by a run here; it stays in place of a model card.", path)
        return
    text = make(folder)
    if not is_file(path) or read_file(path) != text.encode():
        write_text(owned.claim(folder, CARD_FILE), text)


def make(
    folder: str,
    *,
    library: str = "tensorflow",
    files: Mapping[str, bytes] | None = None,
    architecture: str | None = None,
) -> str:
    """Returns the card of the model in a folder, or of what it is converted to.

    Args:
      folder: The folder of a run, or any other, of which the card says less.
      library: The library that reads the weights, for the hub.
      files: Contents by name that replace the folder's own files.
      architecture: The class of the model in transformers; None for what `config.json` says.
    """

    def read(name: str) -> dict[str, Any]:
        path = os.path.join(folder, name)
        if files and name in files:
            return dict(parse_json(files[name]))
        return find_json_object(path)

    task = read(TASK_FILE)
    run = provenance.read(folder)
    description = run.get("told", {})
    scores = {name: _read_scores(folder, name) for name in ("eval", "test")}
    is_kept = (
        not files or TASK_FILE in files or FINE_TUNED.get(task.get("kind", "")) == architecture
    )
    if task and not is_kept:
        # The head stays behind, whose scores they are.
        task, scores = {}, {"eval": {}, "test": {}}
    theirs = read(HUGGINGFACE_CONFIG_FILE)
    # The original's file may leave out defaults.
    config = {**theirs, **read(CONFIG_FILE)}
    kind = _find_kind(task, config, [architecture] if architecture else theirs.get("architectures"))
    casing = read(TOKENIZER_CONFIG_FILE).get("do_lower_case")
    sections = [
        _head(kind, library, description, scores),
        f"# {kind.title}",
        _facts({"do_lower_case": casing, **task}, config, description, library),
        _data(run.get("ran_with", {}).get("data", {}), description),
        _scores(scores, str(description.get("metric") or "")),
        _train(description),
        _use(kind, library),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _find_kind(task: Mapping[str, Any], config: Mapping[str, Any], architectures: Any) -> _Kind:
    # A folder for others has no task; the class of the model says what it does.
    first = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    kinds = {theirs: ours for ours, theirs in FINE_TUNED.items()}
    name = str(task.get("kind", kinds.get(first, "")))
    if name in _KINDS and name:
        kind = _KINDS[name]
        is_pair = (task.get("task") or {}).get("is_pair")
        return dataclasses.replace(kind, inputs=_PAIRS) if is_pair else kind
    if config.get("is_decoder"):
        return _LEFT_TO_RIGHT
    if config.get("encoder_type") == "bilstm":
        return _LSTMS
    is_encoder = first in ("BertModel", "BertForNextSentencePrediction")
    return _ENCODER if is_encoder else _KINDS[""]


def _read_scores(folder: str, split: str) -> dict[str, float]:
    """Returns the scores of a split, {} where no file has any.

    Another program may have written a file of that name; what is no score in it is left out.
    """
    path = os.path.join(folder, f"{split}_results")
    values: Any = {}
    if is_file(f"{path}.json"):
        with contextlib.suppress(ValueError):
            values = parse_json(read_file(f"{path}.json"))
    elif is_file(f"{path}.txt"):
        for line in read_file(f"{path}.txt").decode(errors="replace").splitlines():
            name, _, value = line.partition(" = ")
            with contextlib.suppress(ValueError):
                values[name] = float(value)
    if not isinstance(values, dict):
        return {}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and name != "global_step"
    }


def _head(
    kind: _Kind,
    library: str,
    description: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, float]],
) -> str:
    """Returns the YAML that the hub reads."""
    lines = [f"library_name: {library}", f"pipeline_tag: {kind.pipeline}", "tags:", "- bert"]
    if description.get("is_on_hub"):
        lines.append(f"base_model: {json.dumps(description['init_checkpoint'].partition('@')[0])}")
    names = {name.removeprefix("eval_") for each in scores.values() for name in each}
    if metrics := sorted({_METRICS[name] for name in names if name in _METRICS}):
        lines += ["metrics:", *(f"- {name}" for name in metrics)]
    return "\n".join(["---", *lines, "---"])


def _facts(
    task: Mapping[str, Any], config: Mapping[str, Any], description: Mapping[str, Any], library: str
) -> str:
    facts: dict[str, str] = {}
    details = task.get("task") or {}
    if name := details.get("name"):
        facts["Task"] = _code(name)
    if labels := details.get("labels"):
        more = f" and {len(labels) - _LABELS_SHOWN:,} more" if len(labels) > _LABELS_SHOWN else ""
        facts["Labels"] = ", ".join(map(_code, labels[:_LABELS_SHOWN])) + more
    if (casing := task["do_lower_case"]) is not None:
        facts["Casing"] = "uncased, texts are lower-cased" if casing else "cased"
    if length := task.get("max_seq_length"):
        facts["Longest input"] = f"{length} tokens"
    if config:
        facts["Shape"] = (
            f"{config['num_hidden_layers']} layers of {config['hidden_size']}, "
            f"{config['vocab_size']:,} tokens in the vocabulary"
        )
    if description:
        init = description["init_checkpoint"]
        facts["Base model"] = _code(init) if init else "none, trained from random weights"
    facts["Format"] = _FORMATS[library]
    return "\n".join(f"* {name}: {value}" for name, value in facts.items())


def _data(files: Mapping[str, int], description: Mapping[str, Any]) -> str:
    lines = [f"* {_code(path)}, {size:,} bytes" for path, size in files.items()]
    lines += [
        f"* {_code(name)}: {n:,} examples" for name, n in description.get("examples", {}).items()
    ]
    return "\n".join(["## Data", "", *lines]) if lines else ""


def _scores(scores: Mapping[str, Mapping[str, float]], metric: str) -> str:
    """Returns a table of the scores, the metric first, and its baseline."""
    tables = []
    for split, title in (("eval", "Evaluation"), ("test", "Test set")):
        values = scores[split]
        if not values:
            continue
        names = sorted(values.keys() - {"baseline"}, key=lambda name: (name != metric, name))
        rows = [f"| {_cell(name)} | {values[name]:.4g} |" for name in names]
        if "baseline" in values and metric:
            baseline = f"{_cell(metric)} of always giving the same answer"
            rows.insert(min(1, len(rows)), f"| {baseline} | {values['baseline']:.4g} |")
        tables.append("\n".join([f"## {title}", "", "| score | value |", "|---|---|", *rows]))
    return "\n\n".join(tables)


def _train(description: Mapping[str, Any]) -> str:
    command = description.get("command")
    if not command:
        return ""
    # The arguments are quoted already.
    text = " \\\n  ".join([" ".join(command[:2]), *command[2:]])
    return f"## Training\n\n{_block(text, 'sh')}"


def _use(kind: _Kind, library: str) -> str:
    shell, call = _USES.get(kind.pipeline, _PREDICTS)
    python = f'import bert\n\nmodel = bert.load("{_FOLDER}")\nprint(model.{call}({kind.inputs}))'
    blocks = [_block(shell, "sh"), _block(python, "python")]
    if library == "onnx":
        blocks = [_block(_JAVASCRIPT % kind.pipeline, "js")]
    if library == "sentence-transformers":
        blocks.append(_block(_SENTENCES, "python"))
    if library == "transformers" and kind.pipeline != "multiple-choice":
        call = f'pipeline("{kind.pipeline}", model="{_FOLDER}")'
        blocks.append(_block(f"from transformers import pipeline\n\nmodel = {call}", "python"))
    return "\n\n".join(["## Use", f"`{_FOLDER}` is the folder of this file.", *blocks])


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _code(text: Any) -> str:
    """Returns a text as code on one line, in which nothing is markup."""
    text = " ".join(str(text).split())
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if not text or text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _cell(text: str) -> str:
    return _code(text).replace("|", "\\|")


def _block(text: str, language: str) -> str:
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"
