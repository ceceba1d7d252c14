"""The mutation tester of `bench`: what it changes in a module, and what it leaves alone."""

from __future__ import annotations

import ast

import pytest

from bench.mutants.aims import AIMS
from bench.mutants.mutations import mutations
from tests.conftest import REPOSITORY


def changes(source: str) -> list[str]:
    """Old and new of each change."""
    return [str(one).partition(": ")[2] for one in mutations(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < 3", ["a < 3 -> (a <= 3)", "a < 3 -> (a >= 3)", "3 -> 4"]),
        ("x = a - b", ["a - b -> (a + b)"]),
        ("x = 0.0", ["0.0 -> 1.0"]),
        ("x = 0.6", ["0.6 -> 1.2"]),
        ("x = a and not b", ["a and not b -> (a or not b)", "not b -> (b)"]),
        ("x += y", ["x += y -> pass", "x += y -> x -= y"]),
        ("self.rate = rate", ["self.rate = rate -> pass"]),
        ("step()", ["step() -> pass"]),
        ("x = fit(y, weight=w)", ["fit(y, weight=w) -> fit(y)"]),
        ("x = {'a': y, 'b': z}", ["{'a': y, 'b': z} -> {'a': y}", "{'a': y, 'b': z} -> {'b': z}"]),
        ("x = max(y)", ["max -> min"]),
        ("if a:\n    pass", ["a -> not (a)"]),
        ("raise ValueError('no')", ["raise ValueError('no') -> pass"]),
        ('"""Text."""', []),
        ("def f(x: tuple[int, 3]) -> 4:\n    return f'{x + 1}'", []),
    ],
)
def test_a_statement_has_its_changes(source: str, expected: list[str]) -> None:
    assert sorted(changes(source)) == sorted(expected)


def test_a_change_touches_nothing_else() -> None:
    source = "é = 1  # before\nx = [\n    é,\n    2,\n]  # after\n"
    assert [one.apply(source) for one in mutations(source)] == [
        source.replace("= 1", "= 2"), source.replace("    2,", "    3,"),
    ]  # fmt: skip


@pytest.mark.parametrize("module", AIMS)
def test_every_aimed_module_and_test_is_there_and_every_change_compiles(module: str) -> None:
    source = (REPOSITORY / module).read_text()
    found = mutations(source)
    assert found
    for one in found[:: max(1, len(found) // 8)]:
        ast.parse(one.apply(source))
    for test in AIMS[module]:
        assert (REPOSITORY / test.partition("::")[0]).exists(), test
