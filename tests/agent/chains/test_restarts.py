"""The restart cost that links print: it takes the place of the declared one in plans, and in the work that is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.chains.links import measured_restart_s
from tests.agent.chains.test_keeper import attempt, state_of
from tests.agent.fake_slurm import START_S
from tests.agent.lab import Lab, print_times
from traces.units import HOUR_S


def printing(path: Path, resumed_s: int, **values: object) -> Lab:
    """A lab whose jobs print when they have resumed, and that they saved in 20 s."""
    lab = Lab(path, chain_values={"links": 3, "plan": "auto", "limits": (7200, 14400, 43200), **values})
    print_times(lab, resumed_s, 20)
    return lab


def test_a_measured_restart_cost_takes_the_place_of_the_declared_one(tmp_path: Path) -> None:
    """Links of 2 h start at once, longer ones wait for 40 h. 2 h are not asked for below three restart costs."""
    for resumed_s, limit_s in ((2380, 7200), (2381, 43200)):
        lab = printing(tmp_path / str(resumed_s), resumed_s)
        lab.waits_h = lambda limit_h: 0.0 if limit_h == 2 else 40.0
        assert lab.run() == 0
        first, last = lab.journal("decision")[0], lab.journal("decision")[-1]
        assert first["restart"] == {"declared_s": 600, "measured_s": None} and first["limit_s"] == 7200
        assert last["restart"] == {"declared_s": 600, "measured_s": resumed_s + 20} and last["limit_s"] == limit_s
        assert f"link 2 (job 101): resumed after {resumed_s} s" in [note["text"] for note in lab.journal("note")]


def test_the_longest_limit_stays_a_candidate(tmp_path: Path) -> None:
    lab = printing(tmp_path, 7 * HOUR_S, limits=(), ask="fixed")
    assert lab.run() == 0
    assert [one.limit_s for one in lab.slurm.jobs] == [7200] * 3
    assert lab.journal("decision")[-1]["by"] == "plan"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ([(900, None)], None),  # the first link loads nothing
        ([(900, 40), (None, None)], None),
        ([(900, 40), (300, None)], 340),
        ([(None, None), (300, None)], 300),
        ([(1, 1), (100, 10), (200, 10), (900, 70)], 210),
        ([(0, None), (9999, None), *[(7, None)] * 3, (8, None), (9, None)], 7),  # of the last five
    ],
)
def test_it_is_the_median_of_the_last_links(printed: list[tuple[int | None, int | None]], expected: int | None) -> None:
    attempts = [
        attempt(link, how="TIMEOUT", job_id=str(link), start_s=START_S + link, resumed_s=resumed_s, saved_s=saved_s)
        for link, (resumed_s, saved_s) in enumerate(printed, 1)
    ]
    assert measured_restart_s(state_of(*attempts)) == expected
