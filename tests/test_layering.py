"""The law of layers: a module imports from lower ones and from its own package."""

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

from conftest import run_python
from helpers.forks import fork_python
from helpers.module_sources import SCRIPTS

ROOT = Path(__file__).parent.parent

# Each imports only what stands before it; the scripts stand on all.
LAYERS = (
    {"bert.log"},
    {"bert.options"},
    {"bert.parts"},
    {"bert.files"},
    {"bert.names"},
    {"bert.text"},
    {"bert.dropout"},
    {"modeling", "optimization", "tokenization"},
    {"bert.network", "bert.weights"},
    {"bert.training"},
    {"bert.export"},
    {"bert.pretraining"},
    {"bert.tasks"},
    {"bert.models"},
    {"bert.reports"},
    {"bert.runs"},
    {"bert.serving", "bert.scale", "bert.inspection"},
    {"bert.original"},
    {"bert.commands"},
    {"paper"},
)
# The original's script imported the other one, too.
SCRIPT_ON_SCRIPT = ("run_classifier_with_tfhub", "run_classifier")
# Lines of each package and module of the root; `bert` has the modules beside packages. A budget
# may fall; a commit that raises one says why.
BUDGETS = {
    "bert": 950,
    "bert.commands": 1800,
    "bert.export": 1660,
    "bert.files": 5105,
    "bert.inspection": 550,
    "bert.models": 3945,
    "bert.network": 1450,
    "bert.original": 2400,
    "bert.pretraining": 4804,
    "bert.reports": 1954,
    "bert.runs": 4390,
    "bert.scale": 2900,
    "bert.serving": 2150,
    "bert.tasks": 10919,
    "bert.text": 1200,
    "bert.training": 4350,
    "bert.weights": 5690,
    "convert_checkpoint": 91,
    "create_pretraining_data": 423,
    "create_vocab": 141,
    "create_word_vectors": 168,
    "extend_vocab": 110,
    "extract_features": 133,
    "fill_mask": 291,
    "inspect_text": 154,
    "join_shards": 88,
    "modeling": 850,
    "neighbours": 161,
    "optimization": 421,
    "paper": 3740,
    "predict": 171,
    "reproduce_paper": 52,
    "run_classifier": 92,
    "run_classifier_with_tfhub": 194,
    "run_ner": 123,
    "run_pretraining": 99,
    "run_squad": 134,
    "run_swag": 60,
    "serve": 168,
    "split_sentences": 91,
    "tokenization": 500,
}
# The command starts the scripts that the package names.
COMMAND = "bert.__main__"
LOADERS = ("import_module", "__import__", "run_module", "run_path")
# Names of 2018 are served by one module, and the command starts a script by its name.
LOADED_BY_STRING = {"bert.names": ["module", "module_of(name)"], COMMAND: ["module"]}


def find_modules() -> dict[str, Path]:
    # The root's own `__init__.py` is run by nobody but code above a clone in a folder `bert`, and
    # `setup.py` by pip alone.
    root = [path for path in ROOT.glob("*.py") if path.stem not in ("__init__", "setup")]
    paths = [*root, *ROOT.glob("bert/**/*.py"), *ROOT.glob("paper/*.py")]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in sorted(names.items())}


MODULES = find_modules()


@functools.cache
def nodes(module: str) -> list[ast.AST]:
    """Returns all nodes of a module, which is not parsed before a test needs it."""
    return [*ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))]


@functools.cache
def imported_names(module: str) -> set[str]:
    """Returns all that a module imports anywhere, inside functions too."""
    names = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively."
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    # Of `from bert.files.paths import open_file`, the module.
    return {name if name in MODULES else name.rpartition(".")[0] or name for name in names}


