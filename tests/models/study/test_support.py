"""How many pairs a trace has and how many it takes: at, and just below, each bound."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from models.provisioning.scenario import CALIBRATED, INJECTED, PLAIN, RECORDED, Scenario
from models.study import inputs, support
from models.study.cluster import Study
from models.study.pair_tables import pair_path
from models.study.support import Refusal, headline_study, too_few_pairs, why_plain
from models.study.windows import Window, Windows
from simulator.workload import Workload
from tests.models.toy_study import KnownStudy
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store import derived
from traces.store.folder import DataFolder
from traces.units import HOUR_S

FIRST_S = 100 * 24 * HOUR_S
ENOUGH = (172, 52, 24)  # hours of the windows: 42 and 12 pairs of 4 h are known at the end, and 6 begin


def study_of(root: Path, hours: tuple[int, int, int], hole_h: tuple[int, int] = (0, 0), world: str = PLAIN) -> Study:
    """A job every hour but for those strictly between the two of `hole_h`, and windows of so many hours."""
    submit_s = np.array([k for k in range(400) if not hole_h[0] < k < hole_h[1]]) * HOUR_S + FIRST_S
    ones = np.ones(len(submit_s), np.int64)
    workload = Workload(np.arange(len(submit_s)), submit_s, ones, ones, ones, submit_s)
    scenario = Scenario("toy", 20, pair_nodes=(1, 8), limit_s=4 * HOUR_S, every_s=4 * HOUR_S, world=world)
    study = KnownStudy(DataFolder(root), ClusterSettings("toy"), scenario, workload)
    cuts = FIRST_S + np.cumsum([0, *hours]) * HOUR_S
    parts = [Window(int(a), int(b)) for a, b in itertools.pairwise(cuts)]
    study.__dict__["windows"] = Windows(*parts)
    return study


@pytest.mark.parametrize(
    ("hours", "hole_h", "why"),
    [
        (ENOUGH, (0, 0), None),
        ((168, 52, 24), (0, 0), "learn from: the fit window|at most 41 pairs of 1 node |known when|at least 42"),
        ((172, 48, 24), (0, 0), "pick settings on: the select|at most 11 pairs of 1 node |known when|at least 12"),
        ((172, 8, 24), (0, 0), "pick settings on: the select|at most 1 pair of 1 node |known when|at least 12"),
        ((172, 52, 20), (0, 0), "compare on: the report|at most 5 pairs of 1 node |in the trace|at least 6"),
        (ENOUGH, (20, 48), "learn from: the fit window|at most 41 pairs"),  # the start at 36 h is 16 and 12 h off
        (ENOUGH, (20, 47), None),
    ],
)  # fmt: skip
def test_the_most_there_can_be_is_counted_before_pairs_are_built(
    tmp_path: Path, hours: tuple[int, int, int], hole_h: tuple[int, int], why: str | None
) -> None:
    found = too_few_pairs(study_of(tmp_path, hours, hole_h))
    assert found is None if why is None else found is not None and all(part in found for part in why.split("|")), found


@pytest.mark.parametrize(("late", "why"), [(1, None), (2, "holds 11 pairs of 8 nodes that start among the log's jobs")])
def test_pairs_that_are_built_are_counted(tmp_path: Path, late: int, why: str | None) -> None:
    """Of 13 starts in the select window both sizes have pairs; `late` outcomes of 8 nodes come just when it ends."""
    study = study_of(tmp_path, ENOUGH)
    window = study.windows.select
    submit_s = np.tile(window.starts(4 * HOUR_S), 2)
    outcome_s = np.full(len(submit_s), window.until_s - 1)
    outcome_s[len(submit_s) - late :] = window.until_s
    path = pair_path(study.data, study.scenario, window)
    path.parent.mkdir(parents=True)
    starts = np.stack([outcome_s, submit_s], axis=1).ravel()  # of two decisions each; the later start comes first
    np.savez(
        path.open("wb"),
        pair_nodes=np.repeat([1, 8], len(submit_s) // 2),
        submit_s=submit_s,
        successor_start_s=starts,
        offset=np.arange(0, len(starts) + 1, 2),
    )
    found = too_few_pairs(study)
    assert found is None if why is None else found is not None and why in found and "at most" not in found


@pytest.mark.parametrize(("place", "name", "least"), [(0, "fit", 42), (1, "select", 12), (2, "report", 6)])
def test_jobs_that_were_cut_are_counted_in_each_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, name: str, least: int
) -> None:
    """The least there may be, the first on the window's first second; then one is on its end, or ends when it ends."""
    study = study_of(tmp_path, ENOUGH, world=CALIBRATED)
    windows = (study.windows.fit, study.windows.select, study.windows.report)
    rows = [(w.from_s + k, w.until_s - 1) for w, n in zip(windows, (42, 12, 6), strict=True) for k in range(n)]
    asked: list[int] = []

    def cut(rows: list[tuple[int, int]]) -> Any:
        def read(data: DataFolder, cluster: str, limit_s: int) -> pl.DataFrame:
            asked.append(limit_s)
            return pl.DataFrame(rows, schema=["submit_s", "end_s"], orient="row")

        return read

    monkeypatch.setattr(inputs, "cut_by_limit", cut(rows))
    assert too_few_pairs(study) is None
    window, first = windows[place], (0, 42, 54)[place]
    beyond = (window.until_s if place == 2 else window.from_s - 1, window.until_s - 1)
    monkeypatch.setattr(inputs, "cut_by_limit", cut([*rows[:first], beyond, *rows[first + 1 :]]))
    found = too_few_pairs(study)
    said = f"shows {least - 1} jobs cut by a limit of at least 4 h in the {name} window"
    assert found is not None and said in found and found.endswith(f"at least {least} are needed")
    ends = (window.from_s, window.until_s)
    monkeypatch.setattr(inputs, "cut_by_limit", cut([*rows[:first], ends, *rows[first + 1 :]]))
    found = too_few_pairs(study)
    assert found is None if name == "report" else found is not None and said in found
    assert set(asked) == {4 * HOUR_S}


