"""The registry of provisioning policies: each name with the function that makes the policy.

An unknown name raises an error that lists the known ones. A policy's module is imported only when the policy is made,
so looking up a name is cheap. Places are written in full, "module:name", so that `traces.cache.closure` can follow them
without importing anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from traces.errors import InputError

if TYPE_CHECKING:
    from models.provisioning.protocol import Policy


@dataclass(frozen=True)
class PolicyFactory:
    """Makes a policy. `place` is its "module:name", imported at the call."""

    place: str

    def __call__(self) -> Policy:
        """Make a new policy."""
        module, _, name = self.place.partition(":")
        policy: Policy = getattr(import_module(module), name)()
        return policy


POLICIES: dict[str, PolicyFactory] = {
    "reactive": PolicyFactory("models.provisioning.policies.reactive:Reactive"),
    "average-wait": PolicyFactory("models.provisioning.policies.estimates:average_wait"),
    "start-estimate": PolicyFactory("models.provisioning.policies.estimates:start_estimate"),
    "start-expected": PolicyFactory("models.provisioning.policies.estimates:start_expected"),
    "forest": PolicyFactory("models.provisioning.policies.forest:RandomForest"),
    "xgboost": PolicyFactory("models.provisioning.policies.xgboost:XGBoostMean"),
    "lightgbm": PolicyFactory("models.provisioning.policies.lightgbm:LightGBMQuantile"),
    "fitted-q": PolicyFactory("models.provisioning.policies.fitted_q:FittedQ"),
    "dqn": PolicyFactory("models.provisioning.policies.dqn:DQN"),
    "policy-gradient": PolicyFactory("models.provisioning.policies.policy_gradient:PolicyGradient"),
}
# Policies that look at simulated futures: of recorded pairs alone, and only where they are asked for by name.
LOOKING_AHEAD: dict[str, PolicyFactory] = {
    "simulate-ahead": PolicyFactory("models.provisioning.policies.simulate_ahead:SimulateAhead"),
    "xgboost-ahead": PolicyFactory("models.provisioning.policies.xgboost:xgboost_ahead"),
    "fitted-q-ahead": PolicyFactory("models.provisioning.policies.fitted_q:fitted_q_ahead"),
    "dqn-ahead": PolicyFactory("models.provisioning.policies.dqn:dqn_ahead"),
    "policy-gradient-ahead": PolicyFactory("models.provisioning.policies.policy_gradient:policy_gradient_ahead"),
}


def every_policy() -> list[str]:
    """The names from the simplest policy to the most involved, without those that look ahead."""
    return list(POLICIES)


def check_policy(name: str) -> None:
    """Raise InputError, listing the known names, if the registry does not have this one."""
    if name not in POLICIES and name not in LOOKING_AHEAD:
        raise InputError(f"unknown policy {name!r}; known: {', '.join((*POLICIES, *LOOKING_AHEAD))}")


def make_policy(name: str) -> Policy:
    """Make the policy of that name. Raises InputError, listing the known names, for an unknown one."""
    check_policy(name)
    return _named(name)()


def module_of(name: str) -> str:
    """Dotted name of the module that makes the policy. Raises InputError, listing the known names, for others."""
    check_policy(name)
    return _named(name).place.partition(":")[0]


def looks_ahead(name: str) -> bool:
    """Whether the policy also decides on simulated futures."""
    return name in LOOKING_AHEAD


def _named(name: str) -> PolicyFactory:
    return LOOKING_AHEAD[name] if name in LOOKING_AHEAD else POLICIES[name]
