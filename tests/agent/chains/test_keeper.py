"""Whatever Slurm shows, whatever fails and whenever the agent is killed: no link is lost and none runs twice."""

from __future__ import annotations

import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.chains import keeper, links
from agent.chains.journal import handovers
from agent.chains.state import ChainState, LinkAttempt
from agent.slurm.commands import SlurmError
from tests.agent.fake_slurm import START_S, FakeSlurm, Plan
from tests.agent.lab import Killed, Lab, print_times

SETTINGS = settings(
    phases=(Phase.explicit, Phase.generate),  # a run takes a second: what it fails on is not made smaller
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ENDS = st.sampled_from(
    [Plan(), Plan(), Plan(5000, "FAILED", 85), Plan(300, "FAILED", 1), Plan(4000, "NODE_FAIL"), Plan(6000, "COMPLETED")]
)
FAULTS = ("kill before", "kill after", "away before", "away after", "nonsense", "refused")


class Trouble:
    """Raises, at the writes and at the calls that are no look, what was drawn for them; and looks fail for a while."""

    def __init__(self, faults: dict[int, str], outage: tuple[float, float, str] = (0.0, 0.0, "away")) -> None:
        self.faults = faults
        self.count = 0
        self.outage = outage  # hours from, hours long, kind

    def look(self, now_s: int) -> None:
        from_h, long_h, kind = self.outage
        if 0 <= (now_s - START_S) / 3600 - from_h < long_h:
            raise SlurmError(kind, "squeue", "drawn")

    def before(self, what: str) -> None:
        self.count += 1
        fault = self.faults.get(self.count, "")
        if fault == "kill before":
            raise Killed
        if what != "write" and fault in ("away before", "nonsense", "refused"):
            raise SlurmError(fault.split()[0], what, "drawn")

    def after(self, what: str) -> None:
        fault = self.faults.get(self.count, "")
        if fault == "kill after":
            raise Killed
        if what != "write" and fault == "away after":
            raise SlurmError("away", what, "drawn")


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync takes most of the time, and nobody pulls the plug here."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def troubled(lab: Lab, trouble: Trouble, **options: Any) -> Any:
    """An agent of which every call and every write may fail."""
    agent = lab.agent(**options)

    def before(argv: tuple[str, ...]) -> None:
        if "--all" in argv:
            trouble.look(lab.slurm.now_s)
        elif argv[0] != "sdiag":
            trouble.before(argv[0])

    def after(argv: tuple[str, ...]) -> None:
        if "--all" not in argv and argv[0] != "sdiag":
            trouble.after(argv[0])

    lab.commands.before, lab.commands.after = before, after
    save: Callable[[ChainState], None] = type(lab.folder).save.__get__(lab.folder)

    def save_or_die(state: ChainState) -> None:
        trouble.before("write")
        save(state)
        trouble.after("write")

    agent.folder.save = save_or_die  # type: ignore[method-assign]
    return agent


def calm(lab: Lab) -> None:
    """No more trouble, while an agent starts."""
    lab.commands.before = lab.commands.after = lambda argv: None
    lab.folder.__dict__.pop("save", None)


def run_to_the_end(lab: Lab, trouble: Trouble) -> int:
    """Agents one after the other until one comes to the end; the links must be right at every instant."""
    wait = lab.pause

    def pause(seconds: float) -> None:
        wait(seconds)
        check(lab)

    lab.pause = pause  # type: ignore[method-assign]
    while True:
        calm(lab)
        try:
            return int(troubled(lab, trouble).run())
        except Killed:
            lab.slurm.advance(45)


def check(lab: Lab) -> None:
    """No link has two jobs that have not ended; no more than two links have any, with a plan four (two queued)."""
    own = [job for job in lab.slurm.jobs if job.name.startswith("train-") and job.end_s is None]
    alive = Counter(job.name.rpartition("-")[2].split(".")[0] for job in own)
    assert all(count == 1 for count in alive.values()), f"a link runs twice: {alive}"
    assert len(alive) <= (4 if lab.chain.is_planned else 2), alive
    assert sum(job.state == "PENDING" for job in own) <= (2 if lab.chain.is_planned else 1), alive


def check_ends(lab: Lab) -> None:
    """A running link was ended only for another that ran then, or it was withdrawn; journal and state agree."""
    for one in [a for a in lab.state.attempts if a.how == "CANCELLED" and a.start_s is not None and not a.withdrawn]:
        ran = [a for a in lab.state.attempts if a.name == one.handed_to and a.start_s is not None]
        assert ran and one.end_s is not None and (ran[0].start_s or 0) < one.end_s, f"{one.name} ended for nothing"
    written = {(one["predecessor_id"], one["successor_id"]): one for one in lab.journal("handover")}
    kept = {(one["predecessor_id"], one["successor_id"]): one for one in handovers(lab.state).values()}
    assert {key: written[key]["overlap_h"] for key in written} == {key: kept[key]["overlap_h"] for key in kept}


@pytest.mark.slow
@pytest.mark.usefixtures("no_disk")
@SETTINGS
@given(
    ends=st.lists(ENDS, min_size=1, max_size=5),
    faults=st.dictionaries(st.integers(1, 40), st.sampled_from(FAULTS), max_size=10),
    outage=st.tuples(st.floats(0, 6), st.sampled_from([0.0, 0.3, 3.0]), st.sampled_from(["away", "nonsense"])),
    lead_h=st.sampled_from([0.0, 0.3, 1.5]),
    load=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=3),
    has_accounting=st.booleans(),
    plan=st.sampled_from(["fixed", "auto"]),
    waits_h=st.sampled_from([0.0, 1.5, 9.0]),
)
def test_a_chain_survives_anything(
    ends: list[Plan], faults: dict[int, str], lead_h: float, load: list[tuple[int, int]],
    has_accounting: bool, outage: tuple[float, float, str], plan: str, waits_h: float,
) -> None:  # fmt: skip
    def ending(name: str) -> Plan:
        link = name.rpartition("-")[2].split(".")[0]
        return ends[int(link) - 1] if name.startswith("train-") and int(link) <= len(ends) else Plan()

    with tempfile.TemporaryDirectory() as folder:
        slurm = FakeSlurm(plan=ending, has_accounting=has_accounting)
        lab = Lab(Path(folder), slurm, {"links": 4, "setting": lead_h, "retries": 2, "plan": plan})
        lab.waits_h = lambda limit_h: waits_h
        for nodes, _ in load:
            slurm.submit("other", user="somebody", nodes=nodes)
        status = run_to_the_end(lab, Trouble(faults, outage))
        state = lab.state
        assert state.status in ("done", "failed") and status == (0 if state.status == "done" else 1)
        left = [job for job in slurm.jobs if job.name.startswith("train-") and job.end_s is None]
        top = max((a.link for a in state.attempts if not a.never_was), default=0)
        assert all(int(job.name.rpartition("-")[2].split(".")[0]) < top for job in left), "a successor was left behind"
        names = Counter(job.name for job in slurm.jobs if job.name.startswith("train-"))
        assert all(count == 1 for count in names.values()), f"submitted twice: {names}"
        known = {a.job_id for a in state.attempts if a.job_id}
        # Without accounting nothing shows a job that began and ended while squeue could not be read for hours.
        if has_accounting or outage[1:] != (3.0, "nonsense"):
            assert {str(job.id) for job in slurm.jobs if job.name.startswith("train-")} == known, "a job was lost"
        check_ends(lab)


