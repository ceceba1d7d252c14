"""What a deployed policy came to, from its log: against the Slurm that its agent ran on, and on lines made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features import deployed
from tests.agent.fake_slurm import FakeJob, FakeSlurm, Plan
from tests.agent.lab import advance_until, artifact, job, lab_of, plans
from tests.traces.readers.agent_lines import AT_S, agent_line
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import HOUR_S

LAB = ClusterSettings("lab")


def tables(folder: Path, log: Path | list[str]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """(rows of deployed_links, rows of deployed_policies by who decided) of a log."""
    if isinstance(log, list):
        path = folder / "decisions.jsonl"
        path.write_text("\n".join(log) + "\n")
    else:
        path = log
    data = DataFolder(folder / "data")
    ingest([path], cluster=LAB, data=data)
    warehouse.build(data)
    found = deployed.compute(data, LAB)
    policies = found["deployed_policies"].to_dicts()
    return found["deployed_links"].to_dicts(), {f"{p['decided_by']} {p['version'] or ''}".strip(): p for p in policies}


def slurm_job(lab_jobs: list[FakeJob], row: dict[str, Any]) -> FakeJob:
    return next(one for one in lab_jobs if str(one.id) == row["job_id"])


def epoch(time: datetime | None) -> int | None:
    return None if time is None else int(time.replace(tzinfo=UTC).timestamp())


def test_a_chain_with_troubles_as_slurm_saw_it(tmp_path: Path) -> None:
    """A link whose node fails, one that fails and is tried again, one that starts too early and is withdrawn."""
    plan = plans(link_2_1=Plan(HOUR_S, "NODE_FAIL"), link_3_1=Plan(600, "FAILED", 7))
    lab = lab_of(tmp_path / "lab", FakeSlurm(nodes=2, plan=plan), links=5, setting=1.5, most_overlap_h=1.0)
    lab.extra.update(start_estimate_h=0.4, start_estimate_expected_h=0.1)
    lab.run()
    links, policies = tables(tmp_path, lab.folder.path / "decisions.jsonl")
    assert [row["job_id"] for row in sorted(links, key=lambda row: int(row["job_id"]))] == [
        str(one.id) for one in lab.slurm.jobs
    ]
    for row in links:
        one = slurm_job(lab.slurm.jobs, row)
        assert row["job_name"] == one.name and row["state"] == one.state and row["dependency"] == one.dependency
        assert [epoch(row[name]) for name in ("submit_utc", "start_utc", "end_utc")] == [
            one.submit_s, one.start_s, one.end_s,
        ]  # fmt: skip
        assert row["wait_s"] == (None if one.start_s is None else one.start_s - one.submit_s)
    assert any(row["is_withdrawn"] for row in links) and any(row["dependency"] for row in links)
    handed = [row for row in links if row["handover_utc"] is not None]
    for row in handed:
        before = next(one for one in lab.slurm.jobs if str(one.id) == row["predecessor_id"])
        assert before.end_s is not None and row["start_utc"] is not None
        until_s = min(before.end_s, epoch(row["end_utc"]) or before.end_s)
        assert row["interruption_s"] - row["overlap_s"] == epoch(row["start_utc"]) - until_s  # type: ignore[operator]
    found = lab.journal("handover")
    every = policies["all"]
    assert (every["handovers"], every["submissions"]) == (len(found), len(lab.slurm.jobs))
    assert every["interruption_h"] == pytest.approx(np.mean([one["interruption_h"] for one in found]), abs=1e-3)
    assert every["overlap_h"] == pytest.approx(np.mean([one["overlap_h"] for one in found]), abs=1e-3)
    assert every["decisions"] == len(lab.journal("decision"))


def test_each_version_answers_for_its_own_decisions(tmp_path: Path) -> None:
    lab = lab_of(tmp_path / "lab", FakeSlurm(nodes=1), links=4)
    agent = lab.agent()
    advance_until(lab, agent, 2.5)
    first = agent.policy.version
    (lab.path / "released").rename(lab.path / "old")
    artifact(lab.path / "released", 1.0)
    assert agent.run() == 0 and agent.policy.version != first
    links, policies = tables(tmp_path, lab.folder.path / "decisions.jsonl")
    assert [row["version"] for row in links] == [None, first, agent.policy.version, agent.policy.version]
    assert [row["decided_by"] for row in links] == ["none", "policy", "policy", "policy"]
    assert [row["left_s"] // 60 for row in links[1:]] == [30, 60, 60]
    assert (policies[f"policy {first}"]["handovers"], policies[f"policy {agent.policy.version}"]["handovers"]) == (1, 2)
    assert policies["none"]["submissions"] == 1


def test_a_requeued_link_waited_once_and_hands_over_from_its_last_start(tmp_path: Path) -> None:
    lab = lab_of(tmp_path / "lab", FakeSlurm(nodes=2), links=2)
    agent = lab.agent()
    advance_until(lab, agent, 1.6)
    second = job(lab, "2.1")
    first_start_s = second.start_s
    lab.slurm.requeue(second)
    lab.pause(agent.cycle())
    agent.run()
    links, _ = tables(tmp_path, lab.folder.path / "decisions.jsonl")
    row = next(row for row in links if row["job_id"] == str(second.id))
    assert row["requeues"] == 1 and epoch(row["start_utc"]) == first_start_s
    assert second.start_s is not None and second.start_s > (first_start_s or 0)
    gap_s = second.start_s - (job(lab, "1.1").end_s or 0)
    assert row["interruption_s"] - row["overlap_s"] == gap_s


def handover(
    n: int, *, gap_h: float, at_s: int, predicted_h: tuple[float, float], wait_s: int, **how: Any
) -> list[str]:
    """The lines of link n + 1 from its decision on."""
    who = {"link": n + 1, "job_id": str(n + 1), "job_name": f"train-0123abcd-{n + 1}.1"}
    limits_h, expected_h = predicted_h
    seen = {"remaining_h": 0.5, "start_estimate_h": limits_h, "start_estimate_expected_h": expected_h}
    decided = {"link": n, "job_id": str(n), "observation": seen, "version": "a" * 12, "submit": how.get("submit", True)}
    decided["by"] = how.get("by", "policy")
    start = {"submit_s": at_s, "start_s": at_s + wait_s}
    gaps = {"interruption_h": max(gap_h, 0), "overlap_h": max(-gap_h, 0)}
    ids = {"link": n, "next_link": n + 1, "predecessor_id": str(n), "successor_id": str(n + 1)}
    return [
        agent_line(time_s=at_s, **decided),
        agent_line("submitted", time_s=at_s, submit_s=at_s, after=how.get("after", ""), **who),
        agent_line("started", time_s=at_s + wait_s, **start, **who),
        agent_line("handover", time_s=at_s + 2 * HOUR_S, **ids, **gaps),
    ]


@pytest.mark.parametrize(
    ("wait_s", "how", "band"),
    [
        (1800, {}, "within"),
        (3600 + 599, {}, "within"),
        (3600 + 600, {}, "after"),
        (900 - 599, {}, "within"),
        (900 - 600, {}, "before"),
        (1800, {"after": "afterany:1"}, None),
        (1800, {"submit": False}, None),
    ],
)
def test_a_wait_against_what_was_predicted(tmp_path: Path, wait_s: int, how: dict[str, Any], band: str | None) -> None:
    lines = handover(1, gap_h=0.25, at_s=AT_S, predicted_h=(1.0, 0.25), wait_s=wait_s, **how)
    links, policies = tables(tmp_path, lines)
    (row,) = links
    assert (row["band"], row["wait_s"], row["interruption_s"]) == (band, wait_s, 900)
    assert row["decided_by"] == ("none" if how.get("submit") is False else "policy")
    every = policies["all"]
    assert every["predicted"] == (band is not None)
    if band:
        assert every[f"{band}_share"] == 1.0 and every["estimate_error_s"] == wait_s - 3600
        assert every["expected_absolute_error_s"] == abs(wait_s - 900)


def test_a_decision_is_acted_on_once(tmp_path: Path) -> None:
    """A second attempt that no decision was made for has none: it was the agent's own."""
    lines = handover(1, gap_h=1, at_s=AT_S, predicted_h=(1, 1), wait_s=60, by="start estimate")
    again = {"link": 2, "attempt": 2, "job_id": "77", "job_name": "train-0123abcd-2.2"}
    lines.append(agent_line("submitted", time_s=AT_S + 900, submit_s=AT_S + 900, **again))
    links, _ = tables(tmp_path, lines)
    assert [(row["attempt"], row["decided_by"], row["policy"]) for row in links] == [
        (1, "start estimate", "forest"), (2, "none", None),
    ]  # fmt: skip
    assert links[1]["start_utc"] is None and links[1]["wait_s"] is None


