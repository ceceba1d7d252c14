"""Plans that choose the QOS of a link among those that its user allows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import cli
from agent.chains import chain as chains
from agent.chains import status
from agent.chains.planner import PLAN_BUDGET_S
from agent.chains.state import Folder, LinkAttempt
from agent.sight import LinkStarts
from agent.slurm.commands import SlurmError
from agent.slurm.limits import QosTable, UserLimits, UserQos
from tests.agent.chains.test_planned import planned
from tests.agent.fake_slurm import FakeCommands
from tests.agent.faults import WholeSlurm
from tests.agent.lab import FakeEyes, Lab, advance_until, chain_of, run
from traces.units import HOUR_S

SHORT = UserQos(UserLimits(wall_s=2 * HOUR_S), usage_factor=2.0)


def choosing(path: Path, waits_h: dict[str, float], short: UserQos = SHORT, **values: Any) -> Lab:
    """A chain that may use QOS short; waits by QOS, "" for the script's own."""
    lab = planned(path, **{"links": 2, "qos_choice": ("short",), **values})
    lab.qos = QosTable("normal", {"normal": UserQos(lab.limits), "short": short})
    lab.qos_waits_h = waits_h
    lab.slurm.waits_s = lambda job: HOUR_S * waits_h["" if job.qos == "normal" else job.qos]
    return lab


def test_a_link_has_the_qos_that_starts_sooner(tmp_path: Path) -> None:
    """QOS short allows 2 h at most; what it costs is in the reason."""
    lab = choosing(tmp_path, {"": 9.0, "short": 0.1})
    assert lab.run() == 0
    assert [(one.qos, one.limit_s) for one in lab.slurm.jobs] == [("short", 7200)] * 2
    decision = lab.journal("decision")[0]
    assert decision["qos"] == "short" and {one["qos"] for one in decision["candidates"]} == {"", "short"}
    assert "a link of 2 h under QOS short (its usage counts 2 times) now" in decision["reason"]
    assert lab.journal("submitted")[0]["qos"] == "short" and any("limit 2 h, QOS short" in line for line in lab.log)
    assert "limit 2 h; QOS short" in status.table(lab.state, lab.slurm.now_s)


def test_of_two_that_start_alike_it_has_the_scripts_own(tmp_path: Path) -> None:
    lab = choosing(tmp_path, {"": 0.5, "short": 0.5}, limits=(7200,))
    assert lab.run() == 0
    assert [(one.qos, one.limit_s) for one in lab.slurm.jobs] == [("normal", 7200)] * 2
    assert all(attempt.qos == "" for attempt in lab.state.attempts)


def test_a_qos_that_takes_no_further_job_is_no_candidate(tmp_path: Path) -> None:
    """MaxSubmitJobs=1: the first link has QOS short, and the second one while that runs the script's own."""
    short = replace(SHORT, limits=replace(SHORT.limits, submitted=1), is_submit_alone=True)
    lab = choosing(tmp_path, {"": 0.5, "short": 0.1}, short)
    agent = lab.agent()
    advance_until(lab, agent, 2.0)
    assert [one.qos for one in lab.slurm.jobs] == ["short", "normal"]
    assert {one["qos"] for one in lab.journal("decision")[-1]["candidates"]} == {""}
    assert agent._decider.eyes.request.qos == "", "the script's own, not that of the running link"


def test_the_scripts_own_qos_may_be_full_and_another_not(tmp_path: Path) -> None:
    lab = choosing(tmp_path, {"": 0.1, "short": 0.1})
    lab.qos = replace(lab.qos, by_name=dict(lab.qos.by_name) | {"normal": UserQos(is_submit_alone=True)})
    lab.limits = UserLimits(submitted=1)
    lab.slurm.submit("mine", limit_s=90_000)
    assert lab.run() == 0
    assert [one.qos for one in lab.slurm.jobs] == ["normal", "short", "short"]


@pytest.mark.parametrize("limits", [UserLimits(wall_s=600), UserLimits(job_nodes=0), UserLimits(nodes=0)])
def test_a_qos_that_never_takes_such_a_link_is_no_candidate(tmp_path: Path, limits: UserLimits) -> None:
    lab = choosing(tmp_path, {"": 0.5, "short": 0.1}, replace(SHORT, limits=limits))
    assert lab.run() == 0
    assert {one.qos for one in lab.slurm.jobs} == {"normal"}


def test_a_qos_that_the_user_may_not_use_any_more_is_no_candidate(tmp_path: Path) -> None:
    lab = choosing(tmp_path, {"": 0.5, "short": 0.1})
    lab.qos = QosTable()
    assert lab.run() == 0
    assert {one.qos for one in lab.slurm.jobs} == {"normal"}


def test_after_a_refusal_a_link_has_the_scripts_own_qos(tmp_path: Path) -> None:
    """As by a plugin of this site that lets nobody use QOS short now."""
    lab = choosing(tmp_path, {"": 0.5, "short": 0.1}, links=1)

    def refuse(argv: tuple[str, ...]) -> None:
        if argv[0] == "sbatch" and "--qos=short" in argv:
            raise SlurmError("refused", "sbatch", "Invalid qos specification")

    lab.commands.before = refuse
    assert lab.run() == 0
    assert [(one.qos, one.how) for one in lab.state.attempts] == [("short", "REFUSED"), ("", "TIMEOUT")]


