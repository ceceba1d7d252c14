"""The rule that a network imitates first: for each cost weight, the one without learning that loses least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from features.conventions import interruption_h, overlap_h
from models.provisioning.batched_pairs import rewards
from models.provisioning.policies.estimates import average_wait, start_by_expected_run_times, start_by_limits
from models.provisioning.policies.simulate_ahead import SimulateAhead
from models.provisioning.protocol import PairTable
from models.provisioning.stopping import stopping_rows


def best_rules(pairs: PairTable, weights: NDArray[np.float64], looks_ahead: bool = False) -> NDArray[np.bool_]:
    """(k, d) decisions of the rule and setting of least mean cost on these pairs, at each of the weights (k,).

    With `looks_ahead` the rule on the pairs' futures is a candidate too.
    """
    kinds = (average_wait, start_by_limits, start_by_expected_run_times, *((SimulateAhead,) if looks_ahead else ()))
    rules = [rule().fit(pairs, 0)[0] for rule in kinds]
    submit = np.concatenate([rule.decisions(pairs.inputs_of(rule)) for rule in rules])
    gap = pairs.gap_h[stopping_rows(pairs, submit)]
    lost_h, doubled_h = interruption_h(gap), overlap_h(gap)
    best = [int(np.argmax(rewards(lost_h, doubled_h, weight).mean(axis=1))) for weight in weights.tolist()]
    return submit[best]
