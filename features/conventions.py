"""Conventions for comparing provisioning policies, shared by `models` (computation) and `reports` (wording).

The ten minutes from which a wait counts as noticed are defined in `simulator.metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_DAYS = 7  # block length of the bootstrap, because neighbouring days share the same queue
INDICATIVE_BELOW_BLOCKS = 8  # an interval over fewer blocks is called indicative
NOT_WORSE_H = 0.1  # largest upper interval end of a cost difference of a candidate that is not worse, h per pair

GATE_LEVEL = 0.98  # central share of the gate's interval (bench/bench_gate.py)
# Minimum contents of a window for a verdict; `bench/bench_gate.py` chose these and the level of the interval.
GATE_BLOCKS = 4
GATE_LOSING = 20  # pairs on which reactive loses more than LIGHT_H, spread over at least GATE_BLOCKS blocks
# Verdicts on a release candidate, and their wording in a sentence whose subject is the policy.
PASSED, FAILED, CANNOT_TELL, BY_HAND = "passed", "failed", "cannot tell", "by hand"
GATE_SAID = {
    PASSED: "passed the gate",
    FAILED: "did not pass the gate",
    CANNOT_TELL: "could not be judged better or worse by the gate",
    BY_HAND: "was promoted by hand",
}

# A pair's load follows from its reactive gap, h: up to 2 is light, up to 12 medium, above heavy.
LIGHT_H, MEDIUM_H = 2.0, 12.0
LOADS = ("light", "medium", "heavy")
LOADS_IN_WORDS = f"light up to {LIGHT_H:g} h, medium up to {MEDIUM_H:g} h, heavy above"

PROMISED_RISKS = (0.05, 0.1, 0.2)  # interruption probabilities for which settings are promised
OVERLAP_BUDGETS_H = {"0.25": 0.25, "0.5": 0.5, "1": 1.0}  # name in results -> mean overlap, h per pair

REACTIVE = "reactive"  # submits when the predecessor ends: the behaviour without a policy
RULES = (REACTIVE, "average-wait", "start-estimate", "start-expected")  # learn nothing; in every comparison
ORACLE = "oracle"  # knows every future start: a bound for all policies
USERS = "users"  # the actual behaviour of users, on the recorded pairs that they continued
FROZEN_AVERAGE = "mirage-average"  # the mean recent wait at the predecessor's start, as in the Mirage paper
UNTRAINED = "-untrained"  # suffix of a learner's name: the learner before training
NEVER_CHOSEN = (ORACLE, REACTIVE, USERS)  # included in every comparison, but never offered as a policy

MOST_NODES = 1_000_000_000  # above any size of a pair
CUT_LIMIT_H = 12  # minimum limit, h, that cut the first job of a recorded pair
# Groups of pairs that are measured together: the column `size`.
ALL_SIZES = "all"  # pairs of every size together, where one table holds several sizes
RECORDED_SIZES = (("1", 1, 1), ("2-4", 2, 4), ("5-16", 5, 16), ("17-up", 17, None))  # name, nodes from, nodes to

POOLED_WINDOWS = 3  # minimum number of pooled windows for a claim that one policy beats another


def interruption_h(gap_h: Any) -> NDArray[np.float64]:
    """Hours without service of gaps (start of the successor minus end of the predecessor, h): the gap if positive."""
    lost_h: NDArray[np.float64] = np.maximum(gap_h, 0.0)
    return lost_h


def overlap_h(gap_h: Any) -> NDArray[np.float64]:
    """Hours in which both jobs hold nodes, of gaps in hours: minus the gap if negative."""
    doubled_h: NDArray[np.float64] = np.maximum(-gap_h, 0.0)
    return doubled_h


def is_offered(policy: str) -> bool:
    """Return whether readers may choose the policy: bounds, yardsticks and untrained learners are excluded."""
    return policy not in (*NEVER_CHOSEN, FROZEN_AVERAGE) and not policy.endswith(UNTRAINED)


def size_rank(size: str) -> int:
    """Sort key of a size: its fewest nodes; all sizes together come last."""
    return MOST_NODES if size == ALL_SIZES else int(size.partition("-")[0])


def judged_sizes(sizes: Iterable[str]) -> list[str]:
    """List the sizes to average where a single figure is needed.

    That is ALL_SIZES if the table has it, else every size.
    """
    known = sorted(set(sizes), key=size_rank)
    return [ALL_SIZES] if ALL_SIZES in known else known
