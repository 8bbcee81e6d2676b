"""Measures how a checkout of the project is built: rooms, floors, imports, circles, lengths.

    python benchmarks/house.py [--root=/path/to/checkout]

Reads the source and runs none of it, so that a checkout of any age can be measured, with nothing
but Python. Modules are the .py files at the root and in its packages; tests count by their lines
alone. A room is a folder of a package with modules in it. An import statement counts once for each
module that it names, wherever it stands. Where what is loaded through a string is only known at run
time, all modules that the loading one names in strings count. Floors are the longest chain of
import statements between rooms, those of a package with all below them, and modules at the root.
"""

import argparse
import ast
import dataclasses
import importlib.util
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

LOADERS = ("import_module", "__import__", "run_module", "run_path")
TESTS = ("tests", "interop")

Arrows = Mapping[str, set[str]]


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of the project: its dotted name and its source."""

    name: str
    is_package: bool
    tree: ast.Module
    num_lines: int

    @property
    def room(self) -> str:
        """The package that it lies in; "" is the root."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def block(self) -> str:
        """What stands on one floor: a room of a package with all below it, or a module."""
        return ".".join(self.name.split(".")[:2])

    def imports(self, names: Collection[str]) -> list[str]:
        """Returns which of the modules `names` its import statements name, as often as they do."""
        found: list[str] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                imported = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(base, self.room)
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
        """Returns the lines of each function, and where it stands."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, functions)]
        return [
            ((node.end_lineno or 0) - node.lineno + 1, f"{self.name}.{node.name}") for node in nodes
        ]


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
    packages = [path.parent for path in root.glob("*/__init__.py") if path.parent.name not in TESTS]
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


def count_floors(arrows: Arrows) -> int:
    """Returns the length of the longest chain of arrows; a circle stands on one floor."""
    reached = reach(arrows)
    floors: dict[str, int] = {}
    # Whatever stands lower leads to fewer.
    for name in sorted(arrows, key=lambda name: len(reached[name])):
        below = [floors[other] for other in reached[name] if name not in reached[other]]
        floors[name] = 1 + max(below, default=0)
    return max(floors.values(), default=0)


def measure_all(modules: Mapping[str, Module]) -> list[tuple[str, object]]:
    """Returns what is counted of all modules together, each with its name."""
    imports = {name: module.imports(modules) for name, module in modules.items()}
    loads = {name: module.loads(modules) for name, module in modules.items()}
    circles = find_circles({name: {*imports[name], *loads[name]} for name in modules})
    floors: dict[str, set[str]] = {module.block: set() for module in modules.values()}
    for name, below in imports.items():
        floors[modules[name].block] |= {modules[other].block for other in below}
    # A package and its command make no room of a folder.
    inside = [each for each in modules.values() if not each.is_package and each.room]
    rooms = {each.room for each in inside if not each.name.endswith(".__main__")}
    return [
        ("modules at the root", sum(each.room == "" for each in modules.values())),
        ("modules in rooms", len(inside)),
        ("rooms", len(rooms)),
        ("floors", count_floors(floors)),
        ("imports between modules", sum(map(len, imports.values()))),
        ("imports through strings", sum(map(len, loads.values()))),
        *((f"  {name} loads", ", ".join(loads[name])) for name in modules if loads[name]),
        ("circles", len(circles)),
        *(("  of", ", ".join(circle)) for circle in circles),
        ("lines of code", sum(each.num_lines for each in modules.values())),
    ]


def measure_room(room: str, modules: Iterable[Module]) -> tuple[object, ...]:
    """Returns the row of a room: how many modules and lines, the longest file and function."""
    modules = [each for each in modules if each.room == room]
    files = [(each.num_lines, each.name) for each in modules]
    functions = [function for each in modules for function in each.functions()]
    longest = [f"{lines:4} {name}" for lines, name in (max(files), max(functions, default=(0, "")))]
    count = sum(not each.is_package for each in modules)
    return (room or "(root)", count, sum(lines for lines, _ in files), *longest)


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
    root = parser.parse_args().root
    modules = read_modules(root)
    if not modules:
        parser.error(f"`--root` must be a checkout. Received '{root}', where no module lies.")
    for name, value in measure_all(modules):
        print(f"{name:28} {value}")
    print(f"{'lines of tests':28} {count_lines(root / folder for folder in TESTS)}\n")
    rooms = sorted({module.room for module in modules.values()})
    titles = ("room", "modules", "lines", "longest file", "longest function")
    print_table([titles, *(measure_room(room, modules.values()) for room in rooms)])
    runners = [name for name, each in modules.items() if not each.room and name[:4] == "run_"]
    rows = [(name, len(set(modules[name].imports(modules)))) for name in runners]
    print_table([("runner", "modules imported"), *rows])


if __name__ == "__main__":
    main()
