"""What a study's pairs are made of: which recorded jobs, and what the builders are asked for."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from models.engine.local import each_here
from models.provisioning.pairs import injected as pairs
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.protocol import NONE, PairTable
from models.provisioning.scenario import CALIBRATED, Scenario
from models.study import inputs
from models.study.pair_tables import pair_path, pair_table, predecessors_in
from models.study.windows import Window
from simulator import cluster
from simulator.recorded.parameters import LEAST_FIT_S
from simulator.recorded.record import RecordedTrace
from tests.models.pair_tables import random_pairs
from tests.models.provisioning.pairs.test_recorded import simple
from tests.models.toy_study import toy_study
from traces.store.folder import DataFolder
from traces.units import DAY_S

Calls = list[tuple[Any, ...]]
WINDOW = Window(190, 900, 300)  # of `simple`: p is submitted at 40, other at 190, next at 900


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the record and the cut jobs were asked for; of the latter one is not in the record."""
    calls: Calls = []
    cut = pl.DataFrame(
        {
            "job_key": ["p", "other", "gone", "other", "next"],
            "submit_s": [40, 190, 200, 899, 900],
            "next_job_key": ["next", "next", "next", "gone", None],
        }
    )

    def read(*arguments: Any) -> RecordedTrace:
        calls.append(arguments[1:])
        return simple()

    def read_cut(*arguments: Any) -> pl.DataFrame:
        calls.append(arguments[1:])
        return cut

    monkeypatch.setattr(inputs, "read_record", read)
    monkeypatch.setattr(inputs, "cut_by_limit", read_cut)
    return calls


def scenario_of(**changes: Any) -> Scenario:
    return replace(Scenario("toy", 20, limit_s=3600, world=CALIBRATED), **changes)


def test_predecessors_are_the_cut_jobs_of_the_window_that_the_record_holds(asked: Calls) -> None:
    _, found = predecessors_in(DataFolder(Path("nowhere")), scenario_of(from_s=5, known_until_s=77), WINDOW)
    assert (found.row.tolist(), found.next_row.tolist()) == ([2, 2], [3, NONE])
    assert asked == [("toy", 5, 77), ("toy", 3600, 77)]


@pytest.mark.parametrize(("from_s", "span_s"), [(None, None), (5, LEAST_FIT_S)])
def test_rules_of_a_long_record_are_fitted_on_its_last_weeks(
    tmp_path: Path, asked: Calls, monkeypatch: pytest.MonkeyPatch, from_s: int | None, span_s: int | None
) -> None:
    made, options = random_pairs(0, 2), []

    def build(record: RecordedTrace, predecessors: object, **given: Any) -> PairTable:
        options.append(given)
        return made

    monkeypatch.setattr(recorded_pairs, "build_recorded_pairs", build)
    toy = toy_study(tmp_path)
    tables = [pair_table(toy.data, toy.workload, scenario_of(from_s=from_s), WINDOW) for _ in range(2)]
    assert {table.digest for table in tables} == {made.digest}
    assert options == [{"decision_s": 300, "fit_span_s": span_s, "engine": each_here}]  # once: the second is read


def test_injected_pairs_are_of_each_size_at_each_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that holds none of them is said to be damaged, and they are built again."""
    toy = toy_study(tmp_path)
    scenario = replace(toy.scenario, pair_nodes=(1, 8), scheduler="fifo")
    window = Window(0, 3 * DAY_S, 1800)
    asked: list[dict[str, Any]] = []

    def build(world: Any, **given: Any) -> PairTable:
        asked.append({**given, "world": world, "submits_s": given["submits_s"].tolist()})
        return random_pairs(0, 3, sizes=(given["pair_nodes"],))

    monkeypatch.setattr(pairs, "build_pairs", build)
    monkeypatch.setattr(cluster, "plain", lambda workload, **given: (len(workload), given))
    path = pair_path(toy.data, scenario, window)
    path.parent.mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        table = pair_table(toy.data, toy.workload, scenario, window)
        assert not caplog.messages
        path.write_bytes(b"no pairs")
        assert pair_table(toy.data, toy.workload, scenario, window).digest == table.digest
    assert caplog.messages == [f"{path} is damaged; building these pairs again"]
    np.testing.assert_array_equal(table.pair_nodes, [1, 1, 1, 8, 8, 8])
    world = (400, {"scheduler": "fifo", "capacity": 20})
    given = {
        "submits_s": [0, DAY_S, 2 * DAY_S],
        "limit_s": 4 * 3600,
        "decision_s": 1800,
        "engine": each_here,
        "world": world,
    }
    assert asked == [{**given, "pair_nodes": nodes} for nodes in (1, 8)] * 2
