"""What a study says of a window before it compares on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from models.provisioning.protocol import PairTable
from models.provisioning.scenario import RECORDED_WAIT
from models.study import comparisons
from models.study.cluster import Study
from models.study.comparisons import compare_on, hidden_rows, is_development, remember_comparison, warnings_about
from models.study.windows import Window
from models.tracking import training_runs
from tests.models.pair_tables import artifact, trained
from tests.models.provisioning.comparison.test_groups import pairs_of
from tests.models.toy_study import toy_study
from traces.units import DAY_S


def test_a_window_that_begins_where_the_cluster_declares_to_fit_or_select_is_called_development(tmp_path: Path) -> None:
    """The toy's trace begins in 1970; its select window is declared to end on the sixth day."""
    study = toy_study(tmp_path)
    declared = datetime.fromtimestamp(6 * DAY_S, UTC).replace(tzinfo=None)
    known = replace(study, settings=replace(study.settings, select_until=declared))
    early, late = Window(5 * DAY_S, 6 * DAY_S), Window(6 * DAY_S, 6 * DAY_S + DAY_S // 2)
    assert is_development(known, early) and not is_development(known, late)
    assert not is_development(study, early)  # nothing is declared
    (warning,) = warnings_about(known, early, fitted_until_s=4 * DAY_S)
    assert "a development window, not a headline" in warning
    assert warnings_about(known, late, fitted_until_s=4 * DAY_S) == []


def test_warnings_of_a_fit_that_saw_the_window_and_of_starts_outside_the_trace(tmp_path: Path) -> None:
    """What touches the window, or ends where the trace's starts do, is no reason to warn."""
    study = toy_study(tmp_path)
    usable = study.usable
    inside = Window(usable.from_s, usable.until_s)
    assert warnings_about(study, inside, fitted_until_s=inside.from_s) == []
    (seen,) = warnings_about(study, inside, fitted_until_s=inside.from_s + 60)
    assert seen.startswith("a policy was fitted on outcomes up to 1970-01-03T")
    assert f"inside the window {inside}" in seen
    for moved in (replace(inside, from_s=inside.from_s - 1), replace(inside, until_s=inside.until_s + 1)):
        assert warnings_about(study, moved, fitted_until_s=0) == [
            f"starts outside {usable} meet a cold cluster or run out of arrivals"
        ]


@pytest.mark.parametrize(("count", "said"), [(0, []), (1, ["1 pair is left out"]), (2, ["2 pairs are left out"])])
def test_pairs_that_the_recorded_wait_world_leaves_out_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, said: list[str]
) -> None:
    monkeypatch.setattr(comparisons, "pairs_left_out", lambda *_: count)
    toy = toy_study(tmp_path)
    study = replace(toy, scenario=replace(toy.scenario, world=RECORDED_WAIT))
    study.__dict__["usable"] = toy.usable
    found = warnings_about(study, toy.usable, fitted_until_s=0)
    assert [warning.partition(" because")[0] for warning in found] == said
    assert warnings_about(toy, toy.usable, fitted_until_s=0) == []


REPORT, SELECT, EARLY = Window(20 * DAY_S, 30 * DAY_S), Window(0, 20 * DAY_S), Window(0, 60)


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study of three pairs in each window; the outcome of the select window's last comes after its end.

    With it the end of the predecessor were the better time to submit, of the others an hour before it is. Of the pairs
    of the early window nothing is known when it ends.
    """
    known = [[-1.0, 2.0], [-1.0, 2.0]]
    late = pairs_of([1] * 3, [12] * 3, [*known, [1000.0, 2.0]], [None] * 3)
    pairs = {REPORT: pairs_of([1] * 3, [12] * 3, [*known, [0.0, 2.0]], [None] * 3)}
    monkeypatch.setattr(Study, "pairs", lambda self, window: pairs.get(window, late))
    return toy_study(tmp_path)


def test_settings_are_picked_on_pairs_that_were_known_when_the_select_window_ended(handed: Study) -> None:
    fits = trained("lead", artifact("constant-lead", (0.0, 1.0), 0.0, policy="constant-lead"))
    for select, setting in ((SELECT, 1.0), (None, 0.0)):
        compared = compare_on(handed, fits, REPORT, select)
        (row,) = (row for row in compared.results if (row["policy"], row["load"]) == ("lead", "all"))
        assert (row["setting"], row["n"], row["cluster"]) == (setting, 3, "toy")


def test_the_cost_of_hiding_is_at_the_setting_that_a_comparison_picks(handed: Study) -> None:
    fits = trained("lead", artifact("constant-lead", (0.0, 1.0), 0.0, policy="constant-lead"))
    for select, setting in ((SELECT, 1.0), (None, 0.0)):
        (row,) = hidden_rows(handed, fits, REPORT, select, ["recent"])
        assert (row["setting"], row["n"], row["hidden"]) == (setting, 3, ["recent"])


def test_what_a_comparison_was_measured_on_is_remembered(handed: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known pairs of the select window first, where it has any; then those of the report window."""
    kept: list[tuple[Any, ...]] = []

    def dataset(context: object, pairs: PairTable, name: str) -> tuple[str, int]:
        return name, len(pairs)

    monkeypatch.setattr(training_runs, "dataset", dataset)
    monkeypatch.setattr(training_runs, "add_comparison", lambda *arguments: kept.append(arguments))
    monkeypatch.setattr(comparisons, "world_error", lambda study, window: {"jobs": 0, "spearman": None})
    fits = trained("lead", artifact("constant-lead", (1.0,), 1.0, policy="constant-lead"))
    compared = compare_on(handed, fits, REPORT, None)
    remember_comparison(handed, fits, compared, REPORT, SELECT, {"curve.png": b"picture"})
    remember_comparison(handed, fits, compared, REPORT, None)
    remember_comparison(handed, fits, compared, REPORT, EARLY)
    assert [arguments[3] for arguments in kept] == [
        [("select", 2), ("report", 3)],
        [("report", 3)],
        [("report", 3)],
    ]
    assert [arguments[5] for arguments in kept] == [{"curve.png": b"picture"}, {}, {}]
    assert kept[0][4].height == len(compared.results) and kept[0][1:3] == (compared, fits)
