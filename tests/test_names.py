"""Names mean one thing: classes are unique across the packages, and so are functions that are imported by their name.

A function that is always called through its module (`derived.read`, `warehouse.read`) may share its name with others.
The four simulated clusters have the same operations under the same names, and no file imports those of two clusters.
A section of the report, or a part of it, is a function with the name of its file.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("traces", "simulator", "features", "agent", "models", "reports", "assets", "pipelines")
CLUSTERS = ("simulator.flat", "simulator.slurm", "simulator.recorded", "simulator.gpu")
INTERFACE = "simulator.cluster"  # the operations of any simulated cluster, called by the names that each gives them
SECTIONS = ("reports.sections", "reports.parts")


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module, by its dotted name."""
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((REPOSITORY / package).rglob("*.py"))
    }


def defined(kind: type[ast.stmt]) -> dict[str, set[str]]:
    """Modules that define each public class or function at their top level, by name."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, kind) and not node.name.startswith("_"):  # type: ignore[attr-defined]
                found[node.name].add(module)  # type: ignore[attr-defined]
    return found


def imported_by_name() -> Iterator[tuple[str, str, str]]:
    """Each name imported from a module: the importing file, the module and the name."""
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from ((file, node.module, alias.name) for alias in node.names)


def cluster_of(module: str) -> str | None:
    """The simulated cluster to which a module belongs; None if it belongs to none."""
    return next((name for name in CLUSTERS if f"{module}.".startswith(f"{name}.")), None)


def test_no_two_public_classes_share_a_name() -> None:
    assert {name: files for name, files in defined(ast.ClassDef).items() if len(files) > 1} == {}


def test_a_function_imported_by_its_name_shares_it_with_no_other() -> None:
    functions, places = defined(ast.FunctionDef), defaultdict(set)
    for _, module, name in imported_by_name():
        if module in functions.get(name, ()) and not module.startswith(SECTIONS):
            places[name].add(module)
    shared = {}
    for name, modules in places.items():
        others = {module for module in modules if cluster_of(module) is None and module != INTERFACE}
        if len(others) + (others != modules) > 1:
            shared[name] = sorted(modules)
    assert shared == {}


def test_no_file_imports_one_name_from_two_clusters() -> None:
    clusters = defaultdict(set)
    for file, module, name in imported_by_name():
        if cluster := cluster_of(module):
            clusters[file, name].add(cluster)
    assert {key: sorted(found) for key, found in clusters.items() if len(found) > 1} == {}
