"""Policy gradient on observations and simulated futures: the recipe of `policy-gradient`, with the futures' waits.

The actor begins as the rule on the futures' median wait. The rules that it imitates first include `simulate-ahead`.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.learning.networks import RELATIVE_AHEAD
from models.policies.policy_gradient import PolicyGradient


@dataclass
class PolicyGradientAhead(PolicyGradient):
    """Proximal policy optimisation with the lower quartile and the median of the futures' waits as inputs."""

    name: str = "policy-gradient-ahead"
    inputs: tuple[str, ...] = RELATIVE_AHEAD
    looks_ahead: bool = True
