"""The house in figures: how long files and functions are, how full each folder is, which room imports which.

    python -m docs.house [--root CHECKOUT]

A room is a folder of modules in one of the eight packages, written as it is imported (`traces.readers`); a module that
lies directly in a package is in the room of the package's own name. Imports are read by Grimp from every module, those
inside functions and those for types included. `tests/test_rules.py` holds the limits, and `docs/picture.py` draws the
rooms, both with the functions of this file.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grimp

ROOT = Path(__file__).resolve().parents[1]
FILE_LINES, FUNCTION_LINES = 400, 50  # more than these needs a reason
FOLDER_MODULES = 16  # a folder of more is split
OVER = "Over {limit} lines:"  # what the reason begins with, in the docstring of the file or function
BESIDE = ("tests", "bench", "docs", "examples")  # folders of Python that are no packages


@dataclass(frozen=True)
class Length:
    """How long a file or a function is.

    A file counts all its lines. A function counts from its `def` to its last line, functions inside it included;
    decorators and its docstring do not count.
    """

    place: str  # `traces/store.py`, or `traces/store.py:313 query`
    lines: int
    limit: int
    docstring: str

    @property
    def is_over(self) -> bool:
        """Whether it is longer than its limit."""
        return self.lines > self.limit

    @property
    def has_reason(self) -> bool:
        """Whether its docstring says why it is longer: the fixed words, and a text behind them."""
        _, phrase, reason = self.docstring.partition(OVER.format(limit=self.limit))
        return bool(phrase and reason.strip())


def packages(root: Path) -> list[str]:
    """Names of the packages, as the import rules in pyproject.toml list them: from the top layer down."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["importlinter"]["root_packages"])


def sources(root: Path, folder: str) -> list[Path]:
    """Every Python file below a folder of the checkout, sorted by path."""
    return sorted((root / folder).rglob("*.py"))


def file_length(place: str, text: str) -> Length:
    """The length of a file from its text."""
    return Length(place, len(text.splitlines()), FILE_LINES, ast.get_docstring(ast.parse(text)) or "")


def function_lengths(place: str, text: str) -> Iterator[Length]:
    """The length of every function and method of a file, nested ones too, from the file's text."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = _last(node) - node.lineno + 1
        docstring = ast.get_docstring(node)
        if docstring is not None:
            lines -= _last(node.body[0]) - node.body[0].lineno + 1
        yield Length(f"{place}:{node.lineno} {node.name}", lines, FUNCTION_LINES, docstring or "")


def _last(node: ast.stmt) -> int:
    """The last line of a statement."""
    return node.lineno if node.end_lineno is None else node.end_lineno


def lengths(root: Path, folders: list[str]) -> tuple[list[Length], list[Length]]:
    """Lengths of all files, and of all functions, below some folders of a checkout."""
    files: list[Length] = []
    functions: list[Length] = []
    for folder in folders:
        for path in sources(root, folder):
            place, text = str(path.relative_to(root)), path.read_text(encoding="utf-8")
            files.append(file_length(place, text))
            functions.extend(function_lengths(place, text))
    return files, functions


@dataclass(frozen=True)
class Rooms:
    """The rooms of the packages and the imports between their modules."""

    of_module: dict[str, str]  # the room that each module is in
    imports: frozenset[tuple[str, str]]  # (module, the module it imports)

    @property
    def names(self) -> list[str]:
        """Every room that holds a module besides its `__init__`, sorted."""
        return sorted({room for module, room in self.of_module.items() if module != room})

    @property
    def crossing(self) -> Counter[tuple[str, str]]:
        """For each (room, room it imports): how many imports of a module by a module join the two."""
        rooms = ((self.of_module[a], self.of_module[b]) for a, b in self.imports)
        return Counter((a, b) for a, b in rooms if a != b)


def rooms(root: Path) -> Rooms:
    """Rooms and imports of the packages of a checkout, read from their files; nothing of them is run."""
    sys.path.insert(0, str(root))
    try:
        graph = grimp.build_graph(*packages(root), cache_dir=None)
    finally:
        sys.path.remove(str(root))
    folders = {name for name in graph.modules if (root / name.replace(".", "/")).is_dir()}
    of_module = {name: name if name in folders else name.rpartition(".")[0] for name in graph.modules}
    imports = ((a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a))
    return Rooms(of_module, frozenset(imports))


def folder_sizes(root: Path, folders: list[str]) -> Counter[str]:
    """How many Python files, `__init__.py` aside, lie in each folder (those in its own folders not counted)."""
    paths = (path for folder in folders for path in sources(root, folder) if path.name != "__init__.py")
    return Counter(str(path.parent.relative_to(root)) for path in paths)


def lines_below(root: Path, folder: str) -> int:
    """Lines of all Python files below a folder of the checkout; 0 where there is no such folder."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources(root, folder))


def tested(root: Path) -> Iterator[tuple[str, int, int]]:
    """(folder, its lines, lines of its tests) of each package and of each room that has a folder of tests.

    `tests` mirrors the packages: the tests of `traces/readers` are those below `tests/traces/readers`.
    """
    of_packages = packages(root)
    for package in reversed(of_packages):
        folders = sorted({path.parent for path in sources(root, package)})
        for folder in (str(path.relative_to(root)) for path in folders):
            if folder in of_packages or (root / "tests" / folder).is_dir():
                yield folder, lines_below(root, folder), lines_below(root, f"tests/{folder}")
    source = sum(lines_below(root, package) for package in of_packages)
    yield "all packages, all of tests", source, lines_below(root, "tests")


def figures(root: Path) -> str:
    """The figures of a checkout, as Markdown: one table of the whole, one of the folders, one of the tests."""
    files, functions = lengths(root, packages(root))
    _, others = lengths(root, ["tests", "bench"])
    longest = max(files, key=lambda file: file.lines)
    sizes, crossing = folder_sizes(root, packages(root)), rooms(root).crossing
    over, over_beside = [f for f in functions if f.is_over], [f for f in others if f.is_over]
    lines = [
        "| figure | value |",
        "|---|---|",
        f"| files in the packages | {len(files)} |",
        f"| rooms | {len(sizes)} |",
        "| most files in a folder | " + ", ".join(f"{name} {n}" for name, n in sizes.most_common(5)) + " |",
        f"| median file, lines | {median(file.lines for file in files):g} |",
        f"| longest file, lines | {longest.lines} ({longest.place}) |",
        f"| functions over {FUNCTION_LINES} lines, packages | {len(over)}, {_unreasoned(over)} without a reason |",
        f"| the same, tests and bench | {len(over_beside)}, {_unreasoned(over_beside)} without a reason |",
        f"| pairs of rooms of which one imports the other | {len(crossing)} |",
        f"| pairs of rooms that import each other | {sum((b, a) in crossing for a, b in crossing) // 2} |",
        f"| imports of a module in another room | {sum(crossing.values())} |",
        "",
        "| folder | lines | lines of tests | ratio |",
        "|---|---|---|---|",
        *(f"| {name} | {n} | {test} | {test / n:.2f} |" for name, n, test in tested(root)),
    ]
    return "\n".join(lines) + "\n"


def _unreasoned(functions: list[Length]) -> int:
    """How many of them give no reason."""
    return sum(not function.has_reason for function in functions)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--root", type=Path, default=ROOT, help="the checkout to measure (default: this one)")
    print(figures(arguments.parse_args().root.resolve()), end="")