def layer_of(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if any(f"{module}.".startswith(f"{name}.") for name in names):
            return number
    return len(LAYERS)


def points_down(module: str, other: str) -> bool:
    package = other.rpartition(".")[0]
    is_own = package != "" and module.startswith(f"{package}.")
    return is_own or layer_of(other) < layer_of(module)


def test_every_module_has_a_layer_and_the_root_holds_scripts_and_the_library_alone():
    above = {name for name in MODULES if layer_of(name) == len(LAYERS)}
    assert above == SCRIPTS | {"bert", COMMAND}
    packages = {name for names in LAYERS for name in names}
    assert {name for name in packages if layer_of(name) != len(LAYERS)} == packages
    assert packages - {"paper"} <= MODULES.keys()


def test_the_page_of_the_architecture_shows_every_layer_in_its_order():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table, _, _ = page.split("| layer, from the lowest")[1].partition("\n\n")
    cells = re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE)
    shown = [name for cell in cells for name in re.findall(r"`(\w+)(?:\.py)?`", cell)]
    names = {name.removeprefix("bert."): name for layer in LAYERS for name in layer}
    numbers = [layer_of(names[name]) for name in shown]
    assert numbers == sorted(numbers)
    assert sorted(shown) == sorted(names.keys() - {"paper"})


def test_imports_point_down_or_stay_in_their_package():
    pairs = {(name, other) for name in MODULES for other in imported_names(name) & MODULES.keys()}
    wrong = {pair for pair in pairs if not points_down(*pair)}
    remedy = "Import from lower layers or from your own package: from bert.tasks, not another task."
    assert wrong - {SCRIPT_ON_SCRIPT, (COMMAND, "bert")} == set(), remedy


def test_imports_make_no_circle():
    above = {module: imported_names(module) & MODULES.keys() - {module} for module in MODULES}
    while free := [module for module, below in above.items() if not below & above.keys()]:
        for module in free:
            del above[module]
    assert above == {}


def loaded_by_string(module: str) -> list[str]:
    calls = [node for node in nodes(module) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call.args[0])
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in LOADERS
    ]


def test_no_module_is_loaded_through_a_string():
    loaded = {module: names for module in MODULES if (names := loaded_by_string(module))}
    assert loaded == LOADED_BY_STRING


# What reads text and data sets, and what a user types; tf.io.gfile is asked where a path needs it.
# Scripts show their help, and refuse what is misspelt, before they load what takes seconds.
WITHOUT_TENSORFLOW = (
    *sorted(SCRIPTS),
    *("bert", "bert.__main__", "tokenization", "bert.commands.flags"),
    *("bert.commands.console", "bert.original.processors", "bert.original.squad"),
    *(name for name in MODULES if name.startswith(("bert.files.", "paper.", "bert.reports."))),
    *(f"bert.tasks.classification.{name}" for name in ("examples", "own_files", "results")),
    *(
        f"bert.pretraining.{name}"
        for name in ("corpus", "instances", "records", "streaming", "vocabulary")
    ),
    *(f"bert.tasks.squad.{name}" for name in ("answers", "questions", "scores")),
    *("bert.tasks.layers", "bert.tasks.examples", "bert.tasks.classification.decisions"),
    *(f"bert.training.{name}" for name in ("cluster", "link", "meeting", "options")),
    *("bert.scale.launch", "bert.scale.record_pipeline"),
    *("bert.tasks.squad.windows", "bert.tasks.swag.examples"),
    *(f"bert.tasks.tagging.{name}" for name in ("sentences", "tags", "windows")),
)


def test_scripts_and_what_reads_text_need_no_tensorflow_and_the_network_names_none():
    slow = {"keras", "scipy", "sklearn", "tensorflow", "tensorflow_text"}
    # The scripts come first; some of what reads text asks scipy.
    lines = [f"import {name}" for name in WITHOUT_TENSORFLOW]
    lines.insert(len(SCRIPTS), f"assert not {slow} & sys.modules.keys()")
    lines.append("print({'keras', 'tensorflow'} & sys.modules.keys())")
    code = "\n".join(["import sys", *lines])
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("set()\n", "")
    assert not any(name.startswith("tensorflow") for name in imported_names("modeling"))


