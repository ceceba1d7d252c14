"""The agent on a fake Slurm: what happens to a chain when links end, start early, are held, or Slurm goes away."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.chains import keeper, links
from agent.chains.decide import start_estimate
from agent.chains.loop import CANCELLED, DONE, FAILED, STOPPED
from models.provisioning.policies.estimates import start_by_limits
from tests.agent.fake_slurm import START_S, FakeSlurm, Plan
from tests.agent.lab import advance_until, artifact, job, lab_of, plans
from tests.models.pair_tables import random_pairs
from traces.units import HOUR_S


def test_links_follow_each_other_until_all_are_used(tmp_path: Path) -> None:
    lab = lab_of(tmp_path)
    assert lab.run() == DONE
    assert lab.links() == [("1.1", "TIMEOUT"), ("2.1", "TIMEOUT"), ("3.1", "TIMEOUT")]
    assert lab.state.why == "all 3 links are used"
    first, second = (one for one in lab.slurm.jobs[:2])
    assert first.end_s is not None and second.start_s is not None
    assert 0.4 * HOUR_S <= first.end_s - second.start_s <= 0.5 * HOUR_S  # the policy's lead, on a grid of ten minutes
    assert {one["overlap_h"] for one in lab.journal("handover")} == {0.5}
    assert all(one["interruption_h"] == 0 for one in lab.journal("handover"))


def test_the_policy_is_asked_every_ten_minutes_and_nothing_more(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    lab.run()
    asked = lab.journal("decision")
    assert [one["submit"] for one in asked] == [False] * 9 + [True]  # 2 h to .5 h before the end
    times = [one["time_s"] for one in asked]
    assert all(540 <= later - earlier <= 660 for earlier, later in pairwise(times))
    assert asked[0]["log_version"] == 1 and asked[0]["observation"]["remaining_h"] == pytest.approx(2, abs=0.02)
    assert (asked[0]["by"], asked[0]["policy"], asked[0]["setting"]) == ("policy", "lead", 0.5)
    assert "h left" in asked[0]["reason"] and "no estimate of the wait" in asked[0]["reason"]


def test_the_artifact_says_how_often_it_is_asked_and_a_new_version_may_say_another(tmp_path: Path) -> None:
    """Every 20 minutes until the version that is asked every 5 is taken up, an hour before the end."""
    lab = lab_of(tmp_path, links=1 + 1)
    artifact(lab.released, decide_every_s=1200)
    pause = lab.pause

    def replaced_after_an_hour(seconds: float) -> None:
        pause(seconds)
        if lab.journal("decision")[-1:] and lab.journal("decision")[-1]["observation"]["remaining_h"] < 1.05:
            artifact(lab.released, decide_every_s=300)

    lab.pause = replaced_after_an_hour  # type: ignore[method-assign]
    lab.run()
    times = [one["time_s"] for one in lab.journal("decision")]
    steps = [round((later - earlier) / 60) for earlier, later in pairwise(times)]
    assert steps[1:3] == [20, 20] and steps[-2:] == [5, 5], steps


@pytest.mark.parametrize(("estimate_h", "by"), [(0.5, "start estimate"), (None, "predecessor's end")])
def test_without_an_artifact_the_start_estimate_decides(tmp_path: Path, estimate_h: float | None, by: str) -> None:
    """Without an estimate either, the successor is queued for the predecessor's end."""
    lab = lab_of(tmp_path, links=2, artifact=None)
    lab.extra = {} if estimate_h is None else {"start_estimate_h": estimate_h}
    assert lab.run() == DONE
    last = lab.journal("decision")[-1]
    assert (last["submit"], last["by"], last["policy"]) == (True, by, "start-estimate")
    assert last["observation"]["remaining_h"] == pytest.approx(2.0 if estimate_h is None else 0.5, abs=0.2)


def test_the_built_in_policy_is_the_start_estimate_that_is_compared() -> None:
    built_in, (trained, _) = start_estimate(), start_by_limits().fit(random_pairs(4, 5), seed=0)
    rows = random_pairs(4, 5).observations
    assert built_in.score(rows).tolist() == trained.score(rows).tolist()
    assert built_in.decide(rows).tolist() == trained.decide(rows).tolist()


