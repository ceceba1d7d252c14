"""The audit of chains sees each way in which a link can be lost or doubled; the history of the background in copies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.chains.state import Folder, LinkAttempt, new_chain_state
from tests.live import background
from tests.live.audit import Audit, Row, last_line, of_chain
from tests.live.fidelity_workload import Submission
from tests.live.keeping import USER, Kept
from tests.live.slurm import Slurm

LINKS = 2


def kept(folder: Path, status: str = "done", withdrawn: str = "") -> tuple[Kept, list[Row]]:
    """A chain of two links as it should end, and its rows in the accounting; with a third attempt, a withdrawn one."""
    one = Kept(Slurm(folder), folder, "chain0", LINKS, 300.0)
    state = replace(new_chain_state("chain0", str(folder / "job.sh"), LINKS), status=status)
    named = ((1, 1, "11"), (2, 1, "12"), (2, 2, "13"))
    attempts = tuple(
        LinkAttempt(
            link, number, state.job_name(link, number), 0, job_id=job_id, withdrawn=withdrawn if job_id == "12" else ""
        )
        for link, number, job_id in named
    )
    place = Folder(one.state)
    place.make()
    place.save(replace(state, attempts=attempts))
    hows = {"11": "TIMEOUT", "12": "CANCELLED", "13": "TIMEOUT"}
    return one, [(a.job_id or "", a.name, USER, hows[a.job_id or ""]) for a in attempts]


def test_a_chain_as_it_should_be(tmp_path: Path) -> None:
    one, rows = kept(tmp_path, withdrawn="too early")
    assert of_chain(one, rows) == ([], [], [])


def test_every_fault_is_seen_and_said(tmp_path: Path) -> None:
    one, rows = kept(tmp_path, withdrawn="too early")
    name = rows[2][1]
    assert of_chain(one, rows[:2])[0] == ["chain0: link 2 never ran to its limit"]
    assert of_chain(one, [*rows, ("99", f"{name}0", USER, "TIMEOUT")])[0] == ["chain0: job 99 is known to no agent"]
    assert of_chain(one, [*rows, ("99", name, USER, "TIMEOUT")])[1] == [f"chain0: {name} was submitted 2 times"]
    twice = [*rows[:1], (*rows[1][:3], "TIMEOUT"), rows[2]]
    assert of_chain(one, twice)[1] == ["chain0: link 2 ran 2 times"]
    assert of_chain(one, [(*rows[0][:2], "root", "TIMEOUT"), *rows[1:]])[2] == ["chain0: job 11 is root's"]


def test_a_job_that_nobody_withdrew_and_a_chain_that_goes_on(tmp_path: Path) -> None:
    one, rows = kept(tmp_path, status="going")
    assert of_chain(one, rows) == (
        ["chain0: the chain is going"],
        ["chain0: job 12 ended CANCELLED and nobody withdrew it"],
        [],
    )
    assert of_chain(replace(one, name="other"), []) == (["other: no state"], [], [])


def test_the_last_line() -> None:
    policy, reactive = (
        {"chains": 10, "interruption_h": hours, "overlap_h": hours / 2} for hours in (1.0, 2.5)
    )  # fmt: skip
    line = last_line(policy, reactive, 50, Audit(lost=("a", "b"), doubled=("c",)))
    assert line == (
        "agent: 20 chains, interruption 1.00 h (reactive 2.50 h), overlap 0.50 h, 50 kills, 2 lost, 1 doubled"
    )


def test_busier_copies_of_the_history_lie_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(load: background.Load) -> list[Submission]:
        count = round(load.share * 20)
        return [Submission(k, 3600 * k, "bin", "gpu", "normal", 1, 4, 60, 1800) for k in range(count)]

    monkeypatch.setattr(background, "submissions", drawn)
    assert background.write_history(tmp_path / "alone", chains=1) == len(drawn(background.Load())) + 1 + 1
    background.write_history(tmp_path / "copies", chains=1, busier=(0.9,))
    alone, copies = ((tmp_path / name / "history.psv").read_text().splitlines() for name in ("alone", "copies"))
    before = len(copies) - len(alone)
    assert before > len(alone) - 1, "the busier copy has more jobs"
    ids = [line.split("|")[0] for line in copies[1:]]
    assert len(set(ids)) == len(ids)
    submits = [line.split("|")[7] for line in copies[1:]]
    assert submits[before] >= "2026-10-15" > submits[before - 1] and submits[0] < "2026-08-28"
    assert [line.split("|")[2:] for line in copies[1 + before :]] == [line.split("|")[2:] for line in alone[1:]]
