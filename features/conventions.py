"""Conventions by which provisioning policies are compared: `models` computes by them, `reports` words by them.

The ten minutes from which a wait counts as noticed belong to `simulator.metrics`, not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_DAYS = 7  # days that are drawn together for an interval, since neighbouring days see the same queue
INDICATIVE_BELOW_BLOCKS = 8  # an interval over fewer blocks is called indicative
NOT_WORSE_H = 0.1  # upper end of the interval of a cost difference up to which a candidate is not worse, hours a pair

GATE_LEVEL = 0.98  # central share of the gate's interval (bench/bench_gate.py)
# What a window must hold to tell anything: chosen by `bench/bench_gate.py`, with the level of the interval.
GATE_BLOCKS = 4
GATE_LOSING = 20  # pairs on which reactive loses more than LIGHT_H, in GATE_BLOCKS of the blocks at least
# Verdicts on a candidate for release, and what each means in a sentence that begins with its policy.
PASSED, FAILED, CANNOT_TELL, BY_HAND = "passed", "failed", "cannot tell", "by hand"
GATE_SAID = {
    PASSED: "passed the gate",
    FAILED: "did not pass the gate",
    CANNOT_TELL: "could not be told better or worse by the gate",
    BY_HAND: "was promoted by hand",
}

# A pair's load is told by its reactive gap, hours: up to 2 light, up to 12 medium, above heavy.
LIGHT_H, MEDIUM_H = 2.0, 12.0
LOADS = ("light", "medium", "heavy")
LOADS_IN_WORDS = f"light up to {LIGHT_H:g} h, medium up to {MEDIUM_H:g} h, heavy above"

PROMISED_RISKS = (0.05, 0.1, 0.2)  # "interrupted with probability at most so much", for which settings are chosen
OVERLAP_BUDGETS_H = {"0.25": 0.25, "0.5": 0.5, "1": 1.0}  # mean overlap, hours a pair, by its name in results

REACTIVE = "reactive"  # submits when the predecessor ends: what one does without a policy
RULES = (REACTIVE, "average-wait", "start-estimate", "start-expected")  # learn nothing; every comparison holds them
ORACLE = "oracle"  # knows every future start: a bound for all policies
USERS = "users"  # what the users of recorded pairs did themselves, on the pairs with which they went on
FROZEN_AVERAGE = "mirage-average"  # the mean recent wait at the predecessor's start, as the Mirage paper has it
UNTRAINED = "-untrained"  # behind a learner's name: the learner as it was before it learned anything
NEVER_CHOSEN = (ORACLE, REACTIVE, USERS)  # what every comparison holds and no reader is offered as a policy

MOST_NODES = 1_000_000_000  # above any size of a pair
CUT_LIMIT_H = 12  # a recorded pair's first job was cut by a limit of at least so many hours
# Which pairs are measured together: the column `size`.
ALL_SIZES = "all"  # pairs of every size together, where one table holds many
RECORDED_SIZES = (("1", 1, 1), ("2-4", 2, 4), ("5-16", 5, 16), ("17-up", 17, None))  # name, nodes from, nodes to

POOLED_WINDOWS = 3  # windows, at least, over which a difference is pooled before one policy is said to beat another


def interruption_h(gap_h: Any) -> NDArray[np.float64]:
    """Hours without service of gaps (start of the successor minus end of the predecessor, h): the gap if positive."""
    lost_h: NDArray[np.float64] = np.maximum(gap_h, 0.0)
    return lost_h


def overlap_h(gap_h: Any) -> NDArray[np.float64]:
    """Hours in which both jobs hold nodes, of gaps in hours: minus the gap if negative."""
    doubled_h: NDArray[np.float64] = np.maximum(-gap_h, 0.0)
    return doubled_h


def is_offered(policy: str) -> bool:
    """Whether a reader is offered it as a policy: the bounds, the yardsticks and the untrained learners are not."""
    return policy not in (*NEVER_CHOSEN, FROZEN_AVERAGE) and not policy.endswith(UNTRAINED)


def size_rank(size: str) -> int:
    """Where a size stands among others: by its fewest nodes, all sizes together behind them."""
    return MOST_NODES if size == ALL_SIZES else int(size.partition("-")[0])


def judged_sizes(sizes: Iterable[str]) -> list[str]:
    """The sizes whose figures are averaged where one figure is wanted.

    That is all sizes together where the table has them so, else each of them.
    """
    known = sorted(set(sizes), key=size_rank)
    return [ALL_SIZES] if ALL_SIZES in known else known
