"""Try small changes of modules against their tests by mutmut: `python -m bench.mutants.run MODULE...` (`make mutants`).

mutmut runs in a copy of the checkout, so that an interrupted run leaves no changed file. Numba is switched off:
compiled features and plain ones are the same functions (`tests/models/test_observe_compiled.py`).

Prints for each module how many changes were tried, and the difference of each that no test notices.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.mutants.aims import AIMS

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:cov", "-m", "not slow")


def main(arguments: list[str] | None = None) -> int:
    """Try the mutants of each module; returns how the run ended, not whether any survived."""
    parser = argparse.ArgumentParser(description="Which small changes of a module does no test notice?")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="as features/observe.py (default: all)")
    modules = parser.parse_args(arguments).modules or list(AIMS)
    if unknown := [module for module in modules if module not in AIMS]:
        print(f"unknown module {unknown[0]!r}; known: {', '.join(AIMS)}", file=sys.stderr)
        return 2
    return max(_try_module(module) for module in modules)


def _try_module(module: str) -> int:
    """Print what survives of one module."""
    with _copy() as copy:
        with (copy / "pyproject.toml").open("a") as file:
            file.write(_settings(copy, module))
        ended = _mutmut(copy, "run", "--max-children", "2")
        if ended.returncode:
            print(f"{module}: {(ended.stdout + ended.stderr)[-2000:]}", file=sys.stderr, flush=True)
            return 1
        results = _mutmut(copy, "results", "--all", "true").stdout.split("\n")
        outcomes = dict(line.strip().rsplit(": ", 1) for line in results if ": " in line)
        survivors = [name for name, outcome in outcomes.items() if outcome in ("survived", "no tests")]
        for name in survivors:
            print(_mutmut(copy, "show", name).stdout, flush=True)
        print(f"{module}: {len(outcomes)} mutants, {len(outcomes) - len(survivors)} killed", flush=True)
    return 0


def _settings(copy: Path, module: str) -> str:
    """The table of mutmut in pyproject.toml."""
    folders = [path.name for path in copy.iterdir() if path.is_dir()]
    return (
        f"\n[tool.mutmut]\nsource_paths = [{module.split('/')[0]!r}]\nonly_mutate = [{module!r}]\n"
        f"also_copy = {folders!r}\n"
        f"pytest_add_cli_args = {list(OPTIONS)!r}\npytest_add_cli_args_test_selection = {list(AIMS[module])!r}\n"
    )


def _mutmut(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=copy,
        env=environment | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@contextlib.contextmanager
def _copy() -> Iterator[Path]:
    """The checkout's files in a temporary folder."""
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
        yield copy


if __name__ == "__main__":
    sys.exit(main())