def test_without_futures_a_link_has_the_scripts_own_qos(tmp_path: Path) -> None:
    lab = choosing(tmp_path, {"": 0.5, "short": 0.1})
    lab.is_blind = True
    assert lab.run() == 0
    assert {one.qos for one in lab.slurm.jobs} == {"normal"}


def test_without_futures_of_another_qos_that_is_no_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the time for them ran out."""
    lab, starts = choosing(tmp_path, {"": 0.5, "short": 0.1}), FakeEyes.starts

    def some(self: FakeEyes, *arguments: Any) -> LinkStarts:
        found = starts(self, *arguments)
        return replace(found, starts_s=[]) if "short" in arguments else found

    monkeypatch.setattr(FakeEyes, "starts", some)
    assert lab.run() == 0
    assert {one.qos for one in lab.slurm.jobs} == {"normal"}


def test_a_job_that_never_saves_may_have_another_qos_too(tmp_path: Path) -> None:
    lab = choosing(tmp_path, {"": 9.0, "short": 0.1}, saves="never", limits=())
    assert lab.run() == 0
    assert {one.qos for one in lab.slurm.jobs} == {"short"}


def test_a_state_from_before_links_had_a_qos_is_read(tmp_path: Path) -> None:
    lab = choosing(tmp_path, {"": 0.5, "short": 0.5})
    assert lab.run() == 0
    values = json.loads(lab.folder.file.read_text())
    for attempt in values["attempts"]:
        del attempt["qos"]
    lab.folder.file.write_text(json.dumps(values))
    state = Folder(lab.folder.path).load()
    assert state is not None and state == lab.state and {attempt.qos for attempt in state.attempts} == {""}
    values["attempts"][0]["qos"] = "--wrap=x y"
    lab.folder.file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="out of bounds"):
        lab.folder.load()
    assert LinkAttempt(1, 1, "x", 0).qos == ""


def test_the_choice_in_a_file_and_on_the_command_line(tmp_path: Path) -> None:
    script = chain_of(tmp_path).script
    for given in ("short,top", ["short", "top"]):
        made = chains.make({"script": str(script), "links": 2, "plan": "auto", "qos_choice": given})
        assert made.qos_choice == ("short", "top")
    (tmp_path / "chain.toml").write_text(f'script = "{script}"\nqos_choice = ["short"]\n')
    assert chains.from_file(tmp_path / "chain.toml")["qos_choice"] == ["short"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--qos-choice", "short"), "qos_choice is given, but links have the script's QOS: give --plan auto"),
        (("--plan", "auto", "--qos-choice", "a b"), "qos_choice holds 'a b', which is no name of a QOS"),
        (("--plan", "auto", "--qos-choice", "short", "--", "-q", "top"), "--qos is among the sbatch options"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    script = str(chain_of(tmp_path).script)
    code, err = run(capsys, "run", script, "--links", "2", *arguments)
    assert code == 2 and why in err and err.count("\n") == 1


def test_run_refuses_a_qos_that_the_user_may_not_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, commands = chain_of(tmp_path), FakeCommands(WholeSlurm())
    commands.before = lambda argv: pytest.fail("it submits") if argv[0] == "sbatch" else None
    monkeypatch.setattr(cli, "Commands", lambda: commands)
    given = ("run", str(chain.script), "--links", "2", "--state", str(tmp_path / "s"), "--plan", "auto")
    code, err = run(capsys, *given, "--qos-choice", "short")
    assert code == 2 and "may not use QOS short; allowed: normal" in err and err.count("\n") == 1


def test_delays_are_simulated_in_half_of_the_time_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each limit gets futures. Three seconds pass at each look at the clock; delays are looked at last."""
    lab, asked, starts = planned(tmp_path, links=2), list[tuple[int, float]](), FakeEyes.starts

    def seen(self: FakeEyes, *arguments: Any) -> LinkStarts:
        asked.append((arguments[-1], arguments[4]))
        return starts(self, *arguments)

    monkeypatch.setattr(FakeEyes, "starts", seen)
    monkeypatch.setattr("agent.chains.planner.time", SimpleNamespace(monotonic=partial(next, count(0.0, 3.0))))
    assert lab.run() == 0
    assert {budget_s for delay_s, budget_s in asked if delay_s == 0} == {8.0}
    assert {budget_s for delay_s, budget_s in asked if delay_s > 0} == {PLAN_BUDGET_S / 2 - 9.0, 0.0}


def test_the_scripts_limit_is_simulated_only_if_a_link_may_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, asked, starts = planned(tmp_path, links=2, limits=(14400,)), set[int](), FakeEyes.starts

    def seen(self: FakeEyes, *arguments: Any) -> LinkStarts:
        asked.add(arguments[2])
        return starts(self, *arguments)

    monkeypatch.setattr(FakeEyes, "starts", seen)
    assert lab.run() == 0 and asked == {14400}
