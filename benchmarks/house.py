"""Measures the structure of a checkout: packages, layers, imports, circles, options, lengths.

    python benchmarks/house.py [--root=/path/to/checkout] [--loaded]

Reads the source and runs none of it, so that a checkout of any age can be measured, with nothing
but Python. Modules are the .py files at the root and in its packages; tests count by their lines
alone, and benchmarks/, interop/ and paper/ not at all. An import statement counts once for each
module that it names, wherever it is. Where what is loaded through a string is only known at run
time, all modules that the loading one names in strings count. Layers are the longest chain of
import statements between packages, each with all below it, and modules at the root.

With --loaded, the modules of the project that a fresh process has loaded are counted, too, packages
apart: after each of some imports, and when a script has done its work with a tiny model. That runs
the checkout.
"""

import argparse
import ast
import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

LOADERS = ("import_module", "__import__", "run_module", "run_path")
TESTS = ("tests", "interop")
BESIDE = (*TESTS, "benchmarks", "paper")
# The packages that know flags: everything that imports `bert.commands`, and the names of 2018.
COMMANDS = ("bert.commands", "bert.__main__", "bert.command_line", "bert.original", "paper")
# What may take all options at once.
ENTRIES = ("plan", "run", "describe")
# The bases of protocols for types; `asyncio.Protocol` is a base of implementations.
PROTOCOLS = ("Protocol", "typing.Protocol")
# A text that spells a flag as it is typed.
FLAG = re.compile(r"(?:^|[\s`'\"(])--[a-z][a-z_0-9]*(?:[=\s`.,;)]|$)")
LONGEST_FILE = {"modeling": 850}
LOADED = ("bert", "modeling", "bert.training.loop", "bert.runs.plan", "bert.runs.run")
# The scripts whose modules are counted, each with what it is given; {root} is the checkout, and
# {folder} one for outputs. predict.py has a classifier that the script before it has trained.
TRAIN = (
    "--do_train --num_train_epochs=1 --train_batch_size=16 --max_train_samples=32 "
    "--vocab_file={root}/sample/vocab.txt --bert_config_file={folder}/bert_config.json "
)
SCRIPTS = {
    "run_classifier": TRAIN
    + "--train_file={root}/sample/remarks/train.tsv --output_dir={folder}/remarks",
    "predict": "--model_dir={folder}/remarks nice",
    "run_squad": TRAIN
    + "--do_predict --train_file={root}/sample/questions/train.json "
    + "--predict_file={root}/sample/questions/dev.json --output_dir={folder}/questions",
}
CONFIG = {
    "vocab_size": 1000,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}