def test_calls_a_minute_are_bounded(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=4)
    agent, most = lab.agent(), 0
    while not keeper.is_over(agent.state):
        lab.pause(agent.cycle())
        most = max(most, lab.commands.calls_in_last_minute())
    minutes = (lab.slurm.now_s - START_S) / 60
    assert most <= 6
    assert lab.commands.calls.total() <= 1.2 * minutes


def test_reactive_is_submitted_for_the_end_so_that_no_time_is_lost(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2, setting=0.0)
    lab.run()
    second = job(lab, "2.1")
    assert second.dependency == f"afterany:{job(lab, '1.1').id}"
    assert second.start_s == job(lab, "1.1").end_s


def test_work_that_is_done_ends_the_chain(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(nodes=1, plan=plans(link_1=Plan(1.8 * HOUR_S))))
    assert lab.run() == DONE
    assert lab.links() == [("1.1", "COMPLETED"), ("2.1", "CANCELLED")]
    assert "exit status 0" in lab.state.why


@pytest.mark.parametrize("way", ["status", "file"])
def test_a_link_may_ask_for_more(tmp_path: Path, way: str) -> None:
    end = Plan(HOUR_S, "FAILED", 85) if way == "status" else Plan(HOUR_S)
    lab = lab_of(tmp_path, FakeSlurm(plan=plans(link_1=end, link_2=Plan(HOUR_S))))
    agent = lab.agent()
    if way == "file":
        (lab.folder.for_jobs / "more-1").touch()
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]
    assert lab.state.attempts[1].how == "COMPLETED"


def test_a_failure_is_tried_again_and_a_second_one_stops_the_chain(tmp_path: Path) -> None:
    lab = lab_of(tmp_path / "a", FakeSlurm(plan=plans(link_1_1=Plan(60, "FAILED", 1))), links=2)
    assert lab.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "1.2", "2.1"]
    lab = lab_of(tmp_path / "b", FakeSlurm(plan=plans(link_2=Plan(60, "OUT_OF_MEMORY", 1))))
    assert lab.run() == FAILED
    assert [name for name, _ in lab.links()] == ["1.1", "2.1", "2.2"]
    assert "ended as OUT_OF_MEMORY" in lab.state.why


def test_a_node_failure_is_no_fault_of_the_job(tmp_path: Path) -> None:
    plan = plans(link_1_1=Plan(60, "NODE_FAIL"), link_1_2=Plan(60, "PREEMPTED"), link_1_3=Plan(60, "NODE_FAIL"))
    lab = lab_of(tmp_path, FakeSlurm(plan=plan), links=1, retries=0)
    assert lab.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "1.2", "1.3", "1.4"]
    lab = lab_of(tmp_path / "always", FakeSlurm(plan=plans(link_1=Plan(60, "NODE_FAIL"))), links=1)
    assert lab.run() == FAILED
    assert len(lab.links()) == links.MOST_AGAIN + 1


def test_a_user_who_cancels_a_link_ends_the_chain(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(nodes=1))
    agent = lab.agent()
    advance_until(lab, agent, 1.8)
    assert [state for _, state in lab.links()] == ["RUNNING", "PENDING"]
    lab.slurm.end(job(lab, "1.1"), "CANCELLED")
    lab.slurm.settle()
    assert agent.run() == CANCELLED
    assert [state for _, state in lab.links()] == ["CANCELLED", "CANCELLED"]


def test_a_user_who_cancels_the_successor_keeps_the_running_link(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(nodes=1))
    agent = lab.agent()
    advance_until(lab, agent, 1.8)
    lab.slurm.end(job(lab, "2.1"), "CANCELLED")
    assert agent.run() == CANCELLED
    assert lab.links() == [("1.1", "RUNNING"), ("2.1", "CANCELLED")]


