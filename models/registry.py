"""Names of provisioning policies to the functions that make them. An unknown name lists the known ones."""

from __future__ import annotations

from collections.abc import Callable

from models.policies.dqn import DQN
from models.policies.estimates import average_wait, start_estimate
from models.policies.forest import Forest
from models.policies.lightgbm import LightGBMQuantile
from models.policies.policy_gradient import PolicyGradient
from models.policies.reactive import Reactive
from models.policies.xgboost import XGBoostMean
from models.protocol import Policy
from traces.errors import InputError

POLICIES: dict[str, Callable[[], Policy]] = {
    "reactive": Reactive,
    "average-wait": average_wait,
    "start-estimate": start_estimate,
    "forest": Forest,
    "xgboost": XGBoostMean,
    "lightgbm": LightGBMQuantile,
    "dqn": DQN,
    "policy-gradient": PolicyGradient,
}


def make_policy(name: str) -> Policy:
    """The policy of that name. Raises InputError listing the known ones."""
    if name not in POLICIES:
        raise InputError(f"unknown policy {name!r}; known: {', '.join(POLICIES)}")
    return POLICIES[name]()