@pytest.mark.slow
@pytest.mark.usefixtures("no_disk")
@pytest.mark.parametrize("fault", ["kill before", "kill after"])
@pytest.mark.parametrize("plan", ["fixed", "auto"])
def test_killed_at_every_call_and_write_it_goes_on(tmp_path: Path, fault: str, plan: str) -> None:
    """By the released policy, and by a plan that holds each link of a job that never saves."""
    count, number = 2, 1
    while number <= count:
        lab = Lab(tmp_path / str(number), chain_values={"links": 2, "plan": plan, "saves": "never"}, ages_held=True)
        trouble = Trouble({number: fault})
        assert run_to_the_end(lab, trouble) == 0
        assert [state for _, state in lab.links()] == ["TIMEOUT", "TIMEOUT"], f"at {number}: {lab.links()}"
        count, number = trouble.count, number + 1
    assert count > 10


@pytest.mark.slow
@pytest.mark.usefixtures("no_disk")
@pytest.mark.parametrize("fault", ["kill before", "kill after"])
@pytest.mark.parametrize("signal", ["", "#SBATCH --signal=B:USR1@120\n"])
def test_a_chain_that_plans_is_killed_at_every_call_and_write_and_goes_on(
    tmp_path: Path, fault: str, signal: str
) -> None:
    """Three links, two of them queued at once, the second before its time: every link but the last is handed over."""
    count, number = 2, 1
    while number <= count:
        lab = Lab(tmp_path / str(number), chain_values={"links": 3, "plan": "auto", "ask": "fixed"})
        lab.chain.script.write_text(lab.chain.script.read_text().replace("sleep", f"{signal}sleep"))
        lab.waits_h = lambda limit_h: 9.0
        lab.slurm.waits_s, lab.slurm.saves_s = (lambda job: 600.0 if job.id % 2 else 1500.0), 60.0
        print_times(lab, 300, 20)
        trouble = Trouble({number: fault})
        assert run_to_the_end(lab, trouble) == 0
        assert links.measured_restart_s(lab.state) == 320, f"at {number}"
        ended = "COMPLETED" if signal else "CANCELLED"
        assert [state for _, state in lab.links()] == [ended, ended, "TIMEOUT"], f"at {number}: {lab.links()}"
        assert len({name for name, _ in lab.links()}) == 3
        check_ends(lab)
        count, number = trouble.count, number + 1
    assert count > 25