def test_a_successor_that_starts_too_early_is_withdrawn_and_then_bounded_by_slurm(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2, setting=1.5, most_overlap_h=0.25)
    assert lab.run() == DONE
    assert lab.links() == [("1.1", "TIMEOUT"), ("2.1", "CANCELLED"), ("2.2", "TIMEOUT")]
    first, second = job(lab, "1.1"), job(lab, "2.2")
    assert second.dependency == f"after:{first.id}+105"
    assert first.end_s is not None and second.start_s is not None and first.end_s - second.start_s <= 0.25 * HOUR_S
    assert lab.journal("handover")[0]["overlap_h"] == 0.25
    withdrawn = lab.journal("withdrawn")
    assert len(withdrawn) == 1 and "before the end of link 1" in withdrawn[0]["why"]


def test_a_successor_that_has_started_is_kept_where_no_bound_is_asked_for(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2, setting=1.5, most_overlap_h=float("inf"))
    assert lab.run() == DONE
    assert lab.links() == [("1.1", "TIMEOUT"), ("2.1", "TIMEOUT")]
    assert lab.journal("handover")[0]["overlap_h"] > 1 and not lab.journal("withdrawn")


def test_a_bounded_successor_does_not_wait_for_a_predecessor_that_is_gone(tmp_path: Path) -> None:
    slurm = FakeSlurm(plan=plans(link_1_1=Plan(HOUR_S, "FAILED", 1)))
    lab = lab_of(tmp_path, slurm, links=2, setting=1.5, most_overlap_h=0.25)
    assert lab.run() == DONE
    assert [name for name, _ in lab.links()][:4] == ["1.1", "2.1", "2.2", "1.2"]
    assert job(lab, "2.2").dependency.startswith("after:") and job(lab, "2.2").start_s is None
    assert (job(lab, "1.2").start_s or 0) - (job(lab, "1.1").end_s or 0) <= 180


def test_a_requeued_predecessor_takes_its_waiting_successor_out(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(nodes=1), links=2)
    agent = lab.agent()
    advance_until(lab, agent, 1.8)
    blocker = lab.slurm.submit("other", user="somebody")
    lab.slurm.requeue(job(lab, "1.1"))
    lab.slurm.end(job(lab, "1.1"), "PENDING")
    job(lab, "1.1").end_s = None
    lab.slurm.jobs.sort(key=lambda one: one is not blocker)  # it goes first
    lab.slurm.settle()
    assert agent.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1", "2.2"]
    assert job(lab, "1.1").end_s == job(lab, "2.2").start_s or job(lab, "2.2").start_s >= job(lab, "1.1").start_s  # type: ignore[operator]
    assert lab.journal("requeued")


def test_a_held_link_is_said_and_waited_for(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, FakeSlurm(nodes=0))
    agent = lab.agent()
    lab.pause(agent.cycle())
    job(lab, "1.1").reason = "JobHeldUser"
    for _ in range(5):
        lab.pause(agent.cycle())
    said = [line for line in lab.log if "JobHeldUser" in line]
    assert len(said) == 1 and "scontrol release" in said[0]
    assert len(lab.links()) == 1


def test_a_new_version_is_taken_up_between_decisions_and_a_broken_one_is_not(tmp_path: Path) -> None:
    old, new, broken = artifact(tmp_path / "v1", 0.1), artifact(tmp_path / "v2", 1.0), tmp_path / "v3"
    broken.mkdir()
    (broken / "manifest.json").write_text("{}")
    link = tmp_path / "champion"
    link.symlink_to(old)
    lab = lab_of(tmp_path, links=2, artifact=link)
    agent = lab.agent()
    advance_until(lab, agent, 0.3)
    for version in (broken, new):
        (tmp_path / "next").symlink_to(version)
        (tmp_path / "next").rename(link)
        advance_until(lab, agent, 0.6 if version is broken else 0.9)
    assert [line for line in lab.log if "cannot be used, so lead, lead, h" in line]
    assert [line for line in lab.log if "loaded a new version of the policy: lead, lead, h = 1" in line]
    assert agent.run() == DONE
    assert lab.journal("handover")[0]["overlap_h"] == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(("estimate_h", "overlap_h"), [(0.7, 0.67), (None, 0.0)])
