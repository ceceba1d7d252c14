"""Deep Q-learning on observations and simulated futures: the recipe of `dqn`, with the futures' waits.

The rules that it imitates first include `simulate-ahead`.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.learning.networks import RELATIVE_AHEAD
from models.policies.dqn import DQN


@dataclass
class DQNAhead(DQN):
    """Double DQN with the lower quartile and the median of the futures' waits as additional inputs."""

    name: str = "dqn-ahead"
    inputs: tuple[str, ...] = RELATIVE_AHEAD
    looks_ahead: bool = True
