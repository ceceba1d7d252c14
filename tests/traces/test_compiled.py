"""Compiled code: one cache for every checkout of the same sources, and a word where compiling takes long."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

KERNEL = '''
"""A kernel."""
from traces import compiled

def double(x: int) -> int:
    return x + x

double = compiled.jit(double, ("traces/compiled.py",), {}, None)
'''
CALL = """
import sys
sys.path.insert(0, sys.argv[1])
import kernel
from traces import compiled
compiled.SAID_AFTER_S = float(sys.argv[2])
assert kernel.double(21) == 42
print(sum(kernel.double.stats.cache_hits.values()), sum(kernel.double.stats.cache_misses.values()))
"""


def called(checkout: Path, cache: Path, patience_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """The kernel of that checkout, in a process of its own."""
    checkout.mkdir(exist_ok=True)
    (checkout / "kernel.py").write_text(KERNEL)
    return subprocess.run(
        [sys.executable, "-c", CALL, str(checkout), str(patience_s)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_second_checkout_compiles_nothing_again(tmp_path: Path) -> None:
    assert called(tmp_path / "one", tmp_path / "cache").stdout.split() == ["0", "1"]
    assert called(tmp_path / "two", tmp_path / "cache").stdout.split() == ["1", "0"]
    shutil.rmtree(tmp_path / "cache")
    assert called(tmp_path / "two", tmp_path / "cache").stdout.split() == ["0", "1"]


def test_compiling_that_takes_long_is_said_on_standard_error(tmp_path: Path) -> None:
    silent, said = called(tmp_path / "one", tmp_path / "a"), called(tmp_path / "one", tmp_path / "b", 0.0)
    assert "compiling" not in silent.stderr
    assert "compiling kernel.double for this processor" in said.stderr
