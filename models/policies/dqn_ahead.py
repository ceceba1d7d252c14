"""Deep Q-learning on what is observed and on what simulated futures say: the recipe of `dqn` with their waits.

The rules that it imitates first hold `simulate-ahead`.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.learning.networks import RELATIVE_AHEAD
from models.policies.dqn import DQN


@dataclass
class DQNAhead(DQN):
    """Double DQN beside the lower quartile and the median of the futures' waits."""

    name: str = "dqn-ahead"
    inputs: tuple[str, ...] = RELATIVE_AHEAD
    looks_ahead: bool = True