def test_what_was_told_last_of_a_handover_counts(tmp_path: Path) -> None:
    """A successor that was requeued took over later than first told, or another job did in its place."""
    lines = handover(1, gap_h=1, at_s=AT_S, predicted_h=(1, 1), wait_s=60)
    later = {"link": 1, "next_link": 2, "predecessor_id": "1", "overlap_h": 0.0}
    lines.append(agent_line("handover", time_s=AT_S + 9 * HOUR_S, successor_id="2", interruption_h=3.0, **later))
    links, policies = tables(tmp_path, lines)
    assert (links[0]["interruption_s"], policies["all"]["handovers"]) == (3 * HOUR_S, 1)
    first = {"link": 2, "attempt": 1, "job_id": "2", "job_name": "train-0123abcd-2.1"}
    lines.append(agent_line("requeued", time_s=AT_S + 9 * HOUR_S, **first))
    again = {"link": 2, "attempt": 2, "job_id": "77", "job_name": "train-0123abcd-2.2"}
    lines.append(agent_line("started", time_s=AT_S + 10 * HOUR_S, start_s=AT_S + 10 * HOUR_S, **again))
    lines.append(agent_line("handover", time_s=AT_S + 11 * HOUR_S, successor_id="77", interruption_h=4.0, **later))
    links, policies = tables(tmp_path, lines)
    assert [row["interruption_s"] for row in links] == [None, 4 * HOUR_S]
    assert policies["all"]["handovers"] == 1
    other = later | {"predecessor_id": "9", "interruption_h": 5.0}
    lines.append(agent_line("handover", time_s=AT_S + 12 * HOUR_S, successor_id="77", **other))
    links, policies = tables(tmp_path, lines)
    assert [row["predecessor_id"] for row in links] == [None, "9"] and policies["all"]["handovers"] == 1


