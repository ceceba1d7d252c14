"""Policy gradient on what is observed and on what simulated futures say: `policy-gradient` with their waits.

The actor begins as the rule on the futures' median wait, and the rules that it imitates first hold `simulate-ahead`.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.learning.networks import RELATIVE_AHEAD
from models.policies.policy_gradient import PolicyGradient


@dataclass
class PolicyGradientAhead(PolicyGradient):
    """Proximal policy optimisation beside the lower quartile and the median of the futures' waits."""

    name: str = "policy-gradient-ahead"
    inputs: tuple[str, ...] = RELATIVE_AHEAD
    looks_ahead: bool = True
