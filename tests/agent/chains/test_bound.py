"""The administrator's bound on queued links: its file, and what it leaves to one chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.chains.bound import read_bound
from tests.agent.chains.test_planned import planned, with_waits
from tests.agent.fake_slurm import FakeJob, FakeSlurm
from tests.agent.lab import advance_until
from traces.units import HOUR_S


def test_the_administrators_file_bounds_the_queued_links(tmp_path: Path) -> None:
    lab = with_waits(planned(tmp_path, ask="fixed", limits=()), (2.0, 9.0))
    (tmp_path / "agent.toml").write_text("most_queued_a_chain = 1\n")
    agent = lab.agent()
    advance_until(lab, agent, 9.5)
    assert [how for _, how in lab.links()] == ["RUNNING", "PENDING"]
    assert "queued links, at most: 1 a chain" in lab.journal("note")[0]["text"]
    (tmp_path / "agent.toml").write_text("most_queued_a_chain = many")
    lab.pause(agent.cycle())
    assert any("not TOML" in line for line in lab.log)


class Estimating(FakeSlurm):
    """Shows when it expects a pending job to start, as backfill does."""

    def _field(self, job: FakeJob, name: str) -> str:
        return str(self.now_s + 600) if name == "StartTime" and job.start_s is None else super()._field(job, name)


@pytest.mark.parametrize("kind", [FakeSlurm, Estimating])
def test_the_bound_of_a_user_counts_the_links_of_other_chains(tmp_path: Path, kind: type[FakeSlurm]) -> None:
    lab = planned(tmp_path, kind(), ask="fixed", limits=())
    lab.slurm.waits_s = lambda one: 5 * HOUR_S * one.name.startswith("other")
    (tmp_path / "agent.toml").write_text("most_queued_a_user = 1\n")
    lab.slurm.submit("other-00000000-2.1")
    agent = lab.agent()
    advance_until(lab, agent, 4.0)
    assert lab.links() == [], "it waits until the other chain's link has started"
    advance_until(lab, agent, 5.2)
    assert lab.links() == [("1.1", "RUNNING")]


@pytest.mark.parametrize(
    ("text", "why"),
    [("a = [", "not TOML"), ("queued = 1", "unknown key"), ("most_queued_a_user = 0", "allowed: 1 to"), ("\0", "TOML")],
)
def test_a_wrong_file_of_the_administrator_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(ValueError, match=why) as caught:
        read_bound(tmp_path / "agent.toml")
    assert "\n" not in str(caught.value)


def test_without_a_file_nothing_is_bounded(tmp_path: Path) -> None:
    assert read_bound(tmp_path / "agent.toml").text == "" == read_bound(tmp_path / "no" / "agent.toml").text
