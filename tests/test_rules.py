"""The rules of the house on length, and the figures of the house, which are counted by the same functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import house
from docs.house import FILE_LINES, FUNCTION_LINES, Length


@pytest.fixture(scope="module")
def lengths() -> dict[str, list[Length]]:
    """Lengths of all files and functions of this checkout. A fixture, because every worker imports every test file."""
    files, functions = house.lengths(house.ROOT, [*house.packages(house.ROOT), *house.BESIDE])
    return {"files": files, "functions": functions}


def shown(found: list[Length]) -> str:
    """A line a length, for the message of a failure."""
    return "\n".join(f"{length.place}: {length.lines} lines" for length in found)


@pytest.mark.parametrize("kind", ["files", "functions"])
def test_what_is_long_says_why(lengths: dict[str, list[Length]], kind: str) -> None:
    found = lengths[kind]
    assert len(found) > 400
    unreasoned = [length for length in found if length.is_over and not length.has_reason]
    phrase = house.OVER.format(limit=found[0].limit)
    assert not unreasoned, f'split these, or write "{phrase}" and the reason in the docstring:\n{shown(unreasoned)}'


@pytest.mark.parametrize("kind", ["files", "functions"])
def test_what_is_short_makes_no_excuse(lengths: dict[str, list[Length]], kind: str) -> None:
    found = lengths[kind]
    excused = [length for length in found if length.has_reason and not length.is_over]
    assert not excused, f"take the reason out of these docstrings:\n{shown(excused)}"


def function(body_lines: int, docstring: str = "") -> str:
    """Text of a decorated function: its `def` line, a docstring of any length, so many lines."""
    return f"@cache\ndef f():\n{docstring}" + "    x = 1\n" * body_lines


DOCSTRING = '    """One.\n\n    Over 50 lines: a list.\n    """\n'


@pytest.mark.parametrize(
    ("text", "lines", "is_over", "has_reason"),
    [
        (function(FUNCTION_LINES - 1), 50, False, False),
        (function(FUNCTION_LINES), 51, True, False),
        (function(FUNCTION_LINES - 1, DOCSTRING), 50, False, True),
        (function(FUNCTION_LINES, DOCSTRING), 51, True, True),
        (function(FUNCTION_LINES, DOCSTRING.replace(" a list.", "")), 51, True, False),
        ("async " + function(2).removeprefix("@cache\n"), 3, False, False),
    ],
)
def test_how_a_function_is_counted(text: str, lines: int, is_over: bool, has_reason: bool) -> None:
    (length,) = house.function_lengths("a.py", text)
    assert (length.lines, length.is_over, length.has_reason) == (lines, is_over, has_reason)


def test_a_function_inside_a_function_counts_for_both() -> None:
    text = "def outer():\n    def inner():\n        pass\n    return inner\n"
    assert [(length.place, length.lines) for length in house.function_lengths("a.py", text)] == [
        ("a.py:1 outer", 4),
        ("a.py:2 inner", 2),
    ]


def test_no_folder_of_a_package_has_too_many_modules() -> None:
    sizes = house.folder_sizes(house.ROOT, house.packages(house.ROOT))
    assert sizes and {folder: n for folder, n in sizes.items() if n > house.FOLDER_MODULES} == {}


def test_how_a_file_is_counted() -> None:
    length = house.file_length("a.py", '"""One.\n\nOver 400 lines: a table.\n"""\n' + "x = 1\n" * (FILE_LINES - 3))
    assert (length.lines, length.is_over, length.has_reason) == (FILE_LINES + 1, True, True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A house of two packages, one of which has a room of its own."""
    files = {
        "pyproject.toml": '[tool.importlinter]\nroot_packages = ["upstairs", "downstairs"]\n',
        "upstairs/__init__.py": "",
        "upstairs/hall.py": "def go():\n    from downstairs.kitchen import oven, sink\n    return oven, sink\n",
        "downstairs/__init__.py": "",
        "downstairs/door.py": "import downstairs.kitchen.sink\n",
        "downstairs/kitchen/__init__.py": "",
        "downstairs/kitchen/oven.py": "HOT = 1\n" * 4,
        "downstairs/kitchen/sink.py": "import downstairs.kitchen.oven\n",
        "tests/downstairs/kitchen/test_oven.py": "assert 1\n" * 3,
        "bench/bench_oven.py": function(FUNCTION_LINES),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_figures_of_a_small_house(checkout: Path) -> None:
    rooms = house.rooms(checkout)
    assert rooms.names == ["downstairs", "downstairs.kitchen", "upstairs"]
    assert rooms.crossing == {("upstairs", "downstairs.kitchen"): 2, ("downstairs", "downstairs.kitchen"): 1}
    found = house.figures(checkout)
    for line in (
        "| most files in a folder | downstairs/kitchen 2, upstairs 1, downstairs 1 |",
        "| functions over 50 lines, packages | 0, 0 without a reason |",
        "| the same, tests and bench | 1, 1 without a reason |",
        "| longest file, lines | 4 (downstairs/kitchen/oven.py) |",
        "| pairs of rooms of which one imports the other | 2 |",
        "| imports of a module in another room | 3 |",
        "| downstairs/kitchen | 5 | 3 | 0.60 |",
        "| all packages, all of tests | 9 | 3 | 0.33 |",
    ):
        assert line in found.splitlines(), found


def test_the_figures_of_this_house() -> None:
    found = house.figures(house.ROOT)
    assert all(f"\n| {package} | " in found for package in house.packages(house.ROOT))