Arrows = Mapping[str, set[str]]


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of the project: its dotted name and its source."""

    name: str
    is_package: bool
    tree: ast.Module
    num_lines: int

    @property
    def package(self) -> str:
        """The package of the module; "" is the root."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def block(self) -> str:
        """The part of a layer: a package with all below it, or a module at the root."""
        return ".".join(self.name.split(".")[:2])

    def imports(self, names: Collection[str]) -> list[str]:
        """Returns which of the modules `names` its import statements name, as often as they do."""
        found: list[str] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                imported = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(base, self.package)
                imported = {f"{base}.{alias.name}" for alias in node.names}
            else:
                continue
            found += {_holder(name, names) for name in imported} - {""}
        return found

    def loads(self, names: Collection[str]) -> list[str]:
        """Returns which of the modules `names` it loads through strings, as often as it does."""
        found: list[str] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and _called(node) in LOADERS and node.args:
                known = isinstance(node.args[0], ast.Constant)
                found += sorted(_strings(node.args[0] if known else self.tree) & {*names})
        return found

    def functions(self) -> list[tuple[int, str]]:
        """Returns the lines of each function, and its full name."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, functions)]
        return [
            ((node.end_lineno or 0) - node.lineno + 1, f"{self.name}.{node.name}") for node in nodes
        ]

    @property
    def num_statements(self) -> int:
        """The number of statements, as `ast` counts them."""
        return sum(isinstance(node, ast.stmt) for node in ast.walk(self.tree))

    def carriers(self, kinds: Collection[str]) -> list[str]:
        """Returns the functions and attributes that hold all options.

        Args:
          kinds: The classes of all options: a parameter or an attribute of one of these counts,
            but for the fields of these classes themselves, such as the recipe of a plan.
        """
        found = []
        names = {kind.rpartition(".")[2] for kind in kinds} - self._bound_elsewhere(kinds)
        named = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b") if names else None
        wholes = [node for node in self.classes() if f"{self.name}.{node.name}" in kinds]
        own = {id(field) for node in wholes for field in node.body}
        for node in ast.walk(self.tree):
            if id(node) in own and isinstance(node, ast.AnnAssign):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                types = [each.annotation for each in arguments]
                name = node.name
            elif isinstance(node, ast.AnnAssign):
                types, name = [node.annotation], ast.unparse(node.target)
            else:
                continue
            texts = [ast.unparse(each) for each in types if each is not None]
            if named and name not in ENTRIES and any(map(named.search, texts)):
                found.append(f"{self.name}.{name}")
        return found

    def _bound_elsewhere(self, kinds: Collection[str]) -> set[str]:
        """Returns the names of classes that it defines or imports, and that are none of `kinds`."""
        bound = {node.name: f"{self.name}.{node.name}" for node in self.classes()}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [(alias.asname or alias.name, alias.name) for alias in node.names]
                bound |= {name: f"{node.module}.{original}" for name, original in names}
        return {name for name, full in bound.items() if full not in kinds}

    def classes(self) -> list[ast.ClassDef]:
        """Returns the classes."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    def protocols(self) -> list[tuple[int, str]]:
        """Returns the number of members of each protocol, and its name."""
        members = (ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign)
        return [
            (sum(isinstance(each, members) for each in node.body), f"{self.name}.{node.name}")
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ClassDef)
            and any(ast.unparse(base).split("[")[0] in PROTOCOLS for base in node.bases)
        ]

    def flag_texts(self) -> tuple[list[str], list[str]]:
        """Returns the strings that spell a flag, docstrings apart, and those that an error has."""
        nodes = [*ast.walk(self.tree)]
        alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        raised = [each for node in nodes if isinstance(node, ast.Raise) for each in ast.walk(node)]
        texts = [
            [text for node in some if id(node) not in alone and (text := _flag_text(node))]
            for some in (nodes, raised)
        ]
        return texts[0], texts[1]


def _flag_text(node: ast.AST) -> str:
    """Returns the text of a string that spells a flag, "" for any other node."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return ""
    return node.value if FLAG.search(node.value) else ""


def _holder(name: str, names: Collection[str]) -> str:
    """Returns the module among `names` that holds what is imported by a name, or ""."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _strings(tree: ast.AST) -> set[str]:
    """Returns the strings in the source; keys only say which of them is meant."""
    nodes = list(ast.walk(tree))
    keys = {id(key) for node in nodes if isinstance(node, ast.Dict) for key in node.keys}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in keys]
    return {node.value for node in constants if isinstance(node.value, str)}


def read_modules(root: Path) -> dict[str, Module]:
    """Returns the modules at the root and in its packages, by name."""
    packages = [path.parent for path in root.glob("*/__init__.py")]
    packages = [path for path in packages if path.name not in BESIDE]
    paths = [*root.glob("*.py"), *(path for folder in packages for path in folder.rglob("*.py"))]
    modules = {}
    for path in sorted(paths):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, is_package, ast.parse(text), len(text.splitlines()))
    return modules


def reach(arrows: Arrows) -> dict[str, set[str]]:
    """Returns for each name all that its arrows lead to, directly or not, itself included."""
    reached = {}
    for name in arrows:
        found, ahead = {name}, [name]
        while ahead:
            new = arrows[ahead.pop()] - found
            found |= new
            ahead += new
        reached[name] = found
    return reached


