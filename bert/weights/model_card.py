"""The model card, `README.md` beside the weights: what a model is, how good, and how to use it.

It is made of what its folder holds, `task.json`, `run.json` and the files of scores, and so is the
same for the same folder; its head is the one that the Hugging Face hub reads.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert.files import huggingface as huggingface_files
from bert.files import owned
from bert.files.durable import write_text
from bert.files.json_text import parse_json
from bert.files.owned import is_of_model_folder
from bert.files.paths import is_file, read_file
from bert.options import typed_flags
from bert.weights import hub, provenance
from bert.weights.kept import CONFIG_FILE, TASK_FILE

CARD_FILE = "README.md"
# In place of the folder, which may be anywhere; no two runs have the same.
_FOLDER = "my_model"
# Flags that say where a run writes or what it does with what is there, and nothing of the model.
_OF_THE_PLACE = re.compile(r"--(no)?(output_dir|check|overwrite_output_dir|resume_with_changes)\b")
# Most labels that are listed.
_LABELS_SHOWN = 50

# What reads the weights, and what they are.
_FORMATS = {
    "tensorflow": "a TensorFlow checkpoint, with the names of the original BERT",
    "transformers": "safetensors, for transformers and for this project",
    "keras": "weights for Keras",
}

# By our name of a score, the hub's.
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
    """What a card says of a kind of model.

    Attributes:
      title: Its first line.
      script: That which trains it.
      pipeline: What the hub calls it.
      inputs: A list of what it is asked, in Python.
    """

    title: str
    script: str
    pipeline: str
    inputs: str


# By the `kind` in `task.json`; a pre-trained BERT has none.
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

# Of those that have none either, and fill no [MASK].
_LEFT_TO_RIGHT = _Kind(
    "Pre-trained language model that reads from left to right, of the shape of BERT",
    "run_pretraining.py",
    "feature-extraction",
    '["A text."]',
)
_LSTMS = _Kind(
    "Pre-trained language model of LSTMs, which read in both directions",
    "run_pretraining.py",
    "feature-extraction",
    '["A text."]',
)

_ENCODER = _Kind(
    "Pre-trained BERT without a masked-LM head",
    "run_pretraining.py",
    "feature-extraction",
    '["A text."]',
)

# By what the hub calls a model, what is typed and what is called in Python; others predict.
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
    """Records for the card what was trained in a folder.

    Args:
      folder: The output folder of the training run.
      options: The options that differ from their defaults.
      init: The weights or word vectors that it started from, if any.
      kind: As in `task.json`; "" for pre-training.
      counts: The number of examples by part of the data.
      metric: The score that counts.
    """
    init = init or ""
    flags = [
        flag
        for flag in typed_flags(options)
        if not (_OF_THE_PLACE.match(flag) or is_of_model_folder(flag.partition("=")[-1]))
    ]
    provenance.tell(
        folder,
        {
            "command": ["python", _KINDS[kind].script, *flags, f"--output_dir={_FOLDER}"],
            "init_checkpoint": init,
            "is_on_hub": hub.is_name(init),
            "examples": dict(counts),
            "metric": metric,
        },
    )


def update(folder: str) -> None:
    """Writes the card of a model that was trained in a folder; one of somebody else stays."""
    if not provenance.read(folder):
        return
    path = os.path.join(folder, CARD_FILE)
    if is_file(path) and CARD_FILE not in owned.read_names(folder):
        logging.info("%r is of no run here, so it stays, and no model card is written.", path)
        return
    text = make(folder)
    if not is_file(path) or read_file(path) != text.encode():
        write_text(owned.claim(folder, CARD_FILE), text)


def make(
    folder: str, *, library: str = "tensorflow", files: Mapping[str, bytes] | None = None
) -> str:
    """Returns the card of the model in a folder.

    Args:
      folder: That of a run of ours, or any other of which there is little to tell.
      library: What reads the weights, for the hub.
      files: By name what is to be read in place of the folder's own files.
    """

    def read(name: str) -> dict[str, Any]:
        path = os.path.join(folder, name)
        if files and name in files:
            return dict(parse_json(files[name]))
        return huggingface_files.read_json(path) if is_file(path) else {}

    task = read(TASK_FILE)
    run = provenance.read(folder)
    told = run.get("told", {})
    scores = {name: _read_scores(folder, name) for name in ("eval", "test")}
    theirs = read(huggingface_files.CONFIG_FILE)
    config = read(CONFIG_FILE) or theirs
    kind = _find_kind(task, config, theirs.get("architectures"))
    casing = read(huggingface_files.TOKENIZER_CONFIG_FILE).get("do_lower_case")
    sections = [
        _head(kind, library, told, scores),
        f"# {kind.title}",
        _list(_facts({"do_lower_case": casing, **task}, config, told, library)),
        _data(run.get("ran_with", {}).get("data", {}), told),
        _scores(scores, str(told.get("metric") or "")),
        _train(told),
        _use(kind, library),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _find_kind(task: Mapping[str, Any], config: Mapping[str, Any], architectures: Any) -> _Kind:
    name = str(task.get("kind", ""))
    if name in _KINDS and name:
        kind = _KINDS[name]
        is_pair = (task.get("task") or {}).get("is_pair")
        return dataclasses.replace(kind, inputs=_PAIRS) if is_pair else kind
    if config.get("is_decoder"):
        return _LEFT_TO_RIGHT
    if config.get("encoder_type") == "bilstm":
        return _LSTMS
    return _ENCODER if architectures == ["BertModel"] else _KINDS[""]


def _read_scores(folder: str, split: str) -> dict[str, float]:
    """Returns the numbers in the file of scores of a split, {} where there is none."""
    path = os.path.join(folder, f"{split}_results")
    values: Any = {}
    if is_file(f"{path}.json"):
        values = parse_json(read_file(f"{path}.json"))
    elif is_file(f"{path}.txt"):
        lines = read_file(f"{path}.txt").decode().splitlines()
        pairs = (line.partition(" = ") for line in lines)
        values = {name: float(value) for name, _, value in pairs}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and name != "global_step"
    }


def _head(
    kind: _Kind, library: str, told: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]]
) -> str:
    """Returns the YAML that the hub reads."""
    lines = [f"library_name: {library}", f"pipeline_tag: {kind.pipeline}", "tags:", "- bert"]
    if told.get("is_on_hub"):
        lines.append(f"base_model: {json.dumps(told['init_checkpoint'].partition('@')[0])}")
    names = {name.removeprefix("eval_") for each in scores.values() for name in each}
    if metrics := sorted({_METRICS[name] for name in names if name in _METRICS}):
        lines += ["metrics:", *(f"- {name}" for name in metrics)]
    return "\n".join(["---", *lines, "---"])


def _facts(
    task: Mapping[str, Any], config: Mapping[str, Any], told: Mapping[str, Any], library: str
) -> dict[str, str]:
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
    if told:
        init = told["init_checkpoint"]
        facts["Base model"] = _code(init) if init else "none, trained from random weights"
    facts["Format"] = _FORMATS[library]
    return facts


def _list(facts: Mapping[str, str]) -> str:
    return "\n".join(f"* {name}: {value}" for name, value in facts.items())


def _data(files: Mapping[str, int], told: Mapping[str, Any]) -> str:
    lines = [f"* {_code(path)}, {size:,} bytes" for path, size in files.items()]
    lines += [f"* {_code(name)}: {n:,} examples" for name, n in told.get("examples", {}).items()]
    return "\n".join(["## Data", "", *lines]) if lines else ""


def _scores(scores: Mapping[str, Mapping[str, float]], metric: str) -> str:
    """Returns a table of the scores, the metric first, beside what guessing reaches."""
    tables = []
    for split, title in (("eval", "Evaluation"), ("test", "Test set")):
        values = scores[split]
        if not values:
            continue
        names = sorted(values.keys() - {"baseline"}, key=lambda name: (name != metric, name))
        rows = [f"| {_cell(name)} | {values[name]:.4g} |" for name in names]
        if "baseline" in values and metric:
            guess = f"{_cell(metric)} of always giving the same answer"
            rows.insert(min(1, len(rows)), f"| {guess} | {values['baseline']:.4g} |")
        tables.append("\n".join([f"## {title}", "", "| score | value |", "|---|---|", *rows]))
    return "\n\n".join(tables)


def _train(told: Mapping[str, Any]) -> str:
    command = told.get("command")
    if not command:
        return ""
    # Its words are quoted already.
    text = " \\\n  ".join([" ".join(command[:2]), *command[2:]])
    return f"## Training\n\n{_block(text, 'sh')}"


def _use(kind: _Kind, library: str) -> str:
    shell, asks = _USES.get(kind.pipeline, _PREDICTS)
    python = f'import bert\n\nmodel = bert.load("{_FOLDER}")\nprint(model.{asks}({kind.inputs}))'
    blocks = [_block(shell, "sh"), _block(python, "python")]
    if library == "transformers" and kind.pipeline != "multiple-choice":
        made = f'pipeline("{kind.pipeline}", model="{_FOLDER}")'
        blocks.append(_block(f"from transformers import pipeline\n\nmodel = {made}", "python"))
    return "\n\n".join(["## Use", f"`{_FOLDER}` is the folder of this file.", *blocks])


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _code(text: Any) -> str:
    """Returns a text as it is, on a line, so that nothing in it is taken for markup."""
    text = " ".join(str(text).split())
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if not text or text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _cell(text: str) -> str:
    return _code(text).replace("|", "\\|")


def _block(text: str, language: str) -> str:
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"