def test_intervals_where_the_record_is_long_enough(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    gaps = rng.normal(0, 1, 120)
    lines = [
        line
        for n, gap_h in enumerate(gaps, 1)
        for line in handover(n, gap_h=gap_h, at_s=AT_S + n * 14 * HOUR_S, predicted_h=(1, 0), wait_s=60)
    ]
    _, policies = tables(tmp_path, lines)
    for row in (policies["all"], policies["policy " + "a" * 12]):
        assert (row["handovers"], row["blocks"], row["indicative"]) == (120, 10, False)
        for figure, values in (("interruption{}_h", np.maximum(gaps, 0)), ("zero_share{}", gaps <= 0)):
            low, mean, high = (row[figure.format(end)] for end in ("_low", "", "_high"))
            assert mean == pytest.approx(values.mean(), abs=1e-4) and low < mean < high
            spread = 1.96 * values.std() / np.sqrt(120)  # drawn independently: blocks find no more
            assert 0.4 * spread < (high - low) / 2 < 2 * spread
    (tmp_path / "short").mkdir()
    _, policies = tables(tmp_path / "short", lines[:8])
    assert policies["all"]["interruption_h"] >= 0 and policies["all"]["interruption_low_h"] is None


def test_no_log_no_row(tmp_path: Path) -> None:
    warehouse.build(data := DataFolder(tmp_path / "data"))
    found = deployed.compute(data, LAB)
    assert {name: len(frame) for name, frame in found.items()} == {"deployed_links": 0, "deployed_policies": 0}


def test_notes_alone_are_a_log_without_links(tmp_path: Path) -> None:
    links, policies = tables(tmp_path, [agent_line("note")])
    assert links == [] and policies == {}


def test_a_plan_is_held_against_what_happened(tmp_path: Path) -> None:
    """Links of 2 h wait for 3 h, as predicted."""
    lab = lab_of(tmp_path / "lab", FakeSlurm(), links=3, plan="auto", ask="fixed")
    lab.waits_h, lab.slurm.waits_s = (lambda limit_h: 3.0), (lambda one: 3 * HOUR_S)
    assert lab.run() == 0
    links, _ = tables(tmp_path, lab.folder.path / "decisions.jsonl")
    decided = [row for row in links if row["decided_by"] == "plan" and row["handover_utc"] is not None]
    assert [row["limit_s"] for row in decided] == [7200, 7200]
    found = deployed.compute(DataFolder(tmp_path / "data"), LAB)["deployed_policies"].to_dicts()
    (row,) = [row for row in found if row["decided_by"] == "plan" and row["limit_s"] == 7200]
    assert row["planned"] == 2 and row["policy"] == "plan" and row["setting"] == 0.5
    assert row["planned_interruption_h"] == pytest.approx(np.mean([one["interruption_s"] for one in decided]) / HOUR_S)
    expected = [one["expected_interruption_s"] for one in decided]
    assert row["expected_interruption_h"] == pytest.approx(np.mean(expected) / HOUR_S, abs=1e-3)
    assert expected[0] == 3 * HOUR_S, "waits of 4.5, 4.5 and 6 h, with caution, and 2 h left"
    (every,) = [row for row in found if row["decided_by"] == "all"]
    assert every["planned"] == 2 and every["limit_s"] is None


def test_plans_come_in_order_of_their_limits(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"by": "plan", "policy": "plan", "version": None, "setting": 0.5, "link": 1, "job_id": "1"}
    limits_s = (12 * HOUR_S, 2 * HOUR_S, None, 8 * HOUR_S)
    lines = [agent_line(time_s=AT_S + k, limit_s=limit_s, **asked) for k, limit_s in enumerate(limits_s)]
    tables(tmp_path, lines)
    found = deployed.compute(DataFolder(tmp_path / "data"), LAB)["deployed_policies"]
    assert found["limit_s"].to_list() == [None, None, 2 * HOUR_S, 8 * HOUR_S, 12 * HOUR_S]
