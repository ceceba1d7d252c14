"""Results as data: one JSON file of figures for each benchmark, in `bench/results/`.

A benchmark collects its figures in a `BenchmarkRun` and writes them when it ends. `make docs` turns the files into
docs/results.md (`docs/measured.py`). A file holds a header (title, area, measures, command, date, machine, commit) and
rows; each row is one figure. `BATON_RESULTS=DIR` writes to another folder, so that a trial run leaves the record alone.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "bench" / "results"
AREAS = {  # key: heading, in the order of docs/results.md
    "logs": "Reading logs",
    "waits": "Causes of waits",
    "replay": "Replay fidelity",
    "policies": "Handover policies",
    "queue-time": "Queue-time prediction",
    "agent": "The live agent",
    "gpu": "GPU schedulers",
    "speed": "Speed",
}
DIGITS = 4  # significant digits of a float that a benchmark writes

Number = int | float


@dataclass(frozen=True)
class Benchmark:
    """What a file of results is about: its name without `.json`, and what the page says of it."""

    file: str
    title: str
    area: str
    """A key of AREAS."""
    measures: str
    """One sentence: what is measured, on what."""


@dataclass(frozen=True)
class Measurement:
    """One measured figure."""

    name: str
    """What was measured: a policy, a file, a size. A row of the table."""
    what: str
    """The quantity, such as `interruption`. A column of the table."""
    value: Number
    unit: str
    """Empty for counts and ratios."""
    n: int | None = None
    interval: tuple[Number, Number] | None = None
    """95 %, low and high."""


@dataclass(frozen=True)
class ResultsFile:
    """A file of results. `None` where the origin of older figures does not say."""

    title: str
    area: str
    measures: str
    command: str
    date: str | None
    machine: str | None
    commit: str | None
    rows: tuple[Measurement, ...]


class BenchmarkRun:
    """The figures of a benchmark, as it collects them."""

    def __init__(self, about: Benchmark) -> None:
        self.about = about
        self.rows: list[Measurement] = []

    def add(
        self,
        name: str,
        what: str,
        value: Any,
        unit: str = "",
        *,
        n: Any = None,
        interval: Any = None,
    ) -> None:
        """Add a figure. Numpy scalars are fine; floats keep four significant digits; NaN (not measured) is dropped."""
        if value is None or math.isnan(value):
            return
        ends = None if interval is None else (_plain(interval[0]), _plain(interval[1]))
        self.rows.append(Measurement(name, what, _plain(value), unit, None if n is None else int(n), ends))

    def write(self, folder: Path | None = None) -> Path:
        """Write the file with the present command, date, machine and commit, and print its path."""
        about = self.about
        results = ResultsFile(
            about.title, about.area, about.measures, _command(), date.today().isoformat(), _machine(), _commit(),
            tuple(self.rows),
        )  # fmt: skip
        path = (folder or Path(os.environ.get("BATON_RESULTS") or FOLDER)) / f"{about.file}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump(results, path.name), encoding="utf-8")
        print(f"wrote {path}", file=sys.stderr)
        return path


def dump(results: ResultsFile, where: str) -> str:
    """The text of a file of results: the header, then one row a line. Raises ValueError as `check` does."""
    check(results, where)
    header = {key: value for key, value in asdict(results).items() if key != "rows"}
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in header.items()]
    rows = ",\n".join(f"    {json.dumps(asdict(row), ensure_ascii=False)}" for row in results.rows)
    return "{\n" + "\n".join(lines) + '\n  "rows": [\n' + rows + "\n  ]\n}\n"


def load(path: Path) -> ResultsFile:
    """Read and check a file of results. Raises ValueError that names the file and what is wrong in it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from None
    _require_keys(found, ResultsFile, path.name)
    rows = []
    for number, row in enumerate(found["rows"]):
        _require_keys(row, Measurement, f"{path.name}, row {number}")
        ends = row["interval"]
        if ends is not None and (not isinstance(ends, list) or len(ends) != 2):
            raise ValueError(f"{path.name}, row {number}: interval {ends!r} is not [low, high] or null")
        rows.append(Measurement(**{**row, "interval": None if ends is None else (ends[0], ends[1])}))
    results = ResultsFile(**{**found, "rows": tuple(rows)})
    check(results, path.name)
    return results


def check(results: ResultsFile, where: str) -> None:
    """Raise ValueError where a value breaks the schema; `where` names the file in the message."""
    if results.area not in AREAS:
        raise ValueError(f"{where}: area {results.area!r} is unknown; use one of {', '.join(AREAS)}")
    for key in ("title", "measures", "command"):
        if not isinstance(text := getattr(results, key), str) or not text.strip():
            raise ValueError(f"{where}: {key} is empty")
    if results.date is not None and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", str(results.date)):
        raise ValueError(f"{where}: date {results.date!r} is not YYYY-MM-DD")
    if results.commit is not None and not re.fullmatch(r"[0-9a-f]{7,40}( with changes)?", str(results.commit)):
        raise ValueError(f"{where}: commit {results.commit!r} is not a hash")
    if not results.rows:
        raise ValueError(f"{where}: there are no rows")
    seen = set()
    for row in results.rows:
        place = f"{where}, {row.name!r}, {row.what!r}"
        if (row.name, row.what) in seen:
            raise ValueError(f"{place}: this figure is there twice")
        seen.add((row.name, row.what))
        for value in (row.value, *(row.interval or ())):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{place}: {value!r} is not a finite number")
        if row.interval is not None and row.interval[0] > row.interval[1]:
            raise ValueError(f"{place}: interval {list(row.interval)} is not in order")
        if row.n is not None and (isinstance(row.n, bool) or not isinstance(row.n, int) or row.n < 1):
            raise ValueError(f"{place}: n {row.n!r} is not a count")


def _require_keys(found: object, of: type, where: str) -> None:
    expected = [field.name for field in fields(of)]
    if not isinstance(found, Mapping) or sorted(found) != sorted(expected):
        keys = sorted(found) if isinstance(found, Mapping) else type(found).__name__
        raise ValueError(f"{where}: has {keys}, needs the keys {expected}")


def _plain(value: Any) -> Number:
    """A Python number; a float keeps DIGITS significant digits."""
    number = value.item() if hasattr(value, "item") else value
    return float(f"{number:.{DIGITS}g}") if isinstance(number, float) else int(number)


def _command() -> str:
    """The command line of this process, with paths relative to the repository."""
    parts = [part.removeprefix(f"{ROOT}/") for part in sys.orig_argv[1:]]
    return shlex.join(["python", *parts])


def _machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "").partition(" (")[0] or platform.system()
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {memory_gb:.0f} GB, {system}, "
        f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}"
    )


def _commit() -> str | None:
    """The present commit, and whether code differs from it; None outside a git checkout."""
    git = ["git", "-C", str(ROOT)]
    changed = [*git, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results", ":!docs"]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run(changed, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + (" with changes" if changes.stdout.strip() else "")
