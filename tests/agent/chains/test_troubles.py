"""The agent on a fake Slurm that refuses, goes away or forgets, on a full disk, and under a clock that jumps."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from agent.chains import links
from agent.chains.loop import CANCELLED, DONE, FAILED
from agent.sight import ClusterObservation
from agent.slurm.commands import SlurmError
from agent.slurm.queue import SqueueJob
from tests.agent.fake_slurm import START_S, FakeSlurm, Plan
from tests.agent.lab import FakeEyes, advance_until, job, lab_of, plans, raise_at
from traces.units import HOUR_S


def test_refused_submissions_are_tried_again_with_pauses(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=1)

    def refuse(argv: tuple[str, ...]) -> None:
        if argv[0] == "sbatch":
            raise SlurmError("refused", "sbatch", "AssocMaxSubmitJobLimit")

    lab.commands.before = refuse
    agent = lab.agent()
    advance_until(lab, agent, 1)
    tried = lab.commands.calls["sbatch"]
    assert 5 <= tried <= 12
    lab.commands.before = lambda argv: None
    assert agent.run() == DONE
    assert [state for _, state in lab.links()] == ["TIMEOUT"]


def test_refusals_do_not_go_on_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_REFUSALS", 4)
    lab = lab_of(tmp_path)
    lab.commands.before = raise_at("sbatch", SlurmError("refused", "sbatch", "Invalid account"))
    assert lab.run() == FAILED
    assert lab.state.why == "none of 4 submissions in a row became a job"


def test_submissions_that_nobody_ever_sees_do_not_go_on_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MOST_REFUSALS", 4)
    lab = lab_of(tmp_path)
    lab.commands.before = raise_at("sbatch", SlurmError("nonsense", "sbatch", "its answer is '', no job id"))
    assert lab.run() == FAILED
    assert lab.commands.calls["sbatch"] == 4 and lab.slurm.now_s - START_S >= 4 * 180


@pytest.mark.parametrize("is_running", [True, False])
def test_a_state_that_nobody_knows_is_of_a_job_that_lives(tmp_path: Path, is_running: bool) -> None:
    """A newer Slurm may have one; taken for an end, it would start the link a second time."""
    slurm = FakeSlurm(nodes=1 if is_running else 0)
    lab = lab_of(tmp_path, slurm, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.5)
    first = job(lab, "1.1")
    usual, first.state = first.state, "HIBERNATING"
    advance_until(lab, agent, 4)
    assert len(slurm.jobs) == 1 and agent.state.status == "going"
    assert sum("waits, state HIBERNATING" in line for line in lab.log) == 1
    first.state, slurm.nodes = usual, 1
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]


def test_a_link_that_its_user_cancelled_while_no_agent_lived_ends_the_chain(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(remembers_s=0))
    agent = lab.agent()
    advance_until(lab, agent, 0.5)
    lab.slurm.end(job(lab, "1.1"), "CANCELLED")
    lab.slurm.advance(3 * HOUR_S)
    assert lab.run() == CANCELLED
    assert lab.links() == [("1.1", "CANCELLED")] and "was cancelled" in lab.state.why


@pytest.mark.parametrize("was_made", [True, False])
@pytest.mark.parametrize("kind", ["away", "nonsense"])
def test_a_submission_without_an_answer_is_looked_for_before_it_is_made_again(
    tmp_path: Path, kind: str, was_made: bool
) -> None:
    lab = lab_of(tmp_path, links=2)
    once = iter([SlurmError(kind, "sbatch", "timed out")])

    def fail(argv: tuple[str, ...]) -> None:
        if argv[0] == "sbatch" and (error := next(once, None)):
            raise error

    if was_made:
        lab.commands.after = fail
    else:
        lab.commands.before = fail
    assert lab.run() == DONE
    names = [name for name, _ in lab.links()]
    assert names == (["1.1", "2.1"] if was_made else ["1.2", "2.1"])
    if not was_made:
        assert job(lab, "1.2").submit_s - START_S >= 180


@pytest.mark.parametrize("cycle_s", [10, 170])  # many looks, and few, before the job appears
def test_a_submission_that_slurm_works_on_for_minutes_is_not_made_again(tmp_path: Path, cycle_s: int) -> None:
    lab = lab_of(tmp_path, links=1, cycle_s=cycle_s)
    agent = lab.agent()
    lab.commands.before = raise_at("sbatch", SlurmError("away", "sbatch", "timed out"))
    lab.pause(agent.cycle())
    lab.commands.before = lambda argv: None
    while lab.slurm.now_s < START_S + (170 if cycle_s == 10 else 500):
        lab.pause(agent.cycle())
    lab.slurm.submit(agent.state.attempts[0].name)
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1"]


def test_a_slurm_that_is_away_is_asked_ever_less_often(tmp_path: Path) -> None:
    lab = lab_of(tmp_path)
    agent = lab.agent()
    lab.pause(agent.cycle())
    lab.commands.before = raise_at("squeue", SlurmError("away", "squeue", "Unable to contact slurm controller"))
    pauses = [agent.cycle() for _ in range(8)]
    for pause, middle in zip(pauses, [60, 120, 240, 480, 600, 600, 600, 600], strict=True):
        assert 0.75 * middle <= pause <= 1.25 * middle
    assert len(set(pauses)) > 4  # agents come back apart
    assert lab.commands.calls["sbatch"] == 1
    lab.commands.before = lambda argv: None
    assert agent.cycle() == 60
    assert any("Slurm answers again" in line for line in lab.log)


def test_answers_that_show_nothing_do_not_cost_the_chain_its_next_link(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.2)
    lab.commands.before = raise_at("squeue", SlurmError("nonsense", "squeue", "3 fields"))
    advance_until(lab, agent, 1.4)
    assert [one.dependency for one in lab.slurm.jobs] == ["", f"afterany:{job(lab, '1.1').id}"]
    lab.commands.before = lambda argv: None
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]


def test_a_blind_agent_submits_only_after_half_an_hour(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent(metrics=tmp_path / "baton.prom")
    advance_until(lab, agent, 0.2)
    lab.commands.before = raise_at("squeue", SlurmError("nonsense", "squeue", "3 fields"))
    advance_until(lab, agent, 0.5)
    assert len(lab.slurm.jobs) == 1
    assert 'baton_agent_blind{chain="train"} 1\n' in (tmp_path / "baton.prom").read_text()


def test_how_slurm_had_to_be_read_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of(tmp_path, links=2)
    agent, look = lab.agent(), FakeEyes.look
    form = "squeue is read as JSON because its text cannot be read: Invalid job format specification"
    with monkeypatch.context() as other:
        other.setattr(FakeEyes, "look", lambda eyes, now_s: replace(look(eyes, now_s), form=form))
        advance_until(lab, agent, 1)
    assert agent.run() == DONE
    assert [line["text"] for line in lab.journal("note")] == [form, "Slurm is read from text again"]


def test_where_squeue_cannot_be_read_accounting_says_what_became_of_a_link_but_not_that_there_is_none(
    tmp_path: Path,
) -> None:
    lab = lab_of(tmp_path, FakeSlurm(plan=plans(link_1=Plan(HOUR_S, "FAILED", 85))), links=2)

    def refuse(argv: tuple[str, ...]) -> None:
        if argv[0] == "squeue" and "--me" in argv:
            raise SlurmError("refused", "squeue", "Invalid job format specification: exit_code")

    lab.commands.before = refuse
    assert lab.run() == DONE
    assert [one["exit_status"] for one in lab.journal("ended")] == [85, 0]
    lost = lab_of(tmp_path / "lost", FakeSlurm(has_accounting=False, remembers_s=0), links=2)
    lost.commands.before = refuse
    agent = lost.agent()
    advance_until(lost, agent, 4)
    assert agent.state.status == "going" and len(lost.slurm.jobs) == 2
    assert any("could not be looked up" in line for line in lost.log)


def test_a_full_disk_submits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of(tmp_path, links=1)
    agent = lab.agent()
    with monkeypatch.context() as full:
        full.setattr("agent.chains.state.os.fsync", _no_space)
        for _ in range(5):
            lab.pause(agent.cycle())
        assert lab.slurm.jobs == []
        assert sum("nothing is submitted until" in line for line in lab.log) == 1
    assert agent.run() == DONE
    assert len(lab.links()) == 1


def _no_space(fd: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_slurm_answered_is_kept_although_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path, links=1)
    agent = lab.agent()

    def fill_the_disk(argv: tuple[str, ...]) -> None:
        if argv[0] == "sbatch":
            monkeypatch.setattr("os.fsync", _no_space)

    lab.commands.after = fill_the_disk
    lab.pause(agent.cycle())
    (submitted,) = agent.state.attempts
    assert submitted.job_id and not lab.state.attempts[0].job_id
    monkeypatch.undo()
    lab.commands.after = lambda argv: None
    assert agent.run() == DONE and [name for name, _ in lab.links()] == ["1.1"]


def test_what_went_wrong_is_in_the_journal(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=1)
    agent = lab.agent()
    advance_until(lab, agent, 0.5)
    lab.commands.before = raise_at("squeue", SlurmError("away", "squeue", "Unable to contact slurm controller"))
    lab.pause(agent.cycle())
    lab.commands.before = lambda argv: None
    lab.pause(agent.cycle())
    away, back = (line["text"] for line in lab.journal("note"))
    assert away.startswith("look at Slurm failed (away): ") and "Unable to contact slurm controller" in away
    assert back.startswith("Slurm answers again after ")


def test_a_clock_that_jumps_changes_no_decision(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.5)
    lab.jump_s = 5 * HOUR_S
    advance_until(lab, agent, 0.6)
    assert len(lab.slurm.jobs) == 1
    assert sum("jumped by +18000 s" in line for line in lab.log) == 1
    assert agent.run() == DONE
    assert lab.journal("handover")[0]["overlap_h"] == pytest.approx(0.5, abs=0.03)


def test_a_job_that_nobody_knows_any_more_counts_as_run_to_its_limit_or_as_failed(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(has_accounting=False, remembers_s=0), links=2, setting=0.0)
    agent = lab.agent()
    assert agent.run() == DONE
    assert [one["how"] for one in lab.journal("ended")] == ["LOST", "LOST"]


@pytest.mark.parametrize(("apart_s", "how"), [(0, "FAILED"), (1, "LOST")])
def test_a_renamed_job_is_found_by_its_id_and_its_submission(tmp_path: Path, apart_s: int, how: str) -> None:
    """`scontrol update JobName`. A job of that id with another submission is one of another cluster."""
    lab = lab_of(tmp_path, FakeSlurm(remembers_s=0, plan=plans(link_1=Plan(HOUR_S, "FAILED", 85))), links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.5)
    renamed = job(lab, "1.1")
    renamed.name = "mine"
    advance_until(lab, agent, 0.9)
    lab.slurm.advance(HOUR_S / 2)
    renamed.submit_s += apart_s
    advance_until(lab, agent, 2.2)
    assert agent.state.attempts[0].how == how
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["2.1"]


def test_without_accounting_the_controller_is_enough(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(has_accounting=False, plan=plans(link_1=Plan(HOUR_S, "FAILED", 85))), links=2)
    assert lab.run() == DONE
    assert [one["exit_status"] for one in lab.journal("ended")] == [85, 0]


def test_a_job_that_cannot_be_cancelled_is_cancelled_later(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2, setting=1.5, most_overlap_h=0.25)
    errors = iter(
        [SlurmError("away", "scancel", "timed out"), SlurmError("refused", "scancel", "Invalid job id specified")]
    )

    def fail(argv: tuple[str, ...]) -> None:
        if argv[0] == "scancel" and (error := next(errors, None)):
            raise error

    lab.commands.before = fail
    assert lab.run() == DONE
    assert [state for _, state in lab.links()] == ["TIMEOUT", "CANCELLED", "TIMEOUT"]
    assert lab.commands.calls["scancel"] == 3
    assert sum("could not be cancelled" in line for line in lab.log) == 1


def test_an_answer_of_sbatch_that_is_no_id_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of(tmp_path, links=1)
    call = lab.slurm.call
    monkeypatch.setattr(
        lab.slurm, "call", lambda argv: f"hello {call(argv)}" if argv[0] == "sbatch" else call(argv), raising=True
    )
    assert lab.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1"]
    assert any("its answer 'hello 100" in line for line in lab.log)


def test_what_became_of_a_link_is_asked_until_accounting_answers(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(remembers_s=0), links=1)
    lab.commands.before = raise_at("sacct", SlurmError("away", "sacct", "Connection refused"))
    agent = lab.agent()
    advance_until(lab, agent, 3)
    assert agent.state.status == "going" and len(lab.slurm.jobs) == 1
    assert 1 <= sum("could not be looked up" in line for line in lab.log) <= 2
    lab.commands.before = lambda argv: None
    assert agent.run() == DONE
    assert lab.journal("ended")[0]["how"] == "TIMEOUT"


def test_without_any_sight_the_successor_waits_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(eyes: FakeEyes, predecessor: SqueueJob, decides_alike: object) -> ClusterObservation:
        raise ValueError("call look before sight")

    monkeypatch.setattr(FakeEyes, "sight", blind)
    lab = lab_of(tmp_path, links=2)
    assert lab.run() == DONE
    assert lab.slurm.jobs[1].dependency == "afterany:100"
    assert "the cluster cannot be observed: call look before sight" in lab.journal("decision")[0]["reason"]


def test_files_for_people_that_cannot_be_written_stop_no_chain(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    lab.folder.make()
    (lab.folder.path / "decisions.jsonl").mkdir()
    assert lab.agent(metrics=tmp_path / "nowhere" / "baton.prom").run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]
    assert any("lines are not written yet" in line for line in lab.log) and any(
        "baton.prom" in line for line in lab.log
    )
