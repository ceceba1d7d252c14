"""Values with units, and what goes to which stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pipelines import options
from traces.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("48h", 172800), ("30m", 1800), ("2d", 172800), ("90s", 90), ("600", 600), ("0.5h", 1800),
        ("2-00:00:00", 172800), ("48:00", 2880), ("2-0", 172800),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: int) -> None:
    assert options.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0h", "-4h", "4 weeks", "h", "1e400h", "UNLIMITED", "0-0"])
def test_a_duration_that_is_none_names_itself(text: str) -> None:
    with pytest.raises(InputError, match="duration"):
        options.duration_s(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-02-01", 1675209600),
        ("2023-02-01T00:00:00Z", 1675209600),
        ("2023-02-01T01:00+01:00", 1675209600),
        ("2023-02-01 06:30", 1675233000),
    ],
)
def test_instants_are_utc_unless_they_say_otherwise(text: str, seconds: int) -> None:
    assert options.utc_s(text) == seconds


def test_an_instant_that_is_none_names_itself() -> None:
    with pytest.raises(InputError, match="'yesterday'"):
        options.utc_s("yesterday")


def test_names_keep_order_and_lose_doubles() -> None:
    assert options.names("b, a,,b ") == ["b", "a"]


@pytest.mark.parametrize("text", ["", "0", "1,x", "-8", "1.5"])
def test_whole_numbers_are_positive(text: str) -> None:
    with pytest.raises(InputError, match="--pair-nodes"):
        options.whole_numbers(text, "--pair-nodes")


def test_json_holds_no_nan_and_no_numpy() -> None:
    value = {"a": np.float64("nan"), "b": [np.int64(3), float("inf")], 4: np.array([1.5]), "c": None, "d": True}
    assert json.loads(json.dumps(options.plain(value), allow_nan=False)) == {
        "a": None,
        "b": [3, None],
        "4": [1.5],
        "c": None,
        "d": True,
    }


def test_under_json_nothing_else_reaches_standard_output() -> None:
    """Not even what C code writes to file descriptor 1."""
    program = (
        "import os, sys\n"
        "from pipelines import options\n"
        "with options.output(True) as out:\n"
        "    print('chatter'); os.write(1, b'noise\\n'); os.system('echo child')\n"
        "    options.write_json(out, {'a': 1})\n"
        "print('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=os.getcwd())
    assert done.stdout == '{"a": 1}\nafter\n'
    assert sorted(done.stderr.split()) == ["chatter", "child", "noise"]