def find_circles(arrows: Arrows) -> list[tuple[str, ...]]:
    """Returns the groups of names that all lead to each other: strongly connected components."""
    reached = reach(arrows)
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other])) for name in arrows
    }
    return sorted(group for group in groups if len(group) > 1)


def count_layers(arrows: Arrows) -> int:
    """Returns the length of the longest chain of arrows; a circle is in one layer."""
    reached = reach(arrows)
    layers: dict[str, int] = {}
    # A name in a lower layer leads to fewer others.
    for name in sorted(arrows, key=lambda name: len(reached[name])):
        below = [layers[other] for other in reached[name] if name not in reached[other]]
        layers[name] = 1 + max(below, default=0)
    return max(layers.values(), default=0)


def is_below_commands(name: str) -> bool:
    """Returns whether a module is of the library, which knows no flags."""
    return name.startswith("bert.") and not f"{name}.".startswith(tuple(f"{c}." for c in COMMANDS))


def find_whole_options(modules: Mapping[str, Module]) -> set[str]:
    """Returns the full names of the classes that hold all options of a run.

    They are data classes called `Plan` or `Settings`, or ending with either, and those of
    `bert.runs.recipes` that are made of groups (a field whose type is no plain value) or have a
    field of such a class.
    """
    kinds = {
        f"{module.name}.{node.name}"
        for module in modules.values()
        for node in module.classes()
        if node.name.endswith(("Settings", "Plan"))
        and not any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    }
    recipes = modules["bert.runs.recipes"].classes() if "bert.runs.recipes" in modules else []
    names = {node.name for node in recipes if _has_groups(node)}
    while more := {node.name for node in recipes if _has_field(node, names)} - names:
        names |= more
    return kinds | {f"bert.runs.recipes.{name}" for name in names}


def _has_field(node: ast.ClassDef, kinds: Collection[str]) -> bool:
    fields = [each.annotation for each in node.body if isinstance(each, ast.AnnAssign)]
    names = {name for each in fields for name in re.findall(r"\w+", ast.unparse(each))}
    return not names.isdisjoint(kinds)


def _has_groups(node: ast.ClassDef) -> bool:
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return (
        sum(re.search(r"\b[A-Z]", ast.unparse(each.annotation)) is not None for each in fields) > 2
    )


def measure_all(modules: Mapping[str, Module]) -> list[tuple[str, object]]:
    """Returns what is counted of all modules together, each with its name."""
    imports = {name: module.imports(modules) for name, module in modules.items()}
    loads = {name: module.loads(modules) for name, module in modules.items()}
    circles = find_circles({name: {*imports[name], *loads[name]} for name in modules})
    blocks: dict[str, set[str]] = {module.block: set() for module in modules.values()}
    for name, below in imports.items():
        blocks[modules[name].block] |= {modules[other].block for other in below}
    # The package `bert` and its command are no package of modules.
    inside = [each for each in modules.values() if not each.is_package and each.package]
    packages = {each.package for each in inside if not each.name.endswith(".__main__")}
    long = [each for each in modules.values() if each.num_lines > LONGEST_FILE.get(each.name, 500)]
    return [
        ("lines of code", sum(each.num_lines for each in modules.values())),
        ("statements", sum(each.num_statements for each in modules.values())),
        ("modules at the root", sum(each.package == "" for each in modules.values())),
        ("modules in packages", len(inside)),
        ("packages", len(packages)),
        ("layers", count_layers(blocks)),
        ("imports between modules", sum(map(len, imports.values()))),
        ("imports through strings", sum(map(len, loads.values()))),
        *((f"  {name} loads", ", ".join(loads[name])) for name in modules if loads[name]),
        ("circles", len(circles)),
        *(("  of", ", ".join(circle)) for circle in circles),
        *measure_options(modules),
        ("files over 500 lines", len(long)),
        *(("  of", f"{each.name}, {each.num_lines}") for each in long),
    ]


