"""Tries the mutants of modules against their tests: `python -m bench.mutants.run [MODULE...]` (`make mutants`).

The checkout is copied to a temporary folder; there one change is written at a time, and pytest runs in a forked child
of a process that has the heavy libraries loaded. A mutant is killed where a test fails, an import fails, or the tests
take more than three times their usual processor time. Numba is switched off: compiled features and plain ones are the
same functions (`tests/models/test_observe_compiled.py`), and compiling each change anew would take most of the time.

Prints the mutants that survive, and for each module how many were tried and killed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.mutants.aims import AIMS
from bench.mutants.mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "numpy",
    "hypothesis",
    "pytest",
    "polars",
    "numba",
    "torch",
    "sklearn.ensemble",
    "lightgbm",
    "xgboost",
    "gymnasium",
)
LEAST_LIMIT_S = 6.0  # of processor time, for tests that usually take next to none


def main(arguments: list[str] | None = None) -> int:
    """Tries all the mutants, or a sample of each module's; returns how the run ended, not whether any survived."""
    options = _parser().parse_args(arguments)
    if unknown := [module for module in options.modules if module not in AIMS]:
        print(f"unknown module {unknown[0]!r}; known: {', '.join(AIMS)}", file=sys.stderr)
        return 2
    _prepare()
    with _copy() as copy:
        for module in options.modules or AIMS:
            _try_module(copy, module, options.sample, options.seed)
    return 0


def _try_module(copy: Path, module: str, sample: int, seed: int) -> None:
    """Prints what survives of one module."""
    source = (copy / module).read_text()
    found = mutations(source)
    chosen = found if sample >= len(found) else sorted(random.Random(seed).sample(range(len(found)), sample))
    tried = [one if isinstance(one, Mutation) else found[one] for one in chosen]
    began = _children_s()
    if not _passes(AIMS[module], LEAST_LIMIT_S * 20, copy / "output.txt"):
        print(f"{module}: its tests fail as it is\n{(copy / 'output.txt').read_text()[-2000:]}", flush=True)
        return
    limit_s = max(LEAST_LIMIT_S, 3 * (_children_s() - began))
    survived = []
    for one in tried:
        (copy / module).write_text(one.apply(source))
        if _passes(AIMS[module], limit_s, copy / "output.txt"):
            survived.append(one)
            print(f"{module}:{one}", flush=True)
    (copy / module).write_text(source)
    spent_s = _children_s() - began
    print(
        f"{module}: {len(tried)} of {len(found)} mutants tried, {len(tried) - len(survived)} killed, "
        f"{len(survived)} survive, {spent_s:.0f} s of processor time",
        flush=True,
    )


def _passes(tests: tuple[str, ...], limit_s: float, output: Path) -> bool:
    """Do the tests pass, in a child with so much processor time?"""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s)))
            with output.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            pytest = importlib.import_module("pytest")
            status = pytest.main(
                ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", "--assert=plain", "-m", "not slow", *tests]
            )
        except BaseException:  # a child must not go on as its parent
            status = 1
        os._exit(int(status))
    deadline = time.monotonic() + 10 * limit_s  # of the clock: a mutant may sleep or wait for itself
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(child, 9)
        time.sleep(0.01)
    return ended[1] == 0


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _prepare() -> None:
    """Loads what every child needs and no mutant changes; what is compiled to bytes is never read again stale."""
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    for name in HEAVY:
        importlib.import_module(name)


@contextlib.contextmanager
def _copy() -> Iterator[Path]:
    """The checkout's files in a temporary folder, which is the working folder and the first place of imports."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)
        sys.path[:] = [str(copy), *(path for path in sys.path if Path(path).resolve() != ROOT)]
        os.environ["PYTHONPATH"] = str(copy)
        with contextlib.chdir(copy):
            yield copy


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Which small changes of a module does no test notice?")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="as features/observe.py (default: all)")
    parser.add_argument("--sample", type=int, default=10**9, help="mutants of a module to try (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    return parser


if __name__ == "__main__":
    sys.exit(main())
