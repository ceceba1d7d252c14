"""A twin shares no code with the fast version that it checks: an error in shared code would go unnoticed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TWINS = Path(__file__).parent

# The modules of `simulator` that each twin may import: declarations, constants, and rules with tests of their own.
ALLOWED = {
    "flat": {"simulator.workload"},
    "recorded": {
        "simulator.recorded.follow",
        "simulator.recorded.forked",
        "simulator.recorded.record",
        "simulator.recorded.run_times",
        "simulator.recorded.state",
    },
    "slurm": {"simulator.slurm"},
    "gpu": {
        "simulator.gpu.algorithms.assignment",
        "simulator.gpu.algorithms.placement",
        "simulator.gpu.cluster",
        "simulator.gpu.jobs",
        "simulator.gpu.policies.gandiva",
        "simulator.gpu.policies.tetris",
        "simulator.gpu.profiles.scaling",
        "simulator.gpu.profiles.profile",
        "simulator.gpu.round_policy",
    },
}


def imports(twin: str) -> Iterator[tuple[str, str]]:
    """(module, name) of every import from `simulator` in a twin; the name is empty for `import module`."""
    single = TWINS / f"{twin}.py"
    for file in [single] if single.is_file() else sorted((TWINS / twin).glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simulator"):
                yield from ((node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names if alias.name.startswith("simulator"))


@pytest.mark.parametrize("twin", sorted(ALLOWED))
def test_a_twin_imports_none_of_the_code_that_it_checks(twin: str) -> None:
    assert {module for module, _ in imports(twin)} == ALLOWED[twin]


def test_the_twin_of_slurm_imports_only_the_declared_inputs() -> None:
    assert set(imports("slurm")) == {("simulator.slurm", "world")}


def test_from_a_scheduler_that_it_checks_a_twin_imports_only_constants_and_settings() -> None:
    of_policies = {name for module, name in imports("gpu") if module.startswith("simulator.gpu.policies")}
    of_recorded = {name for module, name in imports("recorded")} - {"RecordedRules"}
    assert of_policies and of_recorded and all(name.isupper() for name in of_policies | of_recorded)