def test_without_a_policy_the_estimate_decides_and_without_that_the_end(
    tmp_path: Path, estimate_h: float | None, overlap_h: float
) -> None:
    lab = lab_of(tmp_path, links=2)
    artifact(lab.released, fills={})  # the policy needs what is not seen
    lab.extra = {} if estimate_h is None else {"start_estimate_h": estimate_h}
    assert lab.run() == DONE
    assert lab.journal("handover")[0]["overlap_h"] == pytest.approx(overlap_h, abs=0.02)
    by = {one["by"] for one in lab.journal("decision")}
    assert by == ({"start estimate"} if estimate_h else {"predecessor's end"})
    assert "the policy cannot decide: features missing" in lab.journal("decision")[0]["reason"]


def test_what_a_link_finds_in_its_environment(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    lab.run()
    first, second = lab.commands.environments
    folder = str(lab.folder.for_jobs)
    assert first == {"HOME": "/root", "BATON_CHAIN_DIR": folder, "BATON_LINK": "1", "BATON_LINKS": "2",
                     "BATON_PREDECESSOR": ""}  # fmt: skip
    assert (second["BATON_LINK"], second["BATON_PREDECESSOR"]) == ("2", str(job(lab, "1.1").id))


def test_told_to_stop_it_leaves_the_jobs_and_goes_on_later(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    agent = lab.agent()
    advance_until(lab, agent, 0.5)
    lab.stop = True
    assert agent.run() == STOPPED
    lab.stop = False
    assert lab.run() == DONE
    assert [name for name, _ in lab.links()] == ["1.1", "2.1"]


def test_a_dry_run_decides_and_does_nothing(tmp_path: Path) -> None:
    lab = lab_of(tmp_path)
    assert lab.agent(dry_run=True).run() == DONE
    assert lab.slurm.jobs == [] and not lab.folder.path.exists()
    assert [line for line in lab.log if line.startswith("dry run: would submit link 1: sbatch --parsable --job-name=")]
    running = lab.slurm.submit("mine")
    lab.folder.make()
    state = lab.begin()
    attempt = dataclasses.replace(_first(state.job_name(1, 1)), job_id=str(running.id))
    lab.folder.save(dataclasses.replace(state, attempts=(attempt,)))
    lab.agent(dry_run=True).run()
    assert len(lab.slurm.jobs) == 1 and lab.commands.calls["sbatch"] == 0
    assert len([line for line in lab.log if line.startswith("decision, link 1")]) == 12
    assert lab.state.attempts == (attempt,)


def _first(name: str) -> Any:
    from agent.chains.state import LinkAttempt

    return LinkAttempt(1, 1, name, START_S)


def test_figures_for_prometheus(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=2)
    metrics = tmp_path / "baton.prom"
    agent = lab.agent(metrics=metrics)
    agent.run()
    text = metrics.read_text()
    assert 'baton_chain_link{chain="train"} 2\n' in text
    assert 'baton_chain_status{chain="train",status="done"} 1\n' in text
    assert 'baton_chain_overlap_seconds_total{chain="train"} 1800\n' in text
    assert 'baton_agent_blind{chain="train"} 0\n' in text
    assert [(line["interruption_h"], line["overlap_h"]) for line in lab.journal("handover")] == [(0, 0.5)]
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(line.rsplit(" ", 1)[1].isdigit() for line in samples)
    assert len({line.split("{")[0] for line in samples}) == text.count("# TYPE") == text.count("# HELP")


def test_a_journal_line_that_was_cut_off_stays_alone(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, links=1)
    lab.folder.make()
    (lab.folder.path / "decisions.jsonl").write_text('{"log_version": 1, "ev')
    lab.run()
    first, *rest = (lab.folder.path / "decisions.jsonl").read_text().splitlines()
    assert first == '{"log_version": 1, "ev'
    assert [json.loads(line)["event"] for line in rest] == ["submitted", "started", "ended", "chain"]
