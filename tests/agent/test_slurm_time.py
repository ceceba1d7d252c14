"""The time at Slurm's controller: what sdiag told is carried on, whatever this machine's clock does."""

from __future__ import annotations

import pytest

from agent.slurm.commands import Commands, SlurmError
from agent.slurm_time import READ_EVERY_S, SlurmTime

SLURM_S = 1_800_000_000.0


class Clocks(Commands):
    """Three clocks that run alike; the test moves this machine's, or takes sdiag away."""

    def __init__(self) -> None:
        super().__init__({})
        self.passed_s, self.wrong_s, self.fails = 0.0, 500.0, ""
        self.told_s: float | None = None  # in place of Slurm's time

    def run(self, *argv: str, **_: object) -> str:
        self.calls[argv[0]] += 1
        if self.fails:
            raise SlurmError(self.fails, "sdiag", "told to fail")
        told_s = SLURM_S + self.passed_s if self.told_s is None else self.told_s
        return f"***\nsdiag output at Sun Nov 22 15:30:37 2026 ({told_s:.0f})\n"

    def time(self) -> SlurmTime:
        return SlurmTime(self, lambda: SLURM_S + self.passed_s + self.wrong_s, lambda: 77.0 + self.passed_s)


def test_sdiag_is_read_once_an_hour_and_carried_on() -> None:
    clocks = Clocks()
    time = clocks.time()
    for clocks.passed_s in range(0, 2 * int(READ_EVERY_S) + 1, 60):
        assert time.check() is None
        assert time.now_s() == SLURM_S + clocks.passed_s
    assert clocks.calls["sdiag"] == 3


@pytest.mark.parametrize("kind", ["away", "refused"])
@pytest.mark.parametrize("jump_s", [7200.0, -7200.0])
def test_a_jump_while_sdiag_does_not_tell_moves_nothing(kind: str, jump_s: float) -> None:
    clocks = Clocks()
    time = clocks.time()
    clocks.passed_s, clocks.wrong_s, clocks.fails = 100.0, 500.0 + jump_s, kind
    found = time.check()
    assert found is not None and f"jumped by {jump_s:+.0f} s" in found
    assert time.now_s() == SLURM_S + 100
    clocks.passed_s = 160.0
    assert time.check() is None and time.now_s() == SLURM_S + 160
    assert clocks.calls["sdiag"] == (3 if kind == "away" else 2)
    clocks.fails = ""
    clocks.passed_s = 220.0
    time.check()
    assert clocks.calls["sdiag"] == (4 if kind == "away" else 2) and time.now_s() == SLURM_S + 220


def test_a_slurm_that_was_away_at_the_start_is_asked_until_it_tells() -> None:
    clocks = Clocks()
    clocks.fails = "away"
    time = clocks.time()
    assert time.now_s() == SLURM_S + 500
    clocks.passed_s = 60.0
    assert time.check() is None and time.now_s() == SLURM_S + 560
    clocks.fails, clocks.passed_s = "", 120.0
    assert time.check() is None and time.now_s() == SLURM_S + 120
    clocks.passed_s = 180.0
    time.check()
    assert clocks.calls["sdiag"] == 3


def test_without_sdiag_this_machines_clock_stands_in() -> None:
    clocks = Clocks()
    clocks.fails = "refused"
    time = clocks.time()
    clocks.passed_s = 600.0
    assert time.check() is None and time.now_s() == SLURM_S + 1100
    assert clocks.calls["sdiag"] == 1


@pytest.mark.parametrize("told_s", [0, 999_999_999_999])
@pytest.mark.parametrize("cycle_s", [10.0, 60.0])
def test_a_first_answer_far_from_this_machines_clock_is_not_used(told_s: float, cycle_s: float) -> None:
    clocks = Clocks()
    clocks.told_s = told_s
    time = clocks.time()
    assert time.now_s() == SLURM_S + 500
    said = [time.check()]
    for clocks.passed_s in (cycle_s, 2 * cycle_s, 3 * cycle_s):
        said.append(time.check())
        assert time.now_s() == SLURM_S + 500 + clocks.passed_s
    assert "it is not used unless sdiag confirms it" in (said[0] or "") and said[1:] == [None, None, None]
    clocks.told_s = None
    clocks.passed_s += cycle_s
    assert time.check() is None and time.now_s() == SLURM_S + clocks.passed_s


@pytest.mark.parametrize("off_s", [-3600.0, 3600.0])
def test_an_answer_that_is_an_hour_off_counts_only_if_the_next_one_confirms_it(off_s: float) -> None:
    clocks = Clocks()
    time = clocks.time()
    for is_confirmed in (False, True):
        clocks.passed_s += READ_EVERY_S
        clocks.told_s = SLURM_S + clocks.passed_s + off_s
        assert f"{off_s:+.0f} s off" in (time.check() or "")
        assert time.now_s() == SLURM_S + clocks.passed_s
        clocks.passed_s += 60.0
        clocks.told_s = SLURM_S + clocks.passed_s + off_s if is_confirmed else None
        assert time.check() is None
        assert time.now_s() == SLURM_S + clocks.passed_s + (off_s if is_confirmed else 0)


def test_a_machine_that_slept_takes_slurms_time_at_once() -> None:
    """The monotonic clock stood still, and this machine's clock did not."""
    clocks = Clocks()
    time = SlurmTime(clocks, lambda: SLURM_S + clocks.passed_s, lambda: 77.0)
    clocks.passed_s = 7200.0
    assert "jumped by +7200 s" in (time.check() or "") and time.now_s() == SLURM_S + 7200
