"""Compiled code: one cache for every checkout of the same sources, and a word where compiling takes long."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

HELPER = """from traces import compiled


def plus(x: int) -> int:
    return x + 1


plus = compiled.jit(plus, {})
"""
KERNEL = """from traces import compiled
from traces.helper import plus


def double(x: int) -> int:
    return plus(x) + x - 1


double = compiled.jit(double, {})
"""
CALL = """
import sys
from traces import compiled
from traces.kernel import double
compiled.SAID_AFTER_S = float(sys.argv[1])
print(double(21), sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""


def checkout(folder: Path) -> Path:
    """A copy of the package `traces`, with a kernel and a function that it calls."""
    shutil.copytree(REPOSITORY / "traces", folder / "traces", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "traces" / "helper.py").write_text(HELPER)
    (folder / "traces" / "kernel.py").write_text(KERNEL)
    return folder


def called(checkout: Path, cache: Path, patience_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """The kernel of that checkout in a process of its own: its result, and how often it was found and not found."""
    return subprocess.run(
        [sys.executable, "-c", CALL, str(patience_s)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(checkout)},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_second_checkout_compiles_nothing_again(tmp_path: Path) -> None:
    one, two = checkout(tmp_path / "one"), checkout(tmp_path / "two")
    assert called(one, tmp_path / "cache").stdout.split() == ["42", "0", "1"]
    (two / "traces" / "kernel.py").write_text(KERNEL + "# only said otherwise\n")
    assert called(two, tmp_path / "cache").stdout.split() == ["42", "1", "0"]
    assert called(one, tmp_path / "cache").stdout.split() == ["42", "1", "0"]
    shutil.rmtree(tmp_path / "cache")
    assert called(two, tmp_path / "cache").stdout.split() == ["42", "0", "1"]


def test_a_changed_function_that_is_only_imported_is_compiled_in(tmp_path: Path) -> None:
    """Numba itself would serve the kernel from its cache, with the function as it was compiled into it."""
    one = checkout(tmp_path / "one")
    assert called(one, tmp_path / "cache").stdout.split() == ["42", "0", "1"]
    (one / "traces" / "helper.py").write_text(HELPER.replace("x + 1", "x + 2"))
    assert called(one, tmp_path / "cache").stdout.split() == ["43", "0", "1"]


def test_compiling_that_takes_long_is_said_on_standard_error(tmp_path: Path) -> None:
    one = checkout(tmp_path / "one")
    silent, said = called(one, tmp_path / "a"), called(one, tmp_path / "b", 0.0)
    assert "compiling" not in silent.stderr
    assert "compiling the readers for this processor (only once; the result is cached)\n" in said.stderr
