"""The sentences that say which policy is champion, why a rule is, and what would change that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.tables import POLICY_CURVES, RELEASE_LOG, frame
from pipelines.commands import run
from reports.advice.champion import why
from reports.source import Source
from tests.reports import warehouse
from traces import schema
from traces.store.folder import DataFolder
from traces.store.frames import conform

CALM = {"reactive": 0.05, "xgboost": 0.05, "xgboost-untrained": 0.01, "oracle": 0.0}  # cost, hours a pair
BUSY = {"reactive": 1.0, "xgboost": 0.5, "dqn": 0.75}
PROVISIONAL = "reactive, a rule that learned nothing, is the provisional champion. "


def decision(minute: int, **row: Any) -> dict[str, Any]:
    return {
        "cluster": "lab", "released_utc": warehouse.START.replace(minute=minute), "registered_version": 1,
        "candidate_version": 1, "policy": "reactive", "verdict": "cannot tell", "provisional": True,
        "reason": "too few days", "pairs": 67, "losing_pairs": 16, "blocks": 1, **row,
    }  # fmt: skip


def said(root: Path, log: list[dict[str, Any]], costs: dict[str, float]) -> str:
    """The sentences of a cluster with these decisions, and these costs on the select window, of the better setting."""
    curves = [
        {
            "cluster": "lab", "window": window, "policy": policy, "size": size, "nodes": None, "limit_h": None,
            "setting": float(setting), "interruption_h": 0.0, "overlap_h": 0.0, "zero_share": 0.0, "n": n,
            "cost_w1": cost_h + setting - 1 if window == "select" else 9.0,
        }
        for window in ("select", "report")
        for policy, cost_h in costs.items()
        for size, n in (("1", 6), ("all", 17))
        for setting in (1, 2)
    ]  # fmt: skip
    made = {name: conform(schema.TABLES[name], one) for name, one in warehouse.empty_tables().items()}
    made[RELEASE_LOG.name] = frame(RELEASE_LOG, log)
    made[POLICY_CURVES.name] = frame(POLICY_CURVES, curves)
    data = DataFolder(root)
    warehouse.write(data, made)
    return why(Source(data, "lab"))


def test_a_rule_is_champion_where_no_learned_policy_costs_less(tmp_path: Path) -> None:
    assert said(tmp_path, [decision(0)], CALM) == (
        f"{PROVISIONAL}No learned policy costs less on the 17 pairs of the select window (xgboost 3.0 min, reactive "
        "3.0 min of interruption and overlap per pair). To change that, add newer logs and run again: a learned policy "
        "must cost less there and pass the gate, which needs 20 pairs that reactive submission interrupts for over "
        "2 h (now 16) and 4 blocks of 7 days (now 1)."
    )


def test_a_rule_is_champion_where_the_gate_cannot_tell_of_a_cheaper_learned_policy(tmp_path: Path) -> None:
    words = said(tmp_path, [decision(0, losing_pairs=20, blocks=4)], BUSY)
    assert words == (
        f"{PROVISIONAL}A learned policy costs less on the 17 pairs of the select window (xgboost 30 min, reactive "
        "1 h of interruption and overlap per pair), but the gate does not show that it is better. To change that, add "
        "newer logs and run again: it must pass the gate."
    )


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([], ""),
        ([decision(0, registered_version=None, verdict="failed", provisional=False)], "There is no champion."),
        ([decision(0, policy="dqn", verdict="passed", provisional=False)], "dqn, a learned policy, is the champion."),
        ([decision(0, verdict="by hand", provisional=False)], "reactive is the champion: a person promoted it."),
        (
            [decision(0, policy="dqn", verdict="passed", provisional=False), decision(1, candidate_version=2)],
            "dqn, a learned policy, is the champion.",
        ),
    ],
)  # fmt: skip
def test_other_champions(tmp_path: Path, log: list[dict[str, Any]], expected: str) -> None:
    assert said(tmp_path, log, BUSY) == expected


def test_a_rule_without_a_comparison(tmp_path: Path) -> None:
    assert said(tmp_path, [decision(0)], {}) == f"{PROVISIONAL}No learned policy was compared with it."


def test_a_run_says_it_on_its_first_line() -> None:
    champion = {"model": "baton-policy-lab", "version": 1, "folder": "/champion", "why": PROVISIONAL.strip()}
    result = {
        "champions": {"lab": champion}, "comparison": [], "without_policies": {}, "failed": {}, "decisions": {},
        "report": "report.html",
    }  # fmt: skip
    first, *_, last = run._text(result).splitlines()
    assert first == f"lab: {PROVISIONAL.strip()}" and last.startswith("lab: baton-policy-lab: version 1 is champion")
