"""Conventions by which provisioning policies are compared: `models` computes by them, `reports` words by them.

The ten minutes from which a wait counts as noticed belong to `simulator.metrics`, not here.
"""

from __future__ import annotations

BLOCK_DAYS = 7  # days that are drawn together for an interval, since neighbouring days see the same queue
INDICATIVE_BELOW_BLOCKS = 8  # an interval over fewer blocks is called indicative
NOT_WORSE_H = 0.1  # upper end of the interval of a cost difference up to which a candidate is not worse, hours a pair

# A pair's load is told by its reactive gap, hours: up to 2 light, up to 12 medium, above heavy.
LIGHT_H, MEDIUM_H = 2.0, 12.0
LOADS = ("light", "medium", "heavy")
LOADS_IN_WORDS = f"light up to {LIGHT_H:g} h, medium up to {MEDIUM_H:g} h, heavy above"

OVERLAP_BUDGETS_H = {"0.25": 0.25, "0.5": 0.5, "1": 1.0}  # mean overlap, hours a pair, by its name in results

REACTIVE = "reactive"  # submits when the predecessor ends: what one does without a policy
ORACLE = "oracle"  # knows every future start: a bound for all policies
NEVER_CHOSEN = (ORACLE, REACTIVE)  # what every comparison holds and no reader is offered as a policy