def test_tensorflow_text_is_loaded_for_exports_alone():
    askers = {
        module
        for module in MODULES
        if any(name.split(".")[0] == "tensorflow_text" for name in imported_names(module))
    }
    assert askers == {"bert.export.text_wordpiece", "bert.models.exported"}


def test_the_training_loop_loads_few_modules_of_the_project():
    code = """
import sys
import bert.training.loop
roots = ("bert", "modeling", "optimization", "tokenization")
modules = [module for name, module in sys.modules.items() if name.split(".")[0] in roots]
print(sum(not hasattr(module, "__path__") for module in modules))
"""
    assert int(fork_python("-c", code).stdout) <= 15


# What trains: the loop, its batches and records, and what runs alone need of a task.
TRAINING = (
    *(f"bert.training.{name}" for name in ("batches", "loop", "options", "records", "trainer")),
    *("bert.tasks.task", "bert.tasks.distillation"),
)


def test_what_answers_loads_nothing_of_what_trains():
    answering = ("bert.models", "bert.serving", "bert.scale.answers", "bert.inspection")
    tasks = ("classification.text_classifier", "squad.question_answerer", "swag.ending_chooser")
    tasks = (*tasks, "tagging.text_tagger", "tagging.feature_tagger")
    names = [name for name in MODULES if name.startswith(answering)]
    names += [f"bert.tasks.{name}" for name in tasks]
    code = "import sys\n" + "\n".join(f"import {name}" for name in names)
    result = run_python("-c", f"{code}\nprint(*sys.modules)")
    assert [name for name in result.stdout.split() if name.startswith(TRAINING)] == []


# Runs in a fresh interpreter. Third-party packages are imported first: what they define is theirs.
IMPORT_AND_REPORT = """
import importlib, json, os, signal, sys
from absl import app, flags, logging
import aiohttp.web, keras, numpy, prometheus_client, tensorflow as tf
modules = sys.argv[1:]
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
report = {}
finders, handler = [*sys.meta_path], signal.getsignal(signal.SIGINT)
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
# Names of 2018 have the one finder that is added.
added = [type(finder).__module__ for finder in sys.meta_path if finder not in finders]
assert added == ["bert.names"] and signal.getsignal(signal.SIGINT) is handler, added
# Raises where a device has been used already.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
print(json.dumps(report))
"""


def test_importing_defines_no_flag_opens_no_file_and_touches_no_device():
    result = run_python("-B", "-c", IMPORT_AND_REPORT, *MODULES)
    report = json.loads(result.stdout.splitlines()[-1])
    assert report == {module: {"flags": [], "files": []} for module in MODULES}


def package_of(module: str) -> str:
    """Returns the package of `bert` that a module is in; of other modules, the first name."""
    first, *rest = module.split(".")
    is_package = first == "bert" and rest and (ROOT / "bert" / rest[0]).is_dir()
    return f"bert.{rest[0]}" if is_package else first


def test_no_package_is_longer_than_its_budget():
    """A feature replaces another, or its commit raises the budget and says why."""
    lengths = dict.fromkeys(BUDGETS, 0)
    for module, path in MODULES.items():
        lengths[package_of(module)] += len(path.read_text(encoding="utf-8").splitlines())
    over = {name: lines for name, lines in lengths.items() if lines > BUDGETS[name]}
    remedy = "A feature may need more lines: write them into BUDGETS in tests/test_layering.py,"
    assert over == {}, f"{over} are over their budgets. {remedy} and say why in the commit."


def test_arguments_are_given_one_by_one():
    """A tuple unpacked on the spot only puts several of them on a line."""
    packed = [
        f"{module}:{node.lineno}"
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.Call)
        for each in node.args
        if isinstance(each, ast.Starred) and isinstance(each.value, ast.Tuple)
    ]
    assert packed == []