def test_what_was_compared_in_the_plain_world_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = {"plain": INJECTED, "judged": RECORDED, "grown": INJECTED}

    def read(data: object, name: str, cluster: str) -> dict[str, list[str]]:
        if cluster not in pairs:
            raise InputError("no comparison")
        return {"pairs": [pairs[cluster]]}

    monkeypatch.setattr(derived, "read", read)
    why = {"plain": "too few", "judged": "too few", "grown": None, "new": "too few"}
    monkeypatch.setattr(support, "why_not_calibrated", lambda data, one: why[one.name])
    settings = [ClusterSettings(name) for name in why]
    assert why_plain(DataFolder(Path("nowhere")), settings) == {"plain": "too few"}


@pytest.mark.parametrize("few", [None, "too few jobs were cut"])
def test_policies_are_judged_in_the_calibrated_world_unless_too_few_jobs_were_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: str | None
) -> None:
    study, data, settings = study_of(tmp_path, ENOUGH), DataFolder(tmp_path), ClusterSettings("toy")
    (data.lake / "toy").mkdir(parents=True)  # a cluster that has data

    def opened(data: DataFolder, settings: ClusterSettings, *, world: str) -> Study:
        return replace(study, scenario=replace(study.scenario, world=world))

    monkeypatch.setattr(support, "open_study", opened)
    counted: dict[str, str | None] = {CALIBRATED: few, PLAIN: "too few starts"}
    monkeypatch.setattr(support, "too_few_pairs", lambda study: counted[study.scenario.world])
    monkeypatch.setattr(inputs, "why_not_replayed", lambda data, settings: None)
    found = headline_study(data, settings)
    assert found == Refusal("too few starts") if few else isinstance(found, Study)
    assert few or (isinstance(found, Study) and found.scenario.world == CALIBRATED)
    counted[PLAIN] = None
    found = headline_study(data, settings)
    assert isinstance(found, Study) and found.scenario.world == (PLAIN if few else CALIBRATED)
    monkeypatch.setattr(inputs, "why_not_replayed", lambda data, settings: f"no jobs of {settings.name}")
    assert headline_study(data, settings) == Refusal("no jobs of toy")