def living_of(state: ChainState) -> list[LinkAttempt]:
    return [one for one in state.attempts if one.is_alive and not one.handed_to]


def rules(**changes: Any) -> links.ChainRules:
    values = {"links": 3, "limit_s": 7200, "most_overlap_s": 900.0, "retries": 1, "more_status": 85, "cycle_s": 60.0}
    values["decide_every_s"] = 600
    return links.ChainRules(**(values | changes))


def attempt(link: int, number: int = 1, **values: Any) -> LinkAttempt:
    return LinkAttempt(link, number, f"train-00000000-{link}.{number}", START_S, **values)


def state_of(*attempts: LinkAttempt, **values: Any) -> ChainState:
    return ChainState("00000000", "train", "/job.sh", 3, attempts, **values)


RUNS: dict[str, Any] = {"job_id": "7", "is_pending": False, "start_s": START_S, "end_s": START_S + 7200}
STATES = st.sampled_from(["", "TIMEOUT", "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "LOST", "REFUSED", "ABSENT"])


@st.composite
def attempts(draw: st.DrawFn) -> tuple[LinkAttempt, ...]:
    """Any attempts, also such as no chain ever had; of a link the last one alone lives."""
    made = []
    for link in range(1, draw(st.integers(0, 4)) + 1):
        last = draw(st.integers(1, 2))
        for number in range(1, last + 1):
            how = draw(STATES if number == last else STATES.filter(bool))
            has_id = how not in ("REFUSED", "ABSENT") and draw(st.booleans())
            start_s = draw(st.one_of(st.none(), st.integers(START_S - 9000, START_S))) if has_id else None
            made.append(
                attempt(
                    link, number, how=how, job_id=f"{link}{number}" if has_id else "", start_s=start_s,
                    is_pending=start_s is None, end_s=None if start_s is None else start_s + 7200,
                    withdrawn=draw(st.sampled_from(["", "", "why"])), after=draw(st.sampled_from(["", "afterany:1"])),
                    exit_status=draw(st.sampled_from([None, 0, 1, 85])),
                    handed_to=draw(st.sampled_from(["", "", "x"])) if start_s is not None else "",
                    signalled_s=draw(st.sampled_from([None, START_S])),
                )
            )  # fmt: skip
    return tuple(made)


@settings(max_examples=800, deadline=None)
@given(
    attempts(),
    st.integers(0, 10_000),
    st.one_of(st.none(), st.builds(keeper.Advice, st.booleans(), st.booleans())),
    st.sampled_from([{}, {"ahead": 2, "hands_over": True}, {"ahead": 2, "hands_over": True, "signals": True}]),
)
def test_from_any_state_a_cycle_does_nothing_rash(
    some: tuple[LinkAttempt, ...], later_s: int, advice: keeper.Advice | None, planned: dict[str, Any]
) -> None:
    before, chosen = state_of(*some), rules(**planned)
    after, actions = keeper.act(chosen, before, START_S + later_s, advice)
    submitted = [action for action in actions if isinstance(action, keeper.Submit)]
    assert len(submitted) <= 1
    assert after.attempts[: len(some)] == tuple(
        replace(one, withdrawn=one.withdrawn or now.withdrawn, handed_to=one.handed_to or now.handed_to)
        for one, now in zip(some, after.attempts, strict=False)
    )
    assert len(after.attempts) == len(some) + len(submitted)
    by_name = {one.name: one for one in after.attempts}
    assert len(by_name) == len(after.attempts), "a name was used twice"
    for action in actions:
        if isinstance(action, keeper.Cancel):
            one = by_name[action.name]
            assert one.is_alive and one.job_id and (one.withdrawn or one.handed_to)
            takes_over = any(a.is_running and not a.handed_to and not a.withdrawn for a in after.attempts)
            assert one.withdrawn or one.is_pending or takes_over or one.signalled_s, "ended for nothing"
    if submitted:
        new = by_name[submitted[0].name]
        living = [one for one in some if one.is_alive and not one.handed_to]
        assert after.status == "going" and 1 <= new.link <= 3
        assert not any(one.link == new.link for one in living), "the link lives already"
        assert len(living) <= chosen.ahead and not any(one.withdrawn for one in living)
        assert not living or sum(one.is_running for one in living) == 1, "the predecessor does not run"
    _, more = keeper.act(chosen, after, START_S + later_s, advice)
    assert len(living_of(after)) <= chosen.ahead + 1 or not submitted
    assert chosen.ahead > 1 or not [action for action in more if isinstance(action, keeper.Submit)] or not submitted


def test_a_successor_counts_as_too_early_beyond_the_bound_alone() -> None:
    running = attempt(1, **RUNS)
    for left_s, is_withdrawn in ((901, True), (900, False)):
        successor = attempt(2, job_id="8", is_pending=False, start_s=START_S + 7200 - left_s, end_s=START_S + 14000)
        after, actions = keeper.act(rules(), state_of(running, successor), START_S + 7200 - left_s)
        assert bool(after.attempts[1].withdrawn) == is_withdrawn
        assert actions == ((keeper.Cancel(successor.name),) if is_withdrawn else ())


def test_a_successor_that_came_too_early_twice_is_kept() -> None:
    gone = [attempt(2, n, job_id=str(n), how="CANCELLED", withdrawn="too early") for n in (1, 2)]
    third = attempt(2, 3, job_id="9", is_pending=False, start_s=START_S + 60, end_s=START_S + 7260)
    after, actions = keeper.act(rules(), state_of(attempt(1, **RUNS), *gone, third), START_S + 60)
    assert not after.attempts[3].withdrawn and actions == ()


def test_without_a_bound_none_is_too_early_and_one_withdrawn_for_another_reason_is_submitted_freely() -> None:
    unbounded = rules(most_overlap_s=math.inf)
    early = attempt(2, job_id="8", is_pending=False, start_s=START_S + 1, end_s=START_S + 7200)
    after, actions = keeper.act(unbounded, state_of(attempt(1, **RUNS), early), START_S + 60)
    assert not after.attempts[1].withdrawn and actions == ()
    gone = attempt(2, job_id="8", how="CANCELLED", withdrawn="link 1, was requeued and is pending again")
    after, _ = keeper.act(unbounded, state_of(attempt(1, **RUNS), gone), START_S + 60, keeper.Advice(True))
    assert [(one.name[-3:], one.after) for one in after.attempts][-1] == ("2.2", "")


def test_a_running_successor_takes_over_from_a_requeued_predecessor() -> None:
    requeued = attempt(1, job_id="7")
    running = attempt(2, job_id="8", is_pending=False, start_s=START_S, end_s=START_S + 7200)
    after, actions = keeper.act(rules(), state_of(requeued, running), START_S + 60)
    assert actions == (keeper.Cancel(requeued.name),)
    assert "continues the work" in after.attempts[0].withdrawn


@pytest.mark.parametrize(
    ("how", "exit_status", "has_more", "expected"),
    [
        ("TIMEOUT", 0, False, "on"),
        ("COMPLETED", 0, False, "done"),
        ("COMPLETED", 0, True, "on"),
        ("FAILED", 85, False, "on"),
        ("FAILED", 1, False, "failed"),
        ("FAILED", 1, True, "failed"),
        ("OUT_OF_MEMORY", 1, False, "failed"),
        ("DEADLINE", 0, False, "failed"),
        ("NODE_FAIL", 0, False, "again"),
        ("PREEMPTED", 0, False, "again"),
        ("BOOT_FAIL", 0, False, "again"),
        ("CANCELLED", 0, False, "cancelled"),
        ("REFUSED", None, False, "void"),
        ("ABSENT", None, False, "void"),
    ],
)
def test_what_an_end_means(how: str, exit_status: int | None, has_more: bool, expected: str) -> None:
    ended = attempt(1, job_id="7", how=how, exit_status=exit_status, has_more=has_more)
    assert links.outcome(rules(), ended) == expected


def test_a_lost_job_is_judged_by_how_long_it_ran() -> None:
    for ran_s, expected in ((7200, "on"), (3000, "failed")):
        lost = attempt(1, job_id="7", how="LOST", start_s=START_S, end_s=START_S + ran_s)
        assert links.outcome(rules(), lost) == expected
    assert links.outcome(rules(), attempt(1, job_id="7", how="LOST")) == "failed"


def test_a_job_of_that_name_is_no_link_unless_it_is_the_users(tmp_path: Path) -> None:
    lab = Lab(tmp_path, chain_values={"links": 1})
    agent = troubled(lab, Trouble({2: "away before"}))  # the intent is written first
    agent.cycle()
    assert lab.slurm.jobs == [] and len(agent.state.attempts) == 1
    lab.slurm.submit(agent.state.attempts[0].name, user="mallory")
    lab.pause(60)
    agent.cycle()
    assert agent.state.attempts[0].job_id == ""
