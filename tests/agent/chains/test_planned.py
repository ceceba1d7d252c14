"""Chains that plan: limits asked for, links queued ahead, the hand-over, and the bounds on all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent import cli
from agent.chains import chain as chains
from agent.chains import status, submission
from agent.chains.keeper import Cancel, Signal, act
from agent.chains.links import chain_verdict, outcome, promised_s
from agent.chains.planner import limits_to_ask, plan_text, useful_limits
from agent.chains.state import NOT_LAUNCHED
from agent.slurm.limits import UserLimits
from agent.slurm.numbers import UNLIMITED_S
from tests.agent.chains.test_keeper import attempt, rules, state_of
from tests.agent.fake_slurm import START_S, CheckedSlurm, FakeCommands, FakeSlurm
from tests.agent.fake_slurm import Plan as Ends
from tests.agent.lab import SCRIPT, Lab, advance_until, chain_of, job, plans, run
from traces.units import HOUR_S


def planned(path: Path, slurm: FakeSlurm | None = None, script: str = SCRIPT, **values: Any) -> Lab:
    """A lab of a planned chain of up to ten links."""
    lab = Lab(path, slurm or FakeSlurm(), {"links": 10, "plan": "auto", "limits": (7200, 14400), **values})
    lab.chain.script.write_text(script)
    return lab


def waits_of(*hours: tuple[float, float]) -> Any:
    """Waits in the fake, by limit in hours; predicted and real alike."""
    by_limit = dict(hours)
    return lambda limit_h: by_limit.get(limit_h, 0.0)


def with_waits(lab: Lab, *hours: tuple[float, float]) -> Lab:
    lab.waits_h = waits_of(*hours)
    lab.slurm.waits_s = lambda job: HOUR_S * lab.waits_h(job.limit_s / HOUR_S)
    return lab


def test_it_asks_for_the_limit_that_loses_least(tmp_path: Path) -> None:
    """On an idle cluster the longest, from the first link on; where it waits for days, the one that starts in time."""
    lab = planned(tmp_path / "idle", links=2)
    assert lab.run() == 0
    assert [(one.limit_s, one.state, one.dependency) for one in lab.slurm.jobs] == [(14400, "TIMEOUT", "")] * 2
    lab = with_waits(planned(tmp_path / "busy", links=2), (4.0, 40.0), (2.0, 0.1))
    assert lab.run() == 0
    assert [one.limit_s for one in lab.slurm.jobs] == [7200, 7200]
    decision = lab.journal("decision")[-1]
    assert decision["by"] == decision["policy"] == "plan" and decision["limit_s"] == 7200
    found = {one["limit_s"]: one for one in decision["candidates"]}
    assert found[7200]["lost_h_per_day"] < found[14400]["lost_h_per_day"]
    assert lab.journal("submitted")[-1]["limit_s"] == 7200


def test_without_futures_the_scripts_limit_is_asked_for_and_one_link_is_queued(tmp_path: Path) -> None:
    lab = with_waits(planned(tmp_path), (2.0, 9.0), (4.0, 9.0))
    lab.is_blind = True
    agent = lab.agent()
    advance_until(lab, agent, 10.0)
    assert [(how, one.limit_s) for (_, how), one in zip(lab.links(), lab.slurm.jobs, strict=True)] == [
        ("RUNNING", 7200), ("PENDING", 7200),
    ]  # fmt: skip


def test_after_an_interruption_the_limit_is_planned_too(tmp_path: Path) -> None:
    """No link runs, but one has: 4 h would wait for 40 h, 2 h not at all. An agent that was restarted plans alike."""
    for is_restarted in (False, True):
        lab = planned(tmp_path / str(is_restarted))
        agent = lab.agent()
        advance_until(lab, agent, 0.5)
        lab.waits_h = waits_of((4.0, 40.0))
        lab.slurm.end(job(lab, "1.1"), "NODE_FAIL")
        advance_until(lab, lab.agent() if is_restarted else agent, 0.7)
        assert [one.limit_s for one in lab.slurm.jobs] == [14400, 7200]


def test_a_second_link_is_queued_where_the_first_will_start_too_late(tmp_path: Path) -> None:
    lab = with_waits(planned(tmp_path, ask="fixed", limits=()), (2.0, 9.0))
    agent = lab.agent()
    advance_until(lab, agent, 9.5)
    assert [(name, how) for name, how in lab.links()] == [("1.1", "RUNNING"), ("2.1", "PENDING"), ("3.1", "PENDING")]


def test_no_second_link_is_queued_where_the_first_covers_the_work(tmp_path: Path) -> None:
    """It starts in 1.5 h and ends in 3.5 h; a second one would wait for 2.25 to 3 h."""
    lab = with_waits(planned(tmp_path, ask="fixed", limits=()), (2.0, 1.5))
    agent = lab.agent()
    lab.slurm.waits_s = lambda job: 1.5 * HOUR_S if len(lab.slurm.jobs) > 1 else 0.0
    advance_until(lab, agent, 0.3)
    assert [how for _, how in lab.links()] == ["RUNNING", "PENDING"]


def test_an_early_link_takes_over_and_the_older_one_is_ended_once_the_newer_one_runs(tmp_path: Path) -> None:
    lab = with_waits(planned(tmp_path, links=2, ask="fixed", limits=()), (2.0, 1.5))
    lab.slurm.waits_s = lambda job: 0.0  # it starts at once, against the prediction
    assert lab.run() == 0
    first, second = lab.slurm.jobs
    assert (first.state, second.state) == ("CANCELLED", "TIMEOUT")
    assert second.start_s is not None and first.end_s is not None
    assert 30 <= first.end_s - second.start_s <= 120, "the newer one is seen to run, then the older one ends"
    assert [line["to"] for line in lab.journal("handed over")] == [second.name]
    (handover,) = lab.journal("handover")
    assert handover["interruption_h"] == 0 and handover["overlap_h"] == pytest.approx(1 / 60, abs=0.01)


@pytest.mark.parametrize(("option", "sent"), [("B:USR1@300", "USR1 --batch"), ("12@300", "12")])
def test_the_older_link_gets_the_signal_that_its_script_asks_for(tmp_path: Path, option: str, sent: str) -> None:
    """A job that does not end on it is cancelled when the time to save is over."""
    script = SCRIPT.replace("sleep", f"#SBATCH --signal={option}\nsleep")
    lab = with_waits(planned(tmp_path / "saves", script=script, links=2, ask="fixed", limits=()), (2.0, 1.5))
    lab.slurm.waits_s, lab.slurm.saves_s = (lambda job: 0.0), 60.0
    assert lab.run() == 0
    assert lab.slurm.signals == [(100, sent)] and lab.slurm.jobs[0].state == "COMPLETED"
    assert [how for _, how in lab.links()] == ["COMPLETED", "TIMEOUT"]
    lab = with_waits(planned(tmp_path / "goes on", script=script, links=2, ask="fixed", limits=()), (2.0, 1.5))
    lab.slurm.waits_s = lambda job: 0.0
    assert lab.run() == 0
    first, second = lab.slurm.jobs
    assert lab.slurm.signals == [(100, sent)] and first.state == "CANCELLED"
    assert first.end_s is not None and second.start_s is not None and 300 <= first.end_s - second.start_s <= 480


def test_a_link_is_not_ended_for_one_that_is_not_seen_running() -> None:
    planning = rules(hands_over=True, ahead=2)
    runs: dict[str, Any] = {"is_pending": False, "start_s": START_S, "end_s": START_S + 7200}
    old = attempt(1, job_id="7", **runs)
    for new in (
        attempt(2, job_id="8"),
        attempt(2, job_id="8", reason="MISSING", **runs | {"end_s": START_S + 9000}),
        attempt(2, job_id="8", **runs | {"start_s": START_S + 500, "end_s": START_S + 9000}),  # for 10 s
    ):
        after, actions = act(planning, state_of(old, new), START_S + 510)
        assert not [one for one in actions if isinstance(one, Cancel | Signal)] and not after.attempts[0].handed_to
    new = attempt(2, job_id="8", **runs | {"start_s": START_S + 400, "end_s": START_S + 9000})
    after, actions = act(planning, state_of(old, new), START_S + 510)
    assert after.attempts[0].handed_to == new.name and actions == (Cancel(old.name),)
    lost = state_of(after.attempts[0], attempt(2, job_id="8", how="NODE_FAIL", start_s=START_S, end_s=START_S + 500))
    assert Cancel(old.name) not in act(planning, lost, START_S + 560)[1], "the newer one is gone before it was ended"


def test_a_newer_link_that_would_end_first_is_cancelled() -> None:
    old = attempt(1, job_id="7", is_pending=False, start_s=START_S, end_s=START_S + 90_000)
    new = attempt(2, job_id="8", is_pending=False, start_s=START_S + 60, end_s=START_S + 7260)
    after, actions = act(rules(hands_over=True, ahead=2), state_of(old, new), START_S + 600)
    assert actions == (Cancel(new.name),) and "would do less than link 1" in after.attempts[1].withdrawn


def test_a_link_that_was_handed_over_never_ends_the_chain() -> None:
    for how, code in (("CANCELLED", None), ("COMPLETED", 0), ("FAILED", 1), ("TIMEOUT", None)):
        assert outcome(rules(), attempt(1, job_id="7", how=how, exit_status=code, handed_to="x")) == "on"


def test_the_end_of_the_work_cancels_a_link_that_was_queued_before() -> None:
    """The later one of two queued links started first."""
    queued = attempt(2, job_id="8")
    done = attempt(3, job_id="9", how="COMPLETED", exit_status=0, start_s=START_S, end_s=START_S + 60)
    after, actions = act(rules(hands_over=True, ahead=2), state_of(queued, done), START_S + 600)
    assert after.status == "done" and actions == (Cancel(queued.name),)


def test_a_link_that_was_handed_over_stays_a_run_of_the_chain() -> None:
    ended: dict[str, Any] = {"job_id": "7", "start_s": START_S, "end_s": START_S + 60, "how": "CANCELLED"}
    assert attempt(1, **ended, handed_to="x", withdrawn="the chain is over").ran
    assert not attempt(1, **ended, withdrawn="too early").ran


def test_links_that_are_too_many_after_a_requeue_are_cancelled(tmp_path: Path) -> None:
    lab = with_waits(planned(tmp_path, ask="fixed", limits=()), (2.0, 9.0))
    agent = lab.agent()
    advance_until(lab, agent, 9.5)
    lab.slurm.requeue(first := job(lab, "1.1"))
    first.reason = "JobHeldUser"
    for _ in range(3):
        lab.pause(agent.cycle())
    assert [how for _, how in lab.links()] == ["PENDING", "PENDING", "CANCELLED"]
    assert "too many links are queued" in lab.journal("withdrawn")[0]["why"]


def test_a_second_queued_link_is_cancelled_where_one_is_allowed_now() -> None:
    """As when an administrator lowers the bound while two are queued."""
    running = attempt(1, job_id="7", is_pending=False, start_s=START_S, end_s=START_S + 7200)
    queued = attempt(2, job_id="8"), attempt(3, job_id="9")
    after, actions = act(rules(hands_over=True, ahead=1), state_of(running, *queued), START_S + 600)
    assert actions == (Cancel(queued[1].name),) and after.attempts[2].withdrawn == "too many links are queued"


@pytest.mark.parametrize("plan", ["fixed", "auto"])
@pytest.mark.parametrize("reason", ["launch failed requeued held", "launch_failed_requeued_held"])
def test_a_link_that_no_node_launches_is_submitted_anew(tmp_path: Path, plan: str, reason: str) -> None:
    """Slurm holds it where users cannot release it."""
    lab = Lab(tmp_path, FakeSlurm(), {"links": 2, "plan": plan, "setting": 0.0})
    agent = lab.agent()
    lab.pause(agent.cycle())
    lab.slurm.requeue(first := job(lab, "1.1"))
    first.reason = reason
    lab.pause(agent.cycle())
    assert lab.run() == 0
    assert [one for one in lab.links() if one[1] != "CANCELLED"] == [("1.2", "TIMEOUT"), ("2.1", "TIMEOUT")]
    assert lab.journal("withdrawn")[0]["why"] == NOT_LAUNCHED and len(lab.journal("handover")) == 1


def test_links_that_no_node_ever_launches_end_the_chain(tmp_path: Path) -> None:
    class Broken(FakeSlurm):
        def settle(self) -> None:
            super().settle()
            for one in self.running():
                self.requeue(one)
                one.reason = "launch failed requeued held"

    lab = Lab(tmp_path, Broken(), {"links": 2})
    assert lab.run() == 1 and len(lab.links()) == 11 and "never launched" in lab.state.why


def test_max_submit_jobs_leaves_room_for_one_queued_link_alone(tmp_path: Path) -> None:
    lab = with_waits(planned(tmp_path, ask="fixed", limits=()), (2.0, 9.0))
    lab.limits = UserLimits(submitted=2)
    agent = lab.agent()
    advance_until(lab, agent, 9.5)
    assert [how for _, how in lab.links()] == ["RUNNING", "PENDING"]


def test_a_job_that_never_saves_is_not_ended_for_another(tmp_path: Path) -> None:
    """A wait of 0.5 h counts 1.5 times in the futures and twice in the estimate: a link is submitted 0.75 h early."""
    lab = with_waits(planned(tmp_path, links=2, saves="never", limits=()), (2.0, 0.5))
    assert lab.run() == 0
    first, second = lab.slurm.jobs
    assert [(one.limit_s, one.state, one.dependency) for one in lab.slurm.jobs] == [(7200, "TIMEOUT", "")] * 2
    assert first.end_s is not None and first.end_s - second.submit_s == pytest.approx(0.75 * HOUR_S, abs=660)
    assert "a held link gains no priority" in lab.journal("decision")[-1]["reason"]
    assert "never saves" in plan_text(lab.chain)


def test_a_job_that_never_saves_is_held_where_it_gains_priority_meanwhile(tmp_path: Path) -> None:
    """It is submitted at once, and starts when the first one ends."""
    lab = planned(tmp_path, links=2, saves="never", limits=())
    lab.ages_held = True
    assert lab.run() == 0
    first, second = lab.slurm.jobs
    assert second.dependency == f"afterany:{first.id}" and second.start_s == first.end_s
    assert first.start_s is not None and second.submit_s - first.start_s <= 120
    assert "PriorityFlags=ACCRUE_ALWAYS" in lab.journal("decision")[-1]["reason"]


def test_the_wanted_work_ends_the_chain(tmp_path: Path) -> None:
    """Five hours are more than one link of four, less a restart of ten minutes."""
    lab = planned(tmp_path, work_h=5.0, limits=(14400,))
    assert lab.run() == 0
    assert [how for _, how in lab.links()] == ["TIMEOUT", "TIMEOUT"] and lab.state.why == "the wanted work is done"


def test_a_chain_whose_work_is_done_says_so_whatever_its_last_link_ended_as() -> None:
    lost = attempt(1, job_id="7", how="NODE_FAIL", start_s=START_S, end_s=START_S + 7000)
    for planning, why in ((rules(wanted_s=7000), "the wanted work is done"), (rules(links=0), "all 0 links are used")):
        assert chain_verdict(planning, state_of(lost)) == ("done", why, 1)


def test_work_is_counted_once_where_links_overlap() -> None:
    first = attempt(1, job_id="7", how="CANCELLED", start_s=START_S, end_s=START_S + 5000, handed_to="x")
    second = attempt(2, job_id="8", is_pending=False, start_s=START_S + 4000, end_s=START_S + 9000)
    queued = attempt(3, job_id="9", limit_s=3600)
    assert promised_s(rules(restart_s=600), [first, second, queued]) == 5000 + (4000 - 600) + (3600 - 600)


def test_the_limits_that_a_link_may_ask_for(tmp_path: Path) -> None:
    def asked(longest_h: float, **values: Any) -> list[float]:
        chain = chain_of(tmp_path, plan="auto", **values)
        return [limit_s / HOUR_S for limit_s in limits_to_ask(chain, 7200, int(longest_h * HOUR_S))]

    assert asked(36) == [2, 4, 8, 12, 24, 36]
    assert asked(UNLIMITED_S / HOUR_S) == [2], "the longest limit is not known"
    assert asked(36, limits=(3600, 7200, 180_000)) == [1, 2]
    assert asked(36, restart_cost_s=3600.0) == [4, 8, 12, 24, 36], "never below three restart costs"
    assert useful_limits((), 7200, 600, 36 * HOUR_S, 3 * HOUR_S)[0] == 3 * HOUR_S, "the least that it can live with"
    with pytest.raises(ValueError, match=r"at least 3 h \(the script's --time-min\) and at most 36 h"):
        useful_limits((7200,), 7200, 600, 36 * HOUR_S, 3 * HOUR_S)
    assert asked(36, ask="fixed") == [2] == asked(36, options=("--time=2:00:00",))
    with pytest.raises(ValueError, match=r"48 h can be .* at least 30 min \(three restart costs\) and at most 36 h"):
        asked(36, limits=(172_800,))


@pytest.mark.parametrize(
    ("given", "expected"),
    [("2h,12h", (7200, 43200)), (["30m", 60], (1800, 3600)), ("3h..12h", (10800, 14400, 28800, 43200))],
)
def test_limits_as_they_are_given(tmp_path: Path, given: Any, expected: tuple[int, ...]) -> None:
    values = {"script": chain_of(tmp_path).script, "links": 2, "plan": "auto"}
    assert chains.make(values | {"limits": given}).limits == expected


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"plan": "auto", "limits": "90s"}, "whole number of minutes"),
        ({"plan": "auto", "limits": "UNLIMITED"}, "UNLIMITED"),
        ({"plan": "auto", "limits": "often"}, "not understood"),
        ({"limits": "2h"}, "give --plan auto"),
        ({"plan": "auto", "ask": "fixed", "limits": "2h"}, "without --ask fixed, --saves never or"),
        ({"plan": "auto", "saves": "never", "limits": "2h"}, "without --ask fixed, --saves never or"),
        ({"plan": "auto", "options": ["--time=3:00:00"], "limits": "2h"}, "or --time among the sbatch options"),
        ({"plan": "perhaps"}, "allowed: fixed or auto"),
        ({"plan": "auto", "time_min": "maybe"}, "allowed: on or off"),
        ({"plan": "auto", "ask": "fixed", "time_min": "on"}, "time_min is given"),
        ({"saves": "sometimes"}, "allowed: signal or never"),
        ({"restart_cost_s": "-1"}, "restart_cost_s"),
        ({"work_h": "-3h"}, "work_h"),
    ],
)
def test_wrong_values_of_a_plan_are_refused(tmp_path: Path, values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        chains.make({"script": chain_of(tmp_path).script, "links": 2, **values})


def test_a_limit_is_asked_for_in_whole_minutes(tmp_path: Path) -> None:
    chain = chain_of(tmp_path, plan="auto")
    for limit_s, minutes in ((3600, 60), (90, 2)):
        assert f"--time={minutes}" in submission.arguments(chain, attempt(1, limit_s=limit_s))
    assert not any(text.startswith("--time") for text in submission.arguments(chain, attempt(1)))


def test_a_chain_of_wanted_work_needs_no_number_of_links(tmp_path: Path) -> None:
    assert chains.make({"script": chain_of(tmp_path).script, "work_h": "10d"}).links == chains.MOST_LINKS


def test_a_chain_that_plans_ends_with_its_work(tmp_path: Path) -> None:
    """Exit status 0 of a link cancels what is queued, also what was submitted before it."""
    lab = with_waits(planned(tmp_path, FakeSlurm(plan=plans(link_1=Ends(7000))), ask="fixed", limits=()), (2.0, 9.0))
    assert lab.run() == 0 and [how for _, how in lab.links()][:1] == ["COMPLETED"]
    assert {how for _, how in lab.links()[1:]} == {"CANCELLED"}


def test_status_shows_the_limit_and_the_hand_over(tmp_path: Path) -> None:
    lab = with_waits(planned(tmp_path, links=2, limits=(7200,)), (2.0, 1.5))
    lab.slurm.waits_s = lambda job: 0.0
    lab.run()
    first, second = [
        line for line in status.table(lab.state, lab.slurm.now_s).splitlines() if line[:3] in ("1.1", "2.1")
    ]
    assert f"limit 2 h; handed over to {lab.slurm.jobs[1].name}" in first and second.endswith("limit 2 h")


class Closed(CheckedSlurm):
    """A partition for one account, of which the user is not."""

    def call(self, argv: Sequence[str]) -> str:
        """What a command prints."""
        if argv[0] == "sacctmgr":
            return "science|science|normal\n"
        return super().call(argv).replace("Default=YES", "Default=YES AllowAccounts=nobody")


@pytest.mark.parametrize(
    ("slurm", "options", "why"),
    [
        (Closed(), (), "partition gpu does not allow account science: AllowAccounts=nobody; choose another"),
        (CheckedSlurm(), ("--plan", "auto", "--limits", "13h"), "no limit of 13 h can be planned with"),
        (CheckedSlurm(), ("--plan", "auto", "--restart-cost", "5h"), "no limit of 2 h, 4 h, 8 h, 12 h can be planned"),
    ],
)
def test_what_run_refuses_before_it_submits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    slurm: CheckedSlurm, options: tuple[str, ...], why: str,
) -> None:  # fmt: skip
    chain, commands = chain_of(tmp_path), FakeCommands(slurm)
    monkeypatch.setattr(cli, "Commands", lambda: commands)
    given = ("run", str(chain.script), "--links", "2", "--state", str(tmp_path / "s"), *options)
    code, err = run(capsys, *given)
    assert code == 2 and why in err and err.count("\n") == 1 and slurm.jobs == []
