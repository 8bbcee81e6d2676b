import ast
import fnmatch
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path.stem for path in ROOT.glob("*.py"))

# Module (or pattern): the project's modules and the outside packages that it may import. The
# standard library is open to all. A new module gets a row here, which tells its place.
LAYERS: dict[str, tuple[set[str], set[str]]] = {
    "quiet_import": (set(), {"tensorflow"}),
    "common_flags": (set(), {"absl"}),
    # Text: neither TensorFlow nor Keras; record files only through gfile, where a path needs it.
    "tokenizer_json": (set(), set()),
    "tokenization": ({"tokenizer_json"}, set()),
    "training_instances": ({"tokenization"}, {"numpy"}),
    "record_files": ({"quiet_import"}, {"tensorflow", "numpy"}),
    "progress": (set(), {"absl"}),
    "parallel": (set(), set()),
    "hub": ({"record_files"}, {"huggingface_hub", "absl"}),
    "vocab_learning": (
        {"parallel", "progress", "record_files", "tokenization"},
        {"absl", "tokenizers"},
    ),
    "squad_json": ({"record_files"}, set()),
    "squad": ({"squad_json"}, {"absl"}),
    "squad_windows": (set(), {"numpy", "absl"}),
    "squad_features": (
        {"parallel", "progress", "record_files", "squad", "squad_windows", "tokenization"},
        {"numpy", "absl"},
    ),
    "squad_cache": (
        {"record_files", "squad_features", "squad_windows", "tokenization"},
        {"numpy", "absl"},
    ),
    "squad_alignment": ({"tokenization"}, {"absl"}),
    "squad_answers": (
        {
            "progress",
            "record_files",
            "squad",
            "squad_alignment",
            "squad_features",
            "squad_windows",
            "tokenization",
        },
        {"numpy", "absl"},
    ),
    "squad_scores": (set(), set()),
    "squad_report": ({"record_files", "squad", "squad_answers", "squad_scores"}, {"absl"}),
    "tables": ({"record_files"}, {"absl"}),
    "classification_scores": (set(), {"numpy", "sklearn", "scipy"}),
    "classification": (
        {"tokenization", "record_files", "classification_scores"},
        {"numpy", "absl"},
    ),
    "custom_data": ({"classification", "tables"}, {"absl"}),
    "original_processors": (
        {"classification", "glue", "record_files", "tables", "tokenization"},
        {"absl"},
    ),
    "glue": ({"classification", "tables"}, {"absl"}),
    "word_spans": (set(), set()),
    "entity_tags": (set(), set()),
    "entity_scores": ({"entity_tags"}, set()),
    "conll": ({"entity_tags", "record_files", "tables", "word_spans"}, {"absl"}),
    "tagging": (
        {"conll", "entity_scores", "entity_tags", "tokenization", "word_spans"},
        {"numpy", "absl"},
    ),
    "tagged_files": ({"conll", "entity_tags", "tables"}, {"absl"}),
    "swag": ({"record_files", "tables", "tokenization"}, {"numpy", "absl"}),
    "feature_files": (set(), {"numpy"}),
    "text_inputs": ({"tokenization", "record_files"}, {"numpy", "absl"}),
    # Network.
    "huggingface_config": (set(), set()),
    "modeling": ({"huggingface_config"}, {"keras"}),
    "encoder_shapes": ({"modeling"}, set()),
    "huggingface": ({"record_files"}, {"numpy", "safetensors"}),
    "layer_features": ({"modeling"}, {"keras"}),
    "original_modeling": ({"modeling", "checkpoint"}, {"keras"}),
    "pretraining": ({"modeling"}, {"keras"}),
    "task_models": ({"modeling"}, {"keras"}),
    "bilstm": ({"modeling"}, {"keras"}),
    "feature_based": ({"bilstm", "layer_features", "modeling"}, {"keras"}),
    "optimization": (set(), {"keras", "tensorflow"}),
    "hub_module": ({"checkpoint", "modeling"}, {"tensorflow"}),
    "checkpoint": (
        {"encoder_shapes", "hub", "huggingface", "modeling", "record_files"},
        {"keras", "tensorflow", "numpy", "absl"},
    ),
    "model_files": (
        {
            "checkpoint",
            "huggingface",
            "huggingface_config",
            "record_files",
            "tables",
            "tokenizer_json",
        },
        {"absl"},
    ),
    # Where text and network meet.
    "input_pipeline": ({"text_inputs"}, {"tensorflow", "numpy", "absl", "google"}),
    "training": (
        {"modeling", "checkpoint", "optimization"},
        {"keras", "tensorflow", "numpy", "absl"},
    ),
    "evaluations": ({"record_files", "checkpoint", "training"}, {"keras", "tensorflow", "absl"}),
    "repeated_runs": ({"common_flags", "checkpoint"}, {"keras", "absl"}),
    "finetuning": (
        {
            "common_flags",
            "evaluations",
            "text_inputs",
            "tokenization",
            "tokenizer_json",
            "record_files",
            "model_files",
            "modeling",
            "optimization",
            "checkpoint",
            "input_pipeline",
            "training",
            "export",
        },
        {"keras", "tensorflow", "numpy", "absl"},
    ),
    "word_features": (
        {
            "feature_based",
            "input_pipeline",
            "modeling",
            "progress",
            "record_files",
            "tagging",
            "text_inputs",
        },
        {"keras", "tensorflow", "numpy", "absl"},
    ),
    "original_classifier": (
        {
            "original_processors",
            "tables",
            "modeling",
            "task_models",
            "optimization",
            "checkpoint",
            "input_pipeline",
            "training",
        },
        {"keras", "tensorflow", "numpy", "absl"},
    ),
    "tagging_windows": (
        {
            "common_flags",
            "conll",
            "feature_based",
            "finetuning",
            "input_pipeline",
            "modeling",
            "training",
            "word_features",
        },
        {"keras", "numpy"},
    ),
    "served_task": (set(), {"numpy"}),
    "serving": (
        {
            "run_classifier",
            "run_ner",
            "run_squad",
            "run_swag",
            "served_task",
            "tokenization",
            "record_files",
            "text_inputs",
            "modeling",
            "checkpoint",
            "training",
            "finetuning",
        },
        {"tensorflow", "numpy", "keras"},
    ),
    "export": (
        {"tokenization", "graph_tokenizer", "record_files"},
        {"keras", "tensorflow", "absl"},
    ),
    "squad_export": (
        {"tokenization", "export", "squad_answers", "squad_features", "squad_windows"},
        {"keras", "tensorflow", "absl"},
    ),
    "tagging_export": (
        {"tokenization", "entity_tags", "tagging", "graph_word_spans", "export"},
        {"keras", "tensorflow", "absl"},
    ),
    "choice_export": ({"tokenization", "export"}, {"keras", "tensorflow", "absl"}),
    "graph_word_spans": ({"word_spans", "graph_tokenizer"}, {"tensorflow", "numpy"}),
    "graph_tokenizer": ({"tokenization"}, {"tensorflow", "tensorflow_text", "numpy"}),
    "masked_model": (
        {"tokenization", "text_inputs", "modeling", "pretraining"},
        {"tensorflow", "numpy"},
    ),
    # Scripts.
    "fill_mask": (
        {
            "quiet_import",
            "common_flags",
            "tokenization",
            "record_files",
            "tables",
            "text_inputs",
            "huggingface",
            "model_files",
            "modeling",
            "checkpoint",
            "masked_model",
        },
        {"absl"},
    ),
    "extract_features": (
        {
            "quiet_import",
            "common_flags",
            "tokenization",
            "record_files",
            "progress",
            "text_inputs",
            "feature_files",
            "layer_features",
            "model_files",
            "modeling",
            "checkpoint",
        },
        {"keras", "tensorflow", "numpy", "absl"},
    ),
    "convert_checkpoint": (
        {
            "quiet_import",
            "common_flags",
            "record_files",
            "tokenizer_json",
            "huggingface",
            "huggingface_config",
            "modeling",
            "pretraining",
            "task_models",
            "checkpoint",
            "model_files",
            "finetuning",
        },
        {"keras", "numpy", "absl"},
    ),
    "predict": ({"quiet_import", "common_flags", "record_files", "tables", "serving"}, {"absl"}),
    "split_sentences": ({"tokenization", "record_files", "common_flags"}, {"absl"}),
    "create_vocab": ({"common_flags", "parallel", "record_files", "vocab_learning"}, {"absl"}),
    "extend_vocab": (
        {
            "quiet_import",
            "common_flags",
            "tokenization",
            "record_files",
            "tables",
            "modeling",
            "checkpoint",
            "model_files",
        },
        {"numpy", "absl"},
    ),
    "create_pretraining_data": (
        {"tokenization", "training_instances", "record_files", "common_flags", "progress"},
        {"numpy", "absl"},
    ),
    "run_*": (
        {
            "quiet_import",
            "common_flags",
            "tokenization",
            "record_files",
            "model_files",
            "modeling",
            "pretraining",
            "optimization",
            "checkpoint",
            "input_pipeline",
            "training",
            "classification",
            "conll",
            "custom_data",
            "entity_scores",
            "entity_tags",
            "evaluations",
            "export",
            "finetuning",
            "glue",
            "hub_module",
            "repeated_runs",
            "run_classifier",
            "original_classifier",
            "squad_export",
            "tagging_export",
            "choice_export",
            "served_task",
            "squad",
            "squad_alignment",
            "squad_answers",
            "squad_cache",
            "squad_features",
            "squad_report",
            "squad_scores",
            "squad_windows",
            "parallel",
            "swag",
            "tables",
            "tagged_files",
            "tagging",
            "task_models",
            "tagging_windows",
            "feature_based",
            "word_spans",
        },
        {"keras", "numpy", "absl"},
    ),
}


