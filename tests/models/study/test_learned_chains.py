"""The policies that learn to plan, from `baton train` to `baton evaluate --chains`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.study import fits
from models.study.windows import Window
from pipelines.cli import main
from tests.models.study.test_recorded import CUT, data, study_of
from traces import instants
from traces.store.folder import DataFolder
from traces.units import DAY_S, HOUR_S

__all__ = ["data"]  # the fixture


def test_they_are_fitted_kept_and_held_against_plan(data: DataFolder, capfd: pytest.CaptureFixture[str]) -> None:
    study = study_of(data, CUT)
    until_s = study.usable.until_s
    until, from_ = instants.text(study.usable.from_s + 12 * DAY_S), instants.text(until_s - 10 * DAY_S)
    of = ["--cluster", CUT, "--data", str(data.root), "--decide-every", "2h", "--json"]
    window = ["--from", from_, "--to", instants.text(until_s)]

    def answer(*arguments: str) -> tuple[int, Any, str]:
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, *of])
        out, err = capfd.readouterr()
        return int(stopped.value.code or 0), json.loads(out) if out else None, err

    train = ["train", "--policies", "plan-regret", "--until", until, "--seeds", "1"]
    code, _, err = answer(*train, "--pair-nodes", "1")
    assert code == 2 and "policy 'plan-regret' learns from chains of recorded jobs, which --world plain lacks" in err
    code, found, _ = answer(*train, "--world", "calibrated")
    (fit,) = found["policies"]
    assert code == 0 and fit["run_id"] and (fit["reused"], fit["is_releasable"]) == (False, False)
    assert answer(*train, "--world", "calibrated")[1]["policies"][0]["reused"]

    evaluate = ["evaluate", "--policies", "plan,plan-regret", "--world", "calibrated", *window]
    code, _, err = answer("evaluate", "--policies", "plan-regret", "--world", "calibrated", *window)
    assert code == 2 and "policy 'plan-regret' plans chains, which pairs cannot judge: give --chains 10d" in err
    code, found, _ = answer(*evaluate, "--chains", "2d", "--every", "24h")
    rows = {row["policy"]: row for row in found["chains"]}
    assert code == 0 and rows["plan-regret"]["setting"] is None and rows["plan-regret"]["n"] == rows["plan"]["n"]
    lost = {name: row["lost_h_per_day"] for name, row in rows.items()}
    assert rows["plan"]["difference_to_plan"] == {"lost_h_per_day": 0.0, "ci95": [0.0, 0.0]}
    for name in ("plan-regret", "reactive"):
        beside = rows[name]["difference_to_plan"]
        assert beside["lost_h_per_day"] == pytest.approx(lost[name] - lost["plan"]) and len(beside["ci95"]) == 2


def test_a_fit_uses_nothing_that_happened_after_it(data: DataFolder) -> None:
    """Rows until the twelfth day: every decision and every start that they hold lies before."""
    study = study_of(data, CUT)
    window = Window(study.usable.from_s, study.usable.from_s + 12 * DAY_S, 2 * HOUR_S)
    known = study.known_before(window.until_s)
    rows = known.seeing(["plan-regret"]).fit_pairs(window).candidates
    assert len(rows) and (rows[:, 1] < window.until_s).all()
    assert not len(known.fit_pairs(window).candidates)
    assert fits.fit_fingerprint(study, "plan-regret", window, (0,)) != fits.fit_fingerprint(
        study, "plan-fitted-q", window, (0,)
    )
