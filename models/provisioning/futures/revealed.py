"""The parts of the truth that futures may use. Kept separate from the code that compiles, so importing it is cheap."""

from __future__ import annotations

from typing import NamedTuple


class RevealedTruth(NamedTuple):
    """The parts of the truth that futures may use, to measure the value of knowing each; by default none."""

    run_times: bool = False
    arrivals: bool = False
    holds: bool = False  # when held jobs are released


NOTHING = RevealedTruth()
