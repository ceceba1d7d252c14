"""Each call of the agent to the operating system fails in turn, and each answer of Slurm is replaced in turn.

After each fault a later agent completes the chain, with no link lost and none run twice. By default some of the calls
fail; `BATON_LIVE=full` takes all of them (`make live`).
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.agent.faults import ANSWERS, CALLS, ERRORS, Faults, kept
from tests.agent.lab import Lab

IS_FULL = os.environ.get("BATON_LIVE") == "full"
EACH = 11  # by default one answer of so many is replaced


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    """The calls of an agent that nothing disturbs."""
    faults = Faults()
    lab, _ = kept(tmp_path_factory.mktemp("calm"), faults)
    check(lab)
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]
    return faults


def check(lab: Lab) -> None:
    """Both links ran to their ends once, one job of each at a time, and the state knows every job."""
    jobs = [(one.name.rpartition("-")[2][0], one.submit_s, one.end_s, one.state) for one in lab.slurm.jobs]
    assert sorted(link for link, _, _, state in jobs if state == "TIMEOUT") == ["1", "2"], f"{jobs} {lab.log}"
    for link in "12":
        spans = sorted((submit_s, end_s) for of, submit_s, end_s, _ in jobs if of == link)
        assert all(end_s is not None and end_s <= later for (_, end_s), (later, _) in pairwise(spans)), (jobs, lab.log)
    assert {str(job.id) for job in lab.slurm.jobs} <= {attempt.job_id for attempt in lab.state.attempts}, lab.log
    assert lab.state.status == "done"


def chosen(most: int, error: int) -> list[int]:
    """The calls that fail: all, or one for each error, from the first of its kind on evenly over the run."""
    return list(range(1, most + 1)) if IS_FULL else [1 + error * most // len(ERRORS)]


@pytest.mark.parametrize("number", ERRORS, ids=lambda number: os.strerror(number).replace(" ", "-"))
@pytest.mark.parametrize("kind", CALLS)
def test_a_call_that_fails_costs_no_link(tmp_path: Path, calm: Faults, kind: str, number: int) -> None:
    assert calm.count[kind]
    for at in chosen(calm.count[kind], ERRORS.index(number)):
        lab, _ = kept(tmp_path / str(at), Faults(kind, at, number))
        check(lab)


@pytest.mark.parametrize("how", ANSWERS)
def test_an_answer_that_is_replaced_costs_no_link(tmp_path: Path, calm: Faults, how: str) -> None:
    assert {"squeue", "sinfo", "sacct", "sacctmgr", "scontrol", "sbatch", "sdiag"} <= set(calm.programs)
    acts = [at for at, program in enumerate(calm.programs, 1) if program in ("sbatch", "sdiag")]
    for at in sorted({*acts, *range(1, len(calm.programs) + 1, 1 if IS_FULL else EACH)}):
        lab, _ = kept(tmp_path / str(at), Faults("answer", at, how))
        check(lab)
