"""What the engine does with jobs that no node launches, without a Slurm; tests/live/test_engine.py has a real one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from models.deployment import EngineOptions
from models.engine import slurm
from models.engine.slurm import MOST_LAUNCHES, NOT_LAUNCHED
from models.engine.work import Task, Work
from tests.live.tasks import identity
from traces.errors import WorkError


class Scratch:
    """Keeps no claims."""

    def unclaim(self, job: str) -> None:
        """Forget nothing."""


def run_of(monkeypatch: pytest.MonkeyPatch, answer: str) -> tuple[slurm._Run, list[list[str]]]:
    """A run of two tasks in job 1_0, a squeue that answers so, and the jobs that are cancelled."""
    cancelled: list[list[str]] = []
    monkeypatch.setattr(slurm, "_scancel", cancelled.append)
    monkeypatch.setattr(slurm, "_states", lambda jobs: {})
    monkeypatch.setattr(slurm, "ASK_S", -1.0)
    reply = type("Reply", (), {"returncode": 0, "stdout": answer})
    monkeypatch.setattr("models.engine.slurm.subprocess.run", lambda *_, **__: reply)
    work = Work(identity, [Task("a", 0, "x"), Task("b", 1, "x")], None)
    run = slurm._Run(work, EngineOptions("slurm"), cast("Any", Scratch()), cast("Any", None), {"1_0": [0, 1]})
    return run, cancelled


@pytest.mark.parametrize("reason", ["launch failed requeued held", "launch_failed_requeued_held"])
def test_a_job_that_no_node_launches_is_cancelled_and_its_tasks_are_submitted_again(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """In every version's spelling, with all its tasks, a bounded number of times."""
    run, cancelled = run_of(monkeypatch, f"1_0|{reason}\n2_0|Priority\n")
    again: list[list[list[int]]] = []

    def submit(groups: list[list[int]], memory: int = 1) -> None:
        again.append(groups)
        run.jobs["1_0"] = groups[0]

    monkeypatch.setattr(run, "submit", submit)
    for number in range(1, MOST_LAUNCHES):
        ended = run.ended()
        assert {job: one.state for job, one in ended.items()} == {"1_0": NOT_LAUNCHED}
        run.again("1_0", ended["1_0"])
        assert again == [[[0, 1]]] * number and cancelled == [["1_0"]] * number
    with pytest.raises(
        WorkError, match=rf"a: no node could launch it, tried {MOST_LAUNCHES} times \(last as job 1_0\)"
    ):
        run.again("1_0", run.ended()["1_0"])


def test_a_job_that_its_user_holds_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    run, cancelled = run_of(monkeypatch, "1_0|JobHeldUser\n")
    assert run.ended() == {} and cancelled == [[]]
