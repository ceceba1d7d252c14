"""The handovers of a chain: which run takes over from which, and what the journal has when that changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.chains.journal import handovers, journal_events
from agent.chains.state import ChainState, LinkAttempt
from tests.agent.fake_slurm import FakeSlurm
from tests.agent.fake_slurm import Plan as Ends
from tests.agent.lab import Lab, plans
from traces.units import HOUR_S


def chain(*times_h: tuple[float, float], running: int = 0) -> ChainState:
    """A chain of runs by their start and end, one a link; link `running` has not ended."""
    runs = [
        LinkAttempt(
            link, 1, f"c-1-{link}.1", 0, job_id=str(link), start_s=round(HOUR_S * start_h),
            end_s=round(HOUR_S * end_h), how="" if link == running else "TIMEOUT",
        )
        for link, (start_h, end_h) in enumerate(times_h, 1)
    ]  # fmt: skip
    return ChainState("1", "c", "script", 9, tuple(runs))


def gaps(state: ChainState) -> list[tuple[int, int, float, float]]:
    return [
        (one["link"], one["next_link"], one["interruption_h"], one["overlap_h"]) for one in handovers(state).values()
    ]


def test_a_handover_is_from_the_run_that_ended_last() -> None:
    """Two links start in one second, an hour after the first has ended; the later one is ended after 15 min."""
    runs = ((0, 12), (13, 24), (13, 13.25), (23, 35))
    assert gaps(chain(*runs, running=4)) == [(1, 2, 1.0, 0.0), (2, 3, 0.0, 0.25), (2, 4, 0.0, 1.0)]
    assert gaps(chain(*runs, running=2)) == [(1, 2, 1.0, 0.0)], "the end of the second link is not known yet"


def test_a_handover_is_written_again_if_its_gap_has_changed() -> None:
    """Slurm requeues the second link and starts it again between two looks."""
    before = chain((0, 12), (13, 24), running=2)
    later = replace(before.attempts[1], start_s=15 * HOUR_S, end_s=26 * HOUR_S)
    after = replace(before, attempts=(before.attempts[0], later))
    written = [event for event in journal_events(before, after) if event["event"] == "handover"]
    assert [event["interruption_h"] for event in written] == [3.0]
    assert not journal_events(after, after)


def test_a_run_that_is_cancelled_at_the_end_of_the_chain_keeps_its_handover(tmp_path: Path) -> None:
    """The first link ends with the work done while the second one has run for half an hour."""
    lab = Lab(tmp_path, FakeSlurm(plan=plans(link_1=Ends(7000))), {"setting": 0.5})
    assert lab.run() == 0 and [how for _, how in lab.links()] == ["COMPLETED", "CANCELLED"]
    written = lab.journal("handover")
    assert [one["overlap_h"] for one in written] == [one["overlap_h"] for one in handovers(lab.state).values()]
    assert written[0]["overlap_h"] > 0.4
