"""What futures are told of the truth. Apart from what plays them, which compiles: whoever names it need not."""

from __future__ import annotations

from typing import NamedTuple


class Told(NamedTuple):
    """What futures are told of the truth, to say what it is worth to know it; by default nothing."""

    run_times: bool = False
    arrivals: bool = False
    holds: bool = False  # when held jobs are released


NOTHING = Told()
