"""What a planned link may ask for besides its limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.chains import chain as chains
from agent.chains import status, submission
from agent.chains.keeper import act
from agent.chains.links import promised_s
from tests.agent.chains.test_keeper import attempt, rules, state_of
from tests.agent.chains.test_planned import planned, with_waits
from tests.agent.fake_slurm import START_S, FakeSlurm
from tests.agent.fake_slurm import Plan as Ends
from tests.agent.lab import SCRIPT, Lab, advance_until, chain_of, plans
from traces.units import HOUR_S


def test_a_link_that_can_live_with_less_is_planned_with_what_it_gets(tmp_path: Path) -> None:
    """4 h wait for 40 h, 2 h for 0.1 h: it asks for 4 h and at least 2 h, gets 2 h, and the next one follows it."""
    lab = with_waits(planned(tmp_path, links=3, time_min="on"), (4.0, 40.0), (2.0, 0.1))
    lab.slurm.waits_s = lambda job: 0.1 * HOUR_S
    agent = lab.agent()
    advance_until(lab, agent, 0.05)
    (first,) = lab.state.attempts
    assert (first.limit_s, first.least_s) == (14400, 7200) and not first.start_s
    assert lab.run() == 0
    assert {one.limit_s for one in lab.slurm.jobs} == {7200}
    assert {how for _, how in lab.links()} <= {"TIMEOUT", "CANCELLED"}
    asked, started = lab.journal("submitted")[1], lab.journal("started")[1]
    assert (asked["limit_s"], asked["least_s"], started["limit_s"]) == (14400, 7200, 7200)
    gaps = [line["interruption_h"] for line in lab.journal("handover")]
    assert len(gaps) == 2 and max(gaps) < 0.2, "it plans with the 2 h, not with the 4 h"


def test_a_link_that_asks_for_a_least_limit_gets_it_from_sbatch(tmp_path: Path) -> None:
    chain = chain_of(tmp_path, plan="auto")
    assert "--time-min=60" in submission.arguments(chain, attempt(1, limit_s=7200, least_s=3600))
    assert not any("time-min" in text for text in submission.arguments(chain, attempt(1, limit_s=7200)))
    assert promised_s(rules(restart_s=600), [attempt(1, limit_s=7200, least_s=3600)]) == 3000


@pytest.mark.parametrize(("least", "asked"), [("2:00:00", (14400, 7200)), ("3:00:00", (14400, None))])
def test_a_script_may_name_the_least_limit(tmp_path: Path, least: str, asked: tuple[int, int | None]) -> None:
    """Of 2 h and 4 h, which wait for 0.1 and 40 h: no link gets less than the script can live with."""
    lab = with_waits(planned(tmp_path, links=3), (4.0, 40.0), (2.0, 0.1))
    lab.chain.script.write_text(f"#!/bin/sh\n#SBATCH --time=4:00:00\n#SBATCH --time-min={least}\nsleep 1\n")
    lab.chain = replace(lab.chain)
    advance_until(lab, lab.agent(), 0.05)
    (first,) = lab.state.attempts
    assert (first.limit_s, first.least_s) == asked


def test_the_least_limit_of_the_script_does_not_shorten_a_planned_link(tmp_path: Path) -> None:
    """sbatch reads the script's line, too; the agent's option overrides it where the plan chose the limit."""
    chain = chain_of(tmp_path, plan="auto")
    chain.script.write_text(SCRIPT.replace("#SBATCH --nodes", "#SBATCH --time-min=60\n#SBATCH --nodes"))
    plain, first = attempt(1), attempt(1, limit_s=7200)
    for time_min in (None, "on", "off"):
        free = replace(chain, time_min=time_min)
        assert free.shortens == (time_min != "off") and "--time-min=120" in submission.arguments(free, first)
        assert not any("time-min" in text for text in submission.arguments(free, plain))
    fixed = replace(chain, ask="fixed")
    assert not fixed.shortens and not any("time-min" in text for text in submission.arguments(fixed, first))
    with pytest.raises(ValueError, match="time_min is on, and --time-min is among the sbatch options"):
        replace(chain, options=("--time-min=30",))


def elastic(path: Path, slurm: FakeSlurm | None = None, **values: Any) -> Lab:
    """A chain of four nodes that can run on one: one starts at once, more wait for 40 h."""
    given = {"ask": "fixed", "limits": (), "least_nodes": 1, "scaling": 0.5, **values}
    lab = planned(path, slurm, SCRIPT.replace("--nodes=1", "--nodes=4"), **given)
    lab.slurm.link_nodes, lab.node_waits_h = 4, {4: 40.0, 2: 40.0, 1: 0.0}
    lab.slurm.waits_s = lambda job: 0.0 if len(lab.slurm.jobs) < 2 else HOUR_S * lab.node_waits_h[job.nodes]
    return lab


def test_a_link_asks_for_fewer_nodes_where_the_wait_for_all_loses_more(tmp_path: Path) -> None:
    lab = elastic(tmp_path, links=3)
    assert lab.run() == 0
    assert [one.nodes for one in lab.slurm.jobs] == [1, 1, 1]
    assert [line["nodes"] for line in lab.journal("submitted")] == [1, 1, 1]
    assert "1 node" in status.table(lab.state, lab.slurm.now_s) and not lab.state.fixed_nodes


@pytest.mark.parametrize(
    ("slurm", "why"),
    [
        (FakeSlurm(step_nodes=4), "the steps of link 1 (1 node) used 4 nodes"),
        (
            FakeSlurm(plan=lambda name: Ends(600, "FAILED", 1) if name.endswith("-1.1") else Ends()),
            "link 1 (1 node) failed",
        ),
    ],
)
def test_a_script_that_ignores_its_nodes_gets_those_that_it_asks_for(
    tmp_path: Path, slurm: FakeSlurm, why: str
) -> None:
    """It is seen with the first link of fewer nodes; an agent that is started again knows it too."""
    lab = elastic(tmp_path, slurm, links=4)
    agent = lab.agent()
    advance_until(lab, agent, 5.0)
    assert lab.state.fixed_nodes == why and why in status.table(lab.state, lab.slurm.now_s)
    assert sum(why in line["text"] for line in lab.journal("note")) == 1
    assert lab.run() == 0
    assert lab.slurm.jobs[0].nodes == 1 and lab.slurm.jobs[-1].nodes == 4


def test_a_link_that_asks_for_another_one_has_not_failed(tmp_path: Path) -> None:
    """Exit status 85, with which a job that has saved ends, is FAILED to Slurm."""
    ends = plans(link_1=Ends(600, "FAILED", 85), link_2=Ends(600, "OUT_OF_MEMORY", 1))
    lab = elastic(tmp_path, FakeSlurm(plan=ends), links=4)
    agent = lab.agent()
    advance_until(lab, agent, 0.19)
    assert ([how for _, how in lab.links()], lab.state.fixed_nodes) == (["FAILED", "RUNNING"], "")
    advance_until(lab, agent, 0.4)
    assert lab.state.fixed_nodes == "link 2 (1 node) failed"


def test_accounting_that_does_not_answer_leaves_the_nodes_open(tmp_path: Path) -> None:
    lab = elastic(tmp_path, FakeSlurm(has_accounting=False, remembers_s=10**6), links=3)
    assert lab.run() == 0 and not lab.state.fixed_nodes
    assert sum("nodes of its steps are not known" in line for line in lab.log) >= 1


def test_of_two_running_links_the_one_that_can_do_more_goes_on() -> None:
    """10 h on one of four nodes are less than 4 h on four; the work that they promise is that of their nodes."""
    planning = rules(hands_over=True, ahead=2, nodes=4)
    runs: dict[str, Any] = {"is_pending": False, "start_s": START_S}
    narrow = attempt(1, job_id="7", nodes=1, end_s=START_S + 10 * HOUR_S, **runs)
    wide = attempt(2, job_id="8", end_s=START_S + 4 * HOUR_S, **runs | {"start_s": START_S + 60})
    after, _ = act(planning, state_of(narrow, wide), START_S + 600)
    assert [one.handed_to for one in after.attempts] == [wide.name, ""]
    assert promised_s(planning, [narrow]) == 2.5 * HOUR_S
    assert promised_s(planning, [attempt(1, nodes=2, limit_s=7200)]) == 3600


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"least_nodes": 1}, "give --plan auto"),
        ({"plan": "auto", "least_nodes": 2}, "least_nodes is 2; allowed: 1 to 1"),
        ({"plan": "auto", "least_nodes": 0}, "least_nodes is 0"),
        ({"plan": "auto", "least_nodes": 1, "options": ["-N2"]}, "set it in the script"),
        ({"plan": "auto", "scaling": 2}, "scaling is 2"),
    ],
)
def test_wrong_numbers_of_nodes_are_refused(tmp_path: Path, values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        chains.make({"script": chain_of(tmp_path).script, "links": 2, **values})
