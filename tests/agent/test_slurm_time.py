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

    def run(self, *argv: str, **_: object) -> str:
        self.calls[argv[0]] += 1
        if self.fails:
            raise SlurmError(self.fails, "sdiag", "told to fail")
        return f"***\nsdiag output at Sun Nov 22 15:30:37 2026 ({SLURM_S + self.passed_s:.0f})\n"

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
    told = time.check()
    assert told is not None and f"jumped by {jump_s:+.0f} s" in told
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
