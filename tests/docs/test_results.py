"""Results as data: every file in bench/results is valid, the page holds what the files hold, and a benchmark writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.results import AREAS, FOLDER, Benchmark, BenchmarkRun, Measurement, dump, load
from docs import measured
from tests.conftest import REPOSITORY

FILES = sorted(FOLDER.glob("*.json"))
ABOUT = Benchmark("ovens", "Ovens", "speed", "Loaves an hour.")
VALID: dict[str, Any] = {
    "title": "Ovens",
    "area": "speed",
    "measures": "Loaves an hour.",
    "command": "python -m bench.ovens",
    "date": "2026-11-24",
    "machine": None,
    "commit": None,
    "rows": [{"name": "gas", "what": "loaves", "value": 1.5, "unit": "1/h", "n": 3, "interval": [1, 2]}],
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_valid_and_written_as_benchmarks_write(path: Path) -> None:
    assert dump(load(path), path.name) == path.read_text(encoding="utf-8")


def test_every_area_has_results_and_titles_differ() -> None:
    results = [load(path) for path in FILES]
    assert {one.area for one in results} == set(AREAS)
    titles = [one.title for one in results]
    assert len(set(titles)) == len(titles)


def test_the_page_is_up_to_date() -> None:
    assert measured.PAGE.read_text(encoding="utf-8") == measured.page(), "run `make docs`"


def test_findings_cite_results_and_stay_short() -> None:
    text = (measured.PAGE.parent / "findings.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 200
    cited = set(re.findall(r"\[(\w+)\]\(results\.md#", text))
    assert cited <= {path.stem for path in FILES} and len(cited) > 20


def test_a_run_writes_plain_numbers_and_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python", f"{REPOSITORY}/bench/ovens.py", "--hot", "a b"])
    run = BenchmarkRun(ABOUT)
    run.add("gas", "loaves", np.float32(12.34567), "1/h", n=np.int64(3), interval=np.array([1.00004, 99.0]))
    run.add("gas", "burnt", np.int64(123_456))
    run.add("gas", "never measured", np.nan)
    found = load(run.write(tmp_path))
    assert found.rows == (
        Measurement("gas", "loaves", 12.35, "1/h", 3, (1.0, 99.0)),
        Measurement("gas", "burnt", 123_456, ""),
    )
    assert (found.title, found.area, found.measures) == ("Ovens", "speed", "Loaves an hour.")
    assert found.command == "python bench/ovens.py --hot 'a b'"
    assert found.date and found.machine and "cores" in found.machine


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"area": "kitchen"}, "area 'kitchen' is unknown; use one of logs"),
        ({"title": " "}, "title is empty"),
        ({"date": "24.11.2026"}, "date '24.11.2026' is not YYYY-MM-DD"),
        ({"commit": "main"}, "commit 'main' is not a hash"),
        ({"rows": []}, "there are no rows"),
        ({"rows": VALID["rows"] * 2}, "this figure is there twice"),
        ({"rows": [VALID["rows"][0] | {"value": "1.5"}]}, "'1.5' is not a finite number"),
        ({"rows": [VALID["rows"][0] | {"value": True}]}, "True is not a finite number"),
        ({"rows": [VALID["rows"][0] | {"value": float("nan")}]}, "nan is not a finite number"),
        ({"rows": [VALID["rows"][0] | {"interval": [2, 1]}]}, "interval [2, 1] is not in order"),
        ({"rows": [VALID["rows"][0] | {"interval": [1]}]}, "interval [1] is not [low, high] or null"),
        ({"rows": [VALID["rows"][0] | {"n": 0}]}, "n 0 is not a count"),
        ({"rows": [{"name": "gas"}]}, "row 0: has ['name'], needs the keys"),
        ({"author": "x"}, "needs the keys"),
    ],
)
def test_a_file_that_breaks_the_schema_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "ovens.json"
    path.write_text(json.dumps(VALID))
    load(path)
    path.write_text(json.dumps(VALID | change))
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        load(path)
    assert "ovens.json" in str(error.value)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ovens.json").write_text("{")
    with pytest.raises(ValueError, match=r"ovens\.json is not JSON"):
        load(tmp_path / "ovens.json")


def test_a_table_puts_n_where_it_says_most() -> None:
    def figure(name: str, what: str, n: int | None) -> Measurement:
        return Measurement(name, what, 1234.5, "h", n, (0.5, 2000))

    cell = "1,234.5 [0.5, 2,000]"
    same = measured.table([figure("a", "wait", 7), figure("a", "run", 7)])
    assert same.splitlines() == ["|  | wait, h | run, h |", "| --- | --- | --- |", f"| a | {cell} | {cell} |"]
    by_name = measured.table([figure("a", "wait", 7), figure("b", "wait", 8)])
    assert by_name.splitlines()[2:] == [f"| a | 7 | {cell} |", f"| b | 8 | {cell} |"]
    by_column = measured.table([figure("a", "wait", 7), figure("a", "run", 8)])
    assert by_column.splitlines()[0] == "|  | wait, h (n 7) | run, h (n 8) |"
    mixed = measured.table([figure("a", "wait", 7), figure("a", "run", 8), figure("b", "wait", 9)])
    assert mixed.splitlines()[2:] == [f"| a | {cell} (n 7) | {cell} (n 8) |", f"| b | {cell} (n 9) |  |"]


def test_a_benchmark_writes_its_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.bench_gate", "--windows", "1"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "BATON_RESULTS": str(tmp_path)}
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True)
    found = load(tmp_path / "gate.json")
    assert found.command == "python -m bench.bench_gate --windows 1"
    kept = load(FOLDER / "gate.json")
    assert {(row.name, row.what) for row in found.rows} == {(row.name, row.what) for row in kept.rows}
    assert all(row.n == 1 and 0 <= row.value <= 1 for row in found.rows)