def measure_options(modules: Mapping[str, Module]) -> list[tuple[str, object]]:
    """Returns who holds all options, who spells flags, and how large protocols are."""
    kinds = find_whole_options(modules)
    carriers = [name for each in modules.values() for name in each.carriers(kinds)]
    below = {name: each for name, each in modules.items() if is_below_commands(name)}
    carried = [name for each in below.values() for name in each.carriers(kinds)]
    texts = [each.flag_texts() for each in below.values()]
    protocols = sorted(found for each in modules.values() for found in each.protocols())
    return [
        ("functions with all options", len(carriers)),
        ("  below the commands", len(carried)),
        ("strings that spell a flag", sum(len(all_texts) for all_texts, _ in texts)),
        ("  in errors", sum(len(raised) for _, raised in texts)),
        *(("members of a protocol", f"{count:2} {name}") for count, name in reversed(protocols)),
    ]


def count_loaded(root: Path, start: str, *arguments: str) -> int:
    """Returns how many modules of the checkout a process has loaded at its end.

    Args:
      root: The checkout.
      start: A statement that the process executes.
      *arguments: The arguments of the process.
    """
    code = f"""
import atexit, os, runpy, sys
def count():
    files = {{getattr(each, "__file__", None) or "" for each in [*sys.modules.values()]}}
    own = [path for path in files if path.startswith({str(root)!r}) and ".venv" not in path]
    print("\\n", sum(os.path.basename(path) != "__init__.py" for path in own))
atexit.register(count)
{start}
"""
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return int(result.stdout.split()[-1])


def count_all_loaded(root: Path, names: Collection[str]) -> list[tuple[str, int]]:
    """Returns how many modules each of `LOADED` and `SCRIPTS` loads that is among some names."""
    root = root.resolve()
    counts = [(name, count_loaded(root, f"import {name}")) for name in LOADED if name in names]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bert_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        for name, arguments in SCRIPTS.items():
            if name in names:
                start = f"runpy.run_path('{name}.py', run_name='__main__')"
                given = arguments.format(root=root, folder=folder).split()
                counts.append((f"{name}.py", count_loaded(root, start, *given)))
    return counts


def measure_package(package: str, modules: Iterable[Module]) -> tuple[object, ...]:
    """Returns the row of a package: modules, lines, statements, the longest file and function."""
    modules = [each for each in modules if each.package == package]
    files = [(each.num_lines, each.name) for each in modules]
    functions = [function for each in modules for function in each.functions()]
    longest = [f"{lines:4} {name}" for lines, name in (max(files), max(functions, default=(0, "")))]
    count = sum(not each.is_package for each in modules)
    num_lines = sum(each.num_lines for each in modules)
    num_statements = sum(each.num_statements for each in modules)
    return (package or "(root)", count, num_lines, num_statements, *longest)


def count_lines(folders: Iterable[Path]) -> int:
    """Returns the number of lines of all .py files in the folders."""
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def print_table(rows: Iterable[Iterable[object]]) -> None:
    """Prints rows of the same length with their columns below each other, numbers to the right."""
    rows = [list(row) for row in rows]
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:{'>' if isinstance(cell, int) else '<'}{width}}"
            for cell, width in zip(row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
    print()


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--loaded", action="store_true")
    arguments = parser.parse_args()
    root = arguments.root
    modules = read_modules(root)
    if not modules:
        parser.error(f"`--root` must be a checkout. Received '{root}', which has no module.")
    for name, value in measure_all(modules):
        print(f"{name:28} {value}")
    print(f"{'lines of tests':28} {count_lines(root / folder for folder in TESTS)}\n")
    packages = sorted({module.package for module in modules.values()})
    titles = ("package", "modules", "lines", "statements", "longest file", "longest function")
    print_table([titles, *(measure_package(package, modules.values()) for package in packages)])
    runners = [name for name, each in modules.items() if not each.package and name[:4] == "run_"]
    rows = [(name, len(set(modules[name].imports(modules)))) for name in runners]
    print_table([("runner", "modules imported"), *rows])
    if arguments.loaded:
        print_table([("start", "modules loaded"), *count_all_loaded(root, modules)])


if __name__ == "__main__":
    main()