def imported_packages(module: str) -> set[str]:
    """Returns the top-level names that a module imports anywhere, inside functions included."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}.py imports relatively, but modules are flat."
            names.add((node.module or "").split(".")[0])
    return names - sys.stdlib_module_names


def rows_for(module: str) -> list[str]:
    return [pattern for pattern in LAYERS if fnmatch.fnmatch(module, pattern)]


def test_every_module_has_one_row_and_every_row_a_module():
    assert {module: len(rows_for(module)) for module in MODULES} == dict.fromkeys(MODULES, 1)
    assert [row for row in LAYERS if not fnmatch.filter(MODULES, row)] == []


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_its_layer_allows(module):
    project, outside = LAYERS[rows_for(module)[0]]
    imported = imported_packages(module)
    assert imported & set(MODULES) <= project
    assert imported - set(MODULES) <= outside


# Names of the original that are served by a module above; a string hides the way up.
LOADED_BY_STRING = {"modeling": "original_modeling"}


def imports_by_string(module: str) -> list[str]:
    """Returns what a module passes to `importlib.import_module` and `__import__`."""
    tree = ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call.args[0])
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in ("import_module", "__import__")
    ]


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_loaded_through_a_string(module):
    allowed = [repr(LOADED_BY_STRING[module])] if module in LOADED_BY_STRING else []
    assert imports_by_string(module) == allowed


def test_imports_make_no_circle():
    above = {module: imported_packages(module) & set(MODULES) for module in MODULES}
    while free := [module for module, below in above.items() if not below & above.keys()]:
        for module in free:
            del above[module]
    assert above == {}


# Runs in a fresh interpreter. Third-party packages are imported first: what they define is theirs.
IMPORT_AND_REPORT = """
import importlib, json, os, sys
from absl import app, flags, logging
import keras, numpy, tensorflow as tf
modules = sys.argv[1:]
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
report = {}
for module in modules:
    flags_before, opened[:] = set(flags.FLAGS), []
    importlib.import_module(module)
    sources = (".py", ".pyc", ".so")
    files = [
        path
        for path in opened
        if path != os.devnull and not path.endswith(sources) and ".pyc." not in path
    ]
    report[module] = {"flags": sorted(set(flags.FLAGS) - flags_before), "files": files}
# Raises where a device has been used already.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
print(json.dumps(report))
"""


def test_importing_defines_no_flag_opens_no_file_and_touches_no_device():
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_AND_REPORT, *MODULES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert report == {module: {"flags": [], "files": []} for module in MODULES}
